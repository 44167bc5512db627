"""Which part of a direct convolution each task computes: the image, the channel blocks and the row."""

from __future__ import annotations

from collections.abc import Sequence

from anycann.codegen.emitter import Emitter
from anycann.codegen.halves import in_order
from anycann.codegen.kernel import RowTasks
from anycann.codegen.kernels.convolution_estimate import ConvolutionTile
from anycann.codegen.kernels.convolution_inputs import source
from anycann.codegen.kernels.convolution_kernel import DirectKernel, Place
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_write import digits
from anycann.codegen.values import Value
from anycann.target.target import Target


def place_of(e: Emitter, kernel: DirectKernel, task: Value) -> tuple[Place, Value]:
    """The place of a task and the number of its group of channel blocks."""
    rows = [] if kernel.tile.depth else [axis.out_size for axis in kernel.axes[:-1]]
    before, outer = e.const(0), [kernel.image_tasks, kernel.groups]
    if len(kernel.halves) > 1:
        turn = in_order(e, task, kernel.block_groups, kernel.rows * kernel.parts, kernel.halves[0] * kernel.parts)
        before = e.select(turn.behind, e.const(kernel.halves[0]), before)
        batch = group = e.const(0)
        block_group, (*places, part) = turn.point, digits(e, turn.within, [*rows, kernel.parts])
    elif kernel.tile.blocks_inner:
        batch, group, *places, part, block_group = digits(e, task, [*outer, *rows, kernel.parts, kernel.block_groups])
    else:
        batch, group, block_group, *places, part = digits(e, task, [*outer, kernel.block_groups, *rows, kernel.parts])
    block = e.add(e.mul(group, kernel.group_blocks), e.mul(block_group, kernel.blocks))
    return Place(batch, block, kernel.source.origin(e, group, block), tuple(places), part, before), block_group


def row_tasks(
    shape: ConvolutionShape, target: Target, tile: ConvolutionTile, blocked_input: bool, channels_last: bool, window: int = 0
) -> RowTasks | None:
    """How the tasks of `emit_convolution` lie along the rows of images; None where they do not."""
    if len(shape.in_size) != 2 or shape.batch * shape.out_pixels == 0 or tile.depth or tile.images:
        return None
    nowhere = Value("null", "ptr")
    elements = source(shape, target.lanes, blocked_input, nowhere, None, channels_last)
    kernel = DirectKernel(shape, target, tile, elements, nowhere, _no_write, None, blocked_input, channels_last, window)
    if len(kernel.axes) != 2 or kernel.in_one_task:
        return None
    outer, inner = (1, kernel.block_groups) if tile.blocks_inner else (kernel.block_groups, 1)
    height, pad = shape.in_size[0], shape.pads_begin[0]
    reach = (shape.kernel[0] - 1) * shape.dilations[0] - pad
    tasks = kernel.groups * outer, kernel.rows, kernel.parts * inner
    return RowTasks(*tasks, height, shape.strides[0], -pad, reach, shape.batch, kernel.halves[0] if len(kernel.halves) > 1 else 0)


def _no_write(e: Emitter, index: Sequence[Value], vector: Value) -> None:
    raise AssertionError("only the order of tasks is asked of this kernel")
