"""torch_npu.contrib.module.linear_quant, by AnyCANN."""

from anycann.adapters.torch.contrib.quantised import LinearQuant

__all__ = ["LinearQuant"]
