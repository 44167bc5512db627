"""Which processors the calling thread, and threads that it starts from then on, may use."""

from __future__ import annotations

from collections.abc import Sequence
import os
from typing import Any

_at_start = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()  # not every system lets a program choose


def set_thread_affinity(core_range: Sequence[Any] | None = None) -> None:
    """Use the processors first to last of `[first, last]`, or of several such ranges; None means those of the start.

    Raises ValueError for what is no range, OSError for processors that are not there.
    """
    if core_range is None:
        reset_thread_affinity()
        return
    ranges = [core_range] if len(core_range) == 2 and all(isinstance(item, int) for item in core_range) else core_range
    if not ranges or not all(isinstance(item, (list, tuple)) and len(item) == 2 for item in ranges):
        raise ValueError(f"Invalid core range: {core_range}; accepted: [first, last] or a list of those")
    for first, last in ranges:
        if not (isinstance(first, int) and isinstance(last, int) and 0 <= first <= last):
            raise ValueError(f"Invalid core range values: [{first}, {last}]; accepted: 0 <= first <= last")
    _choose({core for first, last in ranges for core in range(first, last + 1)})


def reset_thread_affinity() -> None:
    """Use the processors of the program's start again."""
    _choose(_at_start)


def _choose(cores: set[int]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
