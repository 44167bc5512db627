"""The first product of attention: scores of keys for a register tile of rows, with all that is done to scores before the softmax."""

from __future__ import annotations

import math

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.attention_kernel import Kernel, Rows, emit_turns
from anycann.codegen.kernels.attention_shape import address, fetch_row
from anycann.codegen.kernels.attention_softmax import changed_scores
from anycann.codegen.kernels.matmul_packing import PanelCopy, emit_copy
from anycann.codegen.kernels.matmul_shape import Operand, multiply_add
from anycann.codegen.values import Value
from anycann.te import dtypes


def emit_scores(e: Emitter, kernel: Kernel, rows: Rows, first: Value, last: Value) -> None:
    """weights[t - first, m] = the score of key t for row m, for t from `first` to `last`; most[m] is kept up to date."""
    shape, size = kernel.shape, kernel.tile.keys
    for number, score in enumerate(shape.scores):
        if score.row:
            _copy_mask(e, kernel, rows, number, first, last)
    full, rest = divmod(shape.keys, size)
    with e.loop(first, last, size) as tile:
        for count, present in ((size, full > 0), (rest, rest > 0)):
            if present and full and rest:
                with e.when(e.compare("slt" if count == size else "sge", tile.index, e.const(full * size))):
                    _score_tile(e, kernel, rows, first, tile.index, count)
            elif present:
                _score_tile(e, kernel, rows, first, tile.index, count)


def copy_keys(e: Emitter, kernel: Kernel, head: tuple[Value, ...], block: Value, first: Value, last: Value) -> None:
    """keys[t - block, d] for t from `first` to `last`: side by side and in float32."""
    shape = kernel.shape
    source = kernel.operand.step(e, kernel.pointers.key, address(e, shape.key, (*head, first, e.const(0))))
    copy = PanelCopy(kernel.operand, shape.key.axes[-2].step or 0, 1, shape.depth, kernel.memory.key, kernel.lanes)
    to = e.gep(kernel.memory.at(e, "keys"), e.mul(e.sub(first, block), kernel.memory.key), "float")
    emit_copy(e, copy, source, e.sub(last, first), to)


def _copy_mask(e: Emitter, kernel: Kernel, rows: Rows, number: int, first: Value, last: Value) -> None:
    """mask[t - first, m], the one that varies with the rows."""
    score = kernel.shape.scores[number]
    operand = Operand(dtypes.float32, dtypes.float32)
    source = operand.step(e, kernel.pointers.scores[number], address(e, score.view, (*rows.batch, rows.first, first)))
    copy = PanelCopy(operand, score.key, score.row, rows.count, kernel.memory.rows, kernel.lanes)
    emit_copy(e, copy, source, e.sub(last, first), _mask_memory(e, kernel, number))


def _mask_memory(e: Emitter, kernel: Kernel, number: int) -> Value:
    before = sum(score.row != 0 for score in kernel.shape.scores[:number])
    return e.gep(kernel.memory.at(e, "mask"), before * kernel.memory.block * kernel.memory.rows, "float")


def _score_tile(e: Emitter, kernel: Kernel, rows: Rows, first: Value, key: Value, count: int) -> None:
    shape, memory, lanes = kernel.shape, kernel.memory, kernel.lanes
    if kernel.is_far:
        _fetch_next(e, kernel, rows, key, count)
    queries = memory.at(e, "queries", rows.number)
    if kernel.copies_keys:
        operand, step, along = Operand(dtypes.float32, dtypes.float32), memory.key, 1
        corner = e.gep(memory.at(e, "keys"), e.mul(e.sub(key, first), step), "float")
    else:
        operand, step, along = kernel.operand, shape.key.axes[-2].step or 0, shape.key.axes[-1].step or 0
        corner = operand.step(e, kernel.pointers.key, address(e, shape.key, (*rows.batch, key, e.const(0))))

    def added(d: Value, before: list[Value]) -> list[Value]:
        row = e.gep(queries, e.mul(d, memory.rows), "float")
        loaded = [e.load(e.gep(row, j * lanes, "float"), kernel.vector, 4) for j in range(rows.vectors)]
        column = operand.step(e, corner, e.mul(d, along))
        totals = []
        for i in range(count):
            factor = operand.broadcast(e, operand.step(e, column, i * step), lanes)
            totals += [multiply_add(e, factor, loaded[j], before[i * rows.vectors + j]) for j in range(rows.vectors)]
        return totals

    nothing = [e.zero(kernel.vector)] * (count * rows.vectors)
    sums = emit_turns(e, e.const(shape.depth), shape.depth % kernel.unroll, kernel.unroll, nothing, added)
    weights = e.gep(memory.at(e, "weights"), e.mul(e.sub(key, first), memory.rows), "float")
    for j in range(rows.vectors):
        place = e.gep(memory.at(e, "most", rows.number), j * lanes, "float")
        most = e.load(place, kernel.vector, 4)
        for i in range(count):
            score = _finished(e, kernel, rows, first, e.add(key, i), j, sums[i * rows.vectors + j])
            most = e.select(e.compare("ogt", score, most), score, most)
            e.store(score, e.gep(weights, i * memory.rows + j * lanes, "float"), 4)
        e.store(most, place, 4)


def _fetch_next(e: Emitter, kernel: Kernel, rows: Rows, key: Value, count: int) -> None:
    """Ask for a part of what the tasks of the next head read; all tiles of keys of all tasks of this head ask for all of it.

    Rows of a head lie apart where heads lie side by side, so that the processor does not foresee them.
    """
    shape, rest = kernel.shape, e.const(0)
    blocks, tiles = -(-shape.rows // kernel.memory.rows), -(-shape.keys // kernel.tile.keys)
    own = e.add(e.mul(rows.block, -(-shape.keys // blocks)), e.udiv(key, blocks))
    for pointer, view in ((kernel.pointers.key, shape.key), (kernel.pointers.value, shape.value)):
        with e.loop(0, -(-count // blocks)) as row:
            fetch_row(e, kernel.operand, pointer, view, (*rows.following, e.add(own, row.index), rest))
    share = -(-kernel.memory.rows // tiles)
    first = e.add(rows.first, e.mul(e.udiv(key, kernel.tile.keys), share))
    with e.loop(0, share) as row:
        fetch_row(e, kernel.operand, kernel.pointers.query, shape.query, (*rows.following, e.add(first, row.index), rest))


def _finished(e: Emitter, kernel: Kernel, rows: Rows, first: Value, key: Value, vector: int, score: Value) -> Value:
    """One vector of scores with all that is done to them."""
    shape, memory, lanes = kernel.shape, kernel.memory, kernel.lanes
    masks = []
    for number, change in enumerate(shape.scores):
        if change.row:
            line = e.add(e.mul(e.sub(key, first), memory.rows), vector * lanes)
            masks.append(e.load(e.gep(_mask_memory(e, kernel, number), line, "float"), kernel.vector, 4))
        else:
            at = address(e, change.view, (*rows.batch, e.const(0), key))
            masks.append(e.splat(e.load(e.gep(kernel.pointers.scores[number], at, "float"), "float", 4), lanes))
    score = changed_scores(e, shape, score, masks)
    if shape.reach is None:
        return score
    row = e.binary("add", e.splat(e.add(rows.first, vector * lanes + shape.reach), lanes), e.lane_numbers(lanes))
    return e.select(e.compare("sle", e.splat(key, lanes), row), score, e.const(-math.inf, score.type))
