"""The middle of Winograd's convolution: at each point, a product of transformed inputs and transformed weights."""

from __future__ import annotations

from functools import cached_property
from itertools import product
from math import prod

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.arithmetic_rate import fills_registers
from anycann.codegen.kernels.convolution_inputs import Elements
from anycann.codegen.kernels.convolution_kernel import Initial, Write
from anycann.codegen.kernels.convolution_products import multiply_add
from anycann.codegen.kernels.convolution_sums import Range, narrowed, nest
from anycann.codegen.kernels.winograd_algorithm import WinogradAlgorithm
from anycann.codegen.kernels.winograd_bundles import BundledShape, emit_channels_of, most_channels
from anycann.codegen.kernels.winograd_tile import (
    WinogradTile,
    all_groups,
    input_stride,
    plane_taps,
    product_stride,
    read_positions,
    winograd_algorithm,
    winograd_depth,
)
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target


@dataclass(frozen=True)
class WinogradKernel:
    """The convolution to write, its operands and the memory it works in."""

    shape: BundledShape
    target: Target
    tile: WinogradTile
    elements: Elements
    weights: Value
    write: Write
    initial: Initial | None
    inputs: Value  # [point][in block][position][lanes], points `input_stride` apart
    products: Value  # [point][out block of a group][position][lanes], points `product_stride` apart
    zeros: Value  # one vector
    results: Value  # the results of a tile, a vector each

    @cached_property
    def algorithm(self) -> WinogradAlgorithm:
        return winograd_algorithm(self.shape, self.tile)

    @property
    def lanes(self) -> int:
        return self.target.lanes

    @property
    def vector(self) -> str:
        return vector_type("float", self.lanes)

    def load(self, e: Emitter, base: Value, offset: Value) -> Value:
        return e.load(e.gep(base, offset, "float"), self.vector, 4 * self.lanes)

    def store(self, e: Emitter, value: Value, base: Value, offset: Value) -> None:
        e.store(value, e.gep(base, offset, "float"), 4 * self.lanes)


@dataclass(frozen=True)
class BlockGroup:
    """Output channel blocks that are multiplied together: the first one, its number among those whose products are kept, how
    many, and the lanes to compute of the last."""

    first: Value
    kept: Value
    blocks: int
    last_lanes: int


def weights_ahead(e: Emitter, kernel: WinogradKernel, point: Value, group: Value, groups: tuple[Value, Value]) -> Value:
    """Elements from the weights of a point and a group to those that are multiplied next: of the next group, or of the next point.

    `groups` are the first of the task and that behind its last. What comes first at a point was not fetched before, and in its place what
    another task reads: by points, where that is a third or half of the weights, 512 channels of 7 x 7 take 0.92 to 0.95 of the time (AVX2).
    """
    first, stop = groups
    plane, points = winograd_depth(kernel.shape, kernel.lanes) * kernel.lanes, kernel.algorithm.points

    def to_block_of(other: Value) -> Value:
        return e.mul(e.sub(group_block(e, kernel, other), group_block(e, kernel, group)), points * plane)

    of_group, is_last = to_block_of(e.add(group, 1)), e.compare("eq", point, e.const(points - 1))
    to_first_point = e.sub(of_group, (points - 1) * plane)
    if not kernel.tile.by_point:
        return e.select(is_last, to_first_point, e.const(plane))
    next_point = e.select(is_last, to_first_point, e.add(to_block_of(first), plane))
    return e.select(e.compare("eq", e.add(group, 1), stop), next_point, of_group)


