"""Constants are most of an offline model: a thread writes them to its file while the rest of the model is still compiled."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
import mmap
import os
import queue
import threading
from typing import BinaryIO

import numpy as np

from anycann.om.constants import ConstantPool, Piece, padded
from anycann.om.format import Section
from anycann.om.model import Bytes, OfflineModel
from anycann.om.plan import Buffer
from anycann.om.writer import check_model, constants_offset, sections_of, write_constants, write_rest
from anycann.support.errors import InternalError
from anycann.support.files import atomic_write, forget_content, start_writing_back
from anycann.support.mapped import HUGE_PAGE_BYTES

LET_GO_BYTES = 64 * 1024  # what is smaller stays in memory: an equal content is found without reading the file
SETTLED_BYTES = 4 * HUGE_PAGE_BYTES  # as many at a time are let go, and on their way to the disk


@contextmanager
def model_ahead(path: str | os.PathLike[str]) -> Iterator[ModelAhead]:
    """A model that is the file `path` when the block ends; nothing is left of it if the block raises.

    Raises as `write_offline_model`, and InternalError where the block does not finish it.
    """
    with atomic_write(path) as file:
        model = ModelAhead(file, path)
        try:
            yield model
        finally:
            model.give_up()
        if not model.is_finished:
            raise InternalError(f"{os.fspath(path)} was not finished")


class ModelAhead:
    """A model for one target in an empty `file`: `pool` takes its constants while it is compiled, `finish` the rest.

    A large constant is let go once it is in the file, so that its memory is there for the next. `replaced`: the file whose place it takes,
    if there is one; its memory is let go first.
    """

    def __init__(self, file: BinaryIO, replaced: str | os.PathLike[str] | None = None) -> None:
        self.pool = ConstantPool(self)
        self.is_finished = False
        self._file, self._replaced = file, replaced
        self._start = constants_offset(codes=1)
        self._waiting: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()
        self._constants: Section | None = None
        self._failure: BaseException | None = None
        self._is_given_up = False
        self._thread = threading.Thread(target=self._write, name="anycann-constants", daemon=True)
        self._thread.start()

    def finish(self, model: OfflineModel) -> None:
        """Write what `model` has beside its constants, which are `pool`. Raises InternalError, and OSError of either part."""
        if model.constants is not self.pool or len(model.code) != 1:
            raise InternalError("the constants that were written ahead are those of another model")
        check_model(model)
        rest = sections_of(model)
        self._end()
        if self._constants is None:
            raise self._failure or InternalError("constants were not written")
        write_rest(self._file, 0, self._constants, rest)
        self.is_finished = True

    def give_up(self) -> None:
        """Write no further constant, if any is left."""
        self._is_given_up = True
        self._end()

    def put(self, piece: Piece) -> None:
        """Write `piece`, which follows those that were put before. Raises what ended writing: compiling on is of no use."""
        if self._failure is not None:
            raise self._failure
        self._waiting.put(piece)

    def read(self, buffer: Buffer) -> Bytes:
        """The content of a piece that was let go, mapped from the file."""
        start = self._start + buffer.offset_bytes
        skipped = start % mmap.ALLOCATIONGRANULARITY
        mapped = mmap.mmap(self._file.fileno(), skipped + buffer.nbytes, offset=start - skipped, access=mmap.ACCESS_READ)
        return np.frombuffer(mapped, np.uint8, offset=skipped)

    def _end(self) -> None:
        self._waiting.put(None)
        self._thread.join()

    def _write(self) -> None:
        try:
            if self._replaced is not None:
                forget_content(self._replaced)
            self._constants = write_constants(self._file, self._contents(), codes=1)
        except BaseException as error:  # raised in the thread that compiles
            self._failure = error

    def _contents(self) -> Iterator[memoryview]:
        """As `ConstantPool.pieces`, each piece when it comes."""
        end, settled, unwritten = 0, 0, deque[Piece]()
        while (piece := self._waiting.get()) is not None and not self._is_given_up:
            yield from padded(piece, end)
            unwritten.append(piece)
            end = _end_of(piece)
            written = (self._start + end) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES  # all blocks of write_constants but the last
            if written - settled >= SETTLED_BYTES:
                self._file.flush()
                start_writing_back(self._file, settled, written)
                _let_go(unwritten, written - self._start)
                settled = written
        if not self._is_given_up:
            yield memoryview(bytes(self.pool.nbytes - end))


def _let_go(pieces: deque[Piece], written: int) -> None:
    """Those of `pieces` that are in the file, of which so many bytes of constants are."""
    while pieces and _end_of(pieces[0]) <= written:
        piece = pieces.popleft()
        if piece.buffer.nbytes >= LET_GO_BYTES:
            piece.content = None


def _end_of(piece: Piece) -> int:
    return piece.buffer.offset_bytes + piece.buffer.nbytes
