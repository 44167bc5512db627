"""A kernel that makes rows of an image, and one that reads them: in turns, through a window of a few rows in the thread's scratch memory.

The image as a whole is never there. Rows that two windows need, those around the border between them, are made for each of them.
"""

from __future__ import annotations

from anycann.codegen.bands import call_rows, one_module, row_tasks
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel, RowTasks
from anycann.codegen.values import POINTER, Value

_ALIGNMENT, _SLACK = 64, 64  # bytes; kernels may read so many behind a buffer


def through_window(maker: Kernel, reader: Kernel, rows: int, row_bytes: int, window_bytes: int) -> Kernel:
    """The kernel that computes what `reader` does, `rows` of its rows at a time from what `maker` makes for them.

    The last argument of `maker` is the window (te/layout.py), of `window_bytes`; it is argument 0 of `reader`, which is enough for so many
    rows. A row of it lies `row_bytes` behind the one before. Arguments: those of `maker` and of `reader` in order, without the window.
    """
    e, read = Emitter(), row_tasks(reader)
    args, window, scratch = _arguments(e, maker, reader, window_bytes)
    with e.loop(e.udiv(e.begin, read.rows), e.udiv(e.add(e.end, read.rows - 1), read.rows)) as image:
        before = e.mul(image.index, read.rows)
        low, high = e.smax(e.sub(e.begin, before), e.const(0)), e.smin(e.sub(e.end, before), e.const(read.rows))
        with e.loop(low, high, rows) as part:
            stop = e.smin(e.add(part.index, rows), high)
            first, behind = _needed(e, read, part.index, stop)
            place = e.op(f"getelementptr i8, ptr {window.text}, i64 {e.sub(e.const(0), e.mul(first, row_bytes)).text}", POINTER)
            for slot in (len(maker.arguments) - 1, len(maker.arguments)):
                e.store(place, e.gep(args, slot, POINTER), 8)
            call_rows(e, maker, args, scratch, image.index, first, behind)
            call_rows(e, reader, e.gep(args, len(maker.arguments), POINTER), scratch, image.index, part.index, stop)
    symbol, text = e.finish("window")
    tasks = read.images * read.rows
    return Kernel(
        symbol,
        one_module([maker.ir, reader.ir], text),
        (*maker.arguments[:-1], *reader.arguments[1:]),
        tasks,
        _head_bytes(maker, reader, window_bytes) + max(maker.scratch_bytes, reader.scratch_bytes),
        maker.flops + reader.flops,
        RowTasks(1, tasks, 1, 0),
    )


def _head_bytes(maker: Kernel, reader: Kernel, window_bytes: int) -> int:
    """Of the scratch memory, what is in front of that of the two kernels: the window, and the arguments they are called with."""
    pointers = 8 * (len(maker.arguments) + len(reader.arguments))
    return sum(-(-nbytes // _ALIGNMENT) * _ALIGNMENT for nbytes in (window_bytes + _SLACK, pointers))


def _arguments(e: Emitter, maker: Kernel, reader: Kernel, window_bytes: int) -> tuple[Value, Value, Value]:
    """The arguments of both kernels one behind the other, with room for the window's address; the window; the scratch memory of both."""
    scratch = e.gep(e.scratch, _head_bytes(maker, reader, window_bytes), "i8")
    args = e.gep(e.scratch, -(-(window_bytes + _SLACK) // _ALIGNMENT) * _ALIGNMENT, "i8")
    own = len(maker.arguments) - 1
    for number in range(own + len(reader.arguments) - 1):
        slot = number if number < own else number + 2
        e.store(e.argument(number), e.gep(args, slot, POINTER), 8)
    return args, e.scratch, scratch


def _needed(e: Emitter, read: RowTasks, first: Value, stop: Value) -> tuple[Value, Value]:
    """The rows of the image that rows `first` to `stop` need: the first, and the one behind the last."""
    all_rows = e.const(read.in_rows)
    low = e.smin(e.smax(e.add(e.mul(first, read.stride), read.first), e.const(0)), all_rows)
    high = e.smin(e.add(e.mul(e.sub(stop, 1), read.stride), read.last + 1), all_rows)
    return low, e.smax(low, high)
