"""Events, streams and printing in graphs."""

from anycann.adapters.torch.torchair.ops import (
    npu_create_tagged_event,
    npu_fused_infer_attention_score,
    npu_fused_infer_attention_score_v2,
    npu_print,
    npu_record_tagged_stream,
    npu_tagged_event_record,
    npu_tagged_event_wait,
    record,
    wait,
)

__all__ = [
    "npu_create_tagged_event",
    "npu_fused_infer_attention_score",
    "npu_fused_infer_attention_score_v2",
    "npu_print",
    "npu_record_tagged_stream",
    "npu_tagged_event_record",
    "npu_tagged_event_wait",
    "record",
    "wait",
]
