"""A blocking of Winograd's convolution of bytes, what follows from it, and when there is one."""

from __future__ import annotations

from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.dot_products import multiplies_words_at_once
from anycann.codegen.kernels.winograd_tile import ENOUGH_TASKS, all_tiles
from anycann.codegen.kernels.winograd_words_lines import WordAlgorithm, word_algorithm, word_tile_sizes
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes

CHANNELS = 8  # their number divides the input channels, so that few pieces of vectors remain


@dataclass(frozen=True)
class WordTile:
    """`tiles` output tiles are transformed together; they are multiplied `columns` times `vectors` of output channels at a time.

    The output channels are cut into `splits` runs. A tile has `results` along each axis. With `by_point`, a point is multiplied for all
    output channels of a run before the next, as in `WinogradTile`.
    """

    tiles: int
    columns: int
    vectors: int
    splits: int
    results: int = 4
    by_point: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of results of a tile."""
        return self.results, self.results


@dataclass(frozen=True)
class WordWinograd:
    """A convolution of bytes over two dimensions and its tile, and everything that follows from them."""

    shape: ConvolutionShape
    target: Target
    tile: WordTile

    @property
    def algorithm(self) -> WordAlgorithm:
        return word_algorithm(self.shape, self.tile.results)

    @property
    def all_tiles(self) -> int:
        """Tiles of the whole batch."""
        return all_tiles(self.shape, self.tile.size)

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
    def run_groups(self) -> int:
        """Groups that are computed together, and fewer in the last run."""
        return -(-self.groups // self.tile.splits)

    @property
    def run_tasks(self) -> int:
        """Tasks of a run, of as many groups: a call that has several of them computes them together."""
        most = -(-ENOUGH_TASKS // max(1, self.blocks * self.tile.splits))
        return max(n for n in range(1, self.run_groups + 1) if self.run_groups % n == 0 and (n <= most or n == 1))

    @property
    def unroll(self) -> int:
        """Pairs of input channels that are written out in the innermost loop."""
        return 4 if self.tile.columns * self.tile.vectors <= 8 else 2

    @property
    def fetched_bytes(self) -> int:
        """Bytes of the next weights that a register tile fetches for each pair of input channels; 0 where all stay in a near cache."""
        near = self.weight_bytes <= self.target.l2_bytes // 2
        return 0 if near else -(-4 * self.width // -(-self.tile.tiles // self.tile.columns))

    @property
    def weight_bytes(self) -> int:
        return 2 * self.algorithm.points * self.shape.in_channels * self.groups * self.width

    @property
    def input_stride(self) -> int:
        """Elements between the planes of transformed inputs: an odd number of vectors, so that they do not share a cache set."""
        return (-(-self.shape.in_channels // self.chunk) * self.tile.tiles | 1) * self.chunk

    @property
    def product_stride(self) -> int:
        """Elements between the planes of products."""
        groups = self.run_groups if self.tile.by_point else 1
        return (groups * self.tile.vectors * self.tile.tiles | 1) * self.target.lanes

    @property
    def input_bytes(self) -> int:
        return 2 * self.algorithm.points * self.input_stride

    @property
    def scratch_bytes(self) -> int:
        """Memory of a thread: transformed inputs of a block of tiles, and their products for one group or all of a run."""
        return self.input_bytes + 4 * self.algorithm.points * self.product_stride

    @property
    def blocks(self) -> int:
        return -(-self.all_tiles // self.tile.tiles)

    @property
    def tasks(self) -> int:
        return self.blocks * self.tile.splits * self.run_tasks


def word_winograd_refusal(shape: ConvolutionShape, target: Target) -> str | None:
    """Why Winograd's convolution of bytes cannot compute this one; None if it can."""
    if not target.is_x86 or shape.dtype not in (dtypes.uint8, dtypes.int8):
        return f"{shape.dtype} on {target.triple}"
    if not word_tile_sizes(shape) or max(shape.dilations) > 1 or shape.group != 1:
        return f"the kernel is {shape.kernel}, strides {shape.strides}, dilations {shape.dilations}, {shape.group} groups"
    if shape.in_channels % CHANNELS or shape.batch * shape.out_pixels == 0:
        return f"{shape.in_channels} input channels, {shape.batch * shape.out_pixels} pixels"
    return None


def most_word_columns(target: Target, vectors: int) -> int:
    """Tiles whose sums fit the registers, beside the weights, what is broadcast, and a product where it is added by itself."""
    spare = 1 + (0 if multiplies_words_at_once(target) else 1)
    return max(1, (target.registers - spare - vectors) // vectors)
