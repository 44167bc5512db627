"""Weights as one block of bytes: each content once, 64-byte aligned, with room after it that kernels may read beyond the end."""

from __future__ import annotations

from collections.abc import Iterator
import mmap
import os
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt

from anycann.om.contents import Contents
from anycann.om.model import Bytes
from anycann.om.plan import Buffer
from anycann.support.errors import InternalError
from anycann.support.files import file_error
from anycann.support.records import dataclass

ALIGNMENT_BYTES = 64
SLACK_BYTES = 64
PIECE_BYTES = 16 * 1024 * 1024


@dataclass
class _Piece:
    """The content at an offset; `content` is given up when it has been copied."""

    offset: int
    content: Bytes


class ConstantPool:
    """Collects constant arrays and says where each will lie.

    Arrays are kept by reference, not copied, and must not change afterwards; memory-mapped ones stay mapped. With `spill_folder`,
    arrays of at least `spill_bytes` go to an unnamed temporary file there at once, so that packed weights need no memory until used.
    """

    def __init__(self, spill_folder: str | os.PathLike[str] | None = None, spill_bytes: int = 1 << 20) -> None:
        self._pieces: dict[int, _Piece] = {}  # by offset, in its order
        self._contents = Contents(lambda buffer: self._pieces[buffer.offset_bytes].content)
        self._end = 0
        self._spill_folder = spill_folder
        self._spill_bytes = spill_bytes
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
        position = 0
        for piece in self._pieces.values():
            yield memoryview(bytes(piece.offset - position))
            for start in range(0, piece.content.nbytes, PIECE_BYTES):
                yield piece.content[start : start + PIECE_BYTES].data
            position = piece.offset + piece.content.nbytes
        yield memoryview(bytes(self._end - position))

    def finish(self) -> Bytes:
        """The block as one writable uint8 array, 64-byte aligned. Each array is let go once it is copied; the pool is of no use after."""
        self._check_unfinished()
        self._finished = True
        block = aligned_empty(self._end)
        position = 0
        for piece in self._pieces.values():
            end = piece.offset + piece.content.nbytes
            block[position : piece.offset] = 0
            block[piece.offset : end] = piece.content
            position, piece.content = end, _NOTHING
        block[position:] = 0
        self._pieces.clear()
        return block

    def _check_unfinished(self) -> None:
        if self._finished:
            raise InternalError("the content of a constant pool is asked for after it was handed over by finish()")

    def _append(self, content: Bytes) -> Buffer:
        if self._spill_folder is not None and content.nbytes >= max(1, self._spill_bytes):
            content = _spilled(content, self._spill_folder)
        buffer = Buffer("constants", self._end, content.nbytes)
        self._pieces[self._end] = _Piece(self._end, content)
        self._contents.note(content, buffer)
        self._end = _aligned(self._end + content.nbytes + SLACK_BYTES)
        return buffer


_NOTHING: Bytes = np.empty(0, np.uint8)


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
        return _NOTHING
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _spilled(content: Bytes, folder: str | os.PathLike[str]) -> Bytes:
    """The same bytes, mapped from a temporary file that has no name and goes with the mapping."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(content.data)
            file.flush()
            mapped = mmap.mmap(file.fileno(), content.nbytes, access=mmap.ACCESS_READ)
    except OSError as error:
        raise file_error(folder, "keep constants in", error) from error
    return np.frombuffer(mapped, np.uint8)
