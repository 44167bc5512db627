"""Memory that kernels may use: aligned to 64 bytes, with 64 bytes after its end that a vector load may touch."""

from __future__ import annotations

from contextlib import suppress
import ctypes
import math
import mmap

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from anycann.support.errors import DeviceError

ALIGNMENT = 64
SLACK_BYTES = 64
HUGE_PAGE_BYTES = 2 << 20
SMALL_BYTES = 4096  # an output of this size is written faster than an aligned place is found for it
POISON = 0xFF  # as a float16, bfloat16, float32 or float64 it is a NaN, as an integer -1

Bytes = NDArray[np.uint8]


def allocate(nbytes: int) -> Bytes:
    """`nbytes` aligned bytes of any content with slack behind them; large ones in huge pages where the system has them.

    The memory is private to the process: after `fork` the child has a copy. Raises DeviceError if there is not so much.
    """
    try:
        if nbytes > HUGE_PAGE_BYTES:
            return _map(nbytes)
        raw = np.empty(nbytes + ALIGNMENT + SLACK_BYTES, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
    except (MemoryError, OSError, OverflowError, ValueError) as error:
        raise DeviceError(f"{nbytes} bytes of memory cannot be allocated: {error}") from error
    return raw[start : start + max(nbytes, 1)][:nbytes]  # numpy would leave an empty slice at the start of `raw`


def _map(nbytes: int) -> Bytes:
    pages = mmap.mmap(-1, nbytes + SLACK_BYTES + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages: small ones do
            pages.madvise(mmap.MADV_HUGEPAGE)
    raw = np.frombuffer(pages, np.uint8)
    start = -raw.ctypes.data % HUGE_PAGE_BYTES
    return raw[start : start + nbytes]


def aligned_copy(data: Bytes) -> Bytes:
    """The same bytes in aligned memory with slack."""
    copy = allocate(data.nbytes)
    copy[:] = data
    return copy


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A row-major array of any content for kernels to write whole: aligned and with slack, but for small ones, where that costs more."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes <= SMALL_BYTES:
        return np.empty(shape, dtype)
    return allocate(nbytes).view(dtype).reshape(shape)


def numpy_dtype(name: str) -> np.dtype:
    """The dtype called `name`, bfloat16 and the other small floats included; "object" for strings, sequences and None."""
    return np.dtype(getattr(ml_dtypes, name, name))


def address(array: np.ndarray) -> int:
    """Where the elements of `array` begin: `array.ctypes.data` in a quarter of the time for most arrays."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    except (TypeError, ValueError, BufferError):  # read-only, empty, or of a dtype that Python's buffers do not know
        return array.ctypes.data


def overlaps(a: np.ndarray, b: np.ndarray) -> bool:
    """True if the memory ranges of the two arrays meet (arrays that interleave count)."""
    return a.size > 0 and b.size > 0 and np.may_share_memory(a, b)
