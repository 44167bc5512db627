"""The register tile of a direct convolution: sums of products over input channels and kernel taps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TypeAlias

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_columns import TapSpan, TileKind, tile_count
from anycann.codegen.kernels.convolution_inputs import prefetch_block
from anycann.codegen.kernels.convolution_kernel import DirectKernel, Place
from anycann.codegen.kernels.convolution_method import channel_block
from anycann.codegen.kernels.convolution_products import add_product
from anycann.codegen.kernels.convolution_shape import Axis
from anycann.codegen.kernels.convolution_sliding import row_of_taps, slides
from anycann.codegen.kernels.convolution_tile import MOST_FMAS, keeps_order
from anycann.codegen.values import Value, is_float, vector_type
from anycann.support.records import dataclass


class Window:
    """The part of the input under the kernel for a row: element offset of its first tap and the valid taps of each axis but the last.

    `blocks` output channel blocks are computed, of the last one only `last_lanes` lanes.
    """

    def __init__(self, e: Emitter, kernel: DirectKernel, place: Place, blocks: int, last_lanes: int):
        self.kernel, self.place, self.blocks, self.last_lanes = kernel, place, blocks, last_lanes
        layout, lanes = kernel.layout, kernel.lanes
        self.later: Later | None = None
        self.spatial = e.mul(place.batch, layout.image)
        self.taps: list[tuple[Value, Value]] = []
        for axis, position in zip(kernel.axes[:-1], place.rows, strict=not kernel.tile.depth):
            start = e.sub(e.mul(position, axis.stride), axis.pad)
            self.spatial = e.add(self.spatial, e.mul(start, axis.in_stride * layout.pixel))
            self.taps.append(valid_taps(e, axis, start))
        inner = channel_block(kernel.shape, lanes)
        self.tap_size = inner * lanes
        self.sums = blocks
        if kernel.how == "inner":  # the sums of a pixel are one for each output channel
            self.tap_size, self.sums = lanes, kernel.shape.out_channels
        self.in_block_size = kernel.shape.taps * self.tap_size
        self.in_blocks = -(-kernel.shape.group_inputs // inner)
        self.block_size = self.in_blocks * self.in_block_size
        self.depth: tuple[Value, Value] = (e.const(0), e.const(self.in_blocks))  # the input channel blocks to add up
        together = min(self.in_blocks, kernel.tile.depth or self.in_blocks)
        weight_bytes = kernel.shape.accumulator.nbytes * blocks * together * self.in_block_size
        self.fetches_soon = kernel.how == "dense" and not kernel.only_loads and weight_bytes > kernel.target.l1_bytes // 2
        first_tap = sum(axis.tap_offset for axis in kernel.axes)
        at = e.add(e.mul(place.block, self.block_size), first_tap * self.tap_size)
        self.weights = e.gep(kernel.weights, at, kernel.shape.accumulator.register)

    def vector(self, number: int) -> str:
        """The type of sum `number` of a pixel."""
        lanes = self.last_lanes if number == self.sums - 1 else self.kernel.lanes
        return vector_type(self.kernel.shape.accumulator.register, lanes)


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


def zero_sums(e: Emitter, window: Window) -> list[Value]:
    """Zero for each sum of one pixel."""
    return [e.zero(window.vector(j)) for j in range(window.sums)]


def narrowed(e: Emitter, vector: Value, type_: str) -> Value:
    """The first lanes of a vector."""
    lanes = Value("", type_).lanes
    return vector if vector.lanes == lanes else e.shuffle(vector, vector, range(lanes))


def widened_block(e: Emitter, window: Window, vector: Value) -> Value:
    """A vector of all lanes; those that were not computed repeat others."""
    lanes = window.kernel.lanes
    return vector if vector.lanes == lanes else e.shuffle(vector, vector, [lane % vector.lanes for lane in range(lanes)])


def initial_sums(e: Emitter, window: Window) -> list[Value]:
    """What the sums of one pixel start from, a vector a channel block."""
    kernel = window.kernel
    if kernel.initial is None:
        return zero_sums(e, window)
    starts = [kernel.initial(e, e.mul(e.add(window.place.block, j), kernel.lanes)) for j in range(window.blocks)]
    return [narrowed(e, start, window.vector(j)) if kernel.how == "dense" else start for j, start in enumerate(starts)]


def added_lanes(e: Emitter, window: Window, sums: Sequence[Value]) -> list[Value]:
    """Sums [pixel][output channel] over lanes of input channels -> one vector of output channels a pixel."""
    kernel, start = window.kernel, initial_sums(e, window)[0]
    result = []
    for first in range(0, len(sums), window.sums):
        vector = e.poison(kernel.vector)
        for lane, partial in enumerate(sums[first : first + window.sums]):
            vector = e.insert(vector, e.reduce("fadd" if is_float(partial.element) else "add", partial), lane)
        result.append(e.binary("fadd" if is_float(start.element) else "add", vector, start) if kernel.initial else vector)
    return result


Range: TypeAlias = tuple[Value, Value, int]


def nest(e: Emitter, ranges: Sequence[Range], sums: list[Value], body: Callable[[list[Value], list[Value]], list[Value]]) -> list[Value]:
    """Loops over `ranges` (first, stop, step), outer first, that carry `sums` through `body(indices, sums)`."""
    if not ranges:
        return body([], sums)
    (first, stop, step), inner = ranges[0], ranges[1:]
    if stop.text.isdigit() and first.text.isdigit() and int(stop.text) == int(first.text) + step:
        return nest(e, inner, sums, lambda indices, s: body([first, *indices], s))
    with e.loop(first, stop, step, sums) as loop:
        index = loop.index
        loop.carry(nest(e, inner, loop.values, lambda indices, s: body([index, *indices], s)))
    return loop.values


def accumulate(
    e: Emitter, window: Window, kind: TileKind, taps: tuple[Value, Value] | None, spatial: Value, sums: list[Value]
) -> list[Value]:
    """Add all products of a tile: input channel blocks, then taps of the outer axes, then the spans of the last axis."""
    outer: list[Range] = [(*window.depth, 1), *((first, stop, 1) for first, stop in window.taps)]

    def body(indices: list[Value], sums: list[Value]) -> list[Value]:
        for span in kind.spans:
            first, stop = taps or (e.const(span.first_tap), e.const(span.stop_tap))
            sums = _span(e, window, span, (first, stop), indices, spatial, sums, _channels_of_turn(window, kind))
        return sums

    return nest(e, outer, sums, body)


def _channels_of_turn(window: Window, kind: TileKind) -> int:
    """Input channels written out in the innermost loop; half of a block where the taps of a border, one by one, would leave no loop.

    LLVM allocates registers for so many products at once as if their order were open, and spills sums.
    """
    kernel, unroll = window.kernel, window.kernel.tile.unroll
    products = sum(span.stop_pixel - span.first_pixel for span in kind.spans if span.stop_tap == span.first_tap + 1) * window.sums * unroll
    is_straight = keeps_order(kernel.shape, kernel.target, kernel.how) and unroll == channel_block(kernel.shape, kernel.lanes)
    return unroll // 2 if is_straight and unroll % 2 == 0 and products > MOST_FMAS else unroll


def _span(
    e: Emitter, window: Window, span: TapSpan, taps: tuple[Value, Value], outer: list[Value], spatial: Value, sums: list[Value], unroll: int
) -> list[Value]:
    """The taps and input channels of one span, for the pixels it is valid for; `unroll` channels written out."""
    kernel = window.kernel
    in_block, rows = outer[0], outer[1:]
    channels = _channels_of_block(e, kernel, window.in_blocks, in_block)

    def places(tap: Value) -> tuple[Value, Value]:
        """The offset of the input, and the number of the weights."""
        offset, number = spatial, e.const(0)
        for axis, k in zip(kernel.axes, [*rows, tap], strict=True):
            offset = e.add(offset, e.mul(k, axis.dilation * axis.in_stride * kernel.layout.pixel))
            number = e.add(number, e.mul(k, axis.tap_stride))
        return offset, number

    if slides(kernel, span) and all(tap.text.isdigit() for tap in taps):
        offset, number = places(e.const(0))
        weights = e.gep(window.weights, e.mul(number, window.tap_size), kernel.shape.accumulator.register)
        return row_of_taps(e, kernel, span, kernel.source.fetcher(e, window.place.origin, offset, in_block, e.const(0)), weights, sums)

    def body(indices: list[Value], sums: list[Value]) -> list[Value]:
        tap, channel = indices
        offset, number = places(tap)
        at = e.add(e.add(e.mul(in_block, window.in_block_size), e.mul(number, window.tap_size)), e.mul(channel, kernel.lanes))
        later = [] if window.later is None else _later_lines(e, window, at, unroll)
        if not keeps_order(kernel.shape, kernel.target, kernel.how):
            _prefetch_later(e, later)
            later = []
        weights = e.gep(window.weights, at, kernel.shape.accumulator.register)
        return _products(e, window, span, weights, offset, in_block, channel, sums, unroll, later)

    _prefetch_pixels(e, window, span, in_block, spatial)
    return nest(e, [(*taps, 1), (e.const(0), channels, unroll)], sums, body)


# Input channel blocks that the pixels of a tile are fetched ahead: they lie a plane apart, where no processor expects them. Pointwise
# convolutions, which use them once, measured 1.0 to 1.4 times as fast on 26 shapes from 7 x 7 to 160 x 160; 3 x 3 ones 0.94 to 1.08.
_BLOCKS_AHEAD = 2
# Rows of so many tiles fetch the pixels of the next tile instead, which leaves time for the third-level cache: with AVX2 256 -> 64 channels
# of 56 x 56 take 0.85 of the time, 256 -> 128 0.91, 512 -> 64 of 80 x 80 0.84, 1024 -> 256 of 14 x 14 0.97 (Zen 3), ResNet-50 0.97. Not
# measured with 32 registers.
_LONG_ROW = 8


def _prefetch_pixels(e: Emitter, window: Window, span: TapSpan, in_block: Value, spatial: Value) -> None:
    """Fetch the lines of a tile's pixels of a later input channel block, or of the next tile's pixels of this one."""
    kernel, axis = window.kernel, window.kernel.axes[-1]
    if kernel.shape.taps > 1 or window.in_blocks <= _BLOCKS_AHEAD:
        return
    step = axis.stride * axis.in_stride * kernel.layout.pixel
    apart = max(1, _LINE_BYTES // (step * kernel.shape.dtype.nbytes))
    is_long = kernel.target.has_few_registers and axis.stride == 1 and tile_count(axis, kernel.tile.columns) >= _LONG_ROW
    first, block = (kernel.tile.columns, in_block) if is_long else (0, e.add(in_block, _BLOCKS_AHEAD))
    offsets = [(first + pixel) * step for pixel in range(span.first_pixel, span.stop_pixel, apart)]
    prefetch_block(e, kernel.source, window.place.origin, spatial, block, offsets)


# How far ahead of the products weights are fetched into the first-level cache; measured from 256 to 2048.
_LINE_BYTES, _SOON_BYTES = 64, 1024


Line: TypeAlias = tuple[Value, int]  # a pointer, and how many bytes behind it


def _later_lines(e: Emitter, window: Window, at: Value, unroll: int) -> list[Line]:
    """The lines of a part of the weights that follow, for `unroll` channels, as far along in it as `at` is in those of the first block."""
    kernel, later = window.kernel, window.later
    assert later is not None
    place = e.gep(later.pointer, e.mul(e.udiv(at, kernel.lanes), later.nbytes), "i8")
    runs = (run * window.block_size * kernel.shape.accumulator.nbytes for run in range(later.runs))
    return [(place, run + line) for run, line in product(runs, range(0, later.nbytes * unroll, _LINE_BYTES))]


def _prefetch_later(e: Emitter, lines: Sequence[Line]) -> None:
    """Fetch lines into the second-level cache."""
    for place, distance in lines:
        e.prefetch(e.gep(place, distance, "i8"), level=2)


@dataclass(frozen=True)
class Later:
    """Weights of later channel blocks that a tile fetches meanwhile: `nbytes` for each vector of its own, in `runs` a block apart."""

    pointer: Value
    nbytes: int
    runs: int


def later_weights(e: Emitter, window: Window, tile: Value) -> Later:
    """What the tile of number `tile` fetches: all tiles that share weights fetch all of the next output, or input, channel blocks.

    So the weights of a layer come from memory while the processor multiplies, not while the first tile waits for them.
    """
    kernel, vectors = window.kernel, window.block_size // window.kernel.lanes
    if not kernel.tile.depth:
        nbytes = -(-kernel.alignment * window.blocks // kernel.tiles_of_weights)
        begin = e.add(e.mul(tile, vectors * nbytes), kernel.alignment * vectors * window.blocks)
        return Later(e.gep(window.weights, begin, "i8"), nbytes, 1)
    nbytes, vectors = -(-kernel.alignment // kernel.tiles_of_weights), window.in_block_size // kernel.lanes
    first, stop = window.depth
    begin = e.add(e.mul(stop, kernel.alignment * vectors), e.mul(tile, kernel.tile.depth * vectors * nbytes))
    return Later(e.gep(window.weights, e.sub(begin, e.mul(first, vectors * nbytes)), "i8"), nbytes, window.blocks)


def _channels_of_block(e: Emitter, kernel: DirectKernel, in_blocks: int, in_block: Value) -> Value:
    """Real input channels of a block: fewer in the last one, whose other lanes may hold anything and are never read."""
    inner = channel_block(kernel.shape, kernel.lanes)
    last = kernel.shape.group_inputs % inner or inner
    if last == inner or kernel.how == "inner":
        return e.const(inner)
    is_last = e.compare("eq", in_block, e.const(in_blocks - 1))
    return e.select(is_last, e.const(last), e.const(inner))


def _products(
    e: Emitter,
    window: Window,
    span: TapSpan,
    weights: Value,
    offset: Value,
    in_block: Value,
    channel: Value,
    sums: list[Value],
    unroll: int,
    later: Sequence[Line],
) -> list[Value]:
    """The unrolled input channels of one tap: one FMA for each pixel and channel block.

    Each channel fetches its share of the lines of `later`. Few tiles fetch as much as they read, and all at once that keeps the loads
    behind it waiting: 96 -> 96 channels, 3 taps on 8 pixels took 1.45 times as long, on 16 pixels of 192 channels 1.2 (Zen 3).
    """
    kernel, blocks = window.kernel, window.sums
    sums = list(sums)
    step = kernel.axes[-1].stride * kernel.axes[-1].in_stride * kernel.layout.pixel
    fetch = kernel.source.fetcher(e, window.place.origin, offset, in_block, channel)
    rows: dict[tuple[int, int], Value] = {}
    keeps = keeps_order(kernel.shape, kernel.target, kernel.how)
    for i, pixel in kernel.order(span, unroll):
        if keeps:
            e.keep_order()
        x = fetch(i, pixel * step)
        for j in range(blocks):
            if (i, j) not in rows:
                if j == 0:
                    _prefetch_later(e, later[i * len(later) // unroll : (i + 1) * len(later) // unroll])
                at_row = e.gep(weights, i * kernel.lanes + j * window.block_size, kernel.shape.accumulator.register)
                rows[i, j] = e.load(at_row, window.vector(j), kernel.alignment)
                if window.fetches_soon and i * kernel.alignment % _LINE_BYTES == 0:
                    e.prefetch(e.gep(at_row, _SOON_BYTES, "i8"))
            at = pixel * blocks + j
            sums[at] = add_product(e, kernel, narrowed(e, x, window.vector(j)), rows[i, j], sums[at])
    return sums
