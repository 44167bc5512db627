"""torch_npu.contrib.module.focus, by AnyCANN."""

from anycann.adapters.torch.contrib.layers import Focus

__all__ = ["Focus"]
