"""apex.optimizers."""

from anycann.adapters.torch.apex.modules import optimizer as __getattr__

__all__ = ["__getattr__"]
