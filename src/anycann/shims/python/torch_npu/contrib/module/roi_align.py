"""torch_npu.contrib.module.roi_align, by AnyCANN."""

from anycann.adapters.torch.contrib.layers import ROIAlign

__all__ = ["ROIAlign"]
