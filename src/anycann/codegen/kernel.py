"""A generated kernel: its text and what a caller must know to launch it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RowTasks:
    """How tasks lie along the rows of an image: task (outer * rows + row) * inner + i computes a part of `row`, for every outer and i.

    Row r needs rows r * stride + first to r * stride + last of argument 0, as far as these are among its `in_rows`; of other values that
    are computed it reads row r.
    """

    outer: int
    rows: int
    inner: int
    in_rows: int
    stride: int = 1
    first: int = 0
    last: int = 0


@dataclass(frozen=True)
class Kernel:
    """`symbol(args, begin, end, scratch)` with `args` in the order of `arguments` (names of tensors: inputs, then outputs).

    tasks: extent of the parallel range. scratch_bytes: memory each thread needs. flops: arithmetic of one launch. rows: where tasks are
    parts of rows.
    """

    symbol: str
    ir: str
    arguments: tuple[str, ...]
    tasks: int
    scratch_bytes: int = 0
    flops: int = 0
    rows: RowTasks | None = None
