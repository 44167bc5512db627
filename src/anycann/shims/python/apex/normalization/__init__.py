"""apex.normalization."""

from anycann.adapters.torch.apex.modules import FusedLayerNorm

__all__ = ["FusedLayerNorm"]
