"""`import torch_npu`: the device npu for PyTorch, by AnyCANN."""

import sys

from anycann.adapters.torch.plugin import install

install(sys.modules[__name__])
