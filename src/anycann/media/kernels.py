"""Native loops, compiled when they are first used."""

from __future__ import annotations

from collections.abc import Callable, Hashable
import ctypes
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anycann.codegen.kernel_cache import compile_kernels
from anycann.runtime.loader import LoadedCode
from anycann.runtime.memory import address
from anycann.target.target import Target, host

Words = NDArray[np.int64]
_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class Loop(Hashable, Protocol):
    """A native function `void(ptr words, i64 begin, i64 end, ptr)`, which says in words what it is told."""

    def ir(self, target: Target) -> tuple[str, str]:
        """(symbol, module text)."""


def run(loop: Loop, words: Words, count: int) -> None:
    """Let the function do rows (or whatever it counts) 0 to `count`. The interpreter's lock is free meanwhile."""
    _compiled(loop)[0](address(words), 0, count, None)


@lru_cache(maxsize=64)
def _compiled(loop: Loop) -> tuple[Callable[[int, int, int, None], None], LoadedCode]:
    """The function for this processor (or the one that ANYCANN_TARGET names when it is first called), and what keeps it alive."""
    target = host()
    symbol, text = loop.ir(target)
    code = LoadedCode(compile_kernels({symbol: text}, target), target)
    return _FUNCTION(code.address(symbol)), code
