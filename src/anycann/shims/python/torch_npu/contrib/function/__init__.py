"""torch_npu.contrib.function, by AnyCANN."""

from anycann.adapters.torch.contrib import FUNCTIONS, functions

# modules named as their functions come first: later imports of them leave the functions in their place
from torch_npu.contrib.function import fuse_add_softmax_dropout, matmul_transpose, roll  # noqa: F401

globals().update({name: getattr(functions, name) for name in FUNCTIONS})
__all__ = list(FUNCTIONS)
