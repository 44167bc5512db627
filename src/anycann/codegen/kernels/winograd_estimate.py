"""What Winograd's convolution with a given blocking is estimated to cost, in cycles of one core.

Hundreds of blockings are compared for a layer: what all of them share, and those of one block of tiles, is computed once.
"""

from __future__ import annotations

from functools import lru_cache

from anycann.codegen.kernels.arithmetic_rate import fills_registers
from anycann.codegen.kernels.convolution_estimate import block_groups, step_cycles
from anycann.codegen.kernels.convolution_method import last_lanes
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.winograd_tile import (
    WinogradTile,
    all_blocks,
    all_tiles,
    out_planes,
    plane_reach,
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
# Bytes a cycle that weights arrive with: from the second-level cache, the third, and memory.
WEIGHT_RATES = 32.0, 10.0, 5.0
_OTHER_SIZE = 1.15  # measured, the better of two sizes is the one with the lower estimate where they are that far apart
# What blocks by points take beyond their estimate; less where a tile keeps its order (`fills_registers`): 256 channels of 14 x 14 take 0.88
# of the time, of 16 x 20 0.78, 320 of 19 x 23 0.84 to 0.92, 5 x 5 of 192 channels of 20 x 24 0.85; by 1.0 eleven others 0.94 to 1.05.
_BY_POINT, _BY_POINT_IN_ORDER = 1.2, 1.1


def winograd_estimate(shape: ConvolutionShape, target: Target, tile: WinogradTile) -> float:
    """Cycles of the whole batch: transforms, products, and bringing the weights for every block of tiles."""
    return winograd_costs(shape, target).cycles(tile)


@lru_cache(maxsize=16)
def winograd_costs(shape: ConvolutionShape, target: Target) -> WinogradCosts:
    """The estimates of a problem."""
    return WinogradCosts(shape, target)


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
    """What the blockings that differ in `columns` and `unroll` alone share: cycles of the transforms, in and out, and how many blocks."""

    transforms: tuple[float, float]
    count: int


class WinogradCosts:
    """Estimates of one problem for many blockings."""

    def __init__(self, shape: ConvolutionShape, target: Target):
        self._shape, self._target = shape, target
        self._planes, self._depth = out_planes(shape), winograd_depth(shape)
        self._out_blocks = shape.out_blocks(target.lanes)
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
        first = size.weight_bytes / memory
        again = size.weight_bytes / (l2 if size.weight_bytes <= target.l2_bytes // 2 else l3)
        return overlapped(products, first) + (block.count - 1) * overlapped(products, again) + sum(block.transforms)

    def judged(self, tile: WinogradTile) -> float:
        """The cycles, and what makes the usual tiles preferable where another's are hardly fewer."""
        by_point = _BY_POINT_IN_ORDER if fills_registers(self._target) else _BY_POINT
        return self.cycles(tile) * max(by_point if tile.by_point else 1.0, _OTHER_SIZE if tile.size != self._usual else 1.0)

    def judged_for_two(self, tile: WinogradTile) -> float:
        """`judged`, for one thread and for two that share the work as evenly as the blocks allow."""
        one = self.judged(tile)
        return one + (one + self._shared_transforms(tile)) * self._imbalance(tile)

    def _shared_transforms(self, tile: WinogradTile) -> float:
        """Cycles to transform once more the block of tiles that two threads share, where each has some of its output channels."""
        block = self._block(tile)
        return block.transforms[0] / block.count if tile.splits > 1 and block.count % 2 else 0.0

    def _imbalance(self, tile: WinogradTile) -> float:
        """How much longer than half of the work two threads take."""
        blocks = max(1, self._block(tile).count)
        return -(-blocks * tile.splits // 2) * 2 * tile.positions / (max(1, self._size(tile).tiles * self._planes) * tile.splits)

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
            known = self._blocks[key] = _Block(self._transforms(tile), all_blocks(self._shape, tile))
        return known

    def _transforms(self, tile: WinogradTile) -> tuple[float, float]:
        shape, target, size = self._shape, self._target, self._size(tile)
        filled = scratch_bytes(shape, target.lanes, tile) / target.l2_bytes
        moved = 8 * size.points * target.lanes * (filled / _SCRATCH_RATE if filled <= 1 else 1 / _FAR_SCRATCH_RATE)
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
        target = self._target
        widths, groups = block_groups(positions, columns), block_groups(self._out_blocks, blocks)
        saved = 1 - last_lanes(self._shape, target, "dense", groups[-1]) / target.lanes
        usual, rest = self._weight_cycles(blocks), self._weight_cycles(groups[-1])
        steps = 0.0
        for times, width in ((len(widths) - 1, columns), (1, widths[-1])):  # all but the last are alike
            regular = step_cycles(target, width, blocks, usual)
            last = step_cycles(target, width, groups[-1], rest, saved=saved)
            steps += times * ((len(groups) - 1) * regular + last)
        return steps, len(groups) * len(widths)

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
