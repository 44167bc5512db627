"""torch_npu.contrib.module.multihead_attention, by AnyCANN."""

from anycann.adapters.torch.contrib.quantised import MultiheadAttention

__all__ = ["MultiheadAttention"]
