"""A generated kernel: its text and what a caller must know to launch it."""

from __future__ import annotations

from anycann.support.records import dataclass


@dataclass(frozen=True)
class RowTasks:
    """How tasks lie along rows of images: task ((image * outer + o) * rows + row) * inner + i computes a part of `row`, for every o and i.

    Where there are `first_rows`, those of one image, the tasks of all others follow theirs, in the same order among themselves.
    Row r needs rows r * stride + first to r * stride + last of argument 0, as far as these are among its `in_rows`; of other values that
    are computed it reads row r. `in_rows` is 0 where argument 0 is not read by rows.
    """

    outer: int
    rows: int
    inner: int
    in_rows: int
    stride: int = 1
    first: int = 0
    last: int = 0
    images: int = 1
    first_rows: int = 0

    def reads(self, rows: int) -> int:
        """The most rows of argument 0 that so many rows need."""
        return min(self.in_rows, (rows - 1) * self.stride + self.last - self.first + 1)


@dataclass(frozen=True)
class Kernel:
    """`symbol(args, begin, end, scratch)` with `args` in the order of `arguments` (names of tensors: inputs, then outputs).

    tasks: extent of the parallel range. scratch_bytes: memory each thread needs. flops: arithmetic of one launch. rows: where tasks are
    parts of rows. resumes: it is told that a call goes on where the thread's last one ended (`resuming.py`). begin_bytes: what a call reads
    first that does not go on.
    """

    symbol: str
    ir: str
    arguments: tuple[str, ...]
    tasks: int
    scratch_bytes: int = 0
    flops: int = 0
    rows: RowTasks | None = None
    resumes: bool = False
    begin_bytes: int = 0
