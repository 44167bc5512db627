"""Direct convolution of any rank, stride, dilation, padding and grouping, written as loops around a register tile.

A task computes a row of output pixels (or a part of it) for a few channel blocks. No padded copy of the input is made: along all axes
but the last, the range of kernel taps is clipped to the input for each row; along the last, tiles at a border are written apart
(`convolution_columns`), so that no load leaves the input.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_columns import segments, tile_count
from anycann.codegen.kernels.convolution_deep import emit_pixels, sums_area
from anycann.codegen.kernels.convolution_estimate import ConvolutionTile
from anycann.codegen.kernels.convolution_inputs import source
from anycann.codegen.kernels.convolution_kernel import DirectKernel, Initial, Place, Write
from anycann.codegen.kernels.convolution_place import place_of
from anycann.codegen.kernels.convolution_segment import segment_sums
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_sums import Window
from anycann.codegen.kernels.convolution_tile import unroll_choices
from anycann.codegen.kernels.convolution_write import Spill, plain_writer, spill_area, write_vector
from anycann.codegen.values import Value
from anycann.support.errors import InternalError
from anycann.target.target import Target

__all__ = ["ConvolutionShape", "ConvolutionTile", "Initial", "Write", "emit_convolution", "plain_writer"]


def emit_convolution(
    e: Emitter,
    shape: ConvolutionShape,
    target: Target,
    tile: ConvolutionTile,
    input_pointer: Value,
    weights: Value,
    write: Write,
    blocked_input: bool = True,
    initial: Initial | None = None,
    zero_point: Value | None = None,
    channels_last: bool = False,
    window: int = 0,
) -> int:
    """Write the tasks e.begin..e.end of a convolution at the current end of `e`, in its entry block; returns how many tasks there are.

    input: `shape.dtype`, NC1HWC0 (`blocked_input`) or row-major NCHW, or a `window` of so many rows of that (te/layout.py); with
    `channels_last` [N, *spatial, C], for depthwise ones (`reads_channels_last`); weights: `pack_weights(..)`,
    aligned to a vector. For every vector of `target.lanes` finished output channels the generator calls `write(e, [n, channel of lane 0,
    *spatial], vector)`, which may be called again on another emitter just to see how long its code is, so it must depend on nothing else.
    Lanes beyond the output channels hold garbage. `initial(e, channel of lane 0)` gives what the sums start from (the bias), else zero.
    `zero_point`, a scalar of `shape.accumulator`, is subtracted from every input element; that of the weights is the caller's, before
    packing. Raises InternalError for a tile that would leave its input.
    """
    if shape.batch == 0 or shape.out_pixels == 0:
        return 0
    if tile.unroll not in unroll_choices(shape, target, blocked_input or channels_last):
        raise InternalError(f"{tile} for {shape}: {tile.unroll} input channels at once do not divide those that it reads")
    if window and (tile.merge or tile.images or tile.depth):
        raise InternalError(f"{tile} for {shape}: it does not stay in a window of {window} rows")
    kernel = DirectKernel(
        shape,
        target,
        tile,
        source(shape, target.lanes, blocked_input, input_pointer, zero_point, channels_last, window),
        weights,
        write,
        initial,
        blocked_input,
        channels_last,
        window,
    )
    spill = sums_area(e, kernel) if tile.depth else spill_area(e, [kernel])
    if kernel.in_one_task:
        emit_tasks(e, kernel, e.const(0), e.const(kernel.tasks), spill)
        return 1
    emit_tasks(e, kernel, e.begin, e.end, spill)
    return kernel.tasks


def emit_tasks(e: Emitter, kernel: DirectKernel, begin: Value, end: Value, spill: Spill | None) -> None:
    """Tasks begin..end of 0..kernel.tasks; `spill` from `spill_area`, or from `sums_area` if the tile has a depth."""
    emit_part = emit_pixels if kernel.tile.depth else _row
    size, groups = kernel.blocks, kernel.block_groups
    last_size, last_lanes = kernel.group_blocks - (groups - 1) * size, kernel.last_lanes
    last = replace(kernel, source=kernel.source.of_last_block())
    with e.loop(begin, end) as tasks:
        place, block_group = place_of(e, kernel, tasks.index)
        if groups == 1 or (last_size, last_lanes, last) == (size, kernel.lanes, kernel):
            emit_part(e, Window(e, last, place, last_size, last_lanes), spill)
            return
        with e.when(e.compare("slt", block_group, e.const(groups - 1))):
            emit_part(e, Window(e, kernel, place, size, kernel.lanes), spill)
        with e.when(e.compare("eq", block_group, e.const(groups - 1))):
            emit_part(e, Window(e, last, place, last_size, last_lanes), spill)


def _row(e: Emitter, window: Window, spill: Spill | None) -> None:
    """One part of a row for the channel blocks of a window."""
    kernel, blocks = window.kernel, window.blocks
    axis, width = kernel.axes[-1], kernel.tile.columns
    low, high = _part(e, kernel, window.place)
    if spill:
        with e.loop(low, high, width) as columns:
            _tile_by_stack(e, window, columns.index, spill)
        return
    for segment in segments(axis, width):
        first, stop = e.const(segment.first * width), e.const(min(segment.stop * width, axis.out_size))
        if kernel.parts > 1:
            first, stop = e.smax(first, low), e.smin(stop, high)
        with e.loop(first, stop, width if segment.kind else 1) as columns:
            pixels = segment.kind.pixels if segment.kind else 1
            sums = segment_sums(e, window, segment, columns.index)
            for pixel, block in product(range(pixels), range(blocks)):
                write_vector(e, window, e.const(block), e.add(columns.index, pixel), sums[pixel * blocks + block])


def _part(e: Emitter, kernel: DirectKernel, place: Place) -> tuple[Value, Value]:
    """The columns of a task: the row, or some tiles of it."""
    axis, width = kernel.axes[-1], kernel.tile.columns
    if kernel.parts == 1:
        return e.const(0), e.const(axis.out_size)
    size = -(-tile_count(axis, width) // kernel.parts) * width
    return e.mul(place.part, size), e.smin(e.const(axis.out_size), e.mul(e.add(place.part, 1), size))


def _tile_by_stack(e: Emitter, window: Window, column: Value, spill: Spill) -> None:
    """The tile at `column`: the code of its segment leaves the results on the stack, one loop for all segments writes them."""
    axis, width = window.kernel.axes[-1], window.kernel.tile.columns
    pixels = e.smin(e.const(width), e.sub(e.const(axis.out_size), column))
    for segment in segments(axis, width):
        first, stop = e.const(segment.first * width), e.const(segment.stop * width)
        inside = e.binary("and", e.compare("sge", column, first), e.compare("slt", column, stop))
        with e.when(inside):
            if segment.kind:
                spill.keep(e, window, e.const(0), segment_sums(e, window, segment, column))
                continue
            with e.loop(0, pixels) as pixel:
                spill.keep(e, window, pixel.index, segment_sums(e, window, segment, e.add(column, pixel.index)))
    with e.loop(0, pixels) as pixel, e.loop(0, window.blocks) as block:
        vector = spill.take(e, window, pixel.index, block.index)
        write_vector(e, window, block.index, e.add(column, pixel.index), vector)
