"""Weights that another kernel computed, brought into the order of a convolution kernel while the program runs.

What numpy does with known weights (convolution_packing.py, winograd_transform.py), a small kernel does here before each convolution. Dense
ones move squares of lanes x lanes through the registers; others, whose weights are few, are read by a table of places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import numpy as np

from anycann.codegen.conversions import from_storage
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_method import channel_block, method
from anycann.codegen.kernels.convolution_shape import ConvolutionShape, used_axes
from anycann.codegen.kernels.convolution_write import digits
from anycann.codegen.kernels.matmul_packing import transpose
from anycann.codegen.kernels.winograd_algorithm import WinogradAlgorithm
from anycann.codegen.kernels.winograd_transform import transform_weights
from anycann.codegen.values import Value, first_lanes, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te.dtypes import DType

Keep = Callable[[Value, "Value | int", Value], None]  # (input channel of the block, number among the taps, a vector of output channels)


@dataclass(frozen=True)
class Piece:
    """Weights of some taps, in this order, packed from element `offset` on. Those whose number is not `used` are left as they are."""

    offset: int
    taps: tuple[int, ...]
    used: frozenset[int]


@dataclass(frozen=True)
class ComputedWeights:
    """Where weight [o, i, tap] of a group lies in memory, of type `dtype`: its element is group * .. + o * out_step + i * in_step + tap."""

    shape: ConvolutionShape
    dtype: DType
    out_step: int
    in_step: int
    transposed: bool = False

    @property
    def group_step(self) -> int:
        """Elements of the weights of a group."""
        return self.shape.group_outputs * self.shape.group_inputs * self.shape.taps


def direct_weights(shape: ConvolutionShape, dtype: DType) -> ComputedWeights:
    """Weights [O, I / group, *kernel] of a convolution."""
    return ComputedWeights(shape, dtype, shape.group_inputs * shape.taps, shape.taps)


def transposed_weights(shape: ConvolutionShape, dtype: DType) -> ComputedWeights:
    """Weights [I, O / group, *kernel] of a transposed convolution."""
    return ComputedWeights(shape, dtype, shape.taps, shape.group_outputs * shape.taps, transposed=True)


def whole_piece(weights: ComputedWeights) -> Piece:
    """All taps of an ordinary convolution, those of a transposed one the last first. Used are those that ever meet the input."""
    shape = weights.shape
    taps = tuple(range(shape.taps))
    used = [range(a.tap_offset // a.tap_stride, a.tap_offset // a.tap_stride + a.kernel) for a in used_axes(shape)]
    numbers = frozenset(int(np.ravel_multi_index(tap, shape.kernel)) for tap in product(*used))
    return Piece(0, taps[::-1] if weights.transposed else taps, numbers)


# ---- dense kernels
def moves_squares(shape: ConvolutionShape, lanes: int, blocked_input: bool) -> bool:
    """True for weights whose lanes run over output channels of one group."""
    return method(shape, lanes, blocked_input) == "dense" and lanes > 1


def emit_dense(e: Emitter, weights: ComputedWeights, target: Target, pieces: Sequence[Piece], source: Value, to: Value) -> int:
    """Every piece as `pack_weights` has it, [O blocks, I blocks, taps, I of a block, lanes]; returns the number of tasks."""
    shape, lanes = weights.shape, target.lanes
    inner = channel_block(shape, lanes)
    blocks, in_blocks = shape.out_blocks(lanes), -(-shape.group_inputs // inner)
    accumulator = shape.accumulator
    with e.loop(e.begin, e.end) as task:
        block, in_block = digits(e, task.index, [blocks, in_blocks])
        for piece in pieces:
            first = e.mul(task.index, len(piece.taps) * inner * lanes)
            base = e.gep(to, e.add(first, piece.offset), accumulator.register)

            def keep(channel: Value, number: Value | int, vector: Value, base: Value = base) -> None:
                at = e.mul(e.const(number) if isinstance(number, int) else number, inner)
                place = e.gep(base, e.mul(e.add(at, channel), lanes), accumulator.register)
                e.store(vector, place, min(64, lanes * accumulator.nbytes))

            _emit_block(e, weights, target, piece, source, block, in_block, keep)
    return blocks * in_blocks


def _emit_block(
    e: Emitter, weights: ComputedWeights, target: Target, piece: Piece, source: Value, block: Value, in_block: Value, keep: Keep
) -> None:
    """The vectors of one block of output channels and one of input channels."""
    shape, lanes = weights.shape, target.lanes
    inner = channel_block(shape, lanes)
    first = e.mul(in_block, inner)
    count = e.smin(e.const(inner), e.sub(e.const(shape.group_inputs), first))
    group_blocks = max(1, shape.group_outputs // lanes) if shape.group > 1 else shape.out_blocks(lanes)
    group, own = digits(e, block, [shape.group, group_blocks])
    channel = e.mul(own, lanes)
    at = e.add(e.mul(group, weights.group_step), e.add(e.mul(channel, weights.out_step), e.mul(first, weights.in_step)))
    corner = e.gep(source, at, weights.dtype.storage)
    rows = _Rows(e, weights, target, corner, e.sub(e.const(shape.group_outputs - 1), channel))
    if weights.transposed:
        _emit_windows(e, rows, piece, count, keep)
    elif len(piece.used) * 2 < shape.taps:
        _emit_chosen(e, rows, piece, count, keep)
    else:
        _emit_runs(e, rows, count, keep)


@dataclass(frozen=True)
class _Rows:
    """The output channels of a block: lane l begins l * out_step elements from `corner`; lanes beyond `last` repeat it."""

    e: Emitter
    weights: ComputedWeights
    target: Target
    corner: Value
    last: Value

    def pointer(self, lane: int, offset: Value) -> Value:
        """The address of lane's weights, `offset` elements on."""
        e = self.e
        row = e.const(lane) if self.weights.shape.group_outputs % self.target.lanes == 0 else e.smin(e.const(lane), self.last)
        return e.gep(self.corner, e.add(e.mul(row, self.weights.out_step), offset), self.weights.dtype.storage)

    def element(self, lane: int, offset: Value) -> Value:
        """One weight of a lane."""
        dtype = self.weights.dtype
        return from_storage(self.e, self.e.load(self.pointer(lane, offset), dtype.storage, dtype.nbytes), dtype)

    def load(self, lane: int, offset: Value, mask: Value | None) -> Value:
        """A vector from lane's weights, `offset` elements on."""
        e, dtype, lanes = self.e, self.weights.dtype, self.target.lanes
        pointer = self.pointer(lane, offset)
        type_ = vector_type(dtype.storage, lanes)
        raw = e.load(pointer, type_, dtype.nbytes) if mask is None else e.masked_load(pointer, type_, dtype.nbytes, mask, e.zero(type_))
        return from_storage(e, raw, dtype)

    def square(self, offset: Value, mask: Value | None) -> list[Value]:
        """Vectors over the output channels of `lanes` elements that follow one another; those outside `mask` mean nothing."""
        return transpose(self.e, [self.load(lane, offset, mask) for lane in range(self.target.lanes)])


