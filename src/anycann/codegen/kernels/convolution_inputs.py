"""Where the input of a tile comes from: one scalar for all lanes, the lanes of a channel block, or a gather."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import gcd, prod
from typing import Protocol, TypeAlias

from anycann.codegen.conversions import from_storage
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_method import aligned_groups, channel_block, groups_of_vector, method
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.values import POINTER, Value, vector_type
from anycann.support.records import dataclass
from anycann.te.dtypes import DType


@dataclass(frozen=True)
class InputLayout:
    """Distances in elements between neighbours in the input: images, channel blocks, channels of a block, pixels."""

    image: int
    block: int
    channel: int
    pixel: int

    def of_channel(self, e: Emitter, number: Value, lanes: int) -> Value:
        """Offset of a channel by its number."""
        if self.channel != 1:
            return e.mul(number, self.channel)
        return e.add(e.mul(e.udiv(number, lanes), self.block), e.urem(number, lanes))


def input_layout(shape: ConvolutionShape, lanes: int, blocked: bool, channels_last: bool = False, window: int = 0) -> InputLayout:
    """NC1HWC0 [N, C blocks, *spatial, lanes] or [N, *spatial, C], where a block is as many channels of C; or row-major [N, C, *spatial].

    With `window`, so many rows of one row-major image at a time (te/layout.py).
    """
    if window:
        plane = window * prod(shape.in_size[1:])
        return InputLayout(0, lanes * plane, plane, 1)
    if channels_last:
        return InputLayout(shape.in_channels * shape.in_pixels, lanes, 1, shape.in_channels)
    if blocked:
        return InputLayout(shape.in_blocks(lanes) * shape.in_pixels * lanes, shape.in_pixels * lanes, 1, lanes)
    return InputLayout(shape.in_channels * shape.in_pixels, lanes * shape.in_pixels, shape.in_pixels, 1)


@dataclass(frozen=True)
class Elements:
    """The input as it is stored: how to address it and how to bring it to the type of the sums.

    `zero_point` (a scalar of that type) is taken from every element; padding then counts as the zero point, as ConvInteger wants.
    """

    dtype: DType
    accumulator: DType
    pointer: Value
    zero_point: Value | None = None

    def moved(self, e: Emitter, base: Value, offset: Value | int) -> Value:
        """base + offset elements, where the sum itself may lie outside the buffer (pixel 0 of a border tile is never loaded)."""
        offset = e.const(offset) if isinstance(offset, int) else offset
        return base if offset.text == "0" else e.op(f"getelementptr {self.dtype.storage}, ptr {base.text}, i64 {offset.text}", POINTER)

    def widened(self, e: Emitter, raw: Value) -> Value:
        """What was loaded, in the type of the sums."""
        value = from_storage(e, raw, self.dtype)
        if not self.dtype.is_float and self.dtype.nbytes < self.accumulator.nbytes:
            value = e.cast("sext" if self.dtype.is_signed else "zext", raw, self.accumulator.register)
        return value if self.zero_point is None else e.binary("sub", value, e.splat(self.zero_point, value.lanes))

    def scalar(self, e: Emitter, pointer: Value, lanes: int) -> Value:
        """One element in all lanes."""
        return e.splat(self.widened(e, e.load(pointer, self.dtype.storage, self.dtype.nbytes)), lanes)

    def vector(self, e: Emitter, pointer: Value, lanes: int, apart: int = 0) -> Value:
        """A whole channel block at one pixel; pixels are `apart` elements from one another if not `lanes`."""
        align = min(64, self.dtype.nbytes * gcd(apart, lanes))
        return self.widened(e, e.load(pointer, vector_type(self.dtype.storage, lanes), align))

    def last_vector(self, e: Emitter, pointer: Value, lanes: int, missing: int) -> Value:
        """A channel block at one pixel whose last `missing` lanes are no channels: loaded from as many channels in front, moved down.

        A load behind the last channel of the last pixel could leave the input, and masks of bytes and words are AVX-512's. Those lanes
        hold other channels.
        """
        start = self.moved(e, pointer, -missing)
        raw = e.load(start, vector_type(self.dtype.storage, lanes), self.dtype.nbytes)
        return self.widened(e, e.shuffle(raw, raw, [min(lane + missing, lanes - 1) for lane in range(lanes)]))

    def gathered(self, e: Emitter, offsets: Value) -> Value:
        """One element for each offset."""
        return self.widened(e, e.gather(self.pointer, offsets, self.dtype.storage, self.dtype.nbytes))


# fetch(i, offset): the vector of the i-th unrolled input channel, at this many elements from the tile's pixel 0. Called where the vector
# is used: loads written far ahead of their use would take registers from the sums.
Fetch: TypeAlias = Callable[[int, int], Value]


class Source(Protocol):
    """Gives the input vectors of a tile. Offsets are in elements of the input; `spatial` is that of pixel 0 at the current tap."""

    def origin(self, e: Emitter, group: Value, block: Value) -> Value:
        """Where the input channels of a group or an output channel block begin, in the form that `fetcher` takes."""

    def fetcher(self, e: Emitter, origin: Value, spatial: Value, in_block: Value, channel: Value) -> Fetch:
        """Access to channels `channel`.. of the group's channel block `in_block`."""

    def of_last_block(self) -> Source:
        """The source for the last output channel block."""


