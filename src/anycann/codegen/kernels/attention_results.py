"""The second product of attention: weights times values, block after block of keys, and the finished results."""

from __future__ import annotations

import math

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.attention_kernel import Kernel, Rows, emit_turns
from anycann.codegen.kernels.attention_shape import AttentionShape, Write, address
from anycann.codegen.kernels.attention_softmax import finished_results
from anycann.codegen.kernels.matmul_packing import PanelCopy, emit_copy
from anycann.codegen.kernels.matmul_shape import Operand, multiply_add
from anycann.codegen.values import Value, first_lanes, vector_type
from anycann.te import dtypes


def emit_sums(e: Emitter, kernel: Kernel, rows: Rows, first: Value, last: Value) -> None:
    """results[m, d] = results[m, d] * factor[m] + sum over t of weights[t - first, m] value[t, d].

    Where there is one block of keys, the sums are divided by the total and written.
    """
    lanes, tile = kernel.lanes, kernel.tile
    columns = -(-kernel.shape.width // lanes)
    if kernel.copies_values and kernel.tile.group == 1:
        copy_values(e, kernel, rows.batch, first, first, last)
    for start in range(0, columns, tile.columns):
        vectors, whole = min(tile.columns, columns - start), rows.count - rows.count % tile.rows
        with e.loop(0, whole, tile.rows) as row:
            _sum_tile(e, kernel, rows, row.index, tile.rows, start * lanes, vectors, first, last)
        if whole < rows.count:
            _sum_tile(e, kernel, rows, e.const(whole), rows.count - whole, start * lanes, vectors, first, last)


def copy_values(e: Emitter, kernel: Kernel, head: tuple[Value, ...], block: Value, first: Value, last: Value) -> None:
    """values[t - block, d] for t from `first` to `last`: side by side and in float32; they stay in the first-level cache, widened once."""
    shape, strip = kernel.shape, kernel.memory.strip
    source = kernel.operand.step(e, kernel.pointers.value, address(e, shape.value, (*head, first, e.const(0))))
    apart = strip * kernel.memory.values
    copy = PanelCopy(kernel.operand, shape.value.axes[-2].step or 0, 1, shape.width, strip, kernel.lanes, apart=apart)
    to = e.gep(kernel.memory.at(e, "values"), e.mul(e.sub(first, block), strip), "float")
    emit_copy(e, copy, source, e.sub(last, first), to)


def _sum_tile(e: Emitter, kernel: Kernel, rows: Rows, row: Value, count: int, column: int, vectors: int, first: Value, last: Value) -> None:
    """The sums of `count` rows from `row` on and of so many vectors from `column` on."""
    if kernel.is_direct:
        sums = _summed(e, kernel, rows, row, column, vectors, first, last, [e.zero(kernel.vector)] * (count * vectors))
        _write_quotients(e, kernel, rows, row, column, vectors, sums)
        return
    memory, lanes = kernel.memory, kernel.lanes
    results = e.gep(memory.at(e, "results", rows.number), e.add(e.mul(row, memory.width), column), "float")
    factors = [e.splat(e.load(e.gep(memory.at(e, "factor"), e.add(row, i), "float"), "float", 4), lanes) for i in range(count)]
    places = [e.gep(results, i * memory.width + j * lanes, "float") for i in range(count) for j in range(vectors)]
    sums = [e.binary("fmul", e.load(place, kernel.vector, 4), factors[n // vectors]) for n, place in enumerate(places)]
    for place, total in zip(places, _summed(e, kernel, rows, row, column, vectors, first, last, sums), strict=True):
        e.store(total, place, 4)


def _write_quotients(e: Emitter, kernel: Kernel, rows: Rows, row: Value, column: int, vectors: int, sums: list[Value]) -> None:
    """Sums over totals to the writer; `total` holds what they are multiplied by."""
    shape, lanes = kernel.shape, kernel.lanes
    for i in range(len(sums) // vectors):
        scale = e.splat(e.load(e.gep(kernel.memory.at(e, "total", rows.number), e.add(row, i), "float"), "float", 4), lanes)
        some = e.compare("olt", scale, e.const(math.inf, kernel.vector))
        for j in range(vectors):
            result = e.binary("fmul", sums[i * vectors + j], scale)
            result = e.select(some, result, e.zero(kernel.vector)) if shape.empty_is_zero else result
            place = (*rows.batch, e.add(rows.first, e.add(row, i)), e.const(column + j * lanes))
            kernel.write(e, place, result, first_lanes(min(lanes, shape.width - column - j * lanes), lanes))


def _summed(
    e: Emitter, kernel: Kernel, rows: Rows, row: Value, column: int, vectors: int, first: Value, last: Value, sums: list[Value]
) -> list[Value]:
    """sums[i, j] + the weighted values of keys `first` to `last`: the loop where the time goes."""
    shape, memory, lanes, count = kernel.shape, kernel.memory, kernel.lanes, len(sums) // vectors
    weights = e.gep(memory.at(e, "weights"), row, "float")
    if kernel.copies_values:
        operand, step, tail = Operand(dtypes.float32, dtypes.float32), memory.strip, None
        at = column if memory.strip == memory.width else column * memory.values
        corner = e.gep(memory.at(e, "values"), at, "float")
    else:
        operand, step = kernel.operand, shape.value.axes[-2].step or 0
        corner = operand.step(e, kernel.pointers.value, address(e, shape.value, (*rows.batch, first, e.const(column))))
        tail = first_lanes(min(lanes, shape.width - column - (vectors - 1) * lanes), lanes)

    def added(t: Value, before: list[Value]) -> list[Value]:
        line = operand.step(e, corner, e.mul(t, step))
        loaded = [operand.load(e, operand.step(e, line, j * lanes), lanes, tail if j == vectors - 1 else None) for j in range(vectors)]
        weight = e.gep(weights, e.mul(t, memory.rows), "float")
        totals = []
        for i in range(count):
            factor = e.splat(e.load(e.gep(weight, i, "float"), "float", 4), lanes)
            totals += [multiply_add(e, factor, loaded[j], before[i * vectors + j]) for j in range(vectors)]
        return totals

    return emit_turns(e, e.sub(last, first), None, kernel.unroll, sums, added)


def emit_results(e: Emitter, kernel: Kernel, rows: Rows) -> None:
    """Results divided by the sums of their weights, to the writer."""
    memory = kernel.memory
    part = (rows.batch, rows.first, e.const(rows.count))
    totals, results = (memory.at(e, name, rows.number) for name in ("total", "results"))
    emit_quotients(e, kernel.shape, kernel.lanes, kernel.write, part, totals, (results, memory.width))


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
            write(e, place, result, first_lanes(min(lanes, shape.width - column), lanes))
