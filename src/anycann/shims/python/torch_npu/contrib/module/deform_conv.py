"""torch_npu.contrib.module.deform_conv, by AnyCANN."""

from anycann.adapters.torch.contrib.layers import DCNv2, ModulatedDeformConv

__all__ = ["DCNv2", "ModulatedDeformConv"]
