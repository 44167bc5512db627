"""The innermost loop of a matrix product: a register tile of sums gets what a part of k adds."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_copied_rows import column_of_a, corner_of_a
from anycann.codegen.kernels.matmul_fetching import fetch_later, fetches_later, later_part, prefetch_rows
from anycann.codegen.kernels.matmul_kernel import Panel, PanelKernel
from anycann.codegen.kernels.matmul_narrow_steps import emit_steps
from anycann.codegen.kernels.matmul_packed_rows import fetch_rows
from anycann.codegen.kernels.matmul_shape import addition, multiply_add
from anycann.codegen.values import Value


def emit_innermost(
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
    following: Value | None = None,
) -> list[Value]:
    """sums[i, j] += A[m + i, k..k+count] B[k..k+count, vector j]: the loop where the time goes."""
    corner = corner_of_a(e, kernel, panel, tile, m, k)
    if kernel.group > 1:
        return emit_steps(e, kernel, rows, sums, rows_of_b, corner, count)
    if kernel.streams > 1:
        return _streamed(e, kernel, panel, rows, sums, rows_of_b, step, corner)
    mask = panel.mask if not (kernel.shape.packed or kernel.tile.copy) else None
    later = later_part(e, kernel, panel, tile, rows_of_b, count, following) if fetches_later(kernel) else None
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


def tile_places(rows: int, vectors: int) -> list[tuple[int, int]]:
    """The order in which the sums of a register tile are held."""
    return [(i, j) for i in range(rows) for j in range(vectors)]


def sum_at(e: Emitter, kernel: PanelKernel, tile: Value, i: int, j: int) -> Value:
    """Where a vector of a register tile lies in scratch, whose first row begins at `tile`."""
    return e.gep(tile, i * kernel.width + j * kernel.lanes, kernel.shape.accumulator.register)


def store_sums(e: Emitter, kernel: PanelKernel, panel: Panel, tile: Value, sums: list[Value]) -> None:
    """Leave a register tile in scratch, from `tile` on."""
    for (i, j), total in zip(tile_places(len(sums) // panel.vectors, panel.vectors), sums, strict=True):
        e.store(total, sum_at(e, kernel, tile, i, j), kernel.shape.accumulator.nbytes)
