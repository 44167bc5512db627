"""Every exception of AnyCANN. The class says who must act; the text says what, where, what was got and what is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class AnyCANNError(Exception):
    """Base class of every error raised on purpose."""

    __notes__: list[str]


class ModelError(AnyCANNError):
    """The model file is wrong or damaged: its author must act."""


class UnsupportedError(AnyCANNError):
    """The model is valid, but asks for something AnyCANN does not do yet."""


class UsageError(AnyCANNError):
    """A call, an option or a feed is wrong: the caller must act."""


class DeviceError(AnyCANNError):
    """The machine cannot do it: memory, disk, permissions."""


class InternalError(AnyCANNError):
    """A fault of AnyCANN itself: please report it with the model."""


@contextmanager
def context(where: str) -> Iterator[None]:
    """Add `where` ("while compiling model.onnx") to any AnyCANNError on its way up, as a note; the text is never replaced."""
    try:
        yield
    except AnyCANNError as error:
        error.__notes__ = [*getattr(error, "__notes__", ()), where]  # add_note() came with Python 3.11
        raise


def describe(error: BaseException) -> str:
    """The text of `error` with the context added on its way up, one sentence a line."""
    notes = getattr(error, "__notes__", ())
    return "\n".join([str(error), *(f"  {note}" for note in notes)])
