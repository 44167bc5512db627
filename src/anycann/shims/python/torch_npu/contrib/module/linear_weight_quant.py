"""torch_npu.contrib.module.linear_weight_quant, by AnyCANN."""

from anycann.adapters.torch.contrib.quantised import LinearWeightQuant

__all__ = ["LinearWeightQuant"]
