"""torch_npu.contrib.module.ps_roi_pooling, by AnyCANN."""

from anycann.adapters.torch.contrib.layers import PSROIPool

__all__ = ["PSROIPool"]