def _emit_runs(e: Emitter, rows: _Rows, count: Value, keep: Keep) -> None:
    """Input channels and taps of an output channel lie one behind the other: the run of all of them, a square at a time."""
    lanes, all_taps = rows.target.lanes, rows.weights.shape.taps
    length = e.mul(count, all_taps)
    whole = e.sub(length, e.urem(length, lanes))

    def keep_all(start: Value, square: Sequence[Value], stop: Value | None) -> None:
        for number, vector in enumerate(square):
            at = e.add(start, number)
            channel = e.udiv(at, all_taps)
            tap = e.sub(at, e.mul(channel, all_taps))
            if stop is None:
                keep(channel, tap, vector)
                continue
            with e.when(e.compare("slt", at, stop)):
                keep(channel, tap, vector)

    with e.loop(0, whole, lanes) as run:
        keep_all(run.index, rows.square(run.index, None), None)
    with e.loop(whole, length, lanes) as rest:
        numbers = e.add(e.splat(rest.index, lanes), e.lane_numbers(lanes))
        mask = e.compare("slt", numbers, e.splat(length, lanes))
        keep_all(rest.index, rows.square(rest.index, mask), length)


def _emit_chosen(e: Emitter, rows: _Rows, piece: Piece, count: Value, keep: Keep) -> None:
    """Few taps of many: their elements one by one."""
    lanes, weights = rows.target.lanes, rows.weights
    type_ = vector_type(weights.shape.accumulator.register, lanes)
    with e.loop(0, count) as channel:
        for number in sorted(piece.used):
            vector = e.poison(type_)
            for lane in range(lanes):
                at = e.add(e.mul(channel.index, weights.in_step), piece.taps[number])
                vector = e.insert(vector, rows.element(lane, at), lane)
            keep(channel.index, number, vector)


