"""torch_npu.contrib.module.npu_modules, by AnyCANN."""

from anycann.adapters.torch.contrib.layers import DropoutWithByteMask

__all__ = ["DropoutWithByteMask"]
