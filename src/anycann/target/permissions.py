"""What a process has to ask its system for before it may use a part of the processor."""

from __future__ import annotations

import ctypes
from functools import lru_cache
import platform
import sys

_ARCH_PRCTL = 158  # the number of the system call on x86-64
_REQUEST_STATE = 0x1023  # ARCH_REQ_XCOMP_PERM: Linux, Documentation/arch/x86/xstate.rst
_TILE_DATA = 18


@lru_cache(maxsize=1)
def permit_matrix_tiles() -> bool:
    """Ask Linux for the matrix tiles (AMX) of the processor, for all threads of this process; False if it refuses or is another system."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        return False
    library = ctypes.CDLL(None, use_errno=True)
    return bool(library.syscall(_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA) == 0)
