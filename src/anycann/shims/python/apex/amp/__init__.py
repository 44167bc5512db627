"""apex.amp."""

from anycann.adapters.torch.apex.amp import _state as _amp_state
from anycann.adapters.torch.apex.amp import (
    disable_casts,
    float_function,
    half_function,
    init,
    initialize,
    load_state_dict,
    master_params,
    promote_function,
    register_float_function,
    register_half_function,
    register_promote_function,
    scale_loss,
    state_dict,
)

__all__ = [
    "_amp_state",
    "disable_casts",
    "float_function",
    "half_function",
    "init",
    "initialize",
    "load_state_dict",
    "master_params",
    "promote_function",
    "register_float_function",
    "register_half_function",
    "register_promote_function",
    "scale_loss",
    "state_dict",
]
