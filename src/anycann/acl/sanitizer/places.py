"""Lines of the program: whose call this is, without the frames of this package."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import CO_OPTIMIZED
import linecache
import os
from pathlib import Path
import sys
from types import FrameType

from anycann.support.records import dataclass

_OWN = str(Path(__file__).parents[2])  # the package
_THREADS = ("threading.py", "_bootstrap")
_OURS_ALONE = 3  # references to a copy of variables: the frame's, ours, the one that counts; programs that called locals() have more


@dataclass(frozen=True)
class Place:
    """A line of a program."""

    file: str
    line: int
    function: str

    @property
    def source(self) -> str:
        """The text of the line, "" if its file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{_short(self.file)}:{self.line} in {self.function}" + (f": {self.source}" if self.source else "")

    def as_json(self) -> dict[str, object]:
        return {"file": self.file, "line": self.line, "function": self.function, "source": self.source}


def user_place() -> Place | None:
    """The innermost line that is not of this package; None on a thread of ours that no line of the program called."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_own(frame):
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.endswith(_THREADS):
        return None
    return Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def user_values() -> Iterator[object]:
    """What the program's functions that led here have in their variables, and their `self` in its attributes; the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not _is_own(frame):
            known = frame.f_locals
            values = [*known.values(), *getattr(known.get("self"), "__dict__", {}).values()]
            if type(known) is dict and frame.f_code.co_flags & CO_OPTIMIZED and sys.getrefcount(known) <= _OURS_ALONE:
                known.clear()  # before Python 3.13 a function's frame keeps this copy, and with it what the function lets go
            yield from values
        frame = frame.f_back


def called_by_program(depth: int) -> bool:
    """True if the frame `depth` above the caller is not of this package: the call is the program's own, not one inside another."""
    return not _is_own(sys._getframe(depth + 1))


def _short(file: str) -> str:
    """A file below the working folder without it."""
    try:
        below = os.path.relpath(file)
    except (OSError, ValueError):  # the working folder is gone
        return file
    return file if below.startswith(os.pardir) else below


def _is_own(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OWN)
