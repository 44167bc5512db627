"""apex.parallel.LARC."""

from anycann.adapters.torch.apex.larc import LARC

__all__ = ["LARC"]
