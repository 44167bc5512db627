"""How many npus there are, and which one is current: for each thread its own, as on Ascend, and 0 until it says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
import threading
from typing import Any

import torch

from anycann.support.options import DEVICES, VISIBLE_DEVICES

NAME = "npu"
USUAL_COUNT = 8  # of the servers that training scripts are written for

# Told about each change of the current device: torch's C++ code keeps it too (`virtual_devices.py`).
listeners: list[Callable[[int], None]] = []


class _Current(threading.local):
    index = 0


_current = _Current()


@cache
def machine_count() -> int:
    """The devices of the machine: ANYCANN_DEVICES, or 8, fewer if ASCEND_RT_VISIBLE_DEVICES names fewer."""
    there = (DEVICES.get() if DEVICES.is_set() else None) or USUAL_COUNT
    visible = VISIBLE_DEVICES.get()
    return there if visible is None else min(there, len([word for word in visible.split(",") if word.strip()]))


_limit: int | None = None


def limit_count(most: int) -> None:
    """Offer no more than `most` devices: torch's C++ code could not be told of more."""
    global _limit
    _limit = most


def count() -> int:
    """How many npus there are."""
    return machine_count() if _limit is None else min(machine_count(), _limit)


def current() -> int:
    """The index of this thread's current device."""
    return _current.index


def make_current(index: int) -> None:
    """Make `index`, which exists, the current device of this thread."""
    _current.index = index
    for listener in listeners:
        listener(index)


def index_of(device: Any) -> int:
    """The index that `device` names: None, -1 or a device without an index is the current one.

    Accepts an int, a string, a `torch.device`, an object with an attribute `idx`. Raises ValueError for a device of another kind,
    RuntimeError for one that does not exist.
    """
    if device is None or (isinstance(device, int) and device == -1):
        return current()
    if not isinstance(device, int):
        named = torch.device(device)
        if named.type != NAME:
            raise ValueError(f"Expected an npu device, but got: {named}")
        device = current() if named.index is None else named.index
    return checked(device)


def checked(index: int) -> int:
    """`index`, if there is such a device. Raises RuntimeError otherwise."""
    if not 0 <= index < count():
        raise RuntimeError(f"Invalid NPU device id {index}: there are {count()}, npu:0 to npu:{count() - 1} (ANYCANN_DEVICES)")
    return index
