"""torch_npu.contrib.function.iou, by AnyCANN."""

from anycann.adapters.torch.contrib.functions import npu_ciou, npu_diou, npu_giou, npu_iou, npu_ptiou

__all__ = ["npu_ciou", "npu_diou", "npu_giou", "npu_iou", "npu_ptiou"]
