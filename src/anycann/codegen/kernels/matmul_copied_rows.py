"""Where a register tile reads its rows of A: in place, or in the copy that a task makes for all tasks that share them."""

from __future__ import annotations

from collections.abc import Callable

from anycann.codegen.emitter import Emitter, Loop
from anycann.codegen.kernels.matmul_kernel import Panel, PanelKernel
from anycann.codegen.kernels.matmul_rows import RowGather, emit_blocks, emit_gather
from anycann.codegen.kernels.matmul_shape import Operand
from anycann.codegen.kernels.matmul_writer import offset
from anycann.codegen.resuming import resumed
from anycann.codegen.values import Value


def copied_before(e: Emitter, kernel: PanelKernel, panels: int) -> list[Value]:
    """The number of the rows that a call finds copied, -1 for none; empty if rows are read in place."""
    if kernel.packs_rows:
        return [e.select(resumed(e), e.udiv(e.sub(e.begin, 1), panels), e.const(-1))]
    return [e.const(-1)] if kernel.gathers_rows else []


def copy_once(e: Emitter, kernel: PanelKernel, panel: Panel, task: Loop, number: Value) -> None:
    """Copy the rows of a task, unless the task before had the same."""
    with e.when(e.compare("ne", number, task.values[0])):
        if kernel.packs_rows:
            pack_part(e, kernel, panel, e.const(0), e.const(kernel.shape.k))
        else:
            _gather(e, kernel, panel)
    task.carry([number])


def corner_of_a(e: Emitter, kernel: PanelKernel, panel: Panel, tile: Value, m: Value, k: Value) -> Value:
    """The address of A[m, k], the first row of a register tile. Of packed rows `k` begins a block; each tile has as much room."""
    if kernel.packs_rows:
        of_part = e.smin(e.const(kernel.tile.depth), e.sub(e.const(kernel.copied_k), k)) if kernel.is_blocked else e.const(kernel.copied_k)
        at = e.add(e.mul(k, kernel.chunk), e.mul(e.mul(e.sub(tile, panel.tile), kernel.tile.rows), of_part))
    elif kernel.gathers_rows:
        at = e.add(e.mul(e.sub(m, panel.m), kernel.shape.k), e.mul(k, kernel.tile.rows))
    else:
        return place_of_a(e, kernel, panel, m, k)
    return kernel.left.step(e, e.gep(e.scratch, kernel.rows_offset, "i8"), at)


def column_of_a(e: Emitter, kernel: PanelKernel, corner: Value, k: Value, block: Value) -> Value:
    """The address of the first element of column `k`, counted from the corner; of packed rows it is in the block that begins at `block`."""
    at = e.add(e.mul(block, kernel.tile.rows), e.sub(k, block)) if kernel.packs_rows else e.mul(k, kernel.left_column)
    return kernel.left.step(e, corner, at)


def place_of_a(e: Emitter, kernel: PanelKernel, panel: Panel, m: Value, k: Value) -> Value:
    """The address of A[m, k] itself."""
    strides = kernel.shape.a
    corner = e.add(e.add(offset(e, panel.batch, strides.batch), e.mul(m, strides.row)), e.mul(k, strides.column))
    return Operand(kernel.shape.a_dtype, kernel.shape.accumulator).step(e, kernel.a, corner)


def for_each_height(e: Emitter, kernel: PanelKernel, tile: Value, emit: Callable[[int], None]) -> None:
    """`emit` for the rows that a register tile has."""
    heights = kernel.heights
    if heights.talls in (0, heights.count):
        emit(heights.tall if heights.talls else heights.low)
        return
    is_tall = heights.is_tall(e, tile)
    for rows, present in ((heights.tall, is_tall), (heights.low, e.binary("xor", is_tall, e.const(1, is_tall.type)))):
        with e.when(present):
            emit(rows)


def pack_part(e: Emitter, kernel: PanelKernel, panel: Panel, k: Value, end: Value) -> None:
    """Copy `k` to `end` of the rows of a task."""
    row, room = kernel.shape.a.row, kernel.tile.rows
    with e.loop(panel.tile, panel.tile_end) as tile:
        m = kernel.heights.start(e, tile.index)
        source, to = place_of_a(e, kernel, panel, m, k), corner_of_a(e, kernel, panel, tile.index, m, k)
        for_each_height(e, kernel, tile.index, lambda rows: emit_blocks(e, source, row, (k, end, kernel.shape.k), rows, room, to))


def _gather(e: Emitter, kernel: PanelKernel, panel: Panel) -> None:
    source = Operand(kernel.shape.a_dtype, kernel.shape.accumulator)
    rows = RowGather(source, kernel.shape.a.column, kernel.shape.k, kernel.tile.rows, kernel.lanes)
    to = e.gep(e.scratch, kernel.rows_offset, "i8")
    emit_gather(e, rows, place_of_a(e, kernel, panel, panel.m, e.const(0)), e.sub(panel.m_end, panel.m), to)
