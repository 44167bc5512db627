"""How a convolution is cut into register tiles: the choices there are, and the one to take without measuring."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal, TypeAlias

from anycann.codegen.kernels.convolution_columns import segments
from anycann.codegen.kernels.convolution_shape import Axis, ConvolutionShape, axes
from anycann.target.target import Target

Method: TypeAlias = Literal["dense", "inner", "lanes", "blend", "gather"]


@dataclass(frozen=True)
class ConvolutionTile:
    """`columns` output pixels times `blocks` output channel blocks are computed together in registers.

    `unroll` input channels are written out in the innermost loop. With `merge`, images are rows of all their pixels where the kernel
    allows (`convolution_shape.axes`). With `blocks_inner`, all channel blocks of a row are computed before the next row (the row stays in
    the cache), else all rows before the next channel blocks (the weights stay in the cache).
    """

    columns: int
    blocks: int
    unroll: int = 1
    merge: bool = False
    blocks_inner: bool = False


def method(shape: ConvolutionShape, lanes: int, blocked_input: bool) -> Method:
    """How the lanes of a vector of output channels get their input.

    dense: all lanes see the same input channels, one scalar serves them all; inner: there are so few output channels that the lanes run
    over input channels instead, and are added up at the end; lanes: input and output channels lie in equal lanes
    (depthwise) or in the same few lanes (small groups); blend: the lanes of a vector belong to few groups, each with a scalar of its own;
    gather: anything else.
    """
    if shape.group == 1 and blocked_input and _few_outputs(shape, lanes):
        return "inner"
    if shape.group == 1 or shape.group_outputs % lanes == 0:
        return "dense"
    if blocked_input and shape.group_inputs == shape.group_outputs and lanes % shape.group_outputs == 0:
        return "lanes"
    return "blend" if groups_of_vector(shape, lanes) <= _MOST_BLENDED else "gather"


_MOST_BLENDED = 4
# Cycles to add up the lanes of one vector.
_ADDING_CYCLES = 8


def _few_outputs(shape: ConvolutionShape, lanes: int) -> bool:
    """True if a product for each output channel over whole input blocks is clearly less work than one for each input channel."""
    inner = shape.out_channels * (shape.in_blocks(lanes) * shape.taps + _ADDING_CYCLES)
    return 3 * inner < 2 * shape.in_channels * shape.taps


def groups_of_vector(shape: ConvolutionShape, lanes: int) -> int:
    """The most groups that one vector of output channels has lanes of."""
    first_lanes = range(0, shape.out_channels, lanes)
    last_lanes = (min(first + lanes, shape.out_channels) - 1 for first in first_lanes)
    return max(last // shape.group_outputs - first // shape.group_outputs + 1 for first, last in zip(first_lanes, last_lanes, strict=True))


def channel_block(shape: ConvolutionShape, lanes: int) -> int:
    """Input channels that lie together in the packed weights: `lanes`, or all channels of a group where they are fewer."""
    return min(shape.group_inputs, lanes)


def packed_size(shape: ConvolutionShape, lanes: int, blocked_input: bool = True) -> int:
    """Elements of the packed weights."""
    if method(shape, lanes, blocked_input) == "inner":
        return shape.out_channels * shape.in_blocks(lanes) * shape.taps * lanes
    inner = channel_block(shape, lanes)
    return shape.out_blocks(lanes) * -(-shape.group_inputs // inner) * shape.taps * inner * lanes


def tiles(shape: ConvolutionShape, target: Target, blocked_input: bool = True) -> list[ConvolutionTile]:
    """Every tile that fits the registers, best estimate first: the search space of tuning."""
    found = {_tile(shape, target, blocked_input, *candidate) for candidate in _candidates(shape, target, blocked_input)}
    return sorted(found, key=lambda tile: (estimate(shape, target, tile, blocked_input), tile.merge, -tile.columns))


@lru_cache(maxsize=1024)
def default_tile(shape: ConvolutionShape, target: Target, blocked_input: bool = True) -> ConvolutionTile:
    """The tile with the lowest estimate."""
    return tiles(shape, target, blocked_input)[0]


def _candidates(shape: ConvolutionShape, target: Target, blocked_input: bool) -> list[tuple[int, int, bool]]:
    how = method(shape, target.lanes, blocked_input)
    result = []
    for merge in (False, True):
        columns_axis = axes(shape, merge)[-1]
        for blocks in _block_choices(shape, target.lanes, how):
            most_columns = min(max(1, columns_axis.out_size), _most_columns(shape, target, blocks, how))
            result += [(columns, blocks, merge) for columns in even_cuts(columns_axis.out_size, most_columns)]
    return result


def _block_choices(shape: ConvolutionShape, lanes: int, how: Method) -> range:
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


def _most_columns(shape: ConvolutionShape, target: Target, blocks: int, how: Method) -> int:
    """Pixels of a tile: accumulators, one weight vector a block and one broadcast have to fit; without FMA a product needs a place too."""
    registers = target.registers * 4 // shape.accumulator.nbytes  # a vector of float64 takes two
    if how == "inner":
        return max(1, min(_MOST_COLUMNS["lanes"], (registers - 2) // blocks - 1))
    if how != "dense":
        return _MOST_COLUMNS[how] if registers >= 32 else 8
    broadcast = 0 if blocks == 1 and target.lanes == 16 else 1  # AVX-512 broadcasts from memory inside the FMA
    spare = broadcast + (0 if has_fma(target) else 1) + (1 if registers <= 16 and blocks != 2 else 0)  # LLVM spills one
    return max(1, (registers - spare) // blocks - 1)


# Depthwise: longer tiles measured slower, however many registers are left.
_MOST_COLUMNS = {"lanes": 16, "blend": 20, "gather": 8}


def has_fma(target: Target) -> bool:
    """True if the processor multiplies and adds in one instruction."""
    return not target.is_x86 or target.has("fma")


def _tile(shape: ConvolutionShape, target: Target, blocked: bool, columns: int, blocks: int, merge: bool) -> ConvolutionTile:
    unroll = _unroll(shape, target.lanes, blocked, columns * blocks)
    return ConvolutionTile(columns, blocks, unroll, merge, _rows_stay(shape, target, blocks))


def _unroll(shape: ConvolutionShape, lanes: int, blocked: bool, accumulators: int) -> int:
    """Input channels in the innermost loop, dividing every channel block: enough FMAs to hide the loop, as more only costs compile time."""
    how = method(shape, lanes, blocked)
    if how == "lanes":
        return shape.group_inputs
    if how == "inner":
        return channel_block(shape, lanes)
    if how in ("blend", "gather") or not aligned_groups(shape, lanes):
        return 1
    inner = channel_block(shape, lanes)
    last = shape.group_inputs % inner or inner
    fitting = [n for n in range(1, inner + 1) if inner % n == 0 and last % n == 0 and (n * accumulators <= _LOOP_FMAS or n == 1)]
    return max(fitting)


_LOOP_FMAS = 48


def aligned_groups(shape: ConvolutionShape, lanes: int) -> bool:
    """True if every group's input channels begin at a channel block."""
    return shape.group == 1 or shape.group_inputs % lanes == 0


