"""Direct convolution of any rank, stride, dilation, padding and grouping, written as loops around a register tile.

A task computes a row of output pixels (or a part of it) for a few channel blocks. No padded copy of the input is made: along all axes
but the last, the range of kernel taps is clipped to the input for each row; along the last, tiles at a border are written apart
(`convolution_columns`), so that no load leaves the input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from anycann.codegen.emitter import INDEX, POINTER, Emitter, Value, vector_type
from anycann.codegen.kernels.convolution_columns import Segment, TapSpan, TileKind, segments, tile_count
from anycann.codegen.kernels.convolution_inputs import InputLayout, Source, input_layout, source
from anycann.codegen.kernels.convolution_packing import channel_block
from anycann.codegen.kernels.convolution_shape import Axis, ConvolutionShape, axes
from anycann.codegen.kernels.convolution_tile import ConvolutionTile, has_fma, method
from anycann.target.target import Target

Write: TypeAlias = Callable[[Emitter, Sequence[Value], Value], None]
Initial: TypeAlias = Callable[[Emitter, Value], Value]


def plain_writer(pointer: Value, shape: ConvolutionShape, lanes: int) -> Write:
    """Store finished vectors in NC1HWC0 order [batch, channel blocks, *out_size, lanes]; `pointer` aligned to a vector."""

    def write(e: Emitter, index: Sequence[Value], vector: Value) -> None:
        offset = e.add(e.mul(index[0], shape.out_blocks(lanes)), e.udiv(index[1], lanes))
        for size, position in zip(shape.out_size, index[2:], strict=True):
            offset = e.add(e.mul(offset, size), position)
        e.store(vector, e.gep(pointer, e.mul(offset, lanes), "float"), 4 * lanes)

    return write


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
) -> int:
    """Write the tasks e.begin..e.end of a convolution at the current end of `e`, in its entry block; returns how many tasks there are.

    input: float32, NC1HWC0 (`blocked_input`) or row-major NCHW; weights: `pack_weights(..)`, aligned to a vector. For every vector of
    `target.lanes` finished output channels the generator calls `write(e, [n, channel of lane 0, *spatial], vector)`, which may be called
    again on another emitter just to see how long its code is, so it must depend on nothing else. Lanes beyond the output channels hold
    garbage. `initial(e, channel of lane 0)` gives what the sums start from (the bias), else zero.
    """
    if shape.batch == 0 or shape.out_pixels == 0:
        return 0
    kernel = DirectKernel(shape, target, tile, weights, write, initial, source(shape, target.lanes, blocked_input, input_pointer), blocked_input)
    small = kernel.cycles < _INLINE_CYCLES
    begin, end = (e.const(0), e.const(kernel.tasks)) if small else (e.begin, e.end)
    emit_tasks(e, kernel, begin, end)
    return 1 if small else kernel.tasks


# Work that is not worth waking a second thread for, and that a part of a row should have; in vector FMAs.
_INLINE_CYCLES, _PART_CYCLES = 20_000, 8_192
# Tasks that are enough for any number of threads; long rows are cut into parts to have that many.
_ENOUGH_TASKS = 64


@dataclass(frozen=True)
class DirectKernel:
    """A convolution to write: its sizes, its operands and what follows from them."""

    shape: ConvolutionShape
    target: Target
    tile: ConvolutionTile
    weights: Value
    write: Write
    initial: Initial | None
    source: Source
    blocked_input: bool

    @property
    def lanes(self) -> int:
        return self.target.lanes

    @property
    def vector(self) -> str:
        return vector_type("float", self.lanes)

    @property
    def layout(self) -> InputLayout:
        return input_layout(self.shape, self.lanes, self.blocked_input)

    @property
    def axes(self) -> tuple[Axis, ...]:
        return axes(self.shape, self.tile.merge)

    @property
    def groups(self) -> int:
        """Convolution groups that are computed apart: those that share no output vector."""
        return self.shape.group if method(self.shape, self.lanes, self.blocked_input) == "dense" else 1

    @property
    def group_blocks(self) -> int:
        """Output channel blocks of one of these groups."""
        return -(-(self.shape.out_channels // self.groups) // self.lanes)

    @property
    def parts(self) -> int:
        """Tasks that a row is cut into."""
        others = self.tasks_of_whole_rows
        tile_cycles = self.tile.columns * self.tile.blocks * self.shape.group_inputs * max(1, self.shape.taps)
        tiles = tile_count(self.axes[-1], self.tile.columns)
        most = max(1, tiles * tile_cycles // _PART_CYCLES)
        return min(tiles, most, -(-_ENOUGH_TASKS // others))

    @property
    def tasks_of_whole_rows(self) -> int:
        rows = prod(axis.out_size for axis in self.axes[:-1])
        return self.shape.batch * self.groups * -(-self.group_blocks // self.tile.blocks) * rows

    @property
    def tasks(self) -> int:
        return self.tasks_of_whole_rows * self.parts

    @property
    def cycles(self) -> int:
        """Vector FMAs of the whole convolution."""
        shape = self.shape
        return shape.batch * shape.out_pixels * shape.out_blocks(self.lanes) * shape.group_inputs * max(1, shape.taps)


@dataclass(frozen=True)
class Place:
    """Where a task works: image, first output channel block, row position on each axis but the last, part of the row."""

    batch: Value
    block: Value
    origin: Value
    rows: tuple[Value, ...]
    part: Value


def emit_tasks(e: Emitter, kernel: DirectKernel, begin: Value, end: Value) -> None:
    """Tasks begin..end of 0..kernel.tasks."""
    spill = _Spill(e, kernel) if _needs_spill(e, kernel) else None
    size, groups = kernel.tile.blocks, -(-kernel.group_blocks // kernel.tile.blocks)
    full = kernel.group_blocks // size
    with e.loop(begin, end) as tasks:
        place, block_group = _place(e, kernel, tasks.index, groups)
        if full == groups:
            _row(e, kernel, place, size, spill)
            return
        if full:
            with e.when(e.compare("slt", block_group, e.const(full))):
                _row(e, kernel, place, size, spill)
        with e.when(e.compare("sge", block_group, e.const(full))):
            _row(e, kernel, place, kernel.group_blocks % size, spill)


def _place(e: Emitter, kernel: DirectKernel, task: Value, block_groups: int) -> tuple[Place, Value]:
    """The place of a task and the number of its group of channel blocks."""
    rows = [axis.out_size for axis in kernel.axes[:-1]]
    if kernel.tile.blocks_inner:
        sizes = [kernel.shape.batch, kernel.groups, *rows, kernel.parts, block_groups]
    else:
        sizes = [kernel.shape.batch, kernel.groups, block_groups, *rows, kernel.parts]
    numbers = _digits(e, task, sizes)
    batch, group = numbers[:2]
    if kernel.tile.blocks_inner:
        *row_numbers, part, block_group = numbers[2:]
    else:
        block_group, *row_numbers, part = numbers[2:]
    block = e.add(e.mul(group, kernel.group_blocks), e.mul(block_group, kernel.tile.blocks))
    return Place(batch, block, kernel.source.origin(e, group, block), tuple(row_numbers), part), block_group


def _digits(e: Emitter, number: Value, sizes: Sequence[int]) -> list[Value]:
    """`number` in the mixed base `sizes`, the last changing fastest."""
    digits: list[Value] = []
    for size in reversed(sizes[1:]):
        quotient = e.udiv(number, size)
        digits.insert(0, e.sub(number, e.mul(quotient, size)) if size > 1 else e.const(0))
        number = quotient
    return [number if sizes[0] > 1 else e.const(0), *digits]


def _row(e: Emitter, kernel: DirectKernel, place: Place, blocks: int, spill: _Spill | None) -> None:
    """One part of a row for `blocks` channel blocks."""
    axis, width = kernel.axes[-1], kernel.tile.columns
    window = Window(e, kernel, place, blocks)
    per_part = -(-tile_count(axis, width) // kernel.parts)
    for segment in segments(axis, width):
        step = width if segment.kind else 1
        first, stop = segment.first * width, min(segment.stop * width, axis.out_size)
        low, high = e.const(first), e.const(stop)
        if kernel.parts > 1:
            low = e.smax(low, e.mul(place.part, per_part * width))
            high = e.smin(high, e.mul(e.add(place.part, 1), per_part * width))
        with e.loop(low, high, step) as columns:
            _tile(e, window, segment, columns.index, spill)


class Window:
    """The part of the input under the kernel for a row: element offset of its first tap and the valid taps of each axis but the last."""

    def __init__(self, e: Emitter, kernel: DirectKernel, place: Place, blocks: int):
        self.kernel, self.place, self.blocks = kernel, place, blocks
        layout, lanes = kernel.layout, kernel.lanes
        self.spatial = e.mul(place.batch, layout.image)
        self.taps: list[tuple[Value, Value]] = []
        for axis, position in zip(kernel.axes[:-1], place.rows, strict=True):
            start = e.sub(e.mul(position, axis.stride), axis.pad)
            self.spatial = e.add(self.spatial, e.mul(start, axis.in_stride * layout.pixel))
            self.taps.append(valid_taps(e, axis, start))
        inner = channel_block(kernel.shape, lanes)
        self.tap_size = inner * lanes
        self.in_block_size = kernel.shape.taps * self.tap_size
        self.in_blocks = -(-kernel.shape.group_inputs // inner)
        self.block_size = self.in_blocks * self.in_block_size
        first_tap = sum(axis.tap_offset for axis in kernel.axes)
        self.weights = e.gep(kernel.weights, e.add(e.mul(place.block, self.block_size), first_tap * self.tap_size), "float")


def valid_taps(e: Emitter, axis: Axis, start: Value) -> tuple[Value, Value]:
    """The taps k of 0..kernel for which 0 <= start + k * dilation < in_size."""
    if axis.full:
        return e.const(0), e.const(axis.kernel)
    zero, kernel = e.const(0), e.const(axis.kernel)
    below = e.smax(zero, e.sub(zero, start))
    inside = e.smax(zero, e.sub(e.const(axis.in_size), start))
    first = e.udiv(e.add(below, axis.dilation - 1), axis.dilation)
    stop = e.udiv(e.add(inside, axis.dilation - 1), axis.dilation)
    return first, e.smin(kernel, stop)


def _tile(e: Emitter, window: Window, segment: Segment, column: Value, spill: _Spill | None) -> None:
    """Compute and write the tile that begins at `column`."""
    kernel = window.kernel
    axis = kernel.axes[-1]
    kind = segment.kind or TileKind(1, (TapSpan(0, axis.kernel, 0, 1),))
    start = e.sub(e.mul(column, axis.stride), axis.pad)
    taps = None if segment.kind else valid_taps(e, axis, start)
    sums = _start(e, window) * kind.pixels
    spatial = e.add(window.spatial, e.mul(start, axis.in_stride * kernel.layout.pixel))
    sums = _accumulate(e, window, kind, taps, spatial, sums)
    if spill:
        spill.write(e, window, column, kind.pixels, sums)
        return
    for pixel in range(kind.pixels):
        for block in range(window.blocks):
            _write(e, window, e.const(block), e.add(column, pixel), sums[pixel * window.blocks + block])


def _start(e: Emitter, window: Window) -> list[Value]:
    """What the sums of one pixel start from, a vector a channel block."""
    kernel = window.kernel
    if kernel.initial is None:
        return [e.zero(kernel.vector)] * window.blocks
    return [kernel.initial(e, e.mul(e.add(window.place.block, j), kernel.lanes)) for j in range(window.blocks)]


def _write(e: Emitter, window: Window, block: Value, column: Value, vector: Value) -> None:
    """Hand a finished vector to the caller, at its position in the dimensions of the shape."""
    kernel, place = window.kernel, window.place
    channel = e.mul(e.add(place.block, block), kernel.lanes)
    spatial: dict[int, Value] = {}
    for axis, position in zip(kernel.axes, [*place.rows, column], strict=True):
        spatial.update(zip(axis.members, _digits(e, position, axis.member_sizes), strict=True))
    kernel.write(e, [place.batch, channel, *(spatial[d] for d in sorted(spatial))], vector)


Range: TypeAlias = tuple[Value, Value, int]


def _nest(e: Emitter, ranges: Sequence[Range], sums: list[Value], body: Callable[[list[Value], list[Value]], list[Value]]) -> list[Value]:
    """Loops over `ranges` (first, stop, step), outer first, that carry `sums` through `body(indices, sums)`."""
    if not ranges:
        return body([], sums)
    (first, stop, step), inner = ranges[0], ranges[1:]
    if stop.text.isdigit() and first.text.isdigit() and int(stop.text) == int(first.text) + step:
        return _nest(e, inner, sums, lambda indices, s: body([first, *indices], s))
    with e.loop(first, stop, step, sums) as loop:
        index = loop.index
        loop.carry(_nest(e, inner, loop.values, lambda indices, s: body([index, *indices], s)))
    return loop.values


def _accumulate(
    e: Emitter, window: Window, kind: TileKind, taps: tuple[Value, Value] | None, spatial: Value, sums: list[Value]
) -> list[Value]:
    """Add all products of a tile: input channel blocks, then taps of the outer axes, then the spans of the last axis."""
    outer: list[Range] = [(e.const(0), e.const(window.in_blocks), 1), *((first, stop, 1) for first, stop in window.taps)]

    def body(indices: list[Value], sums: list[Value]) -> list[Value]:
        for span in kind.spans:
            first, stop = taps or (e.const(span.first_tap), e.const(span.stop_tap))
            sums = _span(e, window, span, (first, stop), indices, spatial, sums)
        return sums

    return _nest(e, outer, sums, body)


def _span(
    e: Emitter, window: Window, span: TapSpan, taps: tuple[Value, Value], outer: list[Value], spatial: Value, sums: list[Value]
) -> list[Value]:
    """The taps and input channels of one span, for the pixels it is valid for."""
    kernel = window.kernel
    in_block, rows = outer[0], outer[1:]
    channels = _channels_of_block(e, kernel, window.in_blocks, in_block)

    def body(indices: list[Value], sums: list[Value]) -> list[Value]:
        tap, channel = indices
        offset, number = spatial, e.const(0)
        for axis, k in zip(kernel.axes, [*rows, tap], strict=True):
            offset = e.add(offset, e.mul(k, axis.dilation * axis.in_stride * kernel.layout.pixel))
            number = e.add(number, e.mul(k, axis.tap_stride))
        at = e.add(e.add(e.mul(in_block, window.in_block_size), e.mul(number, window.tap_size)), e.mul(channel, kernel.lanes))
        return _products(e, window, span, e.gep(window.weights, at, "float"), offset, in_block, channel, sums)

    unroll = kernel.tile.unroll
    return _nest(e, [(*taps, 1), (e.const(0), channels, unroll)], sums, body)


def _channels_of_block(e: Emitter, kernel: DirectKernel, in_blocks: int, in_block: Value) -> Value:
    """Real input channels of a block: fewer in the last one, whose other lanes may hold anything and are never read."""
    inner = channel_block(kernel.shape, kernel.lanes)
    last = kernel.shape.group_inputs % inner or inner
    if last == inner:
        return e.const(inner)
    is_last = e.compare("eq", in_block, e.const(in_blocks - 1))
    return e.select(is_last, e.const(last), e.const(inner))


def _products(
    e: Emitter, window: Window, span: TapSpan, weights: Value, offset: Value, in_block: Value, channel: Value, sums: list[Value]
) -> list[Value]:
    """The unrolled input channels of one tap: one FMA for each pixel and channel block."""
    kernel, blocks = window.kernel, window.blocks
    sums = list(sums)
    step = kernel.axes[-1].stride * kernel.axes[-1].in_stride * kernel.layout.pixel
    pixels = range(span.first_pixel, span.stop_pixel)
    unroll = kernel.tile.unroll
    inputs = kernel.source.vectors(e, window.place.origin, offset, in_block, channel, unroll, [p * step for p in pixels])
    for i in range(unroll):
        rows = [_weight(e, weights, i * kernel.lanes + j * window.block_size, kernel) for j in range(blocks)]
        for pixel, x in zip(pixels, inputs[i], strict=True):
            for j in range(blocks):
                at = pixel * blocks + j
                sums[at] = multiply_add(e, kernel.target, x, rows[j], sums[at])
    return sums


def _weight(e: Emitter, weights: Value, offset: int, kernel: DirectKernel) -> Value:
    return e.load(e.gep(weights, offset, "float"), kernel.vector, 4 * kernel.lanes)


def multiply_add(e: Emitter, target: Target, a: Value, b: Value, c: Value) -> Value:
    """a * b + c, in one instruction where the processor has it; never a call of a library."""
    if has_fma(target):
        return e.fma(a, b, c)
    return e.binary("fadd", e.binary("fmul", a, b), c)


# Above this many lines, the code that writes results stands once in a loop instead of once for each vector of a tile.
_MOST_WRITE_LINES = 1500


def _needs_spill(e: Emitter, kernel: DirectKernel) -> bool:
    """True if the caller's `write`, repeated for every vector of every kind of tile, is too much code."""
    trial = Emitter()
    index = [Value("%trial", INDEX)] * (2 + len(kernel.shape.out_size))
    kernel.write(trial, index, kernel_trial := Value("%trial", kernel.vector))
    del kernel_trial
    kinds = [s.kind.pixels if s.kind else 1 for s in segments(kernel.axes[-1], kernel.tile.columns)]
    return len(trial.lines) * sum(kinds) * kernel.tile.blocks > _MOST_WRITE_LINES


class _Spill:
    """A place on the stack for the sums of a tile, from which a loop hands them to the caller one by one."""

    def __init__(self, e: Emitter, kernel: DirectKernel):
        count = kernel.tile.columns * kernel.tile.blocks
        self.pointer = e.op(f"alloca {kernel.vector}, i64 {count}, align {4 * kernel.lanes}", POINTER)

    def write(self, e: Emitter, window: Window, column: Value, pixels: int, sums: list[Value]) -> None:
        """Store `sums` [pixel][block], then write them."""
        kernel = window.kernel
        for i, vector in enumerate(sums):
            e.store(vector, e.gep(self.pointer, i, kernel.vector), 4 * kernel.lanes)
        with e.loop(0, pixels) as pixel, e.loop(0, window.blocks) as block:
            at = e.add(e.mul(pixel.index, window.blocks), block.index)
            vector = e.load(e.gep(self.pointer, at, kernel.vector), kernel.vector, 4 * kernel.lanes)
            _write(e, window, block.index, e.add(column, pixel.index), vector)
