"""The plug-in of PyTorch: everything that `torch_npu`, `torchair`, `apex` and `hccl` are here. Nothing of it is imported with anycann."""
