"""When Winograd's convolution of bytes applies and pays, and how it is cut into blocks that stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator
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
from anycann.codegen.kernels.winograd_blocking import WEIGHT_RATES, overlapped
from anycann.codegen.kernels.winograd_tile import all_tiles
from anycann.codegen.space import Parameter, Space
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes

POINTS = 36  # of a 6x6 patch
OUT, PATCH = 4, 6  # a tile has OUT x OUT results, from a patch of PATCH x PATCH inputs
CHANNELS = 8  # their number divides the input channels, so that few pieces of vectors remain


@dataclass(frozen=True)
class WordTile:
    """`tiles` 4x4 output tiles are transformed together; they are multiplied `columns` times `vectors` of output channels at a time.

    The output channels are cut into `splits` tasks.
    """

    tiles: int
    columns: int
    vectors: int
    splits: int


@dataclass(frozen=True)
class WordWinograd:
    """A convolution of bytes over two dimensions and its tile, and everything that follows from them."""

    shape: ConvolutionShape
    target: Target
    tile: WordTile

    @property
    def chunk(self) -> int:
        """Input channels of a vector."""
        return 2 * self.target.lanes

    @property
    def width(self) -> int:
        """Output channels of a group."""
        return self.tile.vectors * self.target.lanes

    @property
    def groups(self) -> int:
        return -(-self.shape.out_channels // self.width)

    @property
    def unroll(self) -> int:
        """Pairs of input channels that are written out in the innermost loop."""
        return 4 if self.tile.columns * self.tile.vectors <= 8 else 2

    @property
    def input_stride(self) -> int:
        """Elements between the 36 planes of transformed inputs: an odd number of vectors, so that they do not share a cache set."""
        return (-(-self.shape.in_channels // self.chunk) * self.tile.tiles | 1) * self.chunk

    @property
    def product_stride(self) -> int:
        """Elements between the 36 planes of products."""
        return (self.tile.vectors * self.tile.tiles | 1) * self.target.lanes

    @property
    def input_bytes(self) -> int:
        return 2 * POINTS * self.input_stride

    @property
    def scratch_bytes(self) -> int:
        """Memory of a thread: transformed inputs of a block of tiles, and their products for one group."""
        return self.input_bytes + 4 * POINTS * self.product_stride

    @property
    def blocks(self) -> int:
        return -(-all_tiles(self.shape, (OUT, OUT)) // self.tile.tiles)

    @property
    def tasks(self) -> int:
        return self.blocks * self.tile.splits


_MOST_TILES, _MOST_VECTORS = 256, 4
_PARTS = (1, 2, 4, 6, 8, 12, 16, 24, 32)  # that the tiles are cut into: two threads share an even number
_FEW_TILES = (1, 4, 8)  # for so many channels that more do not fit
_ENOUGH_TASKS = 8
# Its weights are eight times as many bytes, and its estimate is too low by up to a third where one instruction multiplies bytes. By two
# instructions it takes 0.6 of the time of dot products where the estimates are alike: 8 -> 16 channels at 100 x 100, AVX2.
_GAIN = 0.8


@dataclass(frozen=True)
class WordWinogradSpace(Space[WordTile]):
    """Blockings of `winograd_words.py`. `problem` must be one that it can compute."""

    family: ClassVar[str] = "ConvWordWinograd"
    version: ClassVar[int] = 1
    tile_type: ClassVar[type[WordTile]] = WordTile

    problem: ConvolutionShape
    target: Target

    def parameters(self) -> tuple[Parameter, ...]:
        vectors = -(-self.problem.out_channels // self.target.lanes)
        return (
            Parameter("vectors", tuple(range(1, min(_MOST_VECTORS, vectors) + 1))),
            Parameter("tiles", tuple(self._tile_counts())),
            Parameter("columns", tuple(range(1, most_word_columns(self.target, 1) + 1))),
            Parameter("splits", tuple(n for n in (1, 2, 4, 8) if n <= vectors)),
        )

    def refusal(self, tile: WordTile) -> str | None:
        problem = word_winograd_refusal(self.problem, self.target)
        if problem:
            return problem
        vectors = -(-self.problem.out_channels // self.target.lanes)
        if not 1 <= tile.vectors <= min(_MOST_VECTORS, vectors):
            return f"{tile.vectors} vectors of output channels"
        if not 1 <= tile.columns <= min(tile.tiles, most_word_columns(self.target, tile.vectors)):
            return f"{tile.columns} columns do not fit {tile.tiles} tiles and the registers"
        plan = WordWinograd(self.problem, self.target, tile)
        if tile.tiles > max(1, all_tiles(self.problem, (OUT, OUT))) or (tile.tiles > 1 and not _fits(plan)):
            return f"{tile.tiles} tiles do not fit the image or the cache"
        return None if 1 <= tile.splits <= plan.groups else f"{tile.splits} parts of {plan.groups} groups"

    def default(self) -> WordTile:
        return _best(self)

    def estimate(self, tile: WordTile) -> float:
        return _estimate(WordWinograd(self.problem, self.target, tile))

    def _tile_counts(self) -> list[int]:
        total = max(1, all_tiles(self.problem, (OUT, OUT)))
        even = {min(_MOST_TILES, -(-total // parts)) for parts in _PARTS}
        return sorted(even | {min(total, n) for n in _FEW_TILES})

    def candidates(self) -> Iterator[WordTile]:
        """Blockings that fit registers and the second-level cache, with tasks enough."""
        vectors = -(-self.problem.out_channels // self.target.lanes)
        for count, tiles in product(range(1, min(_MOST_VECTORS, vectors) + 1), self._tile_counts()):
            if tiles > 1 and not _fits(WordWinograd(self.problem, self.target, WordTile(tiles, 1, count, 1))):
                continue
            groups, blocks = -(-vectors // count), -(-all_tiles(self.problem, (OUT, OUT)) // tiles)
            splits = max(1, min(groups, -(-_ENOUGH_TASKS // max(1, blocks))))
            for columns in even_cuts(tiles, min(tiles, most_word_columns(self.target, count))):
                yield WordTile(tiles, columns, count, splits)


def word_winograd_refusal(shape: ConvolutionShape, target: Target) -> str | None:
    """Why Winograd F(4x4, 3x3) of bytes cannot compute this convolution; None if it can."""
    if not target.is_x86 or shape.dtype not in (dtypes.uint8, dtypes.int8):
        return f"{shape.dtype} on {target.triple}"
    if shape.kernel != (3, 3) or max(*shape.strides, *shape.dilations) > 1 or shape.group != 1:
        return f"the kernel is {shape.kernel}, strides {shape.strides}, dilations {shape.dilations}, {shape.group} groups"
    if shape.in_channels % CHANNELS or shape.batch * shape.out_pixels == 0:
        return f"{shape.in_channels} input channels, {shape.batch * shape.out_pixels} pixels"
    return None


class WordAlgorithmSpace(WinogradChoice):
    """Of bytes: dot products or Winograd's algorithm. Both are exact."""

    family: ClassVar[str] = "ConvWordAlgorithm"

    def _gains(self) -> bool:
        words, dots = WordWinogradSpace(self.problem, self.target), DotSpace(self.problem, self.target)
        least = 1.0 if waits_for_words(self.target) else _GAIN
        return words.estimate(words.default()) < least * dots.estimate(dots.default())

    def _refusal(self) -> str | None:
        return word_winograd_refusal(self.problem, self.target)


