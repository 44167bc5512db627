"""Constants of a session that compiles while it runs: one address range that grows, so that all its programs share weights."""

from __future__ import annotations

import mmap
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from anycann.om.constants import ALIGNMENT_BYTES, SLACK_BYTES
from anycann.om.contents import Contents
from anycann.om.model import Bytes
from anycann.om.plan import Buffer
from anycann.support.errors import DeviceError, InternalError
from anycann.support.mapped import HUGE_PAGE_BYTES, forget_pages, want_huge_pages

RESERVED_BYTES = 1 << 36  # address space only; memory is taken page by page as constants arrive
_SMALLEST_RESERVE = 1 << 28
_PIECE_BYTES = 1 << 22


class GrowingConstants:
    """Holds arrays by content, each once, at addresses that never move. Safe to use from several threads."""

    def __init__(self, reserve_bytes: int = RESERVED_BYTES) -> None:
        self._memory = _reserve(reserve_bytes)
        want_huge_pages(self._memory, HUGE_PAGE_BYTES)  # a small model keeps to small ones
        self.block: Bytes = np.frombuffer(self._memory, np.uint8)
        block = self.block  # and not self, which holds what asks
        self._contents = Contents(lambda buffer: block[buffer.offset_bytes : buffer.offset_bytes + buffer.nbytes])
        self._end = 0
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes in use."""
        return self._end

    def add(self, array: npt.NDArray[Any]) -> Buffer:
        """Copy the elements in row-major order; equal content is there once. Raises DeviceError when the range is full."""
        if array.dtype.hasobject or array.dtype.kind in "USO":
            raise InternalError(f"an array of {array.dtype} cannot be a constant of native code")
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
        with self._lock:
            return self._contents.find(content) or self._append(content)

    def _append(self, content: Bytes) -> Buffer:
        offset, end = self._end, self._end + content.nbytes + SLACK_BYTES
        if end > self.block.nbytes:
            raise DeviceError(f"the constants of this model need more than the {self.block.nbytes} bytes of addresses reserved for them")
        buffer = Buffer("constants", offset, content.nbytes)
        self._contents.note(content, buffer)
        for start in range(0, content.nbytes, _PIECE_BYTES):
            piece = content[start : start + _PIECE_BYTES]
            self.block[offset + start : offset + start + piece.nbytes] = piece
            forget_pages(piece)  # of the model's file: a large weight is not there twice
        self._end = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return buffer


def _reserve(nbytes: int) -> mmap.mmap:
    """Anonymous memory without swap reservation; smaller where the system refuses a large range."""
    while True:
        try:
            return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000))
        except OSError as error:
            nbytes //= 4
            if nbytes < _SMALLEST_RESERVE:
                raise DeviceError(f"no address space for the constants of a model: {error}") from error
