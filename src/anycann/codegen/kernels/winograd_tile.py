"""When Winograd's convolution applies, and the sizes that follow from its tile."""

from __future__ import annotations

from itertools import product
from math import prod

from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.dot_plane import as_plane
from anycann.codegen.kernels.winograd_algorithm import WinogradAlgorithm, winograd_tiles_of
from anycann.codegen.kernels.winograd_bundles import BundledShape, most_channels
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes


@dataclass(frozen=True)
class WinogradTile:
    """`tiles` output tiles, of `height` x `width` results, of `planes` planes are transformed together; they are multiplied `columns` times
    `blocks` channel blocks at a time.

    `unroll` input channels are written out in the innermost loop. The output channels are cut into about `splits` runs (`channel_runs`).
    The planes of an image of three dimensions, of which each is read by several results, follow each other: position plane * tiles + tile.
    With `by_point`, a point is multiplied for all output channels of a run before the next: its transformed inputs stay in the cache where
    those of all points do not, and the weights are read for more tiles at once. Else each group of output channels is finished before the
    next.
    """

    tiles: int
    columns: int
    blocks: int
    unroll: int
    splits: int
    planes: int = 1
    height: int = 4
    width: int = 4
    by_point: bool = False

    @property
    def positions(self) -> int:
        """Results that are transformed together."""
        return self.tiles * self.planes

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of results of a tile."""
        return self.height, self.width


def winograd_shape(shape: ConvolutionShape) -> ConvolutionShape:
    """The sizes as Winograd's algorithm takes them: a line of pixels is a plane of one column, which lies in memory alike."""
    return as_plane(shape) if len(shape.in_size) == 1 else shape


def winograd_refusal(shape: ConvolutionShape, target: Target) -> str | None:
    """Why no algorithm of Winograd computes this convolution; None if one does."""
    if shape.accumulator is not dtypes.float32:
        return f"the input is {shape.dtype}"
    if len(shape.kernel) == 1 or max(shape.kernel[-2:]) == 1 or plane_taps(shape) == 0:
        return f"the kernel is {shape.kernel}, not one or more planes of several taps"
    steps = [stride for stride, step in zip(shape.strides[-2:], tap_steps(shape), strict=True) if step > 1]
    if not _results(shape, -2) or not _results(shape, -1) or max([1, *shape.strides[:-2], *steps]) > 1:
        return f"of kernels {shape.kernel} with strides {shape.strides} and dilations {shape.dilations} no algorithm is known"
    if shape.group > 1 and 2 * min(shape.group_inputs, shape.group_outputs) < target.lanes:
        return f"groups of {shape.group_inputs} -> {shape.group_outputs} channels are fewer than half a vector of {target.lanes}"
    if min(shape.in_channels, shape.out_channels) < target.lanes:
        return f"{shape.in_channels} -> {shape.out_channels} channels are fewer than a vector of {target.lanes}"
    return None


# Results of a tile along an axis, by its taps and stride, the usual number first: more save products, and have more weights.
_RESULTS = {
    (1, 1): (1,),
    (1, 2): (1,),
    (2, 1): (4, 2),
    (3, 1): (4, 2),
    (4, 1): (4, 2),
    (5, 1): (4, 2),
    (7, 1): (2,),
    (3, 2): (2, 4),
    (4, 2): (2,),
    (5, 2): (2,),
    (7, 2): (2,),
}
# Of three taps along a long line six results take 8 products, four take 6: 0.89 to 0.93 of the time, with twice the error (1.6e-6 of 384
# channels). With AVX2 a line of 37 results took 1.5 of it.
_LINE_TAPS, _LINE_RESULTS, _LONG_LINE = (3, 1), (6, 4, 2), 96


def _results(shape: ConvolutionShape, axis: int) -> tuple[int, ...]:
    taps = shape.kernel[axis], shape.strides[axis]
    is_long = prod(shape.kernel) == shape.kernel[axis] and shape.batch * shape.out_size[axis] >= _LONG_LINE
    return _LINE_RESULTS if is_long and taps == _LINE_TAPS else _RESULTS.get(taps, ())


def tile_sizes(shape: ConvolutionShape) -> list[tuple[int, int]]:
    """Heights and widths that tiles can have: squares, where the kernel is one."""
    heights, widths = _results(shape, -2), _results(shape, -1)
    return list(zip(heights, widths, strict=True)) if heights == widths else list(product(heights, widths))


def winograd_algorithm(shape: ConvolutionShape, tile: WinogradTile) -> WinogradAlgorithm:
    """What a tile is computed by."""
    return winograd_tiles_of(*tile.size, *shape.kernel[-2:], *shape.strides[-2:])


def tile_points(shape: ConvolutionShape, tile: WinogradTile) -> int:
    """Products of a tile, for each input and output channel."""
    return winograd_algorithm(shape, tile).points


