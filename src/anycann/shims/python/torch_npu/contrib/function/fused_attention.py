"""torch_npu.contrib.function.fused_attention, by AnyCANN."""

from anycann.adapters.torch.contrib.functions import npu_fused_attention, npu_fused_attention_with_layernorm

__all__ = ["npu_fused_attention", "npu_fused_attention_with_layernorm"]