def group_block(e: Emitter, kernel: WinogradKernel, group: Value) -> Value:
    """The first output channel block of a group, or that behind the last."""
    blocks, groups = kernel.shape.out_blocks(kernel.lanes), all_groups(kernel.shape, kernel.lanes, kernel.tile)
    if blocks % groups == 0:
        return e.mul(group, blocks // groups)
    return e.udiv(e.add(e.mul(group, blocks), groups - 1), groups)  # `first_block`


def multiply_point(e: Emitter, kernel: WinogradKernel, point: Value, group: BlockGroup, following: Value) -> None:
    """products[point] = weights[point] * inputs[point], `columns` positions at a time; the weights that come next lie `following` elements
    behind these.
    """
    width = kernel.tile.columns
    full, rest = divmod(kernel.tile.positions, width)
    if full:
        with e.loop(0, full * width, width) as start:
            _multiply(e, kernel, point, group, following, start.index, width)
    if rest:
        _multiply(e, kernel, point, group, following, e.const(full * width), rest)


_LINE_BYTES = 64


def _multiply(e: Emitter, kernel: WinogradKernel, point: Value, group: BlockGroup, following: Value, start: Value, width: int) -> None:
    """One register tile: `width` positions from `start`, the channel blocks of a group, all real input channels of all planes it reads.

    Meanwhile the weights that are multiplied next are fetched: from memory they take about as long as the products.
    """
    shape, lanes, positions, unroll = kernel.shape, kernel.lanes, kernel.tile.positions, kernel.tile.unroll
    points, depth, blocks = kernel.algorithm.points, winograd_depth(shape, lanes), group.blocks
    channels_of_tap = most_channels(shape, lanes)
    plane, apart = depth * lanes, prod(shape.dilations[:-2]) * kernel.tile.tiles * lanes
    weights = e.gep(kernel.weights, e.add(e.mul(group.first, points * plane), e.mul(point, plane)), "float")
    inputs = e.gep(kernel.inputs, e.add(e.mul(point, input_stride(shape, lanes, kernel.tile)), e.mul(start, lanes)), "float")
    ahead = -(-4 * lanes // -(-positions // kernel.tile.columns))  # bytes of the next weights for each input channel of these
    later = e.gep(weights, e.add(e.mul(e.udiv(start, kernel.tile.columns), depth * ahead), e.mul(following, 4)), "i8")
    in_blocks, last, in_block_size = shape.in_blocks(lanes), shape.in_channels % lanes or lanes, read_positions(shape, kernel.tile) * lanes
    types = [vector_type("float", group.last_lanes if j == blocks - 1 else lanes) for j in range(blocks)]

    def body(indices: list[Value], sums: list[Value]) -> list[Value]:
        tap, in_block = indices
        real = e.const(lanes)
        if last != lanes:
            real = e.select(e.compare("eq", in_block, e.const(in_blocks - 1)), e.const(last), real)
        at, before = e.add(e.mul(in_block, in_block_size), e.mul(tap, apart)), e.add(e.mul(tap, channels_of_tap), e.mul(in_block, lanes))
        return nest(e, [(e.const(0), real, unroll)], sums, lambda inner, s: channels(e.add(at, inner[0]), e.add(before, inner[0]), s))

    def in_groups(indices: list[Value], sums: list[Value]) -> list[Value]:
        tap, channel = indices
        at = e.add(e.mul(e.udiv(channel, lanes), in_block_size), e.add(e.urem(channel, lanes), e.mul(tap, apart)))
        return channels(at, e.add(e.mul(tap, channels_of_tap), e.sub(channel, first_channel)), sums)

    def channels(at: Value, number: Value, sums: list[Value]) -> list[Value]:
        sums = list(sums)
        x, w, keeps = e.gep(inputs, at, "float"), e.gep(weights, e.mul(number, lanes), "float"), fills_registers(kernel.target)
        lines = list(product(range(blocks), range(0, ahead * unroll, _LINE_BYTES)))
        for i in range(unroll):
            shares = (i, i + 1) if keeps else (0, unroll if i == 0 else 0)  # each channel fetches its share, as the order is kept
            for j, line in lines[shares[0] * len(lines) // unroll : shares[1] * len(lines) // unroll]:
                e.prefetch(e.gep(e.gep(later, j * 4 * points * plane + line, "i8"), e.mul(number, ahead), "i8"), level=2)
            rows = [e.load(e.gep(w, j * points * plane + i * lanes, "float"), types[j], 4 * lanes) for j in range(blocks)]
            for p in range(width):
                scalar = e.splat(e.load(e.gep(x, p * lanes + i, "float"), "float", 4), lanes)
                for j in range(blocks):
                    at_sum, factor = p * blocks + j, narrowed(e, scalar, types[j])
                    sums[at_sum] = multiply_add(e, kernel.target, factor, rows[j], sums[at_sum])
                if keeps:
                    e.keep_order()
        return sums

    sums = [e.zero(types[j]) for _ in range(width) for j in range(blocks)]
    taps: Range = (e.const(0), e.const(plane_taps(shape)), 1)
    if shape.group > 1:
        first_channel, stop_channel = emit_channels_of(e, shape, lanes, group.first)
        sums = nest(e, [taps, (first_channel, stop_channel, unroll)], sums, in_groups)
    else:
        sums = nest(e, [taps, (e.const(0), e.const(in_blocks), 1)], sums, body)
    to = e.mul(point, product_stride(shape, lanes, kernel.tile))
    first = e.add(e.mul(group.kept, positions), start)
    for p in range(width):
        for j in range(blocks):
            kernel.store(e, sums[p * blocks + j], kernel.products, e.add(to, e.mul(e.add(first, j * positions + p), lanes)))
