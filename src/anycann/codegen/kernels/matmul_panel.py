"""Matrix products by register tiles: rows x vectors of accumulators, one panel of B, one element of A in every lane at a time."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_bytes import byte_panel_bytes, emit_byte_sums
from anycann.codegen.kernels.matmul_copied_rows import column_of_a, copied_before, copy_once, corner_of_a, for_each_height, place_of_a
from anycann.codegen.kernels.matmul_fetching import fetch_later, fetches_later, later_part, prefetch_rows
from anycann.codegen.kernels.matmul_kernel import Panel, PanelKernel
from anycann.codegen.kernels.matmul_narrow_steps import emit_narrow_copy, emit_steps, finished
from anycann.codegen.kernels.matmul_packed_rows import fetch_rows
from anycann.codegen.kernels.matmul_packing import PanelCopy, emit_copy
from anycann.codegen.kernels.matmul_pairs import emit_pair_sums, pair_panel_bytes
from anycann.codegen.kernels.matmul_scaled import ScaledCopy, emit_scaled_copy
from anycann.codegen.kernels.matmul_shape import Operand, addition, first_lanes, multiply_add
from anycann.codegen.kernels.matmul_tile import row_chunks
from anycann.codegen.kernels.matmul_writer import MatmulIndex, batch_index, offset
from anycann.codegen.values import Value


def emit_panels(e: Emitter, kernel: PanelKernel) -> int:
    """The loop over tasks. Returns the number of tasks: batches x panels x chunks of rows."""
    shape = kernel.shape
    panels, chunks = -(-shape.n // kernel.width), row_chunks(shape, kernel.tile)
    full, rest = divmod(shape.n, kernel.width)
    with e.loop(e.begin, e.end, carried=copied_before(e, kernel, panels)) as task:
        outer, panel, chunk = _split(e, task.index, panels, chunks, kernel.tile.panels_inner)
        batch = batch_index(e, outer, shape.batch)
        if kernel.copies_rows:
            copy_once(e, kernel, _describe(e, kernel, batch, panel, chunk, kernel.width), task, e.udiv(task.index, panels))
        for columns, present in ((kernel.width, full > 0), (rest, rest > 0)):
            if not present:
                continue
            part = _describe(e, kernel, batch, panel, chunk, columns)
            if full and rest:
                with e.when(e.compare("slt" if columns == kernel.width else "eq", panel, e.const(full))):
                    _emit_panel(e, kernel, part)
            else:
                _emit_panel(e, kernel, part)
    return shape.batches * panels * chunks


def _split(e: Emitter, task: Value, panels: int, chunks: int, panels_inner: bool) -> tuple[Value, Value, Value]:
    """(batch, panel, chunk) of a task number."""
    inner = panels if panels_inner else chunks
    outer = chunks if panels_inner else panels
    fast, rest = e.urem(task, inner), e.udiv(task, inner)
    slow, batch = e.urem(rest, outer), e.udiv(rest, outer)
    return (batch, fast, slow) if panels_inner else (batch, slow, fast)


def _describe(e: Emitter, kernel: PanelKernel, batch: tuple[Value, ...], panel: Value, chunk: Value, columns: int) -> Panel:
    heights = kernel.heights
    tile = e.mul(chunk, kernel.tile.row_blocks)
    tile_end = e.smin(e.add(tile, kernel.tile.row_blocks), e.const(heights.count))
    vectors = -(-columns // kernel.lanes)
    mask = first_lanes(e, columns - (vectors - 1) * kernel.lanes, kernel.lanes)
    rows = heights.start(e, tile), heights.start(e, tile_end)
    return Panel(batch, tile, tile_end, *rows, e.mul(panel, kernel.width), panel, columns, vectors, mask)


def _emit_panel(e: Emitter, kernel: PanelKernel, panel: Panel) -> None:
    if not kernel.is_blocked:
        rows_of_b, step = _rows_of_b(e, kernel, panel, e.const(0), e.const(kernel.shape.k))
        with e.loop(panel.tile, panel.tile_end) as tile:
            m = kernel.heights.start(e, tile.index)
            for_each_height(e, kernel, tile.index, lambda rows: _whole_sums(e, kernel, panel, tile.index, m, rows, rows_of_b, step))
            if not kernel.inline:
                _write_rows(e, kernel, panel, m, e.sub(kernel.heights.start(e, e.add(tile.index, 1)), m))
        return
    _start_rows(e, kernel, panel)
    depth, k = kernel.tile.depth, kernel.shape.k
    with e.loop(0, k, depth) as part:
        count = e.smin(e.const(depth), e.sub(e.const(k), part.index))
        rows_of_b, step = _rows_of_b(e, kernel, panel, part.index, count)
        with e.loop(panel.tile, panel.tile_end) as tile:
            for_each_height(
                e, kernel, tile.index, lambda rows: _partial_sums(e, kernel, panel, tile.index, rows, rows_of_b, step, part.index, count)
            )
    _write_rows(e, kernel, panel, panel.m, e.sub(panel.m_end, panel.m))


def _whole_sums(e: Emitter, kernel: PanelKernel, panel: Panel, tile: Value, m: Value, rows: int, rows_of_b: Value, step: int) -> None:
    places = [MatmulIndex(panel.batch, e.add(m, i), e.add(panel.n, j * kernel.lanes)) for i, j in _tile(rows, panel.vectors)]
    sums = [kernel.start(e, place) if kernel.start and kernel.group == 1 else e.zero(kernel.vector) for place in places]
    if kernel.shape.grouped:
        corners = [place_of_a(e, kernel, panel, e.add(m, i), e.const(0)) for i in range(rows)]
        emit_sums = emit_byte_sums if kernel.shape.b_dtype.nbytes == 1 else emit_pair_sums
        found = emit_sums(e, kernel.shape, kernel.lanes, panel.vectors, kernel.width, corners, rows_of_b)
        sums = [e.binary(addition(a), a, b) for a, b in zip(sums, found, strict=True)] if kernel.start else found
    else:
        sums = _innermost(e, kernel, panel, tile, m, rows, sums, rows_of_b, step, e.const(0), e.const(kernel.shape.k))
        sums = [finished(e, kernel, place, total) for place, total in zip(places, sums, strict=True)]
    if not kernel.inline:
        _store_sums(e, kernel, panel, e.scratch, sums)
        return
    for number, (place, total) in enumerate(zip(places, sums, strict=True)):
        is_last = number % panel.vectors == panel.vectors - 1
        kernel.write(e, place, total, panel.mask if is_last else None)


def _partial_sums(
    e: Emitter, kernel: PanelKernel, panel: Panel, tile: Value, rows: int, rows_of_b: Value, step: int, k: Value, count: Value
) -> None:
    m = kernel.heights.start(e, tile)
    place = e.gep(e.scratch, e.mul(e.sub(m, panel.m), kernel.width), kernel.shape.accumulator.register)
    sums = [e.load(_sum_at(e, kernel, place, i, j), kernel.vector, kernel.shape.accumulator.nbytes) for i, j in _tile(rows, panel.vectors)]
    _store_sums(e, kernel, panel, place, _innermost(e, kernel, panel, tile, m, rows, sums, rows_of_b, step, k, count))


def _innermost(
    e: Emitter,
    kernel: PanelKernel,
    panel: Panel,
    tile: Value,
    m: Value,
    rows: int,
    sums: list[Value],
    rows_of_b: Value,
    step: int,
    k: Value,
    count: Value,
) -> list[Value]:
    """sums[i, j] += A[m + i, k..k+count] B[k..k+count, vector j]: the loop where the time goes."""
    corner = corner_of_a(e, kernel, panel, tile, m, k)
    if kernel.group > 1:
        return emit_steps(e, kernel, rows, sums, rows_of_b, corner, count)
    if kernel.streams > 1:
        return _streamed(e, kernel, panel, rows, sums, rows_of_b, step, corner)
    mask = panel.mask if not (kernel.shape.packed or kernel.tile.copy) else None
    later = later_part(e, kernel, panel, tile, rows_of_b, count) if fetches_later(kernel) else None
    rest = kernel.shape.k % kernel.unroll

    def added(k: Value, steps: int, before: list[Value], block: Value) -> list[Value]:
        for i in range(steps):
            if i:
                e.keep_order()  # loads of the next step would need the registers of sums
            step_k = e.add(k, i)
            row_of_b = kernel.right.step(e, rows_of_b, e.mul(step_k, step))
            prefetch_rows(e, kernel, panel, row_of_b)
            before = _add_products(e, kernel, panel, rows, before, row_of_b, column_of_a(e, kernel, corner, step_k, block), mask)
        return before

    whole = e.sub(count, e.urem(count, kernel.unroll)) if rest else count
    with e.loop(0, whole, kernel.unroll, carried=sums) as loop:
        if later is not None:
            fetch_later(e, kernel, later, loop.index)
        if kernel.fetches_rows:
            fetch_rows(e, column_of_a(e, kernel, corner, loop.index, loop.index), rows * kernel.unroll * kernel.left.dtype.nbytes)
        loop.carry(added(loop.index, kernel.unroll, loop.values, loop.index))
    if not rest:
        return loop.values
    with e.loop(whole, count, carried=loop.values) as loop:
        loop.carry(added(loop.index, 1, loop.values, whole))
    return loop.values


def _add_products(
    e: Emitter,
    kernel: PanelKernel,
    panel: Panel,
    rows: int,
    sums: list[Value],
    row_of_b: Value,
    column: Value,
    mask: Value | None,
) -> list[Value]:
    """sums + what one k adds, whose column of A begins at `column`."""
    left, right = kernel.left, kernel.right
    vectors = [
        right.load(e, right.step(e, row_of_b, j * kernel.lanes), kernel.lanes, mask if j == panel.vectors - 1 else None)
        for j in range(panel.vectors)
    ]
    totals = list(sums)
    for i in range(rows):
        factor = left.broadcast(e, left.step(e, column, i * kernel.left_row), kernel.lanes)
        for j in range(panel.vectors):
            totals[i * panel.vectors + j] = multiply_add(e, factor, vectors[j], totals[i * panel.vectors + j])
    return totals


def _streamed(
    e: Emitter, kernel: PanelKernel, panel: Panel, rows: int, sums: list[Value], rows_of_b: Value, step: int, corner: Value
) -> list[Value]:
    """The same over all of k, with equal parts of it side by side and what is left behind them."""
    part, count = kernel.shape.k // kernel.streams, len(sums)

    def added(k: Value, before: list[Value]) -> list[Value]:
        row_of_b = kernel.right.step(e, rows_of_b, e.mul(k, step))
        return _add_products(e, kernel, panel, rows, before, row_of_b, column_of_a(e, kernel, corner, k, k), None)

    zeros = [e.zero(kernel.vector)] * (count * (kernel.streams - 1))
    with e.loop(0, part, carried=[*sums, *zeros]) as loop:
        parts = [loop.values[n * count : (n + 1) * count] for n in range(kernel.streams)]
        loop.carry([total for n, before in enumerate(parts) for total in added(e.add(loop.index, n * part), before)])
    sums = parts[0]
    for others in parts[1:]:
        sums = [e.binary(addition(a), a, b) for a, b in zip(sums, others, strict=True)]
    with e.loop(part * kernel.streams, kernel.shape.k, carried=sums) as loop:
        loop.carry(added(loop.index, loop.values))
    return loop.values


def _rows_of_b(e: Emitter, kernel: PanelKernel, panel: Panel, k: Value, count: Value) -> tuple[Value, int]:
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


def _tile(rows: int, vectors: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(rows) for j in range(vectors)]


def _sum_at(e: Emitter, kernel: PanelKernel, tile: Value, i: int, j: int) -> Value:
    return e.gep(tile, i * kernel.width + j * kernel.lanes, kernel.shape.accumulator.register)


def _store_sums(e: Emitter, kernel: PanelKernel, panel: Panel, tile: Value, sums: list[Value]) -> None:
    for (i, j), total in zip(_tile(len(sums) // panel.vectors, panel.vectors), sums, strict=True):
        e.store(total, _sum_at(e, kernel, tile, i, j), kernel.shape.accumulator.nbytes)


def _start_rows(e: Emitter, kernel: PanelKernel, panel: Panel) -> None:
    """The sums before the first part of k: zero, or what `start` says."""
    with e.loop(panel.m, panel.m_end) as row:
        tile = e.gep(e.scratch, e.mul(e.sub(row.index, panel.m), kernel.width), kernel.shape.accumulator.register)
        for j in range(panel.vectors):
            place = MatmulIndex(panel.batch, row.index, e.add(panel.n, j * kernel.lanes))
            first = kernel.start(e, place) if kernel.start and kernel.group == 1 else e.zero(kernel.vector)
            e.store(first, _sum_at(e, kernel, tile, 0, j), kernel.shape.accumulator.nbytes)


def _write_rows(e: Emitter, kernel: PanelKernel, panel: Panel, m: Value, count: Value) -> None:
    """Hand `count` rows of finished sums in scratch to the writer: one copy of its code, however large the register tile."""
    with e.loop(0, count) as row:
        tile = e.gep(e.scratch, e.mul(row.index, kernel.width), kernel.shape.accumulator.register)
        for j in range(panel.vectors):
            total = e.load(_sum_at(e, kernel, tile, 0, j), kernel.vector, kernel.shape.accumulator.nbytes)
            place = MatmulIndex(panel.batch, e.add(m, row.index), e.add(panel.n, j * kernel.lanes))
            if kernel.is_blocked:
                total = finished(e, kernel, place, total)
            kernel.write(e, place, total, panel.mask if j == panel.vectors - 1 else None)
