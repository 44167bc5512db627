"""How Winograd's convolution is cut into blocks that stay in the cache, and whether it pays, by the estimates of cycles."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import gcd

from anycann.codegen.kernels.arithmetic_rate import fills_registers, has_fma
from anycann.codegen.kernels.convolution_estimate import estimate
from anycann.codegen.kernels.convolution_method import method
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_tile import MOST_FMAS, default_tile, even_cuts
from anycann.codegen.kernels.winograd_bundles import BundledShape, bundled, most_blocks
from anycann.codegen.kernels.winograd_estimate import winograd_costs
from anycann.codegen.kernels.winograd_tile import (
    WinogradTile,
    all_blocks,
    all_tiles,
    input_stride,
    out_planes,
    scratch_bytes,
    tile_sizes,
    winograd_refusal,
)
from anycann.target.target import Target


def winograd_profitable(shape: ConvolutionShape, target: Target, held: bool = False) -> bool:
    """True if Winograd applies and its estimate is below that of the direct kernel, which is more exact. held: as `winograd_estimate`."""
    if winograd_refusal(shape, target) or shape.batch * shape.out_pixels == 0:
        return False
    images = shape.batch * (shape.group if method(shape, target.lanes, blocked_input=True) == "dense" else 1)
    direct = images * estimate(shape, target, default_tile(shape, target))
    return winograd_costs(shape, target, held).judged(default_winograd_tile(shape, target, held)) < 0.96 * direct


_MOST_TILES = 256
_MOST_SCRATCH = 6  # times the second-level cache, of what is written once and read once
_PLANES = (1, 2, 4, 8, 16)  # of the output, that are computed together
_PARTS = (2, 4, 6, 8, 10, 12, 16)  # that the tiles of an image are cut into: two threads share an even number
# Large images are also cut into blocks of about so many tiles: in so few parts the products of one block of channels alone fit the cache,
# and weights are loaded for few results. [64, 224, 224] takes 1.25 times as long in 121 tiles as in 24 (AVX-512), 1.08 in 75 (AVX2).
_BLOCKS = (24, 28, 36, 48)


def winograd_tiles(shape: ConvolutionShape, target: Target, held: bool = False) -> list[WinogradTile]:
    """Every blocking that fits registers and the second-level cache, best first: by the estimate, for one thread and for two."""
    return sorted(set(_candidates(bundled(shape, target.lanes), target)), key=winograd_costs(shape, target, held).judged_for_two)


@lru_cache(maxsize=256)
def default_winograd_tile(shape: ConvolutionShape, target: Target, held: bool = False) -> WinogradTile:
    """The blocking with the lowest estimate."""
    return winograd_tiles(shape, target, held)[0]


def _candidates(shape: BundledShape, target: Target) -> Iterator[WinogradTile]:
    for height, width in tile_sizes(shape):
        tile = WinogradTile(1, 1, 1, 1, 1, 1, height, width)
        yield from _blockings(shape, target, tile)
        if most_winograd_tiles(shape, target, tile) < all_tiles(shape, tile.size):
            yield from _blockings(shape, target, replace(tile, by_point=True))


def _blockings(shape: BundledShape, target: Target, tile: WinogradTile) -> Iterator[WinogradTile]:
    total = max(1, all_tiles(shape, tile.size))
    most = most_winograd_tiles(shape, target, tile)
    parts = {*_PARTS, *(-(-total // size) for size in _BLOCKS if total > _PARTS[-1] * size)}
    sizes = sorted({*even_cuts(total, most), *(n for n in (-(-total // part) for part in parts) if n <= most)})
    for blocks, tiles, planes in product(range(1, most_blocks(shape, target.lanes) + 1), sizes, plane_choices(shape)):
        block = WinogradTile(tiles, 1, blocks, 1, 1, planes, tile.height, tile.width, tile.by_point)
        splits = _splits(shape, target.lanes, block)
        if block.positions > 1 and not winograd_fits(shape, target, replace(block, splits=splits) if block.by_point else block):
            continue
        for columns in even_cuts(block.positions, min(block.positions, most_winograd_columns(target, blocks))):
            unroll = _unroll(shape, target, columns, blocks)
            yield WinogradTile(tiles, columns, blocks, unroll, splits, planes, tile.height, tile.width, tile.by_point)


def plane_choices(shape: ConvolutionShape) -> tuple[int, ...]:
    """Numbers of planes to compute together: all that there are, or parts."""
    planes = max(1, out_planes(shape))
    even = {-(-planes // parts) for parts in range(1, 5) if planes <= parts * _PLANES[-1]}
    return tuple(sorted(even | {min(planes, n) for n in _PLANES}))


def most_winograd_tiles(shape: BundledShape, target: Target, tile: WinogradTile) -> int:
    """The largest block of tiles of this size that fits the second-level cache with one channel block of products."""
    one, counts = replace(tile, columns=1, blocks=1, planes=1), range(1, min(max(1, all_tiles(shape, tile.size)), _MOST_TILES) + 1)
    return max(1, bisect_left(counts, True, key=lambda n: not winograd_fits(shape, target, replace(one, tiles=n))))


def most_winograd_columns(target: Target, blocks: int) -> int:
    """Tiles whose sums for `blocks` channel blocks fit the registers, beside the weights and what is broadcast."""
    spare = 1 + (0 if has_fma(target) else 1) + (1 if target.has_few_registers and blocks == 1 else 0)
    return max(1, (target.registers - spare) // blocks - 1)


def winograd_fits(shape: BundledShape, target: Target, tile: WinogradTile) -> bool:
    """True if the transformed inputs and the products of a block of tiles stay in the second-level cache, or those inputs of a point."""
    everything = scratch_bytes(shape, target.lanes, tile)
    if tile.by_point:
        return 4 * input_stride(shape, target.lanes, tile) <= target.l2_bytes // 8 and everything <= _MOST_SCRATCH * target.l2_bytes
    return everything <= target.l2_bytes * 3 // 4


def winograd_unrolls(target: Target) -> tuple[int, ...]:
    """Numbers of input channels that may be written out in the innermost loop."""
    return (1, 2, 4, 8) if fills_registers(target) else (1, 2, 4)


def _unroll(shape: BundledShape, target: Target, columns: int, blocks: int) -> int:
    """As many as are no more code than is good; one of a single channel block where LLVM spills else (`convolution_tile.py`).

    With AVX2 15 layers of 8 outputs take 0.88 to 1.02 of the time by one, 9 in groups 0.74 to 0.98.
    """
    if fills_registers(target) and blocks == 1:
        return 1
    accumulators = columns * blocks
    whole, most = gcd(target.lanes, shape.group_inputs), MOST_FMAS if fills_registers(target) else _LOOP_FMAS
    return max(n for n in winograd_unrolls(target) if whole % n == 0 and (n * accumulators <= most or n == 1))


# In an innermost loop: with 14 x 2 sums two channels take 0.97 of the time of one, with 5 x 4 four 0.95 to 1 of that of two. Where a tile
# keeps its order (`winograd_products.py`) a whole block of channels is written out: ResNet-50's layers of 3 x 3 take 0.92 to 0.98 of the
# time of two channels in an order that LLVM chose, with stride 2 0.95 (Zen 3).
_LOOP_FMAS = 80


# With fewer tasks than this, the output channels are cut too; each such task of another thread transforms the same inputs again.
_ENOUGH_TASKS, _LEAST_BLOCKS = 8, 2


def _splits(shape: BundledShape, lanes: int, tile: WinogradTile) -> int:
    groups = -(-shape.out_blocks(lanes) // tile.blocks)
    return max(1, min(groups, shape.out_blocks(lanes) // _LEAST_BLOCKS, -(-_ENOUGH_TASKS // max(1, all_blocks(shape, tile)))))