def most_word_columns(target: Target, vectors: int) -> int:
    """Tiles whose sums fit the registers, beside the weights, what is broadcast, and a product where it is added by itself."""
    spare = 1 + (0 if multiplies_words_at_once(target) else 1)
    return max(1, (target.registers - spare - vectors) // vectors)


def _fits(plan: WordWinograd) -> bool:
    """True if the transformed inputs and the products of a block of tiles stay in the second-level cache."""
    return plan.scratch_bytes <= plan.target.l2_bytes * 3 // 4


@lru_cache(maxsize=256)
def _best(space: WordWinogradSpace) -> WordTile:
    return min(space.candidates(), key=lambda tile: _shared(WordWinograd(space.problem, space.target, tile)))


def _shared(plan: WordWinograd) -> float:
    """The estimate for one thread and for two."""
    imbalance = -(-plan.tasks // 2) * 2 * plan.tile.tiles / (all_tiles(plan.shape, (OUT, OUT)) * plan.tile.splits)
    return _estimate(plan) * (1 + imbalance) / 2


# Cycles to transform the patches of one tile and vector of channels, in and out, and to hand a vector of sums to the writer.
_INPUT_CYCLES, _OUTPUT_CYCLES, _WRITE = 130.0, 160.0, 5.0
_AROUND = 30.0  # a register tile


def _estimate(plan: WordWinograd) -> float:
    """Cycles of the whole batch: transforms, products, and bringing the weights for every block of tiles."""
    shape, tile, lanes = plan.shape, plan.tile, plan.target.lanes
    widths = block_groups(tile.tiles, tile.columns)
    vectors = block_groups(-(-shape.out_channels // lanes), tile.vectors)
    steps = sum(_step_cycles(plan.target, width, some) for width in widths for some in vectors)
    products = POINTS * (shape.in_channels / 2 * steps + _AROUND * len(widths) * len(vectors))
    weights = 2 * POINTS * shape.in_channels * plan.groups * plan.width
    l2, l3, memory = WEIGHT_RATES
    again = weights / (l2 if weights <= plan.target.l2_bytes // 2 else l3)
    tiles = all_tiles(shape, (OUT, OUT))
    transforms = tiles * (-(-shape.in_channels // plan.chunk) * _INPUT_CYCLES + sum(vectors) * _OUTPUT_CYCLES)
    written = _WRITE * sum(vectors) * shape.batch * shape.out_pixels
    return overlapped(products, weights / memory) + (plan.blocks - 1) * overlapped(products, again) + transforms + written


def _step_cycles(target: Target, columns: int, vectors: int) -> float:
    """Cycles of one pair of input channels of a register tile: by products, by loads, or by waiting for the sums."""
    if not multiplies_words_at_once(target):
        return word_pair_cycles(target, columns, vectors)
    return max(columns * vectors / (1 if is_halved(target) else 2), (columns + vectors) / 2, 5.0)
