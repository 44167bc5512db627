"""When Winograd's convolution applies and pays, and how it is cut into blocks that stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import prod

from anycann.codegen.kernels.arithmetic_rate import has_fma
from anycann.codegen.kernels.convolution_estimate import block_groups, estimate, step_cycles
from anycann.codegen.kernels.convolution_method import last_lanes
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_tile import default_tile, even_cuts
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes

POINTS = 36  # of a 6x6 patch
OUT, PATCH = 4, 6  # a tile has OUT x OUT results, from a patch of PATCH x PATCH inputs


@dataclass(frozen=True)
class WinogradTile:
    """`tiles` 4x4 output tiles of `planes` planes are transformed together; they are multiplied `columns` times `blocks` channel blocks
    at a time.

    `unroll` input channels are written out in the innermost loop. The output channels are cut into `splits` tasks at most. The planes of an
    image of three dimensions, of which each is read by several results, follow each other: position plane * tiles + tile.
    """

    tiles: int
    columns: int
    blocks: int
    unroll: int
    splits: int
    planes: int = 1

    @property
    def positions(self) -> int:
        """Results that are transformed together."""
        return self.tiles * self.planes


def winograd_refusal(shape: ConvolutionShape, target: Target) -> str | None:
    """Why Winograd F(4x4, 3x3) cannot compute this convolution; None if it can."""
    if shape.accumulator is not dtypes.float32:
        return f"the input is {shape.dtype}"
    if len(shape.kernel) == 1 or shape.kernel[-2:] != (3, 3) or plane_taps(shape) == 0:
        return f"the kernel is {shape.kernel}, not one or more planes of (3, 3)"
    if max(*shape.strides, *shape.dilations[-2:]) > 1:
        return f"strides {shape.strides} and dilations {shape.dilations} are not 1"
    if shape.group != 1:
        return f"it has {shape.group} groups"
    if min(shape.in_channels, shape.out_channels) < target.lanes:
        return f"{shape.in_channels} -> {shape.out_channels} channels are fewer than a vector of {target.lanes}"
    return None


def winograd_profitable(shape: ConvolutionShape, target: Target) -> bool:
    """True if Winograd applies and its estimate is below that of the direct kernel, which is more exact."""
    if winograd_refusal(shape, target) or shape.batch * shape.out_pixels == 0:
        return False
    direct = shape.batch * estimate(shape, target, default_tile(shape, target))
    return winograd_estimate(shape, target, default_winograd_tile(shape, target)) < 0.96 * direct


def tile_grid(shape: ConvolutionShape) -> tuple[int, int]:
    """Rows and columns of 4x4 tiles that cover a plane of the output."""
    return -(-shape.out_size[-2] // OUT), -(-shape.out_size[-1] // OUT)


def all_tiles(shape: ConvolutionShape) -> int:
    """Tiles of one plane of the whole batch."""
    rows, columns = tile_grid(shape)
    return shape.batch * rows * columns


def out_planes(shape: ConvolutionShape) -> int:
    """Planes of an output image: 1 in two dimensions."""
    return prod(shape.out_size[:-2])


def plane_taps(shape: ConvolutionShape) -> int:
    """Planes of the input that a result reads."""
    return prod(shape.kernel[:-2])


def plane_reach(shape: ConvolutionShape) -> int:
    """Planes of the input beyond those of the output that neighbouring results read together."""
    return (plane_taps(shape) - 1) * prod(shape.dilations[:-2])


def read_positions(shape: ConvolutionShape, tile: WinogradTile) -> int:
    """Patches of a channel block that are transformed together."""
    return tile.tiles * (tile.planes + plane_reach(shape))


def all_blocks(shape: ConvolutionShape, tile: WinogradTile) -> int:
    """Blocks of tiles and planes."""
    return -(-all_tiles(shape) // tile.tiles) * -(-out_planes(shape) // tile.planes)


def winograd_depth(shape: ConvolutionShape) -> int:
    """Products of a point that a result is the sum of."""
    return plane_taps(shape) * shape.in_channels


def winograd_weight_bytes(shape: ConvolutionShape, lanes: int) -> int:
    """Bytes of the transformed weights: four times those of the kernel."""
    return 4 * POINTS * winograd_depth(shape) * shape.out_blocks(lanes) * lanes


def scratch_bytes(shape: ConvolutionShape, lanes: int, tile: WinogradTile) -> int:
    """Memory of a thread: transformed inputs of a block of tiles, and their products for one group of channel blocks."""
    return 4 * POINTS * (input_stride(shape, lanes, tile) + product_stride(lanes, tile))


def input_stride(shape: ConvolutionShape, lanes: int, tile: WinogradTile) -> int:
    """Elements between the 36 planes of transformed inputs: an odd number of vectors, so that they do not share a cache set."""
    return (shape.in_blocks(lanes) * read_positions(shape, tile) | 1) * lanes


def product_stride(lanes: int, tile: WinogradTile) -> int:
    """Elements between the 36 planes of products."""
    return (tile.blocks * tile.positions | 1) * lanes


_MOST_TILES = 256
_PLANES = (1, 2, 4, 8, 16)  # of the output, that are computed together
_PARTS = (2, 4, 6, 8, 10, 12, 16)  # that the tiles of an image are cut into: two threads share an even number
# Large images are also cut into blocks of about so many tiles: in so few parts the products of one block of channels alone fit the cache,
# and weights are loaded for few results. [64, 224, 224] takes 1.25 times as long in 121 tiles as in 24 (AVX-512), 1.08 in 75 (AVX2).
_BLOCKS = (24, 28, 36, 48)


def winograd_tiles(shape: ConvolutionShape, target: Target) -> list[WinogradTile]:
    """Every blocking that fits registers and the second-level cache, best first: by the estimate, for one thread and for two."""

    def cycles(tile: WinogradTile) -> float:
        one = winograd_estimate(shape, target, tile)
        return one + (one + _shared_transforms(shape, target, tile)) * _imbalance(shape, tile)

    return sorted(set(_candidates(shape, target)), key=cycles)


def _shared_transforms(shape: ConvolutionShape, target: Target, tile: WinogradTile) -> float:
    """Cycles to transform once more the block of tiles that two threads share, where each has some of its output channels."""
    blocks = all_blocks(shape, tile)
    return transform_cycles(shape, target, tile)[0] / blocks if tile.splits > 1 and blocks % 2 else 0.0


def _imbalance(shape: ConvolutionShape, tile: WinogradTile) -> float:
    """How much longer than half of the work two threads take."""
    blocks = max(1, all_blocks(shape, tile))
    return -(-blocks * tile.splits // 2) * 2 * tile.positions / (max(1, all_tiles(shape) * out_planes(shape)) * tile.splits)


@lru_cache(maxsize=256)
def default_winograd_tile(shape: ConvolutionShape, target: Target) -> WinogradTile:
    """The blocking with the lowest estimate."""
    return winograd_tiles(shape, target)[0]


def _candidates(shape: ConvolutionShape, target: Target) -> Iterator[WinogradTile]:
    total = max(1, all_tiles(shape))
    most = most_winograd_tiles(shape, target)
    parts = {*_PARTS, *(-(-total // size) for size in _BLOCKS if total > _PARTS[-1] * size)}
    sizes = sorted({*even_cuts(total, most), *(n for n in (-(-total // part) for part in parts) if n <= most)})
    out_blocks = shape.out_blocks(target.lanes)
    for blocks, tiles, planes in product(range(1, min(8, out_blocks) + 1), sizes, plane_choices(shape)):
        block = WinogradTile(tiles, 1, blocks, 1, 1, planes)
        if not winograd_fits(shape, target, block) and block.positions > 1:
            continue
        for columns in even_cuts(block.positions, min(block.positions, most_winograd_columns(target, blocks))):
            unroll = _unroll(shape, target, columns * blocks)
            yield replace(block, columns=columns, unroll=unroll, splits=_splits(shape, target.lanes, block))


def plane_choices(shape: ConvolutionShape) -> tuple[int, ...]:
    """Numbers of planes to compute together: all that there are, or parts."""
    planes = max(1, out_planes(shape))
    even = {-(-planes // parts) for parts in range(1, 5) if planes <= parts * _PLANES[-1]}
    return tuple(sorted(even | {min(planes, n) for n in _PLANES}))


def most_winograd_tiles(shape: ConvolutionShape, target: Target) -> int:
    """The largest block of tiles that fits the second-level cache with one channel block of products."""
    sizes = range(1, min(max(1, all_tiles(shape)), _MOST_TILES) + 1)
    return max([1, *(n for n in sizes if winograd_fits(shape, target, WinogradTile(n, 1, 1, 1, 1)))])


def most_winograd_columns(target: Target, blocks: int) -> int:
    """Tiles whose sums for `blocks` channel blocks fit the registers, beside the weights and what is broadcast."""
    spare = 1 + (0 if has_fma(target) else 1) + (1 if target.registers <= 16 and blocks == 1 else 0)
    return max(1, (target.registers - spare) // blocks - 1)


def winograd_fits(shape: ConvolutionShape, target: Target, tile: WinogradTile) -> bool:
    """True if the transformed inputs and the products of a block of tiles stay in the second-level cache."""
    return scratch_bytes(shape, target.lanes, tile) <= target.l2_bytes * 3 // 4


def _unroll(shape: ConvolutionShape, target: Target, accumulators: int) -> int:
    last, most = shape.in_channels % target.lanes or target.lanes, 24 if target.registers < 32 and has_fma(target) else _LOOP_FMAS
    return max(n for n in (1, 2, 4) if target.lanes % n == 0 and last % n == 0 and (n * accumulators <= most or n == 1))


# In an innermost loop: with 14 x 2 sums two channels take 0.97 of the time of one, with 5 x 4 four 0.95 to 1 of that of two. AVX2 spills
# with 5 x 2 and four: two take 0.76 to 0.86 of the time (7 of 14 shapes, the others 0.98 to 1.02), all of ResNet-50 0.98.
_LOOP_FMAS = 80


# With fewer tasks than this, the output channels are cut too; each such task of another thread transforms the same inputs again.
_ENOUGH_TASKS, _LEAST_BLOCKS = 8, 2


def _splits(shape: ConvolutionShape, lanes: int, tile: WinogradTile) -> int:
    groups = -(-shape.out_blocks(lanes) // tile.blocks)
    return max(1, min(groups, shape.out_blocks(lanes) // _LEAST_BLOCKS, -(-_ENOUGH_TASKS // max(1, all_blocks(shape, tile)))))


# Cycles to transform the patches of one tile and channel block, in and out, at 1 vector a cycle.
_INPUT_CYCLES, _OUTPUT_CYCLES = 190.0, 170.0
# Bytes a cycle between registers and the scratch memory as it fills the second-level cache.
_SCRATCH_RATE = 32.0
# Bytes a cycle that weights arrive with: from the second-level cache, the third, and memory.
WEIGHT_RATES = 32.0, 10.0, 5.0


def winograd_estimate(shape: ConvolutionShape, target: Target, tile: WinogradTile) -> float:
    """Cycles of the whole batch: transforms, products, and bringing the weights for every block of tiles."""
    lanes, block_count = target.lanes, all_blocks(shape, tile)
    widths = block_groups(tile.positions, tile.columns)
    groups = block_groups(shape.out_blocks(lanes), tile.blocks)
    saved = [0.0] * (len(groups) - 1) + [1 - last_lanes(shape, target, "dense", groups[-1]) / lanes]
    steps = sum(step_cycles(target, w, blocks, saved=part) for blocks, part in zip(groups, saved, strict=True) for w in widths)
    products = POINTS * winograd_depth(shape) * steps + 30.0 * POINTS * len(groups) * len(widths)
    weights = winograd_weight_bytes(shape, lanes)
    resident = weights <= target.l2_bytes // 2
    l2, l3, memory = WEIGHT_RATES
    first = weights / memory
    again = weights / (l2 if resident else l3)
    return overlapped(products, first) + (block_count - 1) * overlapped(products, again) + sum(transform_cycles(shape, target, tile))


def transform_cycles(shape: ConvolutionShape, target: Target, tile: WinogradTile) -> tuple[float, float]:
    """Cycles to transform all patches of the inputs, and all results."""
    moved = 4 * POINTS * target.lanes * 2 / _SCRATCH_RATE * min(1.0, scratch_bytes(shape, target.lanes, tile) / target.l2_bytes)
    planes = out_planes(shape) + -(-out_planes(shape) // tile.planes) * plane_reach(shape)
    read, written = planes * shape.in_blocks(target.lanes), out_planes(shape) * shape.out_blocks(target.lanes)
    return all_tiles(shape) * read * (_INPUT_CYCLES + moved), all_tiles(shape) * written * (_OUTPUT_CYCLES + moved)


def overlapped(a: float, b: float) -> float:
    """Cycles of two things done at once: the longer, and a little of the other that does not overlap."""
    return max(a, b) + 0.05 * min(a, b)
