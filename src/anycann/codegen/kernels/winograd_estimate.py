"""What Winograd's convolution with a given blocking is estimated to cost, in cycles of one core.

Hundreds of blockings are compared for a layer: what all of them share, and those of one block of tiles, is computed once.
"""

from __future__ import annotations

from functools import lru_cache

from anycann.codegen.kernels.arithmetic_rate import fills_registers
from anycann.codegen.kernels.convolution_estimate import block_groups, step_cycles
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.winograd_bundles import bundled, lanes_of_last, mean_channels
from anycann.codegen.kernels.winograd_tile import (
    WinogradTile,
    all_blocks,
    all_groups,
    all_tiles,
    bundle_blocks,
    channel_runs,
    first_block,
    first_group,
    out_planes,
    plane_reach,
    plane_taps,
    scratch_bytes,
    tile_points,
    tile_sizes,
    winograd_algorithm,
    winograd_depth,
    winograd_weight_bytes,
)
from anycann.codegen.kernels.winograd_transform import transform_instructions
from anycann.support.records import dataclass
from anycann.target.target import Target

# Cycles of an instruction of the transforms of one tile and channel block, in and out.
_INPUT_CYCLES, _OUTPUT_CYCLES = 0.88, 0.88
# Bytes a cycle between registers and the scratch memory as it fills the second-level cache, and beyond that.
_SCRATCH_RATE, _FAR_SCRATCH_RATE = 32.0, 10.0
# Bytes a cycle that weights arrive with: from the second-level cache, the third, and memory. Few weights, half of what the second-level
# cache holds, wait in the third for the next run: 20 -> 416 channels with 5 taps along 26 pixels takes 0.74 of the time, for four results
# of a tile are chosen for two, 19 -> 19 of 3 x 3 on 5 x 36 0.75 (Zen 4).
WEIGHT_RATES = 32.0, 10.0, 5.0
_OTHER_SIZE = 1.15  # measured, the better of two sizes is the one with the lower estimate where they are that far apart
_BY_POINT = 1.2  # what blocks by points take beyond their estimate
# Where a tile keeps its order (`fills_registers`) products leave time for the scratch memory, and what they wait for shows: a part of the
# time that weights take to come again from the third-level cache, and from the second. With one and two threads (Zen 3) the larger blocks
# by points that follow from it take of the time of what was chosen before 0.93 and 0.90 for 128 channels of 28 x 28, 0.90 and 0.94 for
# 256 of 56 x 56, 0.86 and 0.91 for 192 of 20 x 20; with stride 2 from 256 of 28 x 28 0.94 and 0.88, from 128 of 56 x 56 0.86 and 0.83.
_FAR_SCRATCH_RATE_IN_ORDER = 20.0
_L3_WAIT, _L2_WAIT = 0.1, 0.1


def winograd_estimate(shape: ConvolutionShape, target: Target, tile: WinogradTile, held: bool = False) -> float:
    """Cycles of the whole batch: transforms, products, and bringing the weights for every block of tiles.

    held: the weights of all layers wait in the third-level cache for the next run.
    """
    return winograd_costs(shape, target, held).cycles(tile)


@lru_cache(maxsize=16)
def winograd_costs(shape: ConvolutionShape, target: Target, held: bool = False) -> WinogradCosts:
    """The estimates of a problem."""
    return WinogradCosts(shape, target, held)


@dataclass(frozen=True)
class _Size:
    """What the blockings with tiles of one height and width share: the number of tiles of a plane, of products of a tile, and the bytes of
    all weights; there and back: instructions that transform a patch, and the products.
    """

    tiles: int
    points: int
    weight_bytes: int
    there: int
    back: int


@dataclass(frozen=True)
class _Block:
    """What the blockings that differ in `columns` and `unroll` alone share: cycles of the transforms, in and out, how many blocks, and how
    much longer than half of the work two threads take.
    """

    transforms: tuple[float, float]
    count: int
    imbalance: float


