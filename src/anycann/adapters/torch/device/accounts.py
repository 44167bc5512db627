"""How much memory each npu holds, as words that generated code writes (`native.py`) and Python reads."""

from __future__ import annotations

import ctypes
from enum import IntEnum

from anycann.adapters.torch.device import devices
from anycann.adapters.torch.device.properties import memory_limit

ACCOUNT_WORDS = 16
_MOST_DEVICES = 128  # of one type, for torch
UNLIMITED = (1 << 63) - 1


class Field(IntEnum):
    """The words of an account. After each quantity come its peak, and the sum of all that was added to it."""

    ALLOCATED = 0  # bytes, rounded up to the granule
    REQUESTED = 3  # bytes as asked for
    BLOCKS = 6
    LIMIT = 9  # bytes; more is refused
    OUT_OF_MEMORY = 10  # how often it was


PEAK, TOTAL = 1, 2  # from a quantity to its peak and its sum

# Memory is freed, and its account written, until the very end of the process: the words are never given back.
ACCOUNTS = (ctypes.c_int64 * (ACCOUNT_WORDS * _MOST_DEVICES))()
ctypes.pythonapi.Py_IncRef(ctypes.py_object(ACCOUNTS))


def read(index: int, word: int) -> int:
    """A word of the account of npu `index`."""
    return ACCOUNTS[index * ACCOUNT_WORDS + word]


def write(index: int, word: int, value: int) -> None:
    """Set a word of the account of npu `index`."""
    ACCOUNTS[index * ACCOUNT_WORDS + word] = value


def add(index: int, word: int, amount: int) -> None:
    """Add to a word of the account of npu `index`."""
    ACCOUNTS[index * ACCOUNT_WORDS + word] += amount


def set_limits() -> None:
    """Give every npu the configured memory."""
    limit = memory_limit()
    for index in range(devices.count()):
        write(index, Field.LIMIT, UNLIMITED if limit is None else limit)
