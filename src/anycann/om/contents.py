"""Finds constants by content. Nothing is hashed whole: a sample tells most arrays apart, and those it does not are compared."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from anycann.om.model import Bytes
from anycann.om.plan import Buffer

_WINDOWS, _WINDOW_BYTES = 64, 64
_PIECE_BYTES = 1 << 20


class Contents:
    """Buffers by what they hold. `read(buffer)` gives the content of a buffer that was noted."""

    def __init__(self, read: Callable[[Buffer], Bytes]) -> None:
        self._read = read
        self._noted: dict[tuple[int, bytes], list[Buffer]] = {}

    def find(self, content: Bytes) -> Buffer | None:
        """A buffer that holds exactly these bytes, if one was noted."""
        return next((known for known in self._noted.get(_sample(content), ()) if _equal(self._read(known), content)), None)

    def note(self, content: Bytes, buffer: Buffer) -> None:
        """Remember that `buffer` holds `content`, which must not change."""
        self._noted.setdefault(_sample(content), []).append(buffer)


def _sample(content: Bytes) -> tuple[int, bytes]:
    """The size, and the bytes of windows that are spread evenly from the first byte to the last: all of a small array."""
    nbytes = content.nbytes
    if nbytes <= _WINDOWS * _WINDOW_BYTES:
        return nbytes, content.tobytes()
    starts = ((nbytes - _WINDOW_BYTES) * number // (_WINDOWS - 1) for number in range(_WINDOWS))
    return nbytes, b"".join(content[start : start + _WINDOW_BYTES].tobytes() for start in starts)


def _equal(a: Bytes, b: Bytes) -> bool:
    """A piece at a time: the first difference ends it, and no memory is needed for all of them."""
    return a.nbytes == b.nbytes and all(
        np.array_equal(a[start : start + _PIECE_BYTES], b[start : start + _PIECE_BYTES]) for start in range(0, a.nbytes, _PIECE_BYTES)
    )
