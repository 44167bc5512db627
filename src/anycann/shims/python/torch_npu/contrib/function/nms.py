"""torch_npu.contrib.function.nms, by AnyCANN."""

from anycann.adapters.torch.contrib.functions import npu_batched_multiclass_nms, npu_multiclass_nms

__all__ = ["npu_batched_multiclass_nms", "npu_multiclass_nms"]
