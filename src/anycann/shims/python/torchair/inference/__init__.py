"""Compiled inference."""

from anycann.adapters.torch.torchair.inference import cache_compile, set_dim_gears

__all__ = ["cache_compile", "set_dim_gears"]
