"""Weights as one block of bytes: each content once, 64-byte aligned, with room after it that kernels may read beyond the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from anycann.om.contents import Contents
from anycann.om.model import Bytes
from anycann.om.plan import Buffer
from anycann.support.errors import InternalError
from anycann.support.records import dataclass

ALIGNMENT_BYTES = 64
SLACK_BYTES = 64
PIECE_BYTES = 16 * 1024 * 1024


@dataclass
class Piece:
    """The content of `buffer`; None where it was let go."""

    buffer: Buffer
    content: Bytes | None

    def held(self) -> Bytes:
        """The content, where it was not let go."""
        if self.content is None:
            raise InternalError(f"the constant at {self.buffer.offset_bytes} was let go")
        return self.content


class Outlet(Protocol):
    """Takes each piece of a pool as it comes, and may let go of its content then: `om/ahead.py`."""

    def put(self, piece: Piece) -> None:
        """Take the next piece."""

    def read(self, buffer: Buffer) -> Bytes:
        """The content of a piece that was let go."""


class ConstantPool:
    """Collects constant arrays and says where each will lie.

    Arrays are kept by reference, not copied, and must not change afterwards; memory-mapped ones stay mapped. With an `outlet`, the
    content is asked for there.
    """

    def __init__(self, outlet: Outlet | None = None) -> None:
        self._pieces: dict[int, Piece] = {}  # by offset, in its order
        self._contents = Contents(self._read)
        self._end = 0
        self._outlet = outlet
        self._finished = False

    @property
    def nbytes(self) -> int:
        """Size of the whole block, a multiple of 64."""
        return self._end

    def add(self, array: npt.NDArray[Any]) -> Buffer:
        """The buffer, of the constants that holds the elements of `array` in row-major order, little-endian. Equal content is there once.

        Raises InternalError for elements that are no plain numbers (objects, text) and after `finish`.
        """
        if self._finished:
            raise InternalError("a constant is added to a pool that is finished")
        content = _as_bytes(array)
        return self._contents.find(content) or self._append(content)

    def pieces(self) -> Iterator[memoryview]:
        """The content of the block in order, padding included, at most 16 MiB at a time, without a copy of it."""
        self._check_unfinished()
        end = 0
        for piece in self._pieces.values():
            yield from padded(piece, end)
            end = piece.buffer.offset_bytes + piece.buffer.nbytes
        yield memoryview(bytes(self._end - end))

    def finish(self) -> Bytes:
        """The block as one writable uint8 array, 64-byte aligned. Each array is let go once it is copied; the pool is of no use after."""
        self._check_unfinished()
        self._finished = True
        block = aligned_empty(self._end)
        position = 0
        for piece in self._pieces.values():
            start, end = piece.buffer.offset_bytes, piece.buffer.offset_bytes + piece.buffer.nbytes
            block[position:start] = 0
            block[start:end] = piece.held()
            position, piece.content = end, None
        block[position:] = 0
        self._pieces.clear()
        return block

    def _check_unfinished(self) -> None:
        if self._finished or self._outlet is not None:
            raise InternalError("the content of a constant pool is asked for after it was handed over")

    def _append(self, content: Bytes) -> Buffer:
        buffer = Buffer("constants", self._end, content.nbytes)
        self._pieces[self._end] = piece = Piece(buffer, content)
        self._contents.note(content, buffer)
        self._end = _aligned(self._end + content.nbytes + SLACK_BYTES)
        if self._outlet is not None:
            self._outlet.put(piece)
        return buffer

    def _read(self, buffer: Buffer) -> Bytes:
        piece = self._pieces[buffer.offset_bytes]
        content = piece.content  # as it is now: the outlet's thread may let go of it
        if content is None:
            return piece.held() if self._outlet is None else self._outlet.read(buffer)
        return content


def padded(piece: Piece, end: int) -> Iterator[memoryview]:
    """Zeros from `end`, where the piece before ends, and the content of this one, at most 16 MiB at a time, without a copy of it."""
    yield memoryview(bytes(piece.buffer.offset_bytes - end))
    content = piece.held()
    for start in range(0, content.nbytes, PIECE_BYTES):
        yield content[start : start + PIECE_BYTES].data


def aligned_empty(nbytes: int) -> Bytes:
    """`nbytes` of memory of any content, beginning at a 64-byte border (if there are any)."""
    memory = np.empty(nbytes + ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT_BYTES
    return memory[start : start + nbytes]


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _as_bytes(array: npt.NDArray[Any]) -> Bytes:
    """The elements of `array` as bytes: a view of it where it is in row-major order."""
    if array.dtype.hasobject or array.dtype.kind in "USO":
        raise InternalError(f"an array of {array.dtype} can't be a constant of native code; accepted: numbers and booleans")
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    if not array.size:
        return np.empty(0, np.uint8)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
