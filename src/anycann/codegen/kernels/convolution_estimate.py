"""What a convolution with a given tile is estimated to cost, in cycles of one core."""

from __future__ import annotations

from functools import cache, lru_cache, partial
from math import prod

from anycann.codegen.kernels.arithmetic_rate import fma_rate, has_fma, is_halved
from anycann.codegen.kernels.convolution_columns import Segment, segments
from anycann.codegen.kernels.convolution_method import ADDING_CYCLES, Method, groups_of_vector, last_lanes, method
from anycann.codegen.kernels.convolution_shape import Axis, ConvolutionShape, axes, images_axis
from anycann.support.records import dataclass
from anycann.target.target import Target


@dataclass(frozen=True)
class ConvolutionTile:
    """`columns` output pixels times `blocks` output channel blocks are computed together in registers.

    `unroll` input channels are written out in the innermost loop. With `merge`, images are rows of all their pixels where the kernel
    allows (`convolution_shape.axes`). With `blocks_inner`, all channel blocks of a row are computed before the next row (the row stays in
    the cache), else all rows before the next channel blocks (the weights stay in the cache). With `depth`, a task has all pixels of an
    image for its channel blocks, and adds up that many input channel blocks for all of them before the next: their weights stay in the
    first-level cache, the sums are kept in memory. With `images`, the pixels of a tile are one place in neighbouring images: for images
    that are smaller than a tile.
    """

    columns: int
    blocks: int
    unroll: int = 1
    merge: bool = False
    blocks_inner: bool = False
    depth: int = 0
    images: bool = False


# Cycles a tile costs besides its arithmetic, and those to write one vector of results.
_TILE_CYCLES, _WRITE_CYCLES = 12.0, 2.0
# What writing costs more for each vector behind the first few of a tile, where few products hide it: 1x1 from 64 to 256 channels
# of 56 x 56 take 0.86 of the time by 9 x 1 that they take by 31 x 1, from 32 to 192 of 28 x 28 0.61 by 6 x 1 for 28 x 1, from 160 to 145 of
# 79 x 176 0.78 by 7 x 1 for 31 x 1; of 59 drawn shapes and layers of networks the estimate's choice was 1.065 of the fastest's time in the
# mean, and is 1.03 (Zen 4; other processors keep their estimate). Grouped ones that are no products of whole vectors lose by it.
_LATE_WRITE, _HIDDEN_WRITES, _FEW_STEPS = 4.0, 6, 128
# A vector that is written to memory, channel block after channel block: 1 x 1 from 5 to 240 channels of 99 x 232 takes 0.73 of the time by
# 2 x 5 that it takes by 6 x 1, from 8 to 266 of 216 x 94 0.91 by 2 x 4; from 13 channels on blocks make no difference.
_ONE_BLOCK_FAR, _FAR_RESULTS, _FAR_STEPS = 1.2, 8, 12
_FMA_LATENCY = 5.0  # four on most processors, and a little for what is not scheduled perfectly


