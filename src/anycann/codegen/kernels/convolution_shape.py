"""The geometry of a convolution: its sizes, and its spatial axes in the form the generators loop over."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache
from math import prod

from anycann.support.errors import UsageError
from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te.dtypes import DType


@dataclass(frozen=True)
class ConvolutionShape:
    """Sizes of one convolution with 1 to 3 spatial dimensions; the padding at the end follows from `out_size`.

    Input [batch, in_channels, *in_size], weights [out_channels, in_channels / group, *kernel], output [batch, out_channels, *out_size].
    `dtype` is how the input is stored. Raises UsageError for sizes that contradict each other and for bool inputs.
    """

    batch: int
    in_channels: int
    out_channels: int
    group: int
    in_size: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_begin: tuple[int, ...]
    out_size: tuple[int, ...]
    dtype: DType = dtypes.float32

    def __post_init__(self) -> None:
        ranks = {len(sizes) for sizes in (self.in_size, self.kernel, self.strides, self.dilations, self.pads_begin, self.out_size)}
        if len(ranks) != 1 or not 1 <= len(self.in_size) <= 3:
            raise UsageError(f"convolution: {self} has sizes of ranks {sorted(ranks)}; accepted: one rank, 1 to 3")
        if min(self.in_channels, self.out_channels, self.group, *self.strides, *self.dilations) < 1:
            raise UsageError(f"convolution: {self} has a channel count, group, stride or dilation below 1")
        if self.in_channels % self.group or self.out_channels % self.group:
            raise UsageError(f"convolution: group {self.group} does not divide {self.in_channels} -> {self.out_channels} channels")
        if min(self.batch, *self.in_size, *self.kernel, *self.out_size) < 0:
            raise UsageError(f"convolution: {self} has a negative size")
        if self.dtype.kind == "bool":
            raise UsageError("convolution: the input is bool; accepted: floats and integers")

    @property
    def accumulator(self) -> DType:
        """What products are summed in, and weights are packed as: float32 for float inputs up to 32 bits, int32 for integers."""
        if self.dtype.is_float:
            return dtypes.float64 if self.dtype is dtypes.float64 else dtypes.float32
        return dtypes.int64 if self.dtype.nbytes > 4 else dtypes.int32

    @property
    def group_inputs(self) -> int:
        """Input channels that one output channel sees."""
        return self.in_channels // self.group

    @property
    def group_outputs(self) -> int:
        return self.out_channels // self.group

    @property
    def taps(self) -> int:
        """Elements of the kernel window."""
        return prod(self.kernel)

    @property
    def in_pixels(self) -> int:
        return prod(self.in_size)

    @property
    def out_pixels(self) -> int:
        return prod(self.out_size)

    @property
    def flops(self) -> int:
        """Multiplications and additions, padding counted as if it were data (the usual convention)."""
        return 2 * self.batch * self.out_channels * self.out_pixels * self.group_inputs * self.taps

    def out_blocks(self, lanes: int) -> int:
        """Blocks of `lanes` output channels, the last one possibly partial."""
        return -(-self.out_channels // lanes)

    def in_blocks(self, lanes: int) -> int:
        return -(-self.in_channels // lanes)


IMAGES = -1  # the batch, as a member of an axis


@dataclass(frozen=True)
class Axis:
    """One spatial axis to loop over: output position o and tap k read the input at o * stride - pad + k * dilation, if that is in range.

    `pad` may be negative. The weights of tap k lie `tap_offset + k * tap_stride` taps from the first; a step along the input is
    `in_stride` pixels. `members` are the dimensions of the shape that this axis runs over, outer first, with their output sizes; IMAGES is
    the batch.
    """

    in_size: int
    out_size: int
    kernel: int
    stride: int
    dilation: int
    pad: int
    in_stride: int
    tap_offset: int
    tap_stride: int
    members: tuple[int, ...]
    member_sizes: tuple[int, ...]

    def taps(self, position: int) -> range:
        """Taps that read inside the input at this output position."""
        start = position * self.stride - self.pad
        first = min(self.kernel, max(0, -(start // self.dilation)))
        return range(first, max(first, min(self.kernel, -((start - self.in_size) // self.dilation))))

    def pixels(self, tap: int, first: int, count: int) -> range:
        """Of the output positions first..first+count those, counted from `first`, for which `tap` reads inside the input."""
        start = first * self.stride - self.pad + tap * self.dilation
        low = min(count, max(0, -(start // self.stride)))
        return range(low, max(low, min(count, -((start - self.in_size) // self.stride))))

    @cached_property
    def full(self) -> bool:
        """True if every tap reads inside the input at every position."""
        last = (self.out_size - 1) * self.stride - self.pad + (self.kernel - 1) * self.dilation
        return self.pad <= 0 and last < self.in_size

    @cached_property
    def mean_taps(self) -> float:
        """Taps that read inside the input, in the mean of all output positions."""
        return sum(len(self.taps(position)) for position in range(self.out_size)) / max(1, self.out_size)


@lru_cache(maxsize=1024)
def axes(shape: ConvolutionShape, merge: bool) -> tuple[Axis, ...]:
    """The axes of `shape`, outer first, without taps that never meet the input.

    With `merge`, neighbours become one long axis where that is the same convolution: [H, W] -> [H * W] for a (k, 1) kernel with
    stride 1, its dilation and padding times W; a 1x1 kernel merges all axes. An axis of one place is none: [H, 2] -> [H], with a step
    of two pixels, for a 1x1 kernel with stride 2.
    """
    result: list[Axis] = []
    for dimension in reversed(range(len(shape.in_size))):
        axis = _trimmed(_axis(shape, dimension))
        inner = result[0] if result else None
        if inner is not None and _mergeable(axis, inner, merge):
            result[0] = _merged(axis, inner)
        else:
            result.insert(0, axis)
    return tuple(result)


@lru_cache(maxsize=1024)
def used_axes(shape: ConvolutionShape) -> tuple[Axis, ...]:
    """One axis for each dimension, without taps that never meet the input."""
    return tuple(_trimmed(_axis(shape, dimension)) for dimension in range(len(shape.in_size)))


def images_axis(shape: ConvolutionShape, in_stride: int) -> Axis:
    """The images as an axis to loop over; `in_stride` pixels lie between two of them."""
    return Axis(shape.batch, shape.batch, 1, 1, 1, 0, in_stride, 0, 1, (IMAGES,), (shape.batch,))


def _axis(shape: ConvolutionShape, dimension: int) -> Axis:
    return Axis(
        in_size=shape.in_size[dimension],
        out_size=shape.out_size[dimension],
        kernel=shape.kernel[dimension],
        stride=shape.strides[dimension],
        dilation=shape.dilations[dimension],
        pad=shape.pads_begin[dimension],
        in_stride=prod(shape.in_size[dimension + 1 :]),
        tap_offset=0,
        tap_stride=prod(shape.kernel[dimension + 1 :]),
        members=(dimension,),
        member_sizes=(shape.out_size[dimension],),
    )


def _trimmed(axis: Axis) -> Axis:
    """`axis` without leading and trailing taps that are outside the input for every output position."""
    used = [tap for tap in range(axis.kernel) if axis.pixels(tap, 0, axis.out_size)]
    if not used:
        return replace(axis, kernel=0)
    first, last = used[0], used[-1]
    pad = axis.pad - first * axis.dilation
    return replace(axis, kernel=last - first + 1, pad=pad, tap_offset=first * axis.tap_stride)


def _mergeable(outer: Axis, inner: Axis, merge: bool) -> bool:
    """A step along `outer` is `inner.in_size` steps along `inner`, here and there; or `inner` has one place, and reads where it starts."""
    if inner.kernel != 1 or inner.pad != 0:
        return False
    return inner.out_size == 1 or (merge and inner.in_size == inner.out_size and inner.stride == 1 and outer.stride == 1)


def _merged(outer: Axis, inner: Axis) -> Axis:
    both = replace(
        outer,
        tap_offset=outer.tap_offset + inner.tap_offset,
        members=outer.members + inner.members,
        member_sizes=outer.member_sizes + inner.member_sizes,
    )
    if inner.out_size == 1:
        return both
    return replace(
        both,
        in_size=outer.in_size * inner.in_size,
        out_size=outer.out_size * inner.out_size,
        dilation=outer.dilation * inner.in_size,
        pad=outer.pad * inner.in_size,
        in_stride=inner.in_stride,
    )
