"""`import torch_npu`: the device npu for PyTorch, by AnyCANN."""

from importlib import import_module
import sys

from anycann.adapters.torch.plugin import install

install(sys.modules[__name__])

# Programs use them without importing them. `from torch_npu import ...` would ask the operators for the names, and load them all.
contrib, utils = (import_module(f"torch_npu.{name}") for name in ("contrib", "utils"))
