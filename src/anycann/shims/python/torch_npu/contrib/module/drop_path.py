"""torch_npu.contrib.module.drop_path, by AnyCANN."""

from anycann.adapters.torch.contrib.layers import NpuDropPath

__all__ = ["NpuDropPath"]
