"""The second product of attention: weights times values, block after block of keys, and the finished results."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.attention_kernel import Kernel, Rows
from anycann.codegen.kernels.attention_shape import AttentionShape, Write, address
from anycann.codegen.kernels.attention_softmax import finished_results
from anycann.codegen.kernels.matmul_packing import PanelCopy, emit_copy
from anycann.codegen.kernels.matmul_shape import Operand, first_lanes, multiply_add
from anycann.codegen.values import Value, vector_type
from anycann.te import dtypes


def emit_sums(e: Emitter, kernel: Kernel, rows: Rows, first: Value, last: Value) -> None:
    """results[m, d] = results[m, d] * factor[m] + sum over t of weights[t - first, m] value[t, d]."""
    lanes, tile = kernel.lanes, kernel.tile
    columns = -(-kernel.shape.width // lanes)
    if kernel.copies_values:
        _copy_values(e, kernel, rows, first, last)
    for start in range(0, columns, tile.columns):
        with e.loop(0, rows.count, tile.rows) as row:
            _sum_tile(e, kernel, rows, row.index, start * lanes, min(tile.columns, columns - start), first, last)


def _copy_values(e: Emitter, kernel: Kernel, rows: Rows, first: Value, last: Value) -> None:
    """values[t - first, d]: side by side and in float32, so that they stay in the first-level cache and are widened once."""
    shape = kernel.shape
    source = kernel.operand.step(e, kernel.pointers.value, address(e, shape.value, (*rows.batch, first, e.const(0))))
    copy = PanelCopy(kernel.operand, shape.value.axes[-2].step or 0, 1, shape.width, kernel.memory.width, kernel.lanes)
    emit_copy(e, copy, source, e.sub(last, first), kernel.memory.at(e, "values"))


def _sum_tile(e: Emitter, kernel: Kernel, rows: Rows, row: Value, column: int, vectors: int, first: Value, last: Value) -> None:
    shape, memory, lanes, count = kernel.shape, kernel.memory, kernel.lanes, kernel.tile.rows
    results = e.gep(memory.at(e, "results"), e.add(e.mul(row, memory.width), column), "float")
    factors = [e.splat(e.load(e.gep(memory.at(e, "factor"), e.add(row, i), "float"), "float", 4), lanes) for i in range(count)]
    places = [e.gep(results, i * memory.width + j * lanes, "float") for i in range(count) for j in range(vectors)]
    sums = [e.binary("fmul", e.load(place, kernel.vector, 4), factors[n // vectors]) for n, place in enumerate(places)]
    weights = e.gep(memory.at(e, "weights"), row, "float")
    if kernel.copies_values:
        operand, step, tail = Operand(dtypes.float32, dtypes.float32), memory.width, None
        corner = e.gep(memory.at(e, "values"), column, "float")
    else:
        operand, step = kernel.operand, shape.value.axes[-2].step or 0
        corner = operand.step(e, kernel.pointers.value, address(e, shape.value, (*rows.batch, first, e.const(column))))
        tail = first_lanes(e, min(lanes, shape.width - column - (vectors - 1) * lanes), lanes)
    with e.loop(0, e.sub(last, first), carried=sums) as t:
        line = operand.step(e, corner, e.mul(t.index, step))
        loaded = [operand.load(e, operand.step(e, line, j * lanes), lanes, tail if j == vectors - 1 else None) for j in range(vectors)]
        weight = e.gep(weights, e.mul(t.index, memory.rows), "float")
        totals = []
        for i in range(count):
            factor = e.splat(e.load(e.gep(weight, i, "float"), "float", 4), lanes)
            totals += [multiply_add(e, factor, loaded[j], t.values[i * vectors + j]) for j in range(vectors)]
        t.carry(totals)
    for place, total in zip(places, t.values, strict=True):
        e.store(total, place, 4)


def emit_results(e: Emitter, kernel: Kernel, rows: Rows) -> None:
    """Results divided by the sums of their weights, to the writer."""
    memory = kernel.memory
    part = (rows.batch, rows.first, e.const(rows.count))
    emit_quotients(e, kernel.shape, kernel.lanes, kernel.write, part, memory.at(e, "total"), (memory.at(e, "results"), memory.width))


def emit_quotients(
    e: Emitter,
    shape: AttentionShape,
    lanes: int,
    write: Write,
    rows: tuple[tuple[Value, ...], Value, Value],
    totals: Value,
    results: tuple[Value, int],
) -> None:
    """Results over totals to the writer. rows: head, first and how many; results: where they begin, and floats from row to row."""
    batch, first, count = rows
    pointer, width = results
    with e.loop(0, count) as row:
        total = e.load(e.gep(totals, row.index, "float"), "float", 4)
        line = e.gep(pointer, e.mul(row.index, width), "float")
        columns = range(0, shape.width, lanes)
        sums = [e.load(e.gep(line, column, "float"), vector_type("float", lanes), 4) for column in columns]
        for column, result in zip(columns, finished_results(e, shape, sums, total), strict=True):
            place = (*batch, e.add(first, row.index), e.const(column))
            write(e, place, result, first_lanes(e, min(lanes, shape.width - column), lanes))
