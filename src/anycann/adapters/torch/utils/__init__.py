"""What `torch_npu.utils` has for programs, loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# The names of `torch_npu.utils`, each with the file of this package that has it.
NAMES = {
    "npu_combine_tensors": "combined",
    "get_part_combined_tensor": "combined",
    "is_combined_tensor_valid": "combined",
    "FlopsCounter": "flops",
    "set_thread_affinity": "affinity",
    "reset_thread_affinity": "affinity",
    "save_async": "saving",
    "get_cann_version": "environment",
    "set_asd_loss_scale": "silent_faults",
    "register_asd_hook": "silent_faults",
}


def named(name: str) -> Any:
    """The function or class of that name. Raises AttributeError for a name that is not in the table."""
    if name not in NAMES:
        raise AttributeError(f"module 'torch_npu.utils' has no attribute {name!r}; there are: {', '.join(sorted(NAMES))}")
    return getattr(import_module(f"{__name__}.{NAMES[name]}"), name)