def tap_steps(shape: ConvolutionShape) -> tuple[int, int]:
    """Rows and columns from one tap to the next."""
    dy, dx = (d if taps > 1 else 1 for d, taps in zip(shape.dilations[-2:], shape.kernel[-2:], strict=True))
    return dy, dx


def tile_grid(shape: ConvolutionShape, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Phases of rows and of columns, and rows and columns of tiles of that size that cover one phase of a plane of the output.

    With dilation d only every d-th pixel is read for a result, and for that d pixels on: those are a phase, an image of its own.
    """
    axes = list(zip(tap_steps(shape), shape.out_size[-2:], size, strict=True))
    (from_rows, from_columns), (rows, columns) = ([min(d, n) for d, n, _ in axes], [-(-n // (d * along)) for d, n, along in axes])
    return from_rows, from_columns, rows, columns


def all_tiles(shape: ConvolutionShape, size: tuple[int, int]) -> int:
    """Tiles of one plane of the whole batch."""
    return shape.batch * prod(tile_grid(shape, size))


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


def bundle_blocks(shape: ConvolutionShape, tile: WinogradTile) -> int:
    """Blocks of tiles and planes of a bundle."""
    return -(-all_tiles(shape, tile.size) // tile.tiles) * -(-out_planes(shape) // tile.planes)


def all_blocks(shape: BundledShape, tile: WinogradTile) -> int:
    """Blocks of tiles and planes of all bundles."""
    return shape.bundles * bundle_blocks(shape, tile)


def winograd_depth(shape: ConvolutionShape, lanes: int) -> int:
    """Products of a point that weights are packed for."""
    return plane_taps(shape) * most_channels(shape, lanes)


def winograd_weight_bytes(shape: ConvolutionShape, lanes: int, tile: WinogradTile) -> int:
    """Bytes of the transformed weights: 4x4 tiles of 3x3 taps have four times those of the kernel."""
    return 4 * tile_points(shape, tile) * winograd_depth(shape, lanes) * shape.out_blocks(lanes) * lanes


def scratch_bytes(shape: BundledShape, lanes: int, tile: WinogradTile) -> int:
    """Memory of a thread: transformed inputs of a block of tiles, and those products that are there at the same time."""
    return 4 * tile_points(shape, tile) * (input_stride(shape, lanes, tile) + product_stride(shape, lanes, tile))


def input_stride(shape: ConvolutionShape, lanes: int, tile: WinogradTile) -> int:
    """Elements between the planes of transformed inputs: an odd number of vectors, so that they do not share a cache set."""
    return (shape.in_blocks(lanes) * read_positions(shape, tile) | 1) * lanes


def product_stride(shape: BundledShape, lanes: int, tile: WinogradTile) -> int:
    """Elements between the planes of products."""
    return ((run_groups(shape, lanes, tile) if tile.by_point else 1) * tile.blocks * tile.positions | 1) * lanes


def run_groups(shape: BundledShape, lanes: int, tile: WinogradTile) -> int:
    """Groups of output channel blocks of a run, at most."""
    return -(-all_groups(shape, lanes, tile) // channel_runs(shape, lanes, tile))


def channel_runs(shape: BundledShape, lanes: int, tile: WinogradTile) -> int:
    """Runs of output channels of a block of tiles that are computed together: 10 groups in 8 parts are 5 of two.

    Where two threads share a block they are an even number: 6 then, of one group and of two.
    """
    groups = all_groups(shape, lanes, tile)
    runs = -(-groups // -(-groups // tile.splits))
    shares = all_blocks(shape, tile) % 2 and 1 < runs < groups
    return runs + runs % 2 if shares else runs


# Of 8 tasks the faster one of two threads waits for a quarter of what the other has. ResNet-50's layers in 16 and 40 instead of 8 and 10
# take 0.95 to 0.98 of the time with two threads, with one the same (Zen 3).
ENOUGH_TASKS = 32


def run_tasks(shape: BundledShape, lanes: int, tile: WinogradTile) -> int:
    """Tasks that a run is cut into, of a group at least: a call that has several of them computes them together."""
    runs = channel_runs(shape, lanes, tile)
    return max(1, min(all_groups(shape, lanes, tile) // runs, -(-ENOUGH_TASKS // max(1, all_blocks(shape, tile) * runs))))


def first_group(groups: int, part: int, parts: int) -> int:
    """Where a run or a task of these groups begins, so that halves of them are halves of the groups."""
    return groups * part // parts


def first_block(blocks: int, group: int, groups: int) -> int:
    """Where a group of output channel blocks begins: no two differ by more than a block, and the last is none of the larger."""
    return -(-blocks * group // groups)


def all_groups(shape: ConvolutionShape, lanes: int, tile: WinogradTile) -> int:
    """Groups of output channel blocks."""
    return -(-shape.out_blocks(lanes) // tile.blocks)
