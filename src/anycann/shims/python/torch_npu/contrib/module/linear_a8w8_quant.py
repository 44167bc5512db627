"""torch_npu.contrib.module.linear_a8w8_quant, by AnyCANN."""

from anycann.adapters.torch.contrib.quantised import LinearA8W8Quant

__all__ = ["LinearA8W8Quant"]
