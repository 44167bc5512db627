"""numpy's products in one thread while the host computes for a session.

OpenBLAS takes as many threads as there are processors, whatever a session was given, and they wait for each other in loops: where
processors are busy, products of a tenth of a millisecond take tens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import ctypes
from functools import cache
import importlib
import os
import threading
from typing import TypeAlias

# As numpy's own packages name it, with 64 and 32 bits, then distributions.
_NAMES = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads64_", "openblas_{}_num_threads")

Functions: TypeAlias = tuple[Callable[[], int], Callable[[int], object]]


@cache
def _functions() -> Functions | None:
    """OpenBLAS's functions that say and set how many threads it takes; None where numpy has other products."""
    extension = importlib.import_module("numpy.linalg._umath_linalg")
    library = ctypes.PyDLL(extension.__file__)  # finds what that is linked with; calls keep the interpreter's lock
    for name in _NAMES:
        if hasattr(library, name.format("set")) and hasattr(library, name.format("get")):
            return getattr(library, name.format("get")), getattr(library, name.format("set"))
    return None


class _Held:
    """How many runs need one thread at the moment, and what there was before the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.runs, self.before = 0, 1


_held = _Held()


@contextmanager
def one_thread() -> Iterator[None]:
    """numpy's products take one thread, in the whole process, until the last of those that are in here leaves. About 3 us."""
    functions = _functions()
    if functions is None:
        yield
        return
    get, set_ = functions
    with _held.lock:
        if _held.runs == 0:
            _held.before = get()
            set_(1)
        _held.runs += 1
    try:
        yield
    finally:
        with _held.lock:
            _held.runs -= 1
            if _held.runs == 0:
                set_(_held.before)


def _after_fork_in_child() -> None:
    _held.lock = threading.Lock()
    if _held.runs and (functions := _functions()) is not None:
        functions[1](_held.before)
    _held.runs = 0


os.register_at_fork(after_in_child=_after_fork_in_child)
