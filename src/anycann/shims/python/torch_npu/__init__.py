"""`import torch_npu`: the device npu for PyTorch, by AnyCANN."""

import sys

from anycann.adapters.torch.plugin import install

install(sys.modules[__name__])

from torch_npu import contrib, utils  # noqa: E402, F401 - programs use them without importing them
