"""Convolution of row-major planes with lanes along the pixels: where there are few channels, vectors of pixels are full and those of
output channels are not.

A task is a row of output pixels, or a part of it. A register tile has some vectors of its pixels for some output channels; an input
vector, read where it lies, serves all of these, a weight in all lanes all of those. At the ends of a row, lanes outside the image are not
read and count as zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import prod

import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import RowTasks
from anycann.codegen.kernels.arithmetic_rate import is_halved
from anycann.codegen.kernels.convolution_inputs import InputLayout, input_layout
from anycann.codegen.kernels.convolution_products import multiply_add
from anycann.codegen.kernels.convolution_shape import Axis, ConvolutionShape, used_axes
from anycann.codegen.kernels.convolution_sums import Range, nest, valid_taps
from anycann.codegen.kernels.convolution_write import digits
from anycann.codegen.kernels.planes_tile import PlanesTile, RowPart, in_one_task, out_groups, parts_of_row, row_parts
from anycann.codegen.values import POINTER, Value, vector_type
from anycann.support.arrangement import Arrangement
from anycann.support.records import dataclass
from anycann.target.target import Target

WriteRow = Callable[[Emitter, Sequence[Value], Value, "Value | None"], None]


def pack_planes_weights(weights: np.ndarray, shape: ConvolutionShape, tile: PlanesTile) -> np.ndarray:
    """Weights [O, I, *kernel] as [groups of outputs, taps above the last axis, I, used taps of the last axis, outputs of a group]."""
    last, groups = used_axes(shape)[-1], out_groups(shape, tile)
    taps = weights.reshape(shape.out_channels, shape.in_channels, -1, shape.kernel[-1])
    used = taps[..., last.tap_offset : last.tap_offset + last.kernel]
    full = np.zeros((groups * tile.outputs, *used.shape[1:]), weights.dtype)
    full[: shape.out_channels] = used
    return np.ascontiguousarray(full.reshape(groups, tile.outputs, *used.shape[1:]).transpose(0, 3, 2, 4, 1))


def planes_arrangement(shape: ConvolutionShape, tile: PlanesTile) -> Arrangement | None:
    """Where the weights lie in what `pack_planes_weights` makes of them; None where taps are left out."""
    last, groups = shape.kernel[-1], out_groups(shape, tile)
    if used_axes(shape)[-1].kernel != last:
        return None
    above = shape.taps // last
    kept = (shape.out_channels, shape.in_channels, above, last)
    packed = (groups, above, shape.in_channels, last, tile.outputs)
    return Arrangement(packed, (0, 4, 2, 1, 3), (groups * tile.outputs, *kept[1:]), kept)


@dataclass(frozen=True)
class _Kernel:
    """The convolution to write and its operands; `results` has room for the sums of a tile."""

    shape: ConvolutionShape
    target: Target
    tile: PlanesTile
    input: Value
    weights: Value
    results: Value
    write: WriteRow
    layout: InputLayout

    @property
    def lanes(self) -> int:
        return self.target.lanes

    @property
    def vector(self) -> str:
        return vector_type("float", self.lanes)

    @property
    def axes(self) -> tuple[Axis, ...]:
        return used_axes(self.shape)


@dataclass(frozen=True)
class _Row:
    """A row of the output: its image, its place on the axes above, the taps there that meet the input, and where it begins."""

    image: Value
    places: tuple[Value, ...]
    taps: tuple[tuple[Value, Value], ...]
    pointer: Value


def emit_planes(
    e: Emitter,
    shape: ConvolutionShape,
    target: Target,
    tile: PlanesTile,
    input_pointer: Value,
    weights: Value,
    write: WriteRow,
    window: int = 0,
) -> int:
    """Write the tasks e.begin..e.end at the current end of `e`, in its entry block; returns how many tasks there are.

    input: float32, row-major [N, C, *spatial], or a `window` of so many rows of that (te/layout.py); weights: `pack_planes_weights`.
    `write(e, [n, channel, *spatial], vector, mask)` gets `target.lanes` neighbours of a row of one channel, of which those outside the mask
    do not exist.
    """
    if shape.batch * shape.out_pixels == 0:
        return 0
    results = e.op(f"alloca {vector_type('float', target.lanes)}, i64 {tile.outputs * tile.vectors}, align {4 * target.lanes}", POINTER)
    layout = input_layout(shape, target.lanes, blocked=False, window=window)
    kernel = _Kernel(shape, target, tile, input_pointer, weights, results, write, layout)
    sizes = [shape.batch, *shape.out_size[:-1], parts_of_row(shape, target, tile)]
    whole = in_one_task(shape, target, tile, window)
    begin, end = (e.const(0), e.const(prod(sizes))) if whole else (e.begin, e.end)
    with e.loop(begin, end) as tasks:
        *numbers, part = digits(e, tasks.index, sizes)
        _emit_row(e, kernel, _row(e, kernel, numbers), part)
    return 1 if whole else prod(sizes)


def planes_rows(shape: ConvolutionShape, target: Target, tile: PlanesTile, window: int = 0) -> RowTasks | None:
    """How the tasks of `emit_planes` lie along the rows of images; None where they do not."""
    if len(shape.in_size) != 2 or in_one_task(shape, target, tile, window):
        return None
    last = (shape.kernel[0] - 1) * shape.dilations[0] - shape.pads_begin[0]
    parts = parts_of_row(shape, target, tile)
    return RowTasks(1, shape.out_size[0], parts, shape.in_size[0], shape.strides[0], -shape.pads_begin[0], last, shape.batch)


def _emit_row(e: Emitter, kernel: _Kernel, row: _Row, number: Value) -> None:
    """Part `number` of a row."""
    shape, lanes, tile = kernel.shape, kernel.lanes, kernel.tile
    parts = parts_of_row(shape, kernel.target, tile)
    size = -(-shape.out_size[-1] // (parts * tile.vectors * lanes)) * tile.vectors * lanes
    low = e.mul(number, size)
    for part in row_parts(shape, kernel.target, tile):
        first, stop = e.const(part.first), e.const(part.stop)
        if parts > 1:
            first, stop = e.smax(first, low), e.smin(stop, e.add(low, size))
        with e.loop(first, stop, tile.vectors * lanes) as column, e.loop(0, out_groups(shape, tile)) as group:
            _tile(e, kernel, row, part, column.index, group.index)


def _row(e: Emitter, kernel: _Kernel, numbers: Sequence[Value]) -> _Row:
    image, *places = numbers
    starts = [e.sub(e.mul(place, axis.stride), axis.pad) for axis, place in zip(kernel.axes[:-1], places, strict=True)]
    taps = tuple(valid_taps(e, axis, start) for axis, start in zip(kernel.axes[:-1], starts, strict=True))
    offset = e.mul(image, kernel.layout.image)
    for axis, start in zip(kernel.axes[:-1], starts, strict=True):
        offset = e.add(offset, e.mul(start, axis.in_stride))
    return _Row(image, tuple(places), taps, _moved(e, kernel.input, offset))


def _moved(e: Emitter, base: Value, offset: Value) -> Value:
    """base + offset elements, where the sum itself may lie outside the buffer (lanes that are not read)."""
    return e.op(f"getelementptr float, ptr {base.text}, i64 {offset.text}", POINTER)


def _tile(e: Emitter, kernel: _Kernel, row: _Row, part: RowPart, column: Value, group: Value) -> None:
    """Sums and results of one register tile."""
    tile, lanes, last = kernel.tile, kernel.lanes, kernel.axes[-1]
    depth = kernel.shape.in_channels * last.kernel * tile.outputs
    above = kernel.shape.taps // kernel.shape.kernel[-1]
    weights = e.gep(kernel.weights, e.mul(group, above * depth), "float")
    start = e.sub(e.mul(column, last.stride), last.pad)
    reader = _reader(e, kernel, part, start)
    ahead = _ahead(e, kernel, part, column)
    ranges: list[Range] = [(*taps, 1) for taps in row.taps]

    def body(indices: list[Value], sums: list[Value]) -> list[Value]:
        *taps, channel = indices
        offset, number = start, e.const(0)
        for axis, tap in zip(kernel.axes[:-1], taps, strict=True):
            offset = e.add(offset, e.mul(tap, axis.dilation * axis.in_stride))
            number = e.add(number, e.mul(e.add(tap, axis.tap_offset // axis.tap_stride), axis.tap_stride // kernel.shape.kernel[-1]))
        pixels = _moved(e, row.pointer, e.add(offset, e.mul(channel, kernel.layout.channel)))
        factors = e.gep(weights, e.add(e.mul(number, depth), e.mul(channel, last.kernel * tile.outputs)), "float")
        return _products(e, kernel, reader, pixels, factors, ahead, sums)

    zeros = [e.zero(kernel.vector)] * (tile.outputs * part.vectors)
    sums = nest(e, [*ranges, (e.const(0), e.const(kernel.shape.in_channels), 1)], zeros, body)
    for i, value in enumerate(sums):
        e.store(value, e.gep(kernel.results, i, kernel.vector), 4 * lanes)
    first = e.mul(group, tile.outputs)
    with e.loop(0, e.smin(e.const(tile.outputs), e.sub(e.const(kernel.shape.out_channels), first))) as output:
        for i in range(part.vectors):
            at = e.gep(kernel.results, e.add(e.mul(output.index, part.vectors), i), kernel.vector)
            place = [row.image, e.add(first, output.index), *row.places, e.add(column, i * lanes)]
            kernel.write(e, place, e.load(at, kernel.vector, 4 * lanes), part.stored(e, kernel.shape, lanes, i))


def _ahead(e: Emitter, kernel: _Kernel, part: RowPart, column: Value) -> Value:
    """Pixels from what a tile reads to what the next one does, in its row or, from the last tile of a row, in the next."""
    width, last = part.vectors * kernel.lanes, kernel.axes[-1]
    beside = e.const(width * last.stride)
    if len(kernel.axes) == 1:
        return beside
    above = kernel.axes[-2]
    below = e.sub(e.const(above.stride * above.in_stride), e.mul(column, last.stride))
    return e.select(e.compare("slt", e.add(column, width), e.const(last.out_size)), beside, below)


# Of a tile, the pixels of the next one are fetched: they lie in as many places as there are channels and rows, more than a processor
# follows. 96 to 24 channels of 240 x 184 took 0.55 of the time, 3 x 3 with stride 2 from 48 to 24 channels 0.78.
_LINE_PIXELS = 16


def _products(e: Emitter, kernel: _Kernel, reader: _Reader, pixels: Value, factors: Value, ahead: Value, sums: list[Value]) -> list[Value]:
    """All taps of one input channel of one row."""
    sums, outputs = list(sums), kernel.tile.outputs
    reader.loaded.clear()
    later = _moved(e, pixels, ahead)
    for pixel in range(0, reader.part.vectors * kernel.lanes * kernel.axes[-1].stride, _LINE_PIXELS):
        e.prefetch(_moved(e, later, e.const(pixel)))
    for tap in range(kernel.axes[-1].kernel):
        vectors = [reader.vector(e, pixels, tap, i) for i in range(reader.part.vectors)]
        for output in range(outputs):
            weights = _weights(e, kernel, e.gep(factors, tap * outputs + output, "float"), len(vectors))
            for i, (vector, factor) in enumerate(zip(vectors, weights, strict=True)):
                at = output * len(vectors) + i
                sums[at] = multiply_add(e, kernel.target, vector, factor, sums[at])
    return sums


def _weights(e: Emitter, kernel: _Kernel, pointer: Value, vectors: int) -> Iterator[Value]:
    """A weight in all lanes, for each vector of pixels.

    For two of them it is read twice, by the multiplications themselves: LLVM would keep a dozen outputs' weights for both, and spill. 15
    taps of 440 channels to 13 take 0.58 of the time by 13 x 2 (Zen 4). Two multiplications a cycle would wait for that many reads.
    """
    again = vectors == 2 and is_halved(kernel.target)
    for number in range(vectors):
        if number and again:
            e.keep_order()  # else LLVM sees that it has been read
        if again or not number:
            factor = e.splat(e.load(pointer, "float", 4), kernel.lanes)
        yield factor


@dataclass(frozen=True)
class _Reader:
    """The input vectors of a tile; offsets are pixels from the first one that its first tap reads, which may lie before the row."""

    kernel: _Kernel
    part: RowPart
    masks: Mapping[int, Value]  # of the lanes inside the image, by the offset of a load; none where all are
    loaded: dict[int, Value]  # of the channel that is being read, by the offset

    def vector(self, e: Emitter, pixels: Value, tap: int, number: int) -> Value:
        """What tap `tap` multiplies for vector `number` of the tile."""
        offsets, phase = _loads(self.kernel, tap, number)
        first, *second = [self._load(e, pixels, offset) for offset in offsets]
        return e.shuffle(first, second[0], [2 * lane + phase for lane in range(self.kernel.lanes)]) if second else first

    def _load(self, e: Emitter, pixels: Value, offset: int) -> Value:
        if offset not in self.loaded:
            at, type_ = _moved(e, pixels, e.const(offset)), self.kernel.vector
            mask = self.masks.get(offset)
            self.loaded[offset] = e.load(at, type_, 4) if mask is None else e.masked_load(at, type_, 4, mask, e.zero(type_))
        return self.loaded[offset]


def _loads(kernel: _Kernel, tap: int, number: int) -> tuple[list[int], int]:
    """Offsets of the vectors to load, and of which of their pixels the taken ones begin."""
    axis, lanes = kernel.axes[-1], kernel.lanes
    offset = number * lanes * axis.stride + tap * axis.dilation
    phase = offset % axis.stride
    return [offset - phase + i * lanes for i in range(axis.stride)], phase


def _reader(e: Emitter, kernel: _Kernel, part: RowPart, start: Value) -> _Reader:
    """The reader of a tile that begins at input pixel `start` of a row. Where that is known, vectors inside the image need no mask."""
    masks: dict[int, Value] = {}
    axis, lanes = kernel.axes[-1], kernel.lanes
    known = part.first * axis.stride - axis.pad if part.is_alone(lanes) else None
    if part.edge:
        numbers = e.lane_numbers(lanes, "i32")
        size = e.const(axis.in_size, numbers.type)
        for tap, number in product(range(axis.kernel), range(part.vectors)):
            for offset in _loads(kernel, tap, number)[0]:
                inside = known is not None and 0 <= known + offset <= axis.in_size - lanes
                if offset not in masks and not inside:
                    first = e.splat(e.cast("trunc", e.add(start, offset), "i32"), lanes)
                    masks[offset] = e.compare("ult", e.binary("add", first, numbers), size)
    return _Reader(kernel, part, masks, {})
