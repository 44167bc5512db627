"""The device `npu` of PyTorch: tensors of torch's own C++ class that own host memory, under the dispatch key PrivateUse1.

`aliasing.py` moves a tensor between the keys CPU and PrivateUse1 without copying; `kernels.py` makes an npu kernel of a CPU kernel;
`registration.py` does so for every operator; the other files are what torch asks of a device besides kernels.
"""
