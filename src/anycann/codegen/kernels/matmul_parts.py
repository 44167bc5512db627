"""Products of long rows of A in parts of k: a part of the packed rows stays in the second-level cache while panels of B go by."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from anycann.codegen.emitter import Emitter, Loop
from anycann.codegen.kernels.matmul_copied_rows import copied_before, for_each_height, pack_part
from anycann.codegen.kernels.matmul_kernel import Panel, PanelKernel
from anycann.codegen.kernels.matmul_panel import describe, for_each_width, partial_sums, rows_of_b_at, split_task, start_rows, write_row
from anycann.codegen.kernels.matmul_tile import row_chunks
from anycann.codegen.kernels.matmul_writer import batch_index
from anycann.codegen.values import Value


def emit_parts(e: Emitter, kernel: PanelKernel) -> int:
    """The loop over tasks, each some neighbouring panels and rows that are copied once. Returns the number of tasks."""
    shape, depth = kernel.shape, kernel.tile.depth
    groups, chunks = kernel.panel_groups.count, row_chunks(shape, kernel.tile)
    with e.loop(e.begin, e.end, carried=copied_before(e, kernel, groups)) as task:
        outer, group, chunk = split_task(e, task.index, groups, chunks, panels_inner=True)
        batch = batch_index(e, outer, shape.batch)
        first, end = (kernel.panel_groups.start(e, number) for number in (group, e.add(group, 1)))

        def for_each_panel(emit: Callable[[Loop, Panel, Value], None]) -> None:
            with e.loop(first, end) as panel:
                base = e.gep(e.scratch, e.mul(e.sub(panel.index, first), kernel.chunk * kernel.width), shape.accumulator.register)
                described = partial(describe, e, kernel, batch, panel.index, chunk)
                for_each_width(e, kernel, panel.index, described, lambda part: emit(panel, part, base))

        rows, number = describe(e, kernel, batch, first, chunk, kernel.width), e.udiv(task.index, groups)
        for_each_panel(lambda panel, part, base: start_rows(e, kernel, part, base))
        with e.loop(0, shape.k, depth) as k:
            until = e.smin(e.add(k.index, depth), e.const(shape.k))
            with e.when(e.compare("ne", number, task.values[0])):
                pack_part(e, kernel, rows, k.index, until)
            count = e.sub(until, k.index)
            for_each_panel(
                lambda panel, part, base: _add_part(
                    e, kernel, part, base, k.index, count, _following(e, kernel, batch, panel, (first, end), k)
                )
            )
        with e.loop(0, e.sub(rows.m_end, rows.m)) as row:
            for_each_panel(lambda panel, part, base: write_row(e, kernel, part, base, rows.m, row.index))
        task.carry([number])
    return shape.batches * groups * chunks


def _add_part(e: Emitter, kernel: PanelKernel, panel: Panel, base: Value, k: Value, count: Value, following: Value) -> None:
    """Add `count` of k, from `k` on, to all sums of a panel, which begin at `base`."""
    rows_of_b, step = rows_of_b_at(e, kernel, panel, k, count)
    with e.loop(panel.tile, panel.tile_end) as tile:
        for_each_height(
            e,
            kernel,
            tile.index,
            lambda rows: partial_sums(e, kernel, panel, base, tile.index, rows, rows_of_b, step, k, count, following),
        )


def _following(e: Emitter, kernel: PanelKernel, batch: tuple[Value, ...], panel: Loop, panels: tuple[Value, Value], k: Loop) -> Value:
    """Where the part of a panel begins that is used next: of the next panel, the next of the first one, or the next task's."""
    first, end = panels
    beside, below = e.add(panel.index, 1), e.add(k.index, kernel.tile.depth)
    is_beside, is_below = e.compare("slt", beside, end), e.compare("slt", below, e.const(kernel.shape.k))
    number = e.select(is_beside, beside, e.select(is_below, first, end))
    next_k = e.select(is_beside, k.index, e.select(is_below, below, e.const(0)))
    place = describe(e, kernel, batch, number, e.const(0), kernel.width)
    return rows_of_b_at(e, kernel, place, next_k, e.const(0))[0]
