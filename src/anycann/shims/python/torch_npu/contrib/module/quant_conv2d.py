"""torch_npu.contrib.module.quant_conv2d, by AnyCANN."""

from anycann.adapters.torch.contrib.quantised import QuantConv2d

__all__ = ["QuantConv2d"]
