"""Memory that kernels may use: aligned to 64 bytes, with 64 bytes after its end that a vector load may touch."""

from __future__ import annotations

import ctypes
from functools import cache
import math
import mmap

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from anycann.support.errors import DeviceError
from anycann.support.mapped import HUGE_PAGE_BYTES, want_huge_pages

ALIGNMENT = 64
SLACK_BYTES = 64
PAGE_BYTES = 4096
SMALL_BYTES = 4096  # an output of this size is written faster than an aligned place is found for it
POISON = 0xFF  # as a float16, bfloat16, float32 or float64 it is a NaN, as an integer -1

Bytes = NDArray[np.uint8]


def allocate(nbytes: int) -> Bytes:
    """`nbytes` aligned bytes of any content with slack behind them; large ones in huge pages where the system has them.

    The memory is private to the process: after `fork` the child has a copy. Raises DeviceError if there is not so much.
    """
    if nbytes > HUGE_PAGE_BYTES:
        return _map(nbytes)
    raw, start = _room(nbytes)
    return raw[start : start + max(nbytes, 1)][:nbytes]  # numpy would leave an empty slice at the start of `raw`


def _room(nbytes: int) -> tuple[Bytes, int]:
    """Memory from numpy, and where in it `nbytes` aligned bytes with slack begin."""
    try:
        raw = np.empty(nbytes + ALIGNMENT + SLACK_BYTES, np.uint8)
    except (MemoryError, ValueError) as error:
        raise _too_large(nbytes, error) from error
    return raw, -address(raw) % ALIGNMENT


def _too_large(nbytes: int, error: Exception) -> DeviceError:
    return DeviceError(f"{nbytes} bytes of memory cannot be allocated: {error}")


def allocate_pages(nbytes: int) -> Bytes:
    """As `allocate`, at the start of pages that hold nothing else, so that other processes can be given them."""
    if nbytes > HUGE_PAGE_BYTES:
        return allocate(nbytes)
    whole = allocate(-(-max(nbytes, 1) // PAGE_BYTES) * PAGE_BYTES + PAGE_BYTES - ALIGNMENT)
    start = -address(whole) % PAGE_BYTES
    return whole[start : start + nbytes]


def _map(nbytes: int) -> Bytes:
    try:
        pages = mmap.mmap(-1, nbytes + SLACK_BYTES + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (MemoryError, OSError, OverflowError, ValueError) as error:
        raise _too_large(nbytes, error) from error
    want_huge_pages(pages)
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
    if nbytes > HUGE_PAGE_BYTES:
        return allocate(nbytes).view(dtype).reshape(shape)
    raw, start = _room(nbytes)
    return np.ndarray(shape, dtype, raw, start)


@cache
def numpy_dtype(name: str) -> np.dtype:
    """The dtype called `name`, bfloat16 and the other small floats included; "object" for strings, sequences and None."""
    return np.dtype(getattr(ml_dtypes, name, name))


POINTER_OFFSET = object.__basicsize__  # numpy's C interface: an array begins with Python's head of an object, then the pointer


def address(array: np.ndarray) -> int:
    """Where the elements of `array` begin: `array.ctypes.data` in a tenth of the time."""
    return ctypes.c_size_t.from_address(id(array) + POINTER_OFFSET).value


def overlaps(a: np.ndarray, b: np.ndarray) -> bool:
    """True if the memory ranges of the two arrays meet (arrays that interleave count)."""
    mine, other = owner(a), owner(b)
    if mine.base is None and other.base is None and mine is not other and mine.flags.owndata and other.flags.owndata:
        return False  # memory that numpy took for each of them alone
    return a.size > 0 and b.size > 0 and np.may_share_memory(a, b)


def owner(array: np.ndarray) -> np.ndarray:
    """The array that `array` is a view of, or itself. Its own `base` is None if numpy allocated the memory, and whose it is otherwise."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
