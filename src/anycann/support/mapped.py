"""Mapped memory: pages as large as the system has them, and giving back those of weights that were read once."""

from __future__ import annotations

from contextlib import suppress
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

HUGE_PAGE_BYTES = 2 << 20


def want_huge_pages(mapping: mmap.mmap, start: int = 0) -> None:
    """Ask for huge pages from byte `start` on, a multiple of the page size; where the system has none, small ones do.

    Weights are read once in each run, each page of them after so many others that its address has to be looked up again.
    """
    if hasattr(mmap, "MADV_HUGEPAGE") and start < len(mapping):
        with suppress(OSError):
            mapping.madvise(mmap.MADV_HUGEPAGE, start)


def forget_pages(array: npt.NDArray[Any]) -> bool:
    """Let go of the memory behind a view of a read-only mapped file; a later read maps it in again. False for any other array."""
    mapping = _mapping(array)
    if mapping is None or not hasattr(mapping, "madvise"):
        return False
    start = array.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
    first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last and array.flags.c_contiguous:
        mapping.madvise(mmap.MADV_DONTNEED, first, last - first)
    return True


def _mapping(array: npt.NDArray[Any]) -> mmap.mmap | None:
    """The mapping an array looks into, if it is read-only: anonymous memory would lose its content."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        return base.obj if base.readonly and isinstance(base.obj, mmap.mmap) else None
    return None
