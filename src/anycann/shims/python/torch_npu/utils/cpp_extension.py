"""`from torch_npu.utils.cpp_extension import NpuExtension`."""

from anycann.adapters.torch.utils.extensions import NpuExtension

__all__ = ["NpuExtension"]
