"""torch_npu.contrib.function.bbox_coder, by AnyCANN."""

from anycann.adapters.torch.contrib.functions import (
    npu_bbox_coder_decode_xywh2xyxy,
    npu_bbox_coder_encode_xyxy2xywh,
    npu_bbox_coder_encode_yolo,
)

__all__ = ["npu_bbox_coder_decode_xywh2xyxy", "npu_bbox_coder_encode_xyxy2xywh", "npu_bbox_coder_encode_yolo"]