class WinogradCosts:
    """Estimates of one problem for many blockings."""

    def __init__(self, shape: ConvolutionShape, target: Target, held: bool):
        self._held = held
        self._shape, self._target = bundled(shape, target.lanes), target
        self._planes, self._depth = out_planes(shape), plane_taps(shape) * mean_channels(self._shape, target.lanes)
        self._read = self._depth / winograd_depth(self._shape, target.lanes)  # of what is packed
        self._out_blocks = self._shape.out_blocks(target.lanes)
        self._usual = tile_sizes(shape)[0]
        self._sizes: dict[tuple[int, int], _Size] = {}
        self._blocks: dict[tuple[int, ...], _Block] = {}
        self._products: dict[tuple[int, int, int], tuple[float, int]] = {}

    def cycles(self, tile: WinogradTile) -> float:
        """Of the whole batch, on one thread."""
        target, size, block = self._target, self._size(tile), self._block(tile)
        steps, loops = self._steps(tile)
        products = size.points * (self._depth * steps + 30.0 * loops)
        l2, l3, memory = WEIGHT_RATES
        near = size.weight_bytes <= target.l2_bytes // 2
        first = self._read * size.weight_bytes / (l3 if near or self._held else memory)
        again = self._read * size.weight_bytes / (l2 if near else l3)
        waits = 0.0 if near or not fills_registers(target) else _L3_WAIT * again
        once = overlapped(products, first) + (block.count - 1) * (overlapped(products, again) + waits) + sum(block.transforms)
        return self._shape.bundles * once

    def judged(self, tile: WinogradTile) -> float:
        """The cycles, and what makes the usual tiles preferable where another's are hardly fewer."""
        by_point = tile.by_point and not fills_registers(self._target)
        return self.cycles(tile) * max(_BY_POINT if by_point else 1.0, _OTHER_SIZE if tile.size != self._usual else 1.0)

    def judged_for_two(self, tile: WinogradTile) -> float:
        """`judged`, for one thread and for two that share the work as evenly as the blocks allow."""
        one = self.judged(tile)
        return one + (one + self._shared_transforms(tile)) * self._block(tile).imbalance

    def _shared_transforms(self, tile: WinogradTile) -> float:
        """Cycles to transform once more the block of tiles that two threads share, where each has some of its output channels."""
        block = self._block(tile)
        return block.transforms[0] / block.count if tile.splits > 1 and all_blocks(self._shape, tile) % 2 else 0.0

    def _imbalance(self, tile: WinogradTile) -> float:
        """How much longer than half of the work two threads take."""
        blocks, lanes = max(1, all_blocks(self._shape, tile)), self._target.lanes
        positions = max(1, self._shape.bundles * self._size(tile).tiles * self._planes)
        if blocks % 2 == 0:
            return blocks * tile.positions / positions
        groups, runs = all_groups(self._shape, lanes, tile), channel_runs(self._shape, lanes, tile)
        first = first_block(self._out_blocks, first_group(groups, -(-runs // 2), runs), groups)
        return (blocks - 1 + 2 * max(first, self._out_blocks - first) / self._out_blocks) * tile.positions / positions

    def _size(self, tile: WinogradTile) -> _Size:
        known = self._sizes.get(tile.size)
        if known is None:
            shape, target = self._shape, self._target
            there, back = transform_instructions(winograd_algorithm(shape, tile), target)
            back += 3 * tile.height * tile.width  # to a place where the writer finds each
            weights = winograd_weight_bytes(shape, target.lanes, tile)
            known = _Size(all_tiles(shape, tile.size), tile_points(shape, tile), weights, there, back)
            self._sizes[tile.size] = known
        return known

    def _block(self, tile: WinogradTile) -> _Block:
        key = tile.tiles, tile.blocks, tile.splits, tile.planes, tile.height, tile.width, int(tile.by_point)
        known = self._blocks.get(key)
        if known is None:
            count = bundle_blocks(self._shape, tile)
            known = self._blocks[key] = _Block(self._transforms(tile), count, self._imbalance(tile))
        return known

    def _transforms(self, tile: WinogradTile) -> tuple[float, float]:
        shape, target, size = self._shape, self._target, self._size(tile)
        filled = scratch_bytes(shape, target.lanes, tile) / target.l2_bytes
        far = _FAR_SCRATCH_RATE_IN_ORDER if fills_registers(target) else _FAR_SCRATCH_RATE
        moved = 8 * size.points * target.lanes * (filled / _SCRATCH_RATE if filled <= 1 else 1 / far)
        planes = self._planes + -(-self._planes // tile.planes) * plane_reach(shape)
        read, written = planes * shape.in_blocks(target.lanes), self._planes * self._out_blocks
        return (
            size.tiles * read * (_INPUT_CYCLES * size.there + moved),
            size.tiles * written * (_OUTPUT_CYCLES * size.back + moved),
        )

    def _steps(self, tile: WinogradTile) -> tuple[float, int]:
        """Cycles of a point and a product's depth of one, for all loops over a block of tiles, and how many loops there are."""
        key = tile.positions, tile.columns, tile.blocks
        known = self._products.get(key)
        if known is None:
            known = self._products[key] = self._all_steps(*key)
        return known

    def _all_steps(self, positions: int, columns: int, blocks: int) -> tuple[float, int]:
        target, widths, groups = self._target, block_groups(positions, columns), -(-self._out_blocks // blocks)
        small, larger = divmod(self._out_blocks, groups)  # the last is a small one
        saved = 1 - lanes_of_last(self._shape, target, small) / target.lanes
        usual, rest = self._weight_cycles(small + 1), self._weight_cycles(small)
        steps = 0.0
        for times, width in ((len(widths) - 1, columns), (1, widths[-1])):  # all but the last are alike
            large = larger * step_cycles(target, width, small + 1, usual)
            regular = (groups - larger - 1) * step_cycles(target, width, small, rest)
            steps += times * (large + regular + step_cycles(target, width, small, rest, saved=saved))
        if fills_registers(target):
            steps += _L2_WAIT * len(widths) * (larger * (usual - small - 1) + (groups - larger) * (rest - small))
        return steps, groups * len(widths)

    def _weight_cycles(self, blocks: int) -> float:
        """Cycles to bring the weight vectors of one step from the cache that those of a group and point stay in: of the second half a
        vector.

        512 channels of 7 x 7 by F(2x2) take 1.55 times as long with 2 x 5 sums as with 6 x 2 (AVX2).
        """
        near = 4 * self._target.lanes * blocks * self._depth <= self._target.l1_bytes // 2
        return blocks if near else 2.0 * blocks


def overlapped(a: float, b: float) -> float:
    """Cycles of two things done at once: the longer, and a little of the other that does not overlap."""
    return max(a, b) + 0.05 * min(a, b)
