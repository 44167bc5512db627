"""apex, by AnyCANN."""

from . import amp, normalization, optimizers, parallel

__all__ = ["amp", "normalization", "optimizers", "parallel"]