def _emit_windows(e: Emitter, rows: _Rows, piece: Piece, count: Value, keep: Keep) -> None:
    """The taps of an output channel lie together, input channels far apart: a square of output channels and taps for each of them."""
    lanes, shape = rows.target.lanes, rows.weights.shape
    with e.loop(0, count) as channel:
        offset = e.mul(channel.index, rows.weights.in_step)
        if shape.taps == 1:
            keep(channel.index, 0, _neighbours(e, rows, offset))
            return
        for start in range(0, shape.taps, lanes):
            size = min(lanes, shape.taps - start)
            here = [(number, piece.taps[number]) for number in sorted(piece.used) if start <= piece.taps[number] < start + size]
            if here:
                square = rows.square(e.add(offset, start), first_lanes(size, lanes))
                for number, tap in here:
                    keep(channel.index, number, square[tap - start])


def _neighbours(e: Emitter, rows: _Rows, offset: Value) -> Value:
    """One tap: the output channels themselves lie together."""
    lanes, shape = rows.target.lanes, rows.weights.shape
    if shape.group_outputs % lanes == 0:
        return rows.load(0, offset, None)
    numbers = e.lane_numbers(lanes)
    return rows.load(0, offset, e.compare("sle", numbers, e.splat(rows.last, lanes)))


# ---- Winograd
def emit_transformed(
    e: Emitter, weights: ComputedWeights, target: Target, algorithm: WinogradAlgorithm, piece: Piece, source: Value, to: Value
) -> int:
    """As `pack_winograd_weights`, [O blocks, points, I, lanes]; returns the number of tasks."""
    shape, lanes = weights.shape, target.lanes
    inner = channel_block(shape, lanes)
    blocks, in_blocks = shape.out_blocks(lanes), -(-shape.group_inputs // inner)
    vector, align = vector_type("float", lanes), 4 * lanes

    def place(channel: Value, number: Value) -> Value:
        return e.gep(e.scratch, e.mul(e.add(e.mul(channel, shape.taps), number), lanes), "float")

    def keep(channel: Value, number: Value | int, value: Value) -> None:
        e.store(value, place(channel, e.const(number) if isinstance(number, int) else number), align)

    with e.loop(e.begin, e.end) as task:
        block, in_block = digits(e, task.index, [blocks, in_blocks])
        _emit_block(e, weights, target, piece, source, block, in_block, keep)
        first = e.mul(in_block, inner)
        count = e.smin(e.const(inner), e.sub(e.const(shape.in_channels), first))
        with e.loop(0, count) as channel:
            window = [e.zero(vector)] * shape.taps  # taps that meet nothing but padding may not have been read
            for tap in sorted(piece.used):
                window[tap] = e.load(place(channel.index, e.const(tap)), vector, align)
            for point, value in enumerate(transform_weights(e, target, algorithm, window)):
                plane = e.add(e.mul(block, algorithm.points), point)
                at = e.add(e.mul(plane, shape.in_channels), e.add(first, channel.index))
                e.store(value, e.gep(to, e.mul(at, lanes), "float"), align)
    return blocks * in_blocks


def transform_scratch(shape: ConvolutionShape, lanes: int) -> int:
    """Bytes of scratch memory of `emit_transformed`."""
    return 4 * channel_block(shape, lanes) * shape.taps * lanes


# ---- any order
MOST_PLACES = 1 << 24  # numbers that float32 tells apart


def place_table(weights_shape: Sequence[int], pack: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The place in the weights of each packed element, counted from 1, int32; 0 where there is none. `pack` is what numpy would do."""
    numbers = np.arange(1, prod(weights_shape) + 1, dtype=np.float64).reshape(weights_shape)
    return np.ascontiguousarray(pack(numbers).ravel().astype(np.int32))


def emit_by_table(e: Emitter, dtype: DType, accumulator: DType, count: int, source: Value, table: Value, to: Value) -> int:
    """Element n is the weight of number table[n] - 1, or zero; returns the number of tasks."""
    chunk, register = 4096, accumulator.register
    with e.loop(e.begin, e.end) as task:
        first = e.mul(task.index, chunk)
        with e.loop(first, e.smin(e.add(first, chunk), e.const(count))) as element:
            number = e.cast("sext", e.load(e.gep(table, element.index, "i32"), "i32", 4), "i64")
            known = e.compare("sgt", number, e.const(0))
            place = e.gep(source, e.smax(e.sub(number, 1), e.const(0)), dtype.storage)
            value = from_storage(e, e.load(place, dtype.storage, dtype.nbytes), dtype)
            e.store(e.select(known, value, e.zero(register)), e.gep(to, element.index, register), accumulator.nbytes)
    return -(-count // chunk)
