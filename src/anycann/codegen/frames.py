"""Frames between a process and its workers: a length (8 bytes, little endian) and that many bytes."""

from __future__ import annotations

import struct
from typing import IO

_LENGTH = struct.Struct("<Q")


def write_frame(stream: IO[bytes], data: bytes) -> None:
    """One frame, flushed."""
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """The next frame; None at the end of the stream, also in the middle of a frame (the other side was killed)."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (nbytes,) = _LENGTH.unpack(head)
    data = stream.read(nbytes)
    return data if len(data) == nbytes else None