def _rows_stay(shape: ConvolutionShape, target: Target, blocks: int) -> bool:
    """True if less has to come from behind the second-level cache when all channel blocks of a row are computed together."""
    weights = shape.accumulator.nbytes * packed_size(shape, target.lanes)
    image = shape.dtype.nbytes * shape.in_channels * shape.in_pixels
    room = target.l2_bytes // 2
    rows = max(1, shape.out_size[0])
    rounds = -(-shape.out_blocks(target.lanes) // blocks)
    rows_inner = weights + (image if image <= room else image * rounds)
    blocks_inner = image + (weights if weights <= room else weights * rows)
    return blocks_inner < rows_inner


def last_lanes(shape: ConvolutionShape, lanes: int, how: Method) -> int:
    """Lanes to compute of the last output channel block: half of them if that is enough and half vectors are faster (AVX-512)."""
    real = shape.group_outputs % lanes
    return lanes // 2 if how == "dense" and lanes == 16 and 0 < real <= lanes // 2 else lanes


# Cycles a tile costs besides its arithmetic, and those to write one vector of results.
_TILE_CYCLES, _WRITE_CYCLES = 12.0, 2.0
_FMA_LATENCY = 5.0  # four on most processors, and a little for what is not scheduled perfectly


def estimate(shape: ConvolutionShape, target: Target, tile: ConvolutionTile, blocked_input: bool = True) -> float:
    """Cycles of one image and one group, from the arithmetic, the loads and what borders and remainders waste."""
    how = method(shape, target.lanes, blocked_input)
    all_axes = axes(shape, tile.merge)
    blocks = -(-(shape.group_outputs if how == "dense" else shape.out_channels) // target.lanes)
    groups = [tile.blocks] if how == "inner" else block_groups(blocks, tile.blocks)
    saved = [0.0] * (len(groups) - 1) + [1 - last_lanes(shape, target.lanes, how) / target.lanes]
    row = sum(_row_cycles(shape, target, all_axes, tile, *group, how) for group in zip(groups, saved, strict=True))
    rows = 1
    for axis in all_axes[:-1]:
        rows *= max(1, axis.out_size)
    return row * rows + (6.0 * shape.out_pixels if len(all_axes[-1].members) > 1 and shape.out_size[-1] > 1 else 0.0)


def block_groups(blocks: int, size: int) -> list[int]:
    """`blocks` in groups of `size`, the remainder last."""
    return [size] * (blocks // size) + ([blocks % size] if blocks % size else [])


def _row_cycles(
    shape: ConvolutionShape, target: Target, all_axes: tuple[Axis, ...], tile: ConvolutionTile, blocks: int, saved: float, how: Method
) -> float:
    """Cycles of a row for a group of channel blocks of which the fraction `saved` of a block is not computed."""
    above = 1
    for axis in all_axes[:-1]:
        above *= axis.kernel
    steps = above * (shape.in_blocks(target.lanes) if how == "inner" else shape.group_inputs)
    write = _WRITE_CYCLES + (_ADDING_CYCLES if how == "inner" else 0)
    weights, widening = _weight_cycles(shape, target, blocks), _WIDENING_CYCLES.get(shape.dtype.name, 0.8)
    step = partial(step_cycles, target, blocks=blocks, weight_cycles=weights, widening=widening, saved=saved)
    cycles = 0.0
    for segment in segments(all_axes[-1], tile.columns):
        count = segment.stop - segment.first
        if segment.kind is None:
            cycles += count * tile.columns * (all_axes[-1].kernel * steps * step(1) + _TILE_CYCLES)
            continue
        taps = sum((s.stop_tap - s.first_tap) * step(s.stop_pixel - s.first_pixel) for s in segment.kind.spans)
        cycles += count * (taps * steps + write * segment.kind.pixels * blocks + _TILE_CYCLES)
    return cycles


# Cycles to widen one element that is stored as another type; measured, 0.8 for the others.
_WIDENING_CYCLES = {"float32": 0.0, "float64": 0.0, "bfloat16": 0.2}


def step_cycles(target: Target, pixels: int, blocks: int, weight_cycles: float = 0.0, widening: float = 0.0, saved: float = 0.0) -> float:
    """Cycles of one input channel and tap of a tile: limited by FMAs, by loads, or by waiting for the accumulators."""
    fmas_per_cycle = (1.0 if target.lanes == 16 else 2.0) if has_fma(target) else 1.5
    broadcast = 0.75 if blocks == 1 and target.lanes == 16 else 1.0 if has_fma(target) else 1.5
    saved = saved if blocks == 1 else saved / 2  # whole and half vectors in one loop measured slower than the sum of both
    arithmetic = pixels * (blocks - saved) / fmas_per_cycle + pixels * widening
    return max(arithmetic, (blocks + broadcast * pixels) / 2, weight_cycles, _FMA_LATENCY)


def _weight_cycles(shape: ConvolutionShape, target: Target, blocks: int) -> float:
    """Cycles to bring the weight vectors of one step from the cache in which those of all steps of the tile fit."""
    step_bytes = 4 * target.lanes * blocks
    all_bytes = step_bytes * shape.group_inputs * shape.taps
    return step_bytes / (32 if all_bytes <= target.l1_bytes // 2 else 16 if all_bytes <= target.l2_bytes // 2 else 10)