def source(
    shape: ConvolutionShape,
    lanes: int,
    blocked: bool,
    pointer: Value,
    zero_point: Value | None = None,
    channels_last: bool = False,
    window: int = 0,
) -> Source:
    """The source of inputs for this convolution."""
    layout = input_layout(shape, lanes, blocked, channels_last, window)
    elements = Elements(shape.dtype, shape.accumulator, pointer, zero_point)
    how = method(shape, lanes, blocked)
    if how == "inner":
        return _Inner(shape, lanes, layout, elements)
    if how == "lanes":
        return _Lanes(shape, lanes, layout, elements)
    if how == "blend":
        return _Blend(shape, lanes, layout, elements)
    if how == "gather":
        return _Gather(shape, lanes, layout, elements)
    return _Broadcast(shape, lanes, layout, elements)


def prefetch_block(e: Emitter, source: Source, origin: Value, spatial: Value, in_block: Value, offsets: Iterable[int]) -> None:
    """Ask for the lines of a channel block at these offsets, where pixels are channel blocks and all lanes see the same channels."""
    if isinstance(source, _Broadcast) and source.layout.channel == 1:
        first = source.place(e, origin, spatial, in_block, e.const(0))
        for offset in offsets:
            e.prefetch(source.elements.moved(e, first, offset))