def estimate(shape: ConvolutionShape, target: Target, tile: ConvolutionTile, blocked_input: bool = True) -> float:
    """Cycles of one image and one group, from the arithmetic, the loads and what borders and remainders waste."""
    how = method(shape, target.lanes, blocked_input)
    all_axes = axes(shape, tile.merge)
    if tile.images:
        all_axes = (*all_axes, images_axis(shape, shape.in_pixels))
    blocks = -(-(shape.group_outputs if how == "dense" else shape.out_channels) // target.lanes)
    groups = [tile.blocks] if how == "inner" else block_groups(blocks, tile.blocks)
    saved = [0.0] * (len(groups) - 1) + [1 - last_lanes(shape, target, how, groups[-1]) / target.lanes]
    cycles = cache(partial(_row_cycles, shape, target, all_axes, tile, how))  # all groups but the last are alike
    row = sum(cycles(*group) for group in zip(groups, saved, strict=True))
    rows = 1
    for axis in all_axes[:-1]:
        rows *= max(1, axis.out_size)
    if tile.depth:
        row *= _imbalance(shape.batch * shape.group * len(groups), blocks / (len(groups) * tile.blocks))
    if tile.images:
        return row * rows / shape.batch
    return row * rows + (6.0 * shape.out_pixels if len(all_axes[-1].members) > 1 and shape.out_size[-1] > 1 else 0.0)


def _imbalance(tasks: int, filled: float) -> float:
    """How much longer than half of the work two threads take that share so few tasks, of which the last may be smaller."""
    return -(-tasks // 2) * 2 / (tasks * filled)


def block_groups(blocks: int, size: int) -> list[int]:
    """`blocks` in groups of `size`, the remainder last."""
    return [size] * (blocks // size) + ([blocks % size] if blocks % size else [])


def _row_cycles(
    shape: ConvolutionShape, target: Target, all_axes: tuple[Axis, ...], tile: ConvolutionTile, how: Method, blocks: int, saved: float
) -> float:
    """Cycles of a row for a group of channel blocks of which the fraction `saved` of a block is not computed."""
    above = prod(axis.mean_taps for axis in all_axes[:-1])
    steps = above * (shape.in_blocks(target.lanes) if how == "inner" else shape.group_inputs)
    write = _WRITE_CYCLES + (ADDING_CYCLES if how == "inner" else 0)
    readers = _readers(all_axes, tile.columns) if tile.depth else 1.0
    weights = _weight_cycles(shape, target, blocks, tile.depth, readers)
    widening = _WIDENING_CYCLES.get(shape.dtype.name, 0.8) + blocks * _choosing_cycles(shape, target, how)
    step = partial(step_cycles, target, blocks=blocks, weight_cycles=weights, widening=widening, saved=saved)
    waits = how == "dense" and is_halved(target)
    write += _ONE_BLOCK_FAR if waits and blocks == 1 and is_written_far(shape, target) else 0.0
    late = _LATE_WRITE * _FEW_STEPS / max(_FEW_STEPS, all_axes[-1].kernel * steps) if waits else 0.0
    cycles = 0.0
    for segment in segments(all_axes[-1], tile.columns):
        count = segment.stop - segment.first
        if segment.kind is None:
            cycles += count * tile.columns * (all_axes[-1].kernel * steps * step(1) + _TILE_CYCLES)
            continue
        taps = sum((s.stop_tap - s.first_tap) * step(s.stop_pixel - s.first_pixel) for s in segment.kind.spans)
        sums = segment.kind.pixels * blocks
        cycles += count * (taps * steps + write * sums + late * max(0, sums - _HIDDEN_WRITES) + _TILE_CYCLES)
    return cycles


def is_written_far(shape: ConvolutionShape, target: Target) -> bool:
    """True if results of few products are many times what the second-level cache holds: they wait for memory."""
    return (
        shape.taps * shape.group_inputs <= _FAR_STEPS
        and 4 * shape.batch * shape.out_channels * shape.out_pixels > _FAR_RESULTS * target.l2_bytes
    )


# To shuffle lanes from one quarter of a vector to another: groups of 8 take 1.5 times as long as groups of 4 (Zen 4).
_QUARTER, _FAR_SHUFFLE = 4, 0.5


def _choosing_cycles(shape: ConvolutionShape, target: Target, how: Method) -> float:
    """Cycles to make one factor of what several groups have: blocks of two groups take 2.25 times as long, of three 3.2 (Zen 4)."""
    if how == "blend":
        return (groups_of_vector(shape, target.lanes) - 1) / (fma_rate(target) if has_fma(target) else 1.5)
    return _FAR_SHUFFLE if how == "lanes" and shape.group_inputs > _QUARTER else 0.0


# Cycles to widen one element that is stored as another type; measured, 0.8 for the others.
_WIDENING_CYCLES = {"float32": 0.0, "float64": 0.0, "bfloat16": 0.2}


@lru_cache(maxsize=4096)  # the candidates of a layer, and those of the next, have most steps in common
def step_cycles(target: Target, pixels: int, blocks: int, weight_cycles: float = 0.0, widening: float = 0.0, saved: float = 0.0) -> float:
    """Cycles of one input channel and tap of a tile: limited by FMAs, by loads, or by waiting for the accumulators."""
    fmas_per_cycle = fma_rate(target) if has_fma(target) else 1.5
    broadcast = 1.0 if has_fma(target) else 1.5
    if blocks == 1:  # AVX-512 broadcasts inside the FMA; a load for every FMA is too many where two are done in a cycle
        broadcast = 0.75 if is_halved(target) else 1.1 if target.lanes == 16 else 1.25 * broadcast
    saved = saved if blocks == 1 else saved / 2  # whole and half vectors in one loop measured slower than the sum of both
    arithmetic = pixels * (blocks - saved) / fmas_per_cycle + pixels * widening
    loads = (blocks + broadcast * pixels) / 2
    waiting = 0.0
    if target.lanes == 16 and not is_halved(target):
        waiting = _LOAD_SHARE * loads + (_LONG_CYCLES * max(0, pixels - _LONG_TILE) if blocks == 1 else 0.0)
    return max(arithmetic, loads, weight_cycles, _FMA_LATENCY) + waiting


# With two 512-bit FMAs a cycle, loads that have ports of their own still take some of the time: measured 0.72, 0.89, 0.94 and 0.95 of the
# peak with 14 x 1, 14 x 2, 8 x 3 and 6 x 4 pixels and channel blocks. Tiles of one channel block become slower beyond 20 pixels: 150, 138
# and 135 GFLOP/s with 20, 28 and 31.
_LOAD_SHARE = 0.2
_LONG_TILE, _LONG_CYCLES = 20, 0.15


def _readers(all_axes: tuple[Axis, ...], columns: int) -> float:
    """Tiles of an image that read a weight, in the mean over the taps of a row: those at a border do not read all."""
    axis = all_axes[-1]
    taps = sum((s.stop - s.first) * _taps_of(s, axis) for s in segments(axis, columns))
    return prod(outer.out_size for outer in all_axes[:-1]) * taps / max(1, axis.kernel)


def _taps_of(segment: Segment, axis: Axis) -> int:
    return sum(span.stop_tap - span.first_tap for span in segment.kind.spans) if segment.kind else axis.kernel


# With a depth a weight comes from behind the first-level cache for its first tile; where there are more, that is little. With 32 registers
# there always are (`convolution_tile.py`: `_depth`).
_FEW_TILES = 3


def _weight_cycles(shape: ConvolutionShape, target: Target, blocks: int, depth: int, readers: float) -> float:
    """Cycles to bring the weight vectors of one step from the cache in which those of all steps of the tile, or of its depth, fit."""
    step_bytes = 4 * target.lanes * blocks
    all_bytes = step_bytes * shape.group_inputs * shape.taps
    if not depth:
        return _loading_cycles(target, step_bytes, all_bytes)
    again = _loading_cycles(target, step_bytes, step_bytes * min(shape.group_inputs, depth * target.lanes) * shape.taps)
    if readers > _FEW_TILES or not target.has_few_registers:
        return again
    return again + (_loading_cycles(target, step_bytes, all_bytes) - again) / max(1.0, readers)


def _loading_cycles(target: Target, nbytes: int, beside: int) -> float:
    """Cycles to load so many bytes again and again, with others `beside` in all."""
    return nbytes / (32 if beside <= target.l1_bytes // 2 else 16 if beside <= target.l2_bytes // 2 else 10)
