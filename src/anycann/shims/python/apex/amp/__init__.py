"""apex.amp."""

from anycann.adapters.torch.apex.amp import *  # noqa: F403
from anycann.adapters.torch.apex.amp import __all__  # noqa: F401
from anycann.adapters.torch.apex.amp import _state as _amp_state  # noqa: F401
