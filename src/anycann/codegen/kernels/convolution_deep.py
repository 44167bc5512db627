"""All pixels of an image for a few channel blocks, some input channel blocks after the other: where few pixels share many weights.

The weights of those input channels stay in the first-level cache for all pixels, and come from behind it once; the sums wait in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_columns import segments
from anycann.codegen.kernels.convolution_kernel import DirectKernel
from anycann.codegen.kernels.convolution_segment import segment_sums
from anycann.codegen.kernels.convolution_sums import Window, initial_sums, narrowed, widened_block
from anycann.codegen.kernels.convolution_write import Spill, write_vector
from anycann.codegen.values import POINTER, Value


def sums_area(e: Emitter, kernel: DirectKernel) -> Spill:
    """A place for the sums of a task, on the stack; to be called in the entry block."""
    count = kernel.rows * kernel.axes[-1].out_size * kernel.blocks
    return Spill(e.op(f"alloca {kernel.vector}, i64 {count}, align {kernel.alignment}", POINTER))


def emit_pixels(e: Emitter, window: Window, area: Spill | None) -> None:
    """One task: the channel blocks of `window`, whose place has no rows yet."""
    assert area is not None
    kernel, sums = window.kernel, area
    width = e.const(kernel.axes[-1].out_size)

    def begin(row: Window, first: Value) -> None:
        start = [widened_block(e, row, vector) for vector in initial_sums(e, row)]
        with e.loop(0, width) as column:
            sums.keep(e, row, e.add(first, column.index), start)

    def end(row: Window, first: Value) -> None:
        with e.loop(0, width) as column, e.loop(0, row.blocks) as block:
            write_vector(e, row, block.index, column.index, sums.take(e, row, e.add(first, column.index), block.index))

    _each_row(e, window, begin)
    with e.loop(0, window.in_blocks, kernel.tile.depth) as part:
        stop = e.smin(e.const(window.in_blocks), e.add(part.index, kernel.tile.depth))
        depth = (part.index, stop)
        _each_row(e, window, lambda row, first: _add_products(e, row, first, depth, sums))
    _each_row(e, window, end)


def _each_row(e: Emitter, window: Window, body: Callable[[Window, Value], None], rows: tuple[Value, ...] = ()) -> None:
    """`body(window of a row, number of its first pixel)` in loops over all axes but the last."""
    kernel = window.kernel
    axes = kernel.axes[: len(rows) + 1]
    if len(axes) < len(kernel.axes):
        with e.loop(0, axes[-1].out_size) as row:
            _each_row(e, window, body, (*rows, row.index))
        return
    number = e.const(0)
    for axis, position in zip(kernel.axes[:-1], rows, strict=True):
        number = e.add(e.mul(number, axis.out_size), position)
    place = replace(window.place, rows=rows)
    body(Window(e, kernel, place, window.blocks, window.last_lanes), e.mul(number, kernel.axes[-1].out_size))


def _add_products(e: Emitter, window: Window, first: Value, depth: tuple[Value, Value], sums: Spill) -> None:
    """The products of a row with some input channel blocks, added to its sums, which begin at pixel `first`."""
    axis, width = window.kernel.axes[-1], window.kernel.tile.columns
    window.depth = depth
    for segment in segments(axis, width):
        stop = min(segment.stop * width, axis.out_size)
        with e.loop(segment.first * width, stop, width if segment.kind else 1) as column:
            pixel = e.add(first, column.index)
            pixels = segment.kind.pixels if segment.kind else 1
            start = [_taken(e, window, sums, e.add(pixel, i), j) for i in range(pixels) for j in range(window.blocks)]
            sums.keep(e, window, pixel, segment_sums(e, window, segment, column.index, start))


def _taken(e: Emitter, window: Window, sums: Spill, pixel: Value, block: int) -> Value:
    return narrowed(e, sums.take(e, window, pixel, e.const(block)), window.vector(block))
