"""apex.fp16_utils."""

from anycann.adapters.torch.apex.half_networks import *  # noqa: F403
from anycann.adapters.torch.apex.half_networks import __all__ as _functions
from anycann.adapters.torch.apex.half_optimizer import FP16_Optimizer

__all__ = [*_functions, "FP16_Optimizer"]
