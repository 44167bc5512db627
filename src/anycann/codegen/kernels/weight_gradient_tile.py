"""How the gradient of a convolution's weights is cut into register tiles and tasks."""

from __future__ import annotations

from anycann.codegen.kernels.arithmetic_rate import fma_rate, has_fma
from anycann.codegen.kernels.convolution_shape import ConvolutionShape, axes
from anycann.support.records import dataclass
from anycann.target.target import Target

FEW_CHANNELS = 8  # below which rows are taps, if there are more of these


@dataclass(frozen=True)
class GradientTile:
    """`rows` x `blocks` vectors of sums are kept in registers. images: so many of them are read for all taps before the next."""

    rows: int
    blocks: int
    images: int


def group_blocks(shape: ConvolutionShape, lanes: int) -> int:
    """Blocks of output channels of a group; of more than one group they are whole."""
    return shape.out_blocks(lanes) if shape.group == 1 else shape.group_outputs // lanes


def rows_are_taps(shape: ConvolutionShape) -> bool:
    """Whether the rows of a tile are taps along the last axis."""
    return shape.group_inputs < min(FEW_CHANNELS, shape.kernel[-1] + 1)


def default_tile(shape: ConvolutionShape, target: Target) -> GradientTile:
    """The tile with the lowest estimate."""
    choices = []
    for blocks in range(1, min(4, group_blocks(shape, target.lanes)) + 1):
        most = max(1, (target.registers - blocks - 1 - (0 if has_fma(target) else 1)) // blocks)
        all_rows = axes(shape, merge=False)[-1].kernel if rows_are_taps(shape) else shape.group_inputs
        for tiles in range(-(-all_rows // most), -(-all_rows // most) + 3):
            rows = max(1, -(-all_rows // tiles))
            choices.append((_estimate(shape, target, rows, blocks, all_rows), rows, blocks))
    _, rows, blocks = min(choices)
    pixel_bytes = 4 * (blocks * target.lanes * shape.out_pixels + rows * shape.in_pixels)
    return GradientTile(rows, blocks, max(1, min(shape.batch, target.l2_bytes // 2 // max(1, pixel_bytes))))


def _estimate(shape: ConvolutionShape, target: Target, rows: int, blocks: int, all_rows: int) -> float:
    """Cycles for one pixel and tap, of two threads."""
    arithmetic = max(rows * blocks / fma_rate(target), (rows + blocks) / 2, 4.0)
    groups, tiles = -(-group_blocks(shape, target.lanes) // blocks), -(-all_rows // rows)
    tasks = groups * (shape.group_inputs if rows_are_taps(shape) else tiles)
    return groups * tiles * (arithmetic + 2.0) * -(-tasks // 2) * 2 / tasks


def scratch_bytes(shape: ConvolutionShape, target: Target, tile: GradientTile) -> int:
    """Memory of a thread: the sums of a task."""
    return 4 * target.lanes * tile.blocks * shape.taps * (1 if rows_are_taps(shape) else tile.rows)