@dataclass(frozen=True)
class _Broadcast:
    """All lanes of an output vector see the same input channels."""

    shape: ConvolutionShape
    lanes: int
    layout: InputLayout
    elements: Elements

    def of_last_block(self) -> Source:
        return self

    def origin(self, e: Emitter, group: Value, block: Value) -> Value:
        """Of a group: the offset of its first channel block, or the number of its first channel if that begins no block."""
        if aligned_groups(self.shape, self.lanes):
            return e.mul(group, self.shape.group_inputs // self.lanes * self.layout.block)
        return e.mul(group, self.shape.group_inputs)

    def fetcher(self, e: Emitter, origin: Value, spatial: Value, in_block: Value, channel: Value) -> Fetch:
        first = self.place(e, origin, spatial, in_block, channel)

        def fetch(i: int, offset: int) -> Value:
            return self.elements.scalar(e, self.elements.moved(e, first, offset + i * self.layout.channel), self.lanes)

        return fetch

    def place(self, e: Emitter, origin: Value, spatial: Value, in_block: Value, channel: Value) -> Value:
        """Where a channel of a channel block lies at pixel 0."""
        return self.elements.moved(e, self.elements.pointer, e.add(self._channel_offset(e, origin, in_block, channel), spatial))

    def _channel_offset(self, e: Emitter, origin: Value, in_block: Value, channel: Value) -> Value:
        if aligned_groups(self.shape, self.lanes):
            return e.add(origin, e.add(e.mul(in_block, self.layout.block), e.mul(channel, self.layout.channel)))
        number = e.add(origin, e.add(e.mul(in_block, channel_block(self.shape, self.lanes)), channel))
        return self.layout.of_channel(e, number, self.lanes)


@dataclass(frozen=True)
class _Inner:
    """The lanes of a sum run over the input channels; those beyond the last channel, which hold anything, count as zero."""

    shape: ConvolutionShape
    lanes: int
    layout: InputLayout
    elements: Elements

    def of_last_block(self) -> Source:
        return self

    def origin(self, e: Emitter, group: Value, block: Value) -> Value:
        """Nothing: all output channels read all input channels."""
        return e.const(0)

    def fetcher(self, e: Emitter, origin: Value, spatial: Value, in_block: Value, channel: Value) -> Fetch:
        first = self.elements.moved(e, self.elements.pointer, e.add(e.mul(in_block, self.layout.block), spatial))
        real = e.smin(e.const(self.lanes), e.sub(e.const(self.shape.in_channels), e.mul(in_block, self.lanes)))
        mask = e.compare("slt", e.lane_numbers(self.lanes, "i32"), e.splat(e.cast("trunc", real, "i32"), self.lanes))

        def fetch(i: int, offset: int) -> Value:
            x = self.elements.vector(e, self.elements.moved(e, first, offset), self.lanes)
            return x if self.shape.in_channels % self.lanes == 0 else e.select(mask, x, e.zero(x.type))

        return fetch


@dataclass(frozen=True)
class _Lanes:
    """Groups of as many output as input channels, all of them within one channel block: lane l needs lanes of its own group.

    Of the channel blocks that it reads, the last `missing` lanes are no channels, and not in the input (`of_last_block`).
    """

    shape: ConvolutionShape
    lanes: int
    layout: InputLayout
    elements: Elements
    missing: int = 0

    def of_last_block(self) -> _Lanes:
        """What reads the last channel block: where channels lie last, nothing fills it up."""
        is_filled = self.layout.pixel == self.lanes
        return self if is_filled else replace(self, missing=-self.shape.in_channels % self.lanes)

    def origin(self, e: Emitter, group: Value, block: Value) -> Value:
        """Of an output channel block: the offset of the input channel block of the same number."""
        return e.mul(block, self.layout.block)

    def fetcher(self, e: Emitter, origin: Value, spatial: Value, in_block: Value, channel: Value) -> Fetch:
        first = self.elements.moved(e, self.elements.pointer, e.add(origin, spatial))
        loaded: dict[int, Value] = {}

        def fetch(i: int, offset: int) -> Value:
            if offset not in loaded:
                loaded[offset] = self._vector(e, self.elements.moved(e, first, offset))
            x = loaded[offset]
            return x if self.shape.group_inputs == 1 else e.shuffle(x, x, self._pattern(i))

        return fetch

    def _vector(self, e: Emitter, pointer: Value) -> Value:
        if self.missing:
            return self.elements.last_vector(e, pointer, self.lanes, self.missing)
        return self.elements.vector(e, pointer, self.lanes, self.layout.pixel)

    def _pattern(self, channel: int) -> list[int]:
        size = self.shape.group_inputs
        return [lane // size * size + channel for lane in range(self.lanes)]


@dataclass(frozen=True)
class _Blend:
    """The lanes of an output vector belong to a few neighbouring groups: a scalar for each, chosen lane by lane."""

    shape: ConvolutionShape
    lanes: int
    layout: InputLayout
    elements: Elements

    def of_last_block(self) -> Source:
        return self

    def origin(self, e: Emitter, group: Value, block: Value) -> Value:
        """Of an output channel block: the number of its first channel."""
        return e.mul(block, self.lanes)

    def fetcher(self, e: Emitter, origin: Value, spatial: Value, in_block: Value, channel: Value) -> Fetch:
        shape, first = self.shape, e.udiv(origin, self.shape.group_outputs)
        inner = e.add(e.mul(in_block, channel_block(shape, self.lanes)), channel)
        pointers, masks = [], []
        for i in range(groups_of_vector(shape, self.lanes)):
            group = e.smin(e.add(first, i), e.const(shape.group - 1))
            offset = self.layout.of_channel(e, e.add(e.mul(group, shape.group_inputs), inner), self.lanes)
            pointers.append(self.elements.moved(e, self.elements.pointer, e.add(offset, spatial)))
            stop = e.cast("trunc", e.sub(e.mul(e.add(first, i + 1), shape.group_outputs), origin), "i32")
            masks.append(e.compare("slt", e.lane_numbers(self.lanes, "i32"), e.splat(stop, self.lanes)))

        def fetch(i: int, offset: int) -> Value:
            values = [self.elements.scalar(e, self.elements.moved(e, pointer, offset), self.lanes) for pointer in pointers]
            result = values[-1]
            for mask, value in zip(masks[-2::-1], values[-2::-1], strict=True):
                result = e.select(mask, value, result)
            return result

        return fetch


@dataclass(frozen=True)
class _Gather:
    """Each lane fetches its own input channel. Lanes beyond the last output channel repeat the last one."""

    shape: ConvolutionShape
    lanes: int
    layout: InputLayout
    elements: Elements

    def of_last_block(self) -> Source:
        return self

    def origin(self, e: Emitter, group: Value, block: Value) -> Value:
        """Of an output channel block: the first input channel of each lane."""
        numbers = e.add(e.splat(e.mul(block, self.lanes), self.lanes), e.lane_numbers(self.lanes))
        real = e.smin(numbers, e.const(self.shape.out_channels - 1, numbers.type))
        return e.mul(_lane_op(e, "udiv", real, self.shape.group_outputs), self.shape.group_inputs)

    def fetcher(self, e: Emitter, origin: Value, spatial: Value, in_block: Value, channel: Value) -> Fetch:
        number = e.add(e.mul(in_block, channel_block(self.shape, self.lanes)), channel)
        offsets = e.add(self._channel_offsets(e, e.add(origin, e.splat(number, self.lanes))), e.splat(spatial, self.lanes))
        return lambda i, offset: self.elements.gathered(e, e.add(offsets, offset))

    def _channel_offsets(self, e: Emitter, channels: Value) -> Value:
        if self.layout.channel != 1:
            return e.mul(channels, self.layout.channel)
        return e.add(e.mul(_lane_op(e, "udiv", channels, self.lanes), self.layout.block), _lane_op(e, "urem", channels, self.lanes))


def _lane_op(e: Emitter, opcode: str, a: Value, number: int) -> Value:
    return e.binary(opcode, a, e.const(number, a.type))
