"""Matrix products by register tiles: rows x vectors of accumulators, one panel of B, one element of A in every lane at a time."""

from __future__ import annotations

from collections.abc import Callable

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_bytes import byte_panel_bytes, emit_byte_sums
from anycann.codegen.kernels.matmul_copied_rows import copied_before, copy_once, for_each_height, place_of_a
from anycann.codegen.kernels.matmul_fetching import fetch_read
from anycann.codegen.kernels.matmul_innermost import emit_innermost, store_sums, sum_at, tile_places
from anycann.codegen.kernels.matmul_kernel import Panel, PanelKernel
from anycann.codegen.kernels.matmul_narrow_steps import emit_narrow_copy, finished
from anycann.codegen.kernels.matmul_packing import PanelCopy, emit_copy
from anycann.codegen.kernels.matmul_pairs import emit_pair_sums, pair_panel_bytes
from anycann.codegen.kernels.matmul_scaled import ScaledCopy, emit_scaled_copy
from anycann.codegen.kernels.matmul_shape import Operand, addition
from anycann.codegen.kernels.matmul_tile import row_chunks
from anycann.codegen.kernels.matmul_writer import MatmulIndex, batch_index, offset
from anycann.codegen.values import Value, first_lanes


def emit_panels(e: Emitter, kernel: PanelKernel) -> int:
    """The loop over tasks. Returns the number of tasks: batches x panels x chunks of rows."""
    shape = kernel.shape
    panels, chunks = -(-shape.n // kernel.width), row_chunks(shape, kernel.tile)
    with e.loop(e.begin, e.end, carried=copied_before(e, kernel, panels)) as task:
        outer, panel, chunk = split_task(e, task.index, panels, chunks, kernel.tile.panels_inner)
        batch = batch_index(e, outer, shape.batch)
        if kernel.copies_rows:
            copy_once(e, kernel, describe(e, kernel, batch, panel, chunk, kernel.width), task, e.udiv(task.index, panels))
        for_each_width(
            e,
            kernel,
            panel,
            lambda columns: describe(e, kernel, batch, panel, chunk, columns),
            lambda part: _emit_panel(e, kernel, part),
        )
    return shape.batches * panels * chunks


def for_each_width(e: Emitter, kernel: PanelKernel, panel: Value, described: Callable[[int], Panel], emit: Callable[[Panel], None]) -> None:
    """`emit` for the columns that a panel has, all or those of the last; described: the part of C that so many columns are."""
    full, rest = divmod(kernel.shape.n, kernel.width)
    for columns, present in ((kernel.width, full > 0), (rest, rest > 0)):
        if not present:
            continue
        part = described(columns)
        if full and rest:
            with e.when(e.compare("slt" if columns == kernel.width else "eq", panel, e.const(full))):
                emit(part)
        else:
            emit(part)


def split_task(e: Emitter, task: Value, panels: int, chunks: int, panels_inner: bool) -> tuple[Value, Value, Value]:
    """(batch, panel, chunk) of a task number."""
    inner = panels if panels_inner else chunks
    outer = chunks if panels_inner else panels
    fast, rest = e.urem(task, inner), e.udiv(task, inner)
    slow, batch = e.urem(rest, outer), e.udiv(rest, outer)
    return (batch, fast, slow) if panels_inner else (batch, slow, fast)


def describe(e: Emitter, kernel: PanelKernel, batch: tuple[Value, ...], panel: Value, chunk: Value, columns: int) -> Panel:
    """The part of C of a chunk of rows and a panel of so many columns."""
    heights = kernel.heights
    tile = e.mul(chunk, kernel.tile.row_blocks)
    tile_end = e.smin(e.add(tile, kernel.tile.row_blocks), e.const(heights.count))
    vectors = -(-columns // kernel.lanes)
    mask = first_lanes(columns - (vectors - 1) * kernel.lanes, kernel.lanes)
    rows = heights.start(e, tile), heights.start(e, tile_end)
    return Panel(batch, tile, tile_end, *rows, e.mul(panel, kernel.width), panel, columns, vectors, mask)


def _emit_panel(e: Emitter, kernel: PanelKernel, panel: Panel) -> None:
    if not kernel.is_blocked:
        rows_of_b, step = rows_of_b_at(e, kernel, panel, e.const(0), e.const(kernel.shape.k))
        with e.loop(panel.tile, panel.tile_end) as tile:
            m = kernel.heights.start(e, tile.index)
            for_each_height(e, kernel, tile.index, lambda rows: _whole_sums(e, kernel, panel, tile.index, m, rows, rows_of_b, step))
            if not kernel.inline:
                write_rows(e, kernel, panel, m, e.sub(kernel.heights.start(e, e.add(tile.index, 1)), m))
        return
    start_rows(e, kernel, panel, e.scratch)
    depth, k = kernel.tile.depth, kernel.shape.k
    with e.loop(0, k, depth) as part:
        count = e.smin(e.const(depth), e.sub(e.const(k), part.index))
        rows_of_b, step = rows_of_b_at(e, kernel, panel, part.index, count)
        with e.loop(panel.tile, panel.tile_end) as tile:
            for_each_height(
                e,
                kernel,
                tile.index,
                lambda rows: partial_sums(e, kernel, panel, e.scratch, tile.index, rows, rows_of_b, step, part.index, count),
            )
    write_rows(e, kernel, panel, panel.m, e.sub(panel.m_end, panel.m))


def _whole_sums(e: Emitter, kernel: PanelKernel, panel: Panel, tile: Value, m: Value, rows: int, rows_of_b: Value, step: int) -> None:
    places = [MatmulIndex(panel.batch, e.add(m, i), e.add(panel.n, j * kernel.lanes)) for i, j in tile_places(rows, panel.vectors)]
    sums = [kernel.start(e, place) if kernel.start and kernel.group == 1 else e.zero(kernel.vector) for place in places]
    if kernel.shape.grouped:
        corners = [place_of_a(e, kernel, panel, e.add(m, i), e.const(0)) for i in range(rows)]
        emit_sums = emit_byte_sums if kernel.shape.b_dtype.nbytes == 1 else emit_pair_sums
        found = emit_sums(e, kernel.shape, kernel.lanes, panel.vectors, kernel.width, corners, rows_of_b)
        sums = [e.binary(addition(a), a, b) for a, b in zip(sums, found, strict=True)] if kernel.start else found
    else:
        fetch_read(e, kernel, panel, m, rows)
        sums = emit_innermost(e, kernel, panel, tile, m, rows, sums, rows_of_b, step, e.const(0), e.const(kernel.shape.k))
        sums = [finished(e, kernel, place, total) for place, total in zip(places, sums, strict=True)]
    if not kernel.inline:
        store_sums(e, kernel, panel, e.scratch, sums)
        return
    for number, (place, total) in enumerate(zip(places, sums, strict=True)):
        is_last = number % panel.vectors == panel.vectors - 1
        kernel.write(e, place, total, panel.mask if is_last else None)


def partial_sums(
    e: Emitter,
    kernel: PanelKernel,
    panel: Panel,
    base: Value,
    tile: Value,
    rows: int,
    rows_of_b: Value,
    step: int,
    k: Value,
    count: Value,
    later: Value | None = None,
) -> None:
    """Add a part of k to the sums of a register tile; those of the panel begin at `base`."""
    m = kernel.heights.start(e, tile)
    place = e.gep(base, e.mul(e.sub(m, panel.m), kernel.width), kernel.shape.accumulator.register)
    nbytes = kernel.shape.accumulator.nbytes
    sums = [e.load(sum_at(e, kernel, place, i, j), kernel.vector, nbytes) for i, j in tile_places(rows, panel.vectors)]
    store_sums(e, kernel, panel, place, emit_innermost(e, kernel, panel, tile, m, rows, sums, rows_of_b, step, k, count, later))


def rows_of_b_at(e: Emitter, kernel: PanelKernel, panel: Panel, k: Value, count: Value) -> tuple[Value, int]:
    """(address of B[k, first column of the panel], elements to the next row): in the panels, in place, or in the copy made here."""
    shape, width = kernel.shape, kernel.width
    batch = offset(e, panel.batch, shape.b.batch)
    source = Operand(shape.b_dtype, shape.accumulator)
    if shape.scale_rows:
        return _scaled_rows(e, kernel, panel, k, count), width
    if shape.packed:
        panels = -(-shape.n // width)
        number = e.add(e.mul(batch, panels), panel.number)
        if shape.grouped:
            nbytes = byte_panel_bytes(shape, width) if shape.b_dtype.nbytes == 1 else pair_panel_bytes(shape, width)
            return e.gep(kernel.b, e.mul(number, nbytes), "i8"), 0
        steps = -(-shape.k // kernel.group)
        return source.step(e, kernel.b, e.mul(e.add(e.mul(number, steps), e.udiv(k, kernel.group)), width)), width
    corner = e.add(batch, e.add(e.mul(k, shape.b.row), e.mul(panel.n, shape.b.column)))
    place = source.step(e, kernel.b, corner)
    if not kernel.tile.copy:
        return place, shape.b.row
    copy = e.gep(e.scratch, kernel.sums_bytes, "i8")
    if kernel.group > 1:
        emit_narrow_copy(e, shape, kernel.lanes, kernel.group, place, count, copy)
        return copy, width
    rest = shape.k % kernel.lanes if not kernel.is_blocked or kernel.tile.depth % kernel.lanes == 0 else None
    emit_copy(e, PanelCopy(source, shape.b.row, shape.b.column, panel.columns, width, kernel.lanes, rest or None), place, count, copy)
    return copy, width


def _scaled_rows(e: Emitter, kernel: PanelKernel, panel: Panel, k: Value, count: Value) -> Value:
    """The copy in scratch of what is stored as integers with scales."""
    shape, width = kernel.shape, kernel.width
    assert kernel.scales is not None
    assert kernel.tile.copy, kernel.tile  # else there is no room
    source = Operand(shape.b_dtype, shape.accumulator)
    copy = ScaledCopy(source, width, panel.vectors, kernel.lanes, shape.k, shape.scale_rows, min(kernel.tile.depth, shape.k))
    place = source.step(e, kernel.b, e.mul(e.add(e.mul(panel.number, shape.k), k), width))
    scales = e.gep(kernel.scales, e.mul(panel.number, copy.blocks * width), shape.accumulator.register)
    to = e.gep(e.scratch, kernel.sums_bytes, "i8")
    emit_scaled_copy(e, copy, place, scales, k, count, to)
    return to


def start_rows(e: Emitter, kernel: PanelKernel, panel: Panel, base: Value) -> None:
    """The sums of a panel, from `base` on, before the first part of k: zero, or what `start` says."""
    with e.loop(panel.m, panel.m_end) as row:
        tile = e.gep(base, e.mul(e.sub(row.index, panel.m), kernel.width), kernel.shape.accumulator.register)
        for j in range(panel.vectors):
            place = MatmulIndex(panel.batch, row.index, e.add(panel.n, j * kernel.lanes))
            first = kernel.start(e, place) if kernel.start and kernel.group == 1 else e.zero(kernel.vector)
            e.store(first, sum_at(e, kernel, tile, 0, j), kernel.shape.accumulator.nbytes)


def write_rows(e: Emitter, kernel: PanelKernel, panel: Panel, m: Value, count: Value) -> None:
    """Hand `count` rows of finished sums in scratch to the writer: one copy of its code, however large the register tile."""
    with e.loop(0, count) as row:
        write_row(e, kernel, panel, e.scratch, m, row.index)


def write_row(e: Emitter, kernel: PanelKernel, panel: Panel, base: Value, m: Value, row: Value) -> None:
    """Hand a row of a panel to the writer, the `row`-th of the sums that begin at `base` with row `m`."""
    tile = e.gep(base, e.mul(row, kernel.width), kernel.shape.accumulator.register)
    for j in range(panel.vectors):
        total = e.load(sum_at(e, kernel, tile, 0, j), kernel.vector, kernel.shape.accumulator.nbytes)
        place = MatmulIndex(panel.batch, e.add(m, row), e.add(panel.n, j * kernel.lanes))
        if kernel.is_blocked:
            total = finished(e, kernel, place, total)
        kernel.write(e, place, total, panel.mask if j == panel.vectors - 1 else None)
