"""The gradient of a convolution's weights: for every tap, the products of the pixels of dy with the pixels of x that it reads.

A task has some blocks of output channels and some rows. Rows are input channels, for one tap after the other; where there are few input
channels, they are the taps along the last axis, for one channel and one tap of the other axes after the other. dy lies in NC1HWC0, so that
a vector of it is read at once; of x, row-major, one element goes to every lane. Nothing is padded: each tap runs over the pixels it is
valid for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import prod

from anycann.codegen.conversions import to_storage
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_products import multiply_add
from anycann.codegen.kernels.convolution_shape import Axis, ConvolutionShape, axes
from anycann.codegen.kernels.convolution_sums import Range, nest
from anycann.codegen.kernels.convolution_write import digits
from anycann.codegen.kernels.matmul_packing import transpose
from anycann.codegen.kernels.matmul_shape import Operand
from anycann.codegen.kernels.weight_gradient_tile import GradientTile, group_blocks, rows_are_taps
from anycann.codegen.values import Value, first_lanes, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.dtypes import DType


@dataclass(frozen=True)
class _Kernel:
    """A gradient to write: sizes, operands and what follows from them. x: row-major; dy: NC1HWC0; dw: [O, I, *kernel]."""

    shape: ConvolutionShape
    target: Target
    tile: GradientTile
    x: Value
    dy: Value
    dw: Value
    dtype: DType

    @property
    def source(self) -> Operand:
        """x in memory."""
        return Operand(self.shape.dtype, dtypes.float32)

    @property
    def slope(self) -> Operand:
        """dy in memory."""
        return Operand(self.dtype, dtypes.float32)

    @property
    def lanes(self) -> int:
        return self.target.lanes

    @property
    def vector(self) -> str:
        return vector_type("float", self.lanes)

    @property
    def by_taps(self) -> bool:
        return rows_are_taps(self.shape)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes, without taps that are never valid; merged where that is the same."""
        return axes(self.shape, merge=not self.by_taps)

    @property
    def groups(self) -> int:
        return -(-group_blocks(self.shape, self.lanes) // self.tile.blocks)

    @property
    def channels(self) -> int:
        """Input channels of a task."""
        return 1 if self.by_taps else self.tile.rows

    @property
    def run(self) -> int:
        """Neighbouring weights of an output channel that a task computes."""
        return self.channels * self.shape.taps

    @property
    def task_sizes(self) -> list[int]:
        """Groups of the convolution, sets of output channel blocks of one, tiles of its input channels."""
        return [self.shape.group, self.groups, -(-self.shape.group_inputs // self.channels)]

    def sum_at(self, e: Emitter, row: Value, block: int) -> Value:
        """Where a vector of sums waits in scratch: weight `row` of the run, block of the group."""
        return e.gep(e.scratch, e.mul(e.add(e.mul(row, self.tile.blocks), block), self.lanes), "float")


def emit_weight_gradient(
    e: Emitter, shape: ConvolutionShape, target: Target, tile: GradientTile, x: Value, dy: Value, dw: Value, dtype: DType
) -> int:
    """Write the tasks e.begin..e.end; returns how many there are.

    `shape` is that of the convolution, `dtype` that of dy and dw: floats of at most 32 bits. Several groups have whole vectors of output
    channels.
    """
    kernel = _Kernel(shape, target, tile, x, dy, dw, dtype)
    with e.loop(e.begin, e.end) as task:
        # the last group and tile begin early enough to be whole; what two tasks compute is the same
        group, some, part = digits(e, task.index, kernel.task_sizes)
        blocks = group_blocks(shape, kernel.lanes)
        block = e.add(e.mul(group, blocks), e.smin(e.mul(some, tile.blocks), e.const(blocks - tile.blocks)))
        with e.loop(0, kernel.run) as row:
            for j in range(tile.blocks):
                e.store(e.zero(kernel.vector), kernel.sum_at(e, row.index, j), 4 * kernel.lanes)
        own = e.smin(e.mul(part, kernel.channels), e.const(shape.group_inputs - kernel.channels))
        channel = e.add(e.mul(group, shape.group_inputs), own)
        emit_rows = _emit_taps if kernel.by_taps else _emit_channels
        with e.loop(0, shape.batch, tile.images) as chunk:
            stop = e.smin(e.add(chunk.index, tile.images), e.const(shape.batch))
            emit_rows(e, kernel, (chunk.index, stop), block, channel)
        _write(e, kernel, block, e.mul(own, shape.taps))
    return prod(kernel.task_sizes)


# ---- rows are input channels
def _emit_channels(e: Emitter, kernel: _Kernel, chunk: tuple[Value, Value], block: Value, channel: Value) -> None:
    """The channels from `channel` on, for one tap after the other."""
    shape, tile = kernel.shape, kernel.tile
    steps = [(row * shape.in_pixels, row) for row in range(tile.rows)]

    def tap(numbers: list[Value]) -> None:
        at = e.const(sum(axis.tap_offset for axis in kernel.axes))
        for axis, number in zip(kernel.axes, numbers, strict=True):
            at = e.add(at, e.mul(number, axis.tap_stride))
        ranges = [(*chunk, 1), *(_valid(e, axis, number) for axis, number in zip(kernel.axes, numbers, strict=True))]

        def pixel(indices: list[Value], sums: list[Value]) -> list[Value]:
            image, *outs = indices
            x, dy = _source(e, kernel, image, channel, outs, numbers), _result(e, kernel, image, block, outs)
            return _products(e, kernel, x, dy, steps, sums)

        _accumulate(e, kernel, [e.add(at, row * shape.taps) for row in range(tile.rows)], partial(nest, e, ranges, body=pixel))

    _each(e, [axis.kernel for axis in kernel.axes], tap)


def _each(e: Emitter, extents: Sequence[int], body: Callable[[list[Value]], None], found: tuple[Value, ...] = ()) -> None:
    """`body` of every index of these extents."""
    if len(found) == len(extents):
        body(list(found))
        return
    with e.loop(0, extents[len(found)]) as loop:
        _each(e, extents, body, (*found, loop.index))


def _valid(e: Emitter, axis: Axis, tap: Value) -> Range:
    """The output positions for which a tap reads inside the input."""
    if axis.full:
        return e.const(0), e.const(axis.out_size), 1
    start = e.sub(e.mul(tap, axis.dilation), axis.pad)
    before = e.smax(e.const(0), e.sub(e.const(0), start))
    first = e.udiv(e.add(before, axis.stride - 1), axis.stride)
    inside = e.smax(e.const(0), e.sub(e.const(axis.in_size), start))
    stop = e.udiv(e.add(inside, axis.stride - 1), axis.stride)
    return first, e.smin(stop, e.const(axis.out_size)), 1


def _source(e: Emitter, kernel: _Kernel, image: Value, channel: Value, outs: Sequence[Value], taps: Sequence[Value]) -> Value:
    """The element of x that the first row reads for an output position."""
    shape = kernel.shape
    at = e.mul(e.add(e.mul(image, shape.in_channels), channel), shape.in_pixels)
    for axis, out, tap in zip(kernel.axes, outs, taps, strict=True):
        place = e.sub(e.add(e.mul(out, axis.stride), e.mul(tap, axis.dilation)), axis.pad)
        at = e.add(at, e.mul(place, axis.in_stride))
    return kernel.source.step(e, kernel.x, at)


def _result(e: Emitter, kernel: _Kernel, image: Value, block: Value, outs: Sequence[Value]) -> Value:
    """The first vector of dy at an output position."""
    shape, pixel = kernel.shape, e.const(0)
    for axis, out in zip(kernel.axes, outs, strict=True):
        pixel = e.add(e.mul(pixel, axis.out_size), out)
    plane = e.add(e.mul(image, shape.out_blocks(kernel.lanes)), block)
    return kernel.slope.step(e, kernel.dy, e.mul(e.add(e.mul(plane, shape.out_pixels), pixel), kernel.lanes))


def _products(e: Emitter, kernel: _Kernel, x: Value, dy: Value, rows: Sequence[tuple[int, int]], sums: list[Value]) -> list[Value]:
    """Every element of x, by its distance and the number of its row, times every vector of dy, added to the sums [row][block]."""
    sums, blocks, plane = list(sums), kernel.tile.blocks, kernel.shape.out_pixels * kernel.lanes
    vectors = [kernel.slope.load(e, kernel.slope.step(e, dy, j * plane), kernel.lanes) for j in range(blocks)]
    for number, (distance, _) in enumerate(rows):
        factor = kernel.source.broadcast(e, kernel.source.step(e, x, distance), kernel.lanes)
        for j in range(blocks):
            at = number * blocks + j
            sums[at] = multiply_add(e, kernel.target, factor, vectors[j], sums[at])
    return sums


def _accumulate(e: Emitter, kernel: _Kernel, rows: Sequence[Value], add: Callable[[list[Value]], list[Value]]) -> None:
    """The sums of some rows, taken from scratch, added to and put back."""
    places = [kernel.sum_at(e, row, j) for row in rows for j in range(kernel.tile.blocks)]
    sums = [e.load(place, kernel.vector, 4 * kernel.lanes) for place in places]
    for value, place in zip(add(sums), places, strict=True):
        e.store(value, place, 4 * kernel.lanes)


# ---- rows are taps
def _emit_taps(e: Emitter, kernel: _Kernel, chunk: tuple[Value, Value], block: Value, channel: Value) -> None:
    """One input channel: each tap of the outer axes with all taps of the last axis, in parts."""
    *before, axis = kernel.axes

    def tap(numbers: list[Value]) -> None:
        at = e.const(sum(each.tap_offset for each in kernel.axes))
        for each, number in zip(before, numbers, strict=True):
            at = e.add(at, e.mul(number, each.tap_stride))
        for first in range(0, axis.kernel, kernel.tile.rows):
            some = range(first, min(first + kernel.tile.rows, axis.kernel))
            ranges = [(*chunk, 1), *(_valid(e, each, number) for each, number in zip(before, numbers, strict=True))]

            def row(indices: list[Value], sums: list[Value], some: range = some) -> list[Value]:
                image, *outs = indices
                return _emit_row(e, kernel, (image, block, channel), outs, numbers, some, sums)

            _accumulate(e, kernel, [e.add(at, number) for number in some], partial(nest, e, ranges, body=row))

    _each(e, [each.kernel for each in before], tap)


def _emit_row(
    e: Emitter, kernel: _Kernel, place: tuple[Value, Value, Value], outs: list[Value], taps: list[Value], some: range, sums: list[Value]
) -> list[Value]:
    """A row of output pixels: those in the middle in a loop, at a border with the taps that are valid there."""
    image, block, channel = place
    axis = kernel.axes[-1]
    for first, stop, valid in _segments(axis):
        rows = [((tap * axis.dilation) * axis.in_stride, tap - some.start) for tap in some if tap in valid]

        def pixel(indices: list[Value], all_sums: list[Value], rows: list[tuple[int, int]] = rows) -> list[Value]:
            out = [*outs, indices[0]]
            x = _source(e, kernel, image, channel, out, [*taps, e.const(0)])
            numbers = [number * kernel.tile.blocks + j for _, number in rows for j in range(kernel.tile.blocks)]
            found = _products(e, kernel, x, _result(e, kernel, image, block, out), rows, [all_sums[n] for n in numbers])
            result = list(all_sums)
            for number, value in zip(numbers, found, strict=True):
                result[number] = value
            return result

        sums = nest(e, [(e.const(first), e.const(stop), 1)], sums, pixel)
    return sums


def _segments(axis: Axis) -> list[tuple[int, int, range]]:
    """Runs of output positions, first and the one behind the last, with the taps that are valid for them."""
    found: list[tuple[int, int, range]] = []
    for position in range(axis.out_size):
        taps = axis.taps(position)
        if found and found[-1][2] == taps:
            found[-1] = (found[-1][0], position + 1, taps)
        else:
            found.append((position, position + 1, taps))
    return found


# ---- results
def _write(e: Emitter, kernel: _Kernel, block: Value, first: Value) -> None:
    """The sums of a task, turned: `run` neighbouring weights of each output channel, from element `first` on."""
    shape, lanes, run = kernel.shape, kernel.lanes, kernel.run
    channel_size = shape.group_inputs * shape.taps
    for j, start in product(range(kernel.tile.blocks), range(0, run, lanes)):
        size = min(lanes, run - start)
        rows = [e.load(kernel.sum_at(e, e.const(start + i), j), kernel.vector, 4 * lanes) for i in range(size)]
        rows += [e.zero(kernel.vector)] * (lanes - size)
        mask = first_lanes(size, lanes)
        for lane, vector in enumerate(transpose(e, rows) if lanes > 1 else rows):
            channel = e.add(e.mul(e.add(block, j), lanes), lane)
            to = e.gep(kernel.dw, e.add(e.add(e.mul(channel, channel_size), first), start), kernel.dtype.storage)
            if shape.out_channels % lanes == 0:
                _store(e, kernel, vector, to, mask)
                continue
            with e.when(e.compare("slt", channel, e.const(shape.out_channels))):
                _store(e, kernel, vector, to, mask)


def _store(e: Emitter, kernel: _Kernel, vector: Value, to: Value, mask: Value | None) -> None:
    value = to_storage(e, vector, kernel.dtype)
    if mask is None:
        e.store(value, to, kernel.dtype.nbytes)
    else:
        e.masked_store(value, to, kernel.dtype.nbytes, mask)
