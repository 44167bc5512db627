"""`torch_npu.utils`, by AnyCANN."""

from anycann.adapters.torch.utils import NAMES
from anycann.adapters.torch.utils import named as __getattr__  # noqa: F401

__all__ = list(NAMES)
