"""How a convolution of row-major planes is cut into register tiles of pixels and output channels, and what it is estimated to cost."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.arithmetic_rate import fma_rate, has_fma
from anycann.codegen.kernels.convolution_estimate import estimate
from anycann.codegen.kernels.convolution_kernel import INLINE_CYCLES
from anycann.codegen.kernels.convolution_shape import ConvolutionShape, used_axes
from anycann.codegen.kernels.convolution_tile import default_tile, even_cuts
from anycann.codegen.values import Value, first_lanes
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes


@dataclass(frozen=True)
class PlanesTile:
    """`vectors` vectors of pixels of a row times `outputs` output channels are computed together in registers."""

    outputs: int
    vectors: int


@dataclass(frozen=True)
class RowPart:
    """Tiles of pixels first..stop of a row, `vectors` vectors wide; `edge` if some of their lanes read outside the image."""

    first: int
    stop: int
    vectors: int
    edge: bool

    def stored(self, e: Emitter, shape: ConvolutionShape, lanes: int, number: int) -> Value | None:
        """The lanes of vector `number` that exist; None for all. Only the last tile of a row, alone in its part, lacks some."""
        return first_lanes(min(lanes, self.stop - self.first - number * lanes) if self.edge and self.is_alone(lanes) else lanes, lanes)

    def is_alone(self, lanes: int) -> bool:
        """True if it is one tile."""
        return self.stop - self.first <= self.vectors * lanes


_MOST_VECTORS = 6
_ENOUGH_TASKS = 16  # for any number of threads
MOST_STRIDE = 2  # pixels that are further apart are not worth the shuffles


def planes_refusal(shape: ConvolutionShape, target: Target) -> str | None:
    """Why no kernel has its lanes along the pixels of this convolution; None if one can."""
    if shape.dtype is not dtypes.float32:
        return f"the input is {shape.dtype}"
    if shape.group != 1:
        return f"it has {shape.group} groups"
    if shape.strides[-1] > MOST_STRIDE:
        return f"pixels of a row are read {shape.strides[-1]} apart"
    if min(shape.batch, *shape.out_size, *(axis.kernel for axis in used_axes(shape))) < 1:
        return "there is nothing to compute"
    return None if target.lanes > 1 else "the target has no vectors"


def out_groups(shape: ConvolutionShape, tile: PlanesTile) -> int:
    """Groups of output channels."""
    return -(-shape.out_channels // tile.outputs)


def in_one_task(shape: ConvolutionShape, target: Target, tile: PlanesTile, window: int = 0) -> bool:
    """True if the work is not worth a second thread. Rows of a window are asked for a few at a time."""
    return not window and shape.batch * planes_estimate(shape, target, tile) < INLINE_CYCLES


def parts_of_row(shape: ConvolutionShape, target: Target, tile: PlanesTile) -> int:
    """Tasks that a row is cut into: several where there are few rows."""
    rows = shape.batch * prod(shape.out_size[:-1])
    return min(-(-shape.out_size[-1] // (tile.vectors * target.lanes)), -(-_ENOUGH_TASKS // rows))


def row_parts(shape: ConvolutionShape, target: Target, tile: PlanesTile) -> tuple[RowPart, ...]:
    """A row of output pixels in order and complete."""
    width, last = tile.vectors * target.lanes, used_axes(shape)[-1]
    full, rest = divmod(last.out_size, width)
    first = min(full, max(0, -(-last.pad // (width * last.stride))))
    reach = (last.kernel - 1) * last.dilation + (width - 1) * last.stride + (last.stride - 1)
    inner = [n for n in range(first, full) if n * width * last.stride - last.pad + reach < last.in_size]
    stop = inner[-1] + 1 if inner else first
    parts = [(0, first, True), (first, stop, False), (stop, full, True)]
    found = [RowPart(low * width, high * width, tile.vectors, edge) for low, high, edge in parts if high > low]
    if rest:
        found.append(RowPart(full * width, last.out_size, -(-rest // target.lanes), True))
    return tuple(found)


@lru_cache(maxsize=1024)
def default_planes_tile(shape: ConvolutionShape, target: Target) -> PlanesTile:
    """The tile with the lowest estimate."""
    return min(_tiles(shape, target), key=lambda tile: (planes_estimate(shape, target, tile), tile.vectors))


def _tiles(shape: ConvolutionShape, target: Target) -> Iterator[PlanesTile]:
    for vectors in range(1, most_vectors(shape, target) + 1):
        most = min(shape.out_channels, most_outputs(target, vectors))
        yield from (PlanesTile(n, vectors) for n in even_cuts(shape.out_channels, most))


def most_vectors(shape: ConvolutionShape, target: Target) -> int:
    """Vectors of pixels of a tile."""
    return min(_MOST_VECTORS // 2 if target.has_few_registers else _MOST_VECTORS, -(-shape.out_size[-1] // target.lanes))


def most_outputs(target: Target, vectors: int) -> int:
    """Output channels whose sums fit the registers, beside the pixels and a weight in all lanes; without FMA, a product."""
    return max(1, (target.registers - (1 if has_fma(target) else 2)) // vectors - 1)


# Cycles a tile costs besides its arithmetic, an input channel of it, and the writing of a vector of results.
_TILE_CYCLES, _CHANNEL_CYCLES, _WRITE_CYCLES = 20.0, 1.0, 5.0
_FMA_LATENCY, _LOAD_SHARE, _SHUFFLE_CYCLES = 4.5, 0.2, 0.75


def planes_profitable(shape: ConvolutionShape, target: Target, written: bool = False) -> bool:
    """True if lanes along the pixels are estimated to be clearly better than lanes along the output channels.

    `written`: the result is planes in any case, else it may be blocks of channels. These are filled up, which takes time to write.
    """
    if planes_refusal(shape, target):
        return False
    direct = estimate(shape, target, default_tile(shape, target, False), False)
    read = shape.in_pixels * _channels(shape.in_channels, target) * 4 / _MEMORY_RATE
    blocks = shape.out_pixels * target.lanes * shape.out_blocks(target.lanes) * 4 / _MEMORY_RATE
    direct += read + (shape.out_pixels * shape.out_channels * _SCATTER_CYCLES if written else blocks)
    planes = planes_estimate(shape, target, default_planes_tile(shape, target))
    planes += 4 * (shape.in_pixels * shape.in_channels + shape.out_pixels * shape.out_channels) / _MEMORY_RATE
    return planes < _CLEARLY * direct


def _channels(count: int, target: Target) -> int:
    """Channels of an image as others than the first layer read it: whole blocks of those that fill more than half a vector."""
    return -(-count // target.lanes) * target.lanes if 2 * count > target.lanes else count


# Bytes a cycle of images that do not stay in the second-level cache; cycles of an element that goes to the plane of its channel.
_MEMORY_RATE, _SCATTER_CYCLES = 6.0, 1.5
_CLEARLY = 0.95


def planes_estimate(shape: ConvolutionShape, target: Target, tile: PlanesTile) -> float:
    """Cycles of one image."""
    last, above = used_axes(shape)[-1], prod(axis.mean_taps for axis in used_axes(shape)[:-1])
    row = 0.0
    for part in row_parts(shape, target, tile):
        tiles = -(-(part.stop - part.first) // (part.vectors * target.lanes))
        channel = last.kernel * _step_cycles(target, tile.outputs, part.vectors, last.stride) + _CHANNEL_CYCLES
        written = _WRITE_CYCLES * tile.outputs * part.vectors
        row += tiles * (shape.in_channels * above * channel + written + _TILE_CYCLES)
    return row * out_groups(shape, tile) * prod(shape.out_size[:-1])


def _step_cycles(target: Target, outputs: int, vectors: int, stride: int) -> float:
    """Cycles of one tap of an input channel."""
    arithmetic = outputs * vectors / (fma_rate(target) if has_fma(target) else 0.75)
    loads = (outputs + 2 * vectors * stride) / 2  # pixels seldom begin where a cache line does
    shuffles = vectors * (stride - 1) * _SHUFFLE_CYCLES
    return max(arithmetic + shuffles, loads, _FMA_LATENCY) + _LOAD_SHARE * loads
