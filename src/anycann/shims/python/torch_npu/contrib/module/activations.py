"""torch_npu.contrib.module.activations, by AnyCANN."""

from anycann.adapters.torch.contrib.layers import Mish, SiLU, Swish

__all__ = ["Mish", "SiLU", "Swish"]
