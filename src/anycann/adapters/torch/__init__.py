"""The plug-in of PyTorch: everything that `torch_npu`, `torchair`, `apex` and `hccl` are here. Nothing of it is imported with anycann."""

import torch as torch  # first: it imports the plug-in as a whole (autoload.py), which must not be in the middle of one of its modules
