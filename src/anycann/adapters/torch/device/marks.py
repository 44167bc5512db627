"""`torch.npu.mstx`: marks and ranges that profilers show. They are `torch.profiler` ranges here."""

from __future__ import annotations

from collections.abc import Callable
import functools
import itertools
from typing import Any

import torch

_numbers = itertools.count(1)
_open: dict[int, Any] = {}


class mstx:  # noqa: N801 - Ascend's name
    """Marks, for whichever profiler runs."""

    @staticmethod
    def mark(message: str, stream: Any = None, domain: str = "default") -> None:
        """A moment called `message`."""
        with torch.profiler.record_function(message):
            pass

    @staticmethod
    def range_start(message: str, stream: Any = None, domain: str = "default") -> int:
        """Begin a range and return its number."""
        number = next(_numbers)
        _open[number] = torch.profiler.record_function(message)
        _open[number].__enter__()
        return number

    @staticmethod
    def range_end(range_id: int, domain: str = "default") -> None:
        """End the range that `range_start` began; another number changes nothing."""
        begun = _open.pop(range_id, None)
        if begun is not None:
            begun.__exit__(None, None, None)

    @staticmethod
    def mstx_range(message: str, stream: Any = None, domain: str = "default") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: each call is a range called `message`."""

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def ranged(*args: Any, **keywords: Any) -> Any:
                with torch.profiler.record_function(message):
                    return function(*args, **keywords)

            return ranged

        return decorate
