"""apex.normalization."""

from anycann.adapters.torch.apex.normalization import FusedLayerNorm, FusedRMSNorm

__all__ = ["FusedLayerNorm", "FusedRMSNorm"]
