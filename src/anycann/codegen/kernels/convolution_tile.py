"""How a convolution is cut into register tiles: the choices there are, and the one to take without measuring."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd, prod

from anycann.codegen.kernels.arithmetic_rate import fills_registers, has_fma, is_halved
from anycann.codegen.kernels.convolution_estimate import ConvolutionTile, estimate, is_written_far
from anycann.codegen.kernels.convolution_method import Method, aligned_groups, channel_block, method, packed_size, reads_channels_last
from anycann.codegen.kernels.convolution_shape import ConvolutionShape, axes
from anycann.target.target import Target


def tiles(shape: ConvolutionShape, target: Target, blocked_input: bool = True) -> list[ConvolutionTile]:
    """Every tile that fits the registers, best estimate first: the search space of tuning."""
    found = {_tile(shape, target, blocked_input, *candidate) for candidate in _candidates(shape, target, blocked_input)}
    return sorted(found, key=lambda tile: (estimate(shape, target, tile, blocked_input), tile.merge, -tile.columns))


@lru_cache(maxsize=1024)
def default_tile(shape: ConvolutionShape, target: Target, blocked_input: bool = True) -> ConvolutionTile:
    """The tile with the lowest estimate."""
    return tiles(shape, target, blocked_input)[0]


def _candidates(shape: ConvolutionShape, target: Target, blocked_input: bool) -> list[tuple[int, int, bool, bool]]:
    how = method(shape, target.lanes, blocked_input)
    result = []
    merges = axes(shape, True) != axes(shape, False)
    for merge, images in ((False, False), (True, False), (merges, True)):
        if images and not may_take_images(shape, how):
            continue
        extent = shape.batch if images else axes(shape, merge)[-1].out_size
        for blocks in block_choices(shape, target.lanes, how):
            most = min(max(1, extent), most_columns(shape, target, blocks, how))
            most = min(most, most_images(shape)) if images else most
            cuts = {*even_cuts(extent, most), *(_short_tiles(shape, target, blocks) if how == "dense" else ())}
            result += [(columns, blocks, merge, images) for columns in sorted(cuts) if columns <= most]
    return result


# Pixels of a tile where there are so few products that writing takes longer than a tile's latency; where it waits for memory.
_SHORT_TILES, _FAR_TILES, _SHORT_STEPS = range(4, 10), range(2, 10), 16


def _short_tiles(shape: ConvolutionShape, target: Target, blocks: int) -> Sequence[int]:
    """Numbers of pixels that give their registers back soon, where few products hide what is written (`convolution_estimate.py`).

    1 x 1 from 5 to 8 channels to 77 to 439 takes 0.73 to 0.93 of the time by 6 x 1 that it takes by 14 x 1 to 22 x 1 or 2 x 8 (Zen 4).
    """
    if not is_halved(target) or shape.taps > 1 or shape.group_inputs > _SHORT_STEPS:
        return ()
    return _FAR_TILES if is_written_far(shape, target) else _SHORT_TILES if blocks == 1 else ()


# Longer rows give whole tiles without help.
_SHORT_ROW = 16
_LINE_BYTES, _SETS, _WAYS = 64, 64, 10


def may_take_images(shape: ConvolutionShape, how: Method) -> bool:
    """True if a tile may be one place of several images: there are some, and their rows are short."""
    return how == "dense" and shape.batch > 1 and 0 < axes(shape, True)[-1].out_size <= _SHORT_ROW


def most_images(shape: ConvolutionShape) -> int:
    """Images whose pixels of one place stay in the first-level cache together: a power of two between them leaves few sets."""
    lines = max(1, shape.dtype.nbytes * shape.in_channels * shape.in_pixels // _LINE_BYTES)
    return max(1, _SETS // gcd(lines, _SETS) * _WAYS)


def block_choices(shape: ConvolutionShape, lanes: int, how: Method) -> range:
    """Numbers of channel blocks (of output channels, with lanes over input channels) to compute together."""
    if how == "inner":
        return range(shape.out_channels, shape.out_channels + 1)
    if how != "dense":
        return range(1, 2)
    return range(1, min(8, shape.group_outputs // lanes if shape.group > 1 else shape.out_blocks(lanes)) + 1)


def even_cuts(size: int, most: int) -> list[int]:
    """Part sizes up to `most` that cut `size` into few nearly equal parts, and `most` itself."""
    fewest = max(1, -(-size // most))
    return sorted({most} | {max(1, -(-size // parts)) for parts in range(fewest, fewest + 4)})


def most_columns(shape: ConvolutionShape, target: Target, blocks: int, how: Method) -> int:
    """Pixels of a tile: accumulators, one weight vector a block and one broadcast have to fit; without FMA a product needs a place too."""
    registers = target.registers * 4 // shape.accumulator.nbytes  # a vector of float64 takes two
    if how == "inner":
        return max(1, min(_MOST_COLUMNS["lanes"], (registers - 2) // blocks - 1))
    if how != "dense":
        return _MOST_COLUMNS[how] if registers >= 32 else 8
    broadcast = 0 if blocks == 1 and target.lanes == 16 else 1  # AVX-512 broadcasts from memory inside the FMA
    spare = broadcast + (0 if has_fma(target) else 1) + (1 if registers <= 16 and blocks == 1 else 0)  # LLVM spills one
    return max(1, (registers - spare) // blocks - 1)


# Depthwise: longer tiles measured slower, however many registers are left.
_MOST_COLUMNS = {"lanes": 16, "blend": 20, "gather": 8}


def _tile(shape: ConvolutionShape, target: Target, blocked: bool, columns: int, blocks: int, merge: bool, images: bool) -> ConvolutionTile:
    unroll = _unroll(shape, target, blocked, columns, blocks)
    if images:
        return ConvolutionTile(columns, blocks, unroll, merge, images=True)
    depth = _depth(shape, target, blocked, columns, blocks, merge)
    return ConvolutionTile(columns, blocks, unroll, merge, not depth and _blocks_first(shape, target, blocked, blocks), depth)


def _blocks_first(shape: ConvolutionShape, target: Target, blocked: bool, blocks: int) -> bool:
    """True if all channel blocks of a row go before the next row. Depthwise, each block has rows of its own, but for bytes and 16 bits.

    Those lie with their channels last, several blocks in a line of the cache, and an image passes once for all of them: with AVX2 3 x 3 of
    stride 2 from 96 channels of 112 x 112 bytes takes 0.64 of the time, of 144 at 56 x 56 0.8, of 240 and 480 at 28 x 28 and 14 x 14 the
    same; with AVX-512 in bfloat16 the first 0.75, 3 x 3 of 144 at 56 x 56 0.70, of 960 at 7 x 7 0.8, 7 x 7 of 96 and 384 1.01 and 1.06.
    """
    if method(shape, target.lanes, blocked) != "lanes":
        return _rows_stay(shape, target, blocks)
    return shape.dtype.nbytes < 4 and reads_channels_last(shape, target.lanes)


# A task of all pixels pays where each weight would be loaded from the second-level cache for few pixels, and often: 7 x 7 images. With 16
# registers two tiles are often enough: 3 x 3 on 2 x 3 pixels takes 0.7 to 0.8 of the time, on 3 x 3 0.64 (Zen 3). With 32, two or three
# tiles gain by weights that are too many for that cache too (3 x 3 of 416 channels on 2 x 4 and of 384 on 3 x 3 pixels 0.68, 0.66), and
# tiles of one or two pixels, which wait for that cache, by less of them (1 x 1 of 232 channels on 13 x 1 pixels 0.50; Xeon).
_LEAST_TILES, _LOADING_COLUMNS = 4, 2
_FEW_COLUMNS, _LEAST_TASKS = 8, 4


def _depth(shape: ConvolutionShape, target: Target, blocked: bool, columns: int, blocks: int, merge: bool) -> int:
    """Input channel blocks whose weights fit the first-level cache beside the sums; 0 where rows are better computed one by one."""
    if max(depth_choices(shape, target, blocked, blocks)) == 0 or columns > _FEW_COLUMNS:
        return 0
    weights = shape.accumulator.nbytes * target.lanes * blocks * shape.group_inputs * shape.taps
    width = axes(shape, merge)[-1].out_size
    tiles, rows = shape.out_pixels // width * -(-width // columns), shape.out_pixels // width
    tasks = shape.batch * shape.group * -(-shape.group_outputs // (target.lanes * blocks))
    if tasks < _LEAST_TASKS and rows > 1:
        return 0
    shared = tiles >= 2 and weights >= _least_weights(target, columns, tiles)
    if not shared and (tiles >= _LEAST_TILES or not _come_from_far(shape, target, weights)):
        return 0
    fitting = target.l1_bytes * 5 // 8 * -(-shape.group_inputs // target.lanes) // weights
    return max(1, *(n for n in depth_choices(shape, target, blocked, blocks) if n <= fitting))


# Weights of a task, in first-level caches, that are fetched too long before they are multiplied if all of them are fetched by one task.
_FAR_WEIGHTS = 3


def _come_from_far(shape: ConvolutionShape, target: Target, weights: int) -> bool:
    """True if few pixels wait for their weights, of so many bytes for a task, from behind the second-level cache.

    A part of them at a time is fetched soon before it is used; a whole task's are not there any more, or not yet. With 32 registers
    3 x 3 of 256 channels onto one pixel takes 0.67 of the time, of 160 on 3 x 6 pixels 0.75, 5 x 5 of 320 on 3 x 2 0.80, 1 x 1 of 2048 on
    2 x 3 0.86, on one pixel 0.79, 5 taps of 512 on 9 in a row 0.75; where they are near 0.96 to 1.06 (27 shapes and drawn
    ones, Xeon of the fifth generation). Not measured with 16.
    """
    everything = shape.accumulator.nbytes * packed_size(shape, target.lanes)
    return not target.has_few_registers and weights >= _FAR_WEIGHTS * target.l1_bytes and everything >= target.l2_bytes // 2


def _least_weights(target: Target, columns: int, tiles: int) -> int:
    """Bytes of weights from which on so many register tiles of so many columns should share them a part at a time."""
    if target.has_few_registers or (tiles >= _LEAST_TILES and columns > _LOADING_COLUMNS):
        return 4 * target.l1_bytes
    return target.l1_bytes if tiles >= _LEAST_TILES else 16 * target.l1_bytes


def depth_choices(shape: ConvolutionShape, target: Target, blocked: bool, blocks: int) -> tuple[int, ...]:
    """Depths of a tile: 0 and, if the sums of all pixels leave room in the first-level cache, some numbers of input channel blocks."""
    if method(shape, target.lanes, blocked) != "dense":
        return (0,)
    sums = shape.accumulator.nbytes * target.lanes * blocks * shape.out_pixels
    in_blocks = -(-shape.group_inputs // channel_block(shape, target.lanes))
    return (0, *(n for n in (1, 2, 4, 8) if n < in_blocks)) if 0 < sums <= target.l1_bytes // 2 else (0,)


def _unroll(shape: ConvolutionShape, target: Target, blocked: bool, columns: int, blocks: int) -> int:
    """Input channels in the innermost loop: enough FMAs to hide the loop, as more only costs compile time."""
    how, choices = method(shape, target.lanes, blocked), unroll_choices(shape, target, blocked)
    most = _LOOP_FMAS // 2 if fills_registers(target) else _LOOP_FMAS  # more made LLVM spill
    is_full = not target.has_few_registers and blocks > 1 and columns * blocks + blocks + 1 >= target.registers - 1
    if is_full and how == "dense":
        return choices[0]  # LLVM loads the next channel's weights ahead where it sees them, and spills: 7 % of 4 x 6, 6 % of 14 x 2
    if keeps_order(shape, target, how):
        if shape.taps * shape.group_inputs <= _WITHOUT_LOOP or blocks == 1:
            return choices[0]
        most = MOST_FMAS
    elif not blocked and blocks > 1 and not target.has_few_registers:
        most = _STEM_FMAS
    return max(n for n in choices if n * columns * blocks <= most or n == choices[0])


def keeps_order(shape: ConvolutionShape, target: Target, how: Method) -> bool:
    """True if a tile's loads stay where they are written (`fills_registers`).

    So a whole block of input channels can be written out without a spill. Beside two of them, and an order that LLVM chooses, AVX2 takes
    0.89 to 0.90 of the time for 3 x 3 (stride 1 and 2; 64 -> 128 at 80 x 80, 128 -> 128 at 28 x 28 and 56 x 56), 0.96 for 5 x 5, 0.99 for
    1 x 1 on a Zen 3.
    """
    return how == "dense" and fills_registers(target) and shape.accumulator.is_float


def unroll_choices(shape: ConvolutionShape, target: Target, blocked: bool) -> tuple[int, ...]:
    """Numbers of input channels that may be written out in the innermost loop: those that divide every channel block, least first."""
    lanes = target.lanes
    how = method(shape, lanes, blocked)
    if how == "lanes":
        return (shape.group_inputs,)
    if how == "inner":
        return (channel_block(shape, lanes),)
    if how in ("blend", "gather") or not aligned_groups(shape, lanes):
        return (1,)
    inner = channel_block(shape, lanes)
    last = shape.group_inputs % inner or inner
    return tuple(n for n in range(1, inner + 1) if inner % n == 0 and last % n == 0)


MOST_FMAS = 96  # in an innermost loop; longer ones only cost compile time
_LOOP_FMAS = 48
# The few channels of a picture, all written out: 0.92 to 0.97 of the time with AVX-512 and 8 x 3 or 6 x 4 registers of sums.
_STEM_FMAS = 72
# With AVX2 all products of two channels written out leave no loop, and LLVM moves loads until it spills: one by one they take 0.83 to 0.86
# of the time (110 to 250 channels, Zen 4; 0.45 to 0.97 on a Xeon), four 0.93 to 1.04. Of one channel block it writes sums where factors
# were, and spills from two channels on: 24 drawn layers of 5 to 8 outputs take 0.66 to 1.05 of the time one by one, 0.84 in the mean.
_WITHOUT_LOOP = 2


def _cached_pixels(shape: ConvolutionShape) -> int:
    """Pixels of an image that take place in the cache: rows that a stride skips do not; columns do, for others cannot have their sets."""
    rows = zip(shape.in_size[:-1], shape.out_size[:-1], shape.kernel[:-1], strict=True)
    return shape.in_size[-1] * prod(min(size, out * kernel) for size, out, kernel in rows)


_READ_PER_WRITTEN = 2


def _rows_stay(shape: ConvolutionShape, target: Target, blocks: int) -> bool:
    """True if less has to come from behind the second-level cache when all channel blocks of a row are computed together.

    Not where reading the image again is little beside what is written meanwhile, which is faster in order: 1 x 1 from 8 to 288 channels
    of 226 x 140 pixels takes 0.65 of the time (with AVX2 0.72), to 128 of 140 x 226 0.83, from 16 to 512 of 100 x 100 0.91, where less is
    written 0.94 to 1.02 (Zen 4).
    """
    weights = shape.accumulator.nbytes * packed_size(shape, target.lanes)
    image = shape.dtype.nbytes * shape.in_channels * _cached_pixels(shape)
    if image < _READ_PER_WRITTEN * shape.dtype.nbytes * target.lanes * blocks * shape.out_pixels:
        return False
    room = target.l2_bytes // 2
    rows = max(1, shape.out_size[0])
    rounds = -(-shape.out_blocks(target.lanes) // blocks)
    rows_inner = weights + (image if image <= room else image * rounds)
    blocks_inner = image + (weights if weights <= room else weights * rows)
    return blocks_inner < rows_inner
