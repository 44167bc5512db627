"""The choices for Winograd's convolution of bytes: whether it pays, and how it is cut into blocks that stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import ClassVar

from anycann.codegen.kernels.arithmetic_rate import is_halved
from anycann.codegen.kernels.convolution_estimate import block_groups
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_space import WinogradChoice
from anycann.codegen.kernels.convolution_tile import even_cuts
from anycann.codegen.kernels.dot_products import multiplies_words_at_once
from anycann.codegen.kernels.dot_space import DotSpace, waits_for_words, word_pair_cycles
from anycann.codegen.kernels.winograd_estimate import WEIGHT_RATES, overlapped
from anycann.codegen.kernels.winograd_tile import all_tiles
from anycann.codegen.kernels.winograd_words_lines import WordAlgorithm, word_tile_sizes
from anycann.codegen.kernels.winograd_words_tile import WordTile, WordWinograd, most_word_columns, word_winograd_refusal
from anycann.codegen.space import Parameter, Space
from anycann.support.records import dataclass
from anycann.target.target import Target

_MOST_TILES, _MOST_VECTORS = 256, 4
_PARTS = (1, 2, 4, 6, 8, 12, 16, 24, 32)  # that the tiles are cut into: two threads share an even number
_FEW_TILES = (1, 4, 8)  # for so many channels that more do not fit
_ENOUGH_TASKS = 8
# Its weights are eight times as many bytes, and its estimate is too low by up to a third where one instruction multiplies bytes. By two
# instructions it takes 0.6 of the time of dot products where the estimates are alike: 8 -> 16 channels at 100 x 100, AVX2.
_GAIN = 0.8
# Sorted dot products (`dot_sorted.py`) take as long as Winograd where its estimate is 1.26 to 1.42 times theirs: eight convolutions of 32
# to 512 channels, 3 x 3 with strides of 1 and 2 (Zen 3).
_SORTED_GAIN = 1.3


@dataclass(frozen=True)
class WordWinogradSpace(Space[WordTile]):
    """Blockings of `winograd_words.py`. `problem` must be one that it can compute.

    largest: results of a tile along an axis that the weights allow (`sums_fit`).
    """

    family: ClassVar[str] = "ConvWordWinograd"
    version: ClassVar[int] = 2
    tile_type: ClassVar[type[WordTile]] = WordTile

    problem: ConvolutionShape
    target: Target
    largest: int = 4

    def context(self) -> Mapping[str, int]:
        return {"largest": self.largest}

    def parameters(self) -> tuple[Parameter, ...]:
        vectors = -(-self.problem.out_channels // self.target.lanes)
        return (
            Parameter("vectors", tuple(range(1, min(_MOST_VECTORS, vectors) + 1))),
            Parameter("tiles", tuple(sorted({n for size in self._sizes() for n in self._tile_counts(size)}))),
            Parameter("columns", tuple(range(1, most_word_columns(self.target, 1) + 1))),
            Parameter("splits", tuple(n for n in (1, 2, 4, 8) if n <= vectors)),
            Parameter("results", tuple(self._sizes())),
            Parameter("by_point", (0, 1)),
        )

    def refusal(self, tile: WordTile) -> str | None:
        problem = word_winograd_refusal(self.problem, self.target)
        if problem:
            return problem
        vectors = -(-self.problem.out_channels // self.target.lanes)
        if not 1 <= tile.vectors <= min(_MOST_VECTORS, vectors):
            return f"{tile.vectors} vectors of output channels"
        if tile.results not in self._sizes():
            return f"tiles of {tile.results} x {tile.results} results"
        if not 1 <= tile.columns <= min(tile.tiles, most_word_columns(self.target, tile.vectors)):
            return f"{tile.columns} columns do not fit {tile.tiles} tiles and the registers"
        plan = WordWinograd(self.problem, self.target, tile)
        if tile.tiles > max(1, plan.all_tiles) or (tile.tiles > 1 and not _fits(plan)):
            return f"{tile.tiles} tiles do not fit the image or the cache"
        return None if 1 <= tile.splits <= plan.groups else f"{tile.splits} parts of {plan.groups} groups"

    def default(self) -> WordTile:
        return _best(self)

    def estimate(self, tile: WordTile) -> float:
        return _estimate(WordWinograd(self.problem, self.target, tile))

    def _sizes(self) -> list[int]:
        return [size for size in word_tile_sizes(self.problem) if size <= self.largest]

    def _tile_counts(self, size: int) -> list[int]:
        total = max(1, all_tiles(self.problem, (size, size)))
        even = {min(_MOST_TILES, -(-total // parts)) for parts in _PARTS}
        return sorted(even | {min(total, n) for n in _FEW_TILES})

    def candidates(self) -> Iterator[WordTile]:
        """Blockings that fit registers and the second-level cache, with tasks enough."""
        vectors = -(-self.problem.out_channels // self.target.lanes)
        for size, count in product(self._sizes(), range(1, min(_MOST_VECTORS, vectors) + 1)):
            for tiles in self._tile_counts(size):
                for by_point in (False, True):
                    yield from self._with_columns(WordTile(tiles, 1, count, 1, size, by_point))

    def _with_columns(self, tile: WordTile) -> Iterator[WordTile]:
        """What a register tile may be, and tasks enough."""
        plan = WordWinograd(self.problem, self.target, tile)
        splits = max(1, min(plan.groups, -(-_ENOUGH_TASKS // max(1, plan.blocks))))
        if tile.tiles > 1 and not _fits(WordWinograd(self.problem, self.target, replace(tile, splits=splits))):
            return
        for columns in even_cuts(tile.tiles, min(tile.tiles, most_word_columns(self.target, tile.vectors))):
            yield replace(tile, columns=columns, splits=splits)


@dataclass(frozen=True)
class WordAlgorithmSpace(WinogradChoice):
    """Of bytes: dot products or Winograd's algorithm. Both are exact.

    largest: as in `WordWinogradSpace`. magnitudes, around: as in `DotSpace`.
    """

    family: ClassVar[str] = "ConvWordAlgorithm"
    version: ClassVar[int] = 2

    problem: ConvolutionShape
    target: Target
    largest: int = 4
    magnitudes: bool = False
    around: int | None = None

    def context(self) -> Mapping[str, int]:
        return {
            "largest": self.largest,
            **({"magnitudes": 1} if self.magnitudes else {}),
            **({"sorted": 1} if self.around is not None else {}),
        }

    def _gains(self) -> bool:
        words = WordWinogradSpace(self.problem, self.target, self.largest)
        dots = DotSpace(self.problem, self.target, magnitudes=self.magnitudes, around=self.around)
        least = _SORTED_GAIN if self.around is not None else 1.0 if waits_for_words(self.target) else _GAIN
        return words.estimate(words.default()) < least * dots.estimate(dots.default())

    def _refusal(self) -> str | None:
        return word_winograd_refusal(self.problem, self.target)


_FAR = 4  # times the second-level cache


def _fits(plan: WordWinograd) -> bool:
    """True if the transformed inputs and the products of a block of tiles stay in the second-level cache.

    Point by point, the inputs of one stay in the first, all in the third; that is nothing where they stay in the second in any case.
    """
    near = plan.scratch_bytes <= plan.target.l2_bytes * 3 // 4
    if not plan.tile.by_point:
        return near
    return not near and 2 * plan.input_stride <= plan.target.l1_bytes * 3 // 4 and plan.scratch_bytes <= _FAR * plan.target.l2_bytes


@lru_cache(maxsize=256)
def _best(space: WordWinogradSpace) -> WordTile:
    return min(space.candidates(), key=lambda tile: _shared(WordWinograd(space.problem, space.target, tile)))


def _shared(plan: WordWinograd) -> float:
    """The estimate for one thread and for two."""
    imbalance = -(-plan.blocks * plan.tile.splits // 2) * 2 * plan.tile.tiles / (plan.all_tiles * plan.tile.splits)
    return _estimate(plan) * (1 + imbalance) / 2


# Cycles of an instruction of the transforms, in and out (130 and 160 for a vector of channels of 4x4 results), and to hand a vector of sums
# to the writer.
_INPUT_CYCLES, _OUTPUT_CYCLES, _WRITE = 130 / 312, 160 / 254, 5.0
_AROUND = 30.0  # a register tile


def _estimate(plan: WordWinograd) -> float:
    """Cycles of the whole batch: transforms, products, and bringing the weights for every block of tiles."""
    shape, tile, lanes = plan.shape, plan.tile, plan.target.lanes
    widths = block_groups(tile.tiles, tile.columns)
    vectors = block_groups(-(-shape.out_channels // lanes), tile.vectors)
    steps = sum(_step_cycles(plan.target, width, some) for width in widths for some in vectors)
    products = plan.algorithm.points * (shape.in_channels / 2 * steps + _AROUND * len(widths) * len(vectors))
    first, again = _weight_cycles(plan)
    there, back = _transform_cycles(plan.algorithm)
    moved = 2.0 * plan.blocks * plan.scratch_bytes / WEIGHT_RATES[1] if plan.tile.by_point else 0.0
    transforms = moved + plan.all_tiles * (-(-shape.in_channels // plan.chunk) * there + sum(vectors) * back)
    written = _WRITE * sum(vectors) * shape.batch * shape.out_pixels
    return overlapped(products, first) + (plan.blocks - 1) * overlapped(products, again) + transforms + written


# So many weights of a layer stay in the third-level cache beside those of others until a network runs again, and so many while it runs.
_KEPT_BYTES, _HELD_BYTES = 4 << 20, 8 << 20


def _weight_cycles(plan: WordWinograd) -> tuple[float, float]:
    """Cycles to bring the weights for the first block of tiles, and for every other.

    128 to 256 channels of 8 x 8 take 84 us with tiles of 4 x 4 and 119 of 2 x 2 while the weights stay, 512 of 7 x 7 1130 and 1030.
    """
    weights, (l2, l3, memory) = plan.weight_bytes, WEIGHT_RATES
    waits = waits_for_words(plan.target)
    again = l2 if weights <= plan.target.l2_bytes // 2 else memory if waits and weights > _HELD_BYTES else l3
    return weights / (l3 if waits and weights <= _KEPT_BYTES else memory), weights / again


def _transform_cycles(algorithm: WordAlgorithm) -> tuple[float, float]:
    """Cycles to transform one patch and one tile of results, for a vector of channels."""
    rows, columns = algorithm.rows, algorithm.columns
    there = 2 * rows.patch * columns.patch + rows.steps[0] * columns.patch + columns.steps[0] * rows.points + algorithm.points
    back = algorithm.points + rows.steps[1] * columns.points + columns.steps[1] * rows.results + 3 * algorithm.results
    return _INPUT_CYCLES * there, _OUTPUT_CYCLES * back


def _step_cycles(target: Target, columns: int, vectors: int) -> float:
    """Cycles of one pair of input channels of a register tile: by products, by loads, or by waiting for the sums."""
    if not multiplies_words_at_once(target):
        return word_pair_cycles(target, columns, vectors)
    return max(columns * vectors / (1 if is_halved(target) else 2), (columns + vectors) / 2, 5.0)
