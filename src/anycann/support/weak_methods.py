"""Methods that are handed to what their owner keeps, and do not keep it in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar
import weakref

from anycann.support.errors import InternalError

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def weakly(method: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """The method as a function that does not keep its owner. Raises InternalError when nobody holds that any more."""
    weak, name = weakref.WeakMethod(method), method.__qualname__

    def call_if_there(*given: Given.args, **named: Given.kwargs) -> Answer:
        found = weak()
        if found is None:
            raise InternalError(f"{name} is asked for by what nobody holds any more")
        return found(*given, **named)

    return call_if_there
