"""Attention of few rows, as of one new token and the keys kept of all before: every element of keys and values is read once, in order.

The lanes run along the depth, then along keys, then along columns, so that one row fills them; attention.py fills them with rows.

a task: one head.  weights[m, t] = scale * sum over d of query[m, d] key[t, d], masked       a register of keys at a time
                   weights = exp(weights - the most of the row), total = their sum
                   y[m, d] = sum over t of weights[m, t] value[t, d] / total
"""

from __future__ import annotations

import math

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.attention_shape import AttentionShape, Pointers, Score, Write, address, fetch_row, lie_side_by_side, seen_keys
from anycann.codegen.kernels.attention_softmax import changed_scores, exp_of_difference, finished_results, greatest_lane
from anycann.codegen.kernels.matmul_default import default_tile
from anycann.codegen.kernels.matmul_dot import dot_scratch, emit_groups
from anycann.codegen.kernels.matmul_kernel import PanelKernel
from anycann.codegen.kernels.matmul_shape import MatmulShape, Operand, Strides, multiply_add
from anycann.codegen.kernels.matmul_tile import MatmulTile, method
from anycann.codegen.kernels.matmul_writer import MatmulIndex, batch_index
from anycann.codegen.values import Value, first_lanes, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes

# Sums that wait for each other no longer than a multiply-add takes; values of so many keys are added up side by side.
_LEAST_SUMS, _MOST_PARTS = 8, 4
# How many keys ahead these and their values are fetched into the second-level cache. From 32 to 256 one row of 12 heads of 257 keys of 64
# takes 0.09 ms with keys and values in memory, without 0.13.
_AHEAD = 64


def is_few(shape: AttentionShape, target: Target) -> bool:
    """True if so few rows share their keys that most lanes of `attention.py` would be idle, and everything lies in the order it is read."""
    side_by_side = all(lie_side_by_side(view.axes[-1]) for view in (shape.query, shape.key))
    few = shape.rows <= target.lanes // 2 and shape.keys > 1
    return few and side_by_side and all(score.key in (0, 1) for score in shape.scores)


@dataclass(frozen=True)
class _Few:
    shape: AttentionShape
    target: Target
    pointers: Pointers
    write: Write

    @property
    def lanes(self) -> int:
        return self.target.lanes

    @property
    def vector(self) -> str:
        return vector_type("float", self.lanes)

    @property
    def operand(self) -> Operand:
        return Operand(self.shape.dtype, dtypes.float32)

    @property
    def product(self) -> MatmulShape:
        """Queries times transposed keys, of one head."""
        shape = self.shape
        query, key = Strides((), shape.query.axes[-2].step or 0, 1), Strides((), 1, shape.key.axes[-2].step or 0)
        return MatmulShape((), shape.rows, shape.keys, shape.depth, query, key, a_dtype=shape.dtype, b_dtype=shape.dtype)

    @property
    def tile(self) -> MatmulTile:
        assert method(self.product) == "dot", self.product
        return default_tile(self.product, self.target)

    @property
    def length(self) -> int:
        """Of a row of weights: whole registers."""
        return -(-self.shape.keys // self.lanes) * self.lanes

    @property
    def sizes(self) -> dict[str, int]:
        """Floats of each part of the scratch memory; products come first."""
        rows, products = self.shape.rows, dot_scratch(self.lanes, self.tile.rows, 4) // 4
        return {"products": products, "most": rows * self.lanes, "total": rows, "weights": rows * self.length}

    def at(self, e: Emitter, name: str, row: Value | int = 0) -> Value:
        """Address of a row of most [rows, lanes], total [rows] or weights [rows, length]."""
        names = list(self.sizes)
        start = sum(self.sizes[n] for n in names[: names.index(name)])
        step = self.sizes[name] // self.shape.rows
        return e.gep(e.gep(e.scratch, start, "float"), row * step if isinstance(row, int) else e.mul(row, step), "float")


def few_scratch_bytes(shape: AttentionShape, target: Target) -> int:
    """Bytes of a thread's scratch memory that the kernel uses."""
    nowhere = Value("null", "ptr")
    return 4 * sum(_Few(shape, target, Pointers(nowhere, nowhere, nowhere), lambda *_: None).sizes.values())


def emit_few(e: Emitter, shape: AttentionShape, target: Target, pointers: Pointers, write: Write) -> int:
    """Write the kernel's loop over its tasks and return how many there are: heads."""
    few = _Few(shape, target, pointers, write)
    at_once = max(1, min(shape.rows, target.registers // 8))
    with e.loop(e.begin, e.end) as task:
        batch = batch_index(e, task.index, shape.batch)
        seen = seen_keys(e, shape, e.const(0), shape.rows)
        groups = e.udiv(e.add(seen, few.lanes - 1), few.lanes)
        _emit_scores(e, few, batch, groups)
        with e.loop(0, shape.rows) as row:
            _emit_weights(e, few, row.index, groups)
        for first in range(0, shape.rows, at_once):
            _emit_sums(e, few, batch, first, min(at_once, shape.rows - first), seen)
    return shape.batches


# ---- scores
def _emit_scores(e: Emitter, few: _Few, batch: tuple[Value, ...], groups: Value) -> None:
    """weights[m, t] = the score of key t for row m, -inf behind the last key; most[m] is the highest, lane by lane."""
    shape, zero = few.shape, e.const(0)
    with e.loop(0, shape.rows) as row:
        e.store(e.const(-math.inf, few.vector), few.at(e, "most", row.index), 4)

    def write(e: Emitter, index: MatmulIndex, product: Value, mask: Value | None) -> None:
        score = _finished(e, few, (*batch, index.m, index.n), product, mask)
        e.store(score, e.gep(few.at(e, "weights", index.m), index.n, "float"), 4)
        place = few.at(e, "most", index.m)
        most = e.load(place, few.vector, 4)
        e.store(e.select(e.compare("ogt", score, most), score, most), place, 4)

    query = few.operand.step(e, few.pointers.query, address(e, shape.query, (*batch, zero, zero)))
    key = few.operand.step(e, few.pointers.key, address(e, shape.key, (*batch, zero, zero)))
    kernel = PanelKernel(few.product, few.tile, few.lanes, query, key, write, None, False)
    with e.loop(0, groups) as group:
        first = e.mul(group.index, few.lanes)
        with e.loop(0, few.lanes) as t:
            fetch_row(e, few.operand, few.pointers.key, shape.key, (*batch, e.add(e.add(first, t.index), _AHEAD), zero))
        emit_groups(e, kernel, (), group.index, e.add(group.index, 1))


def _finished(e: Emitter, few: _Few, index: tuple[Value, ...], product: Value, mask: Value | None) -> Value:
    """Scores of neighbouring keys from index[-1] on, with all that is done to them; -inf outside `mask`."""
    shape, (*_, row, key) = few.shape, index
    pairs = zip(few.pointers.scores, shape.scores, strict=True)
    masks = [_mask_of(e, few, e.gep(pointer, address(e, change.view, index), "float"), change, mask) for pointer, change in pairs]
    score = changed_scores(e, shape, product, masks)
    nothing = e.const(-math.inf, score.type)
    if shape.reach is not None:
        numbers = e.binary("add", e.splat(key, few.lanes), e.lane_numbers(few.lanes))
        score = e.select(e.compare("sle", numbers, e.splat(e.add(row, shape.reach), few.lanes)), score, nothing)
    return score if mask is None else e.select(mask, score, nothing)


def _mask_of(e: Emitter, few: _Few, place: Value, change: Score, mask: Value | None) -> Value:
    if change.key == 0:
        return e.splat(e.load(place, "float", 4), few.lanes)
    return e.load(place, few.vector, 4) if mask is None else e.masked_load(place, few.vector, 4, mask, e.zero(few.vector))


# ---- weights and results
def _emit_weights(e: Emitter, few: _Few, row: Value, groups: Value) -> None:
    """weights = exp(weights - most) of one row; total = their sum. Weights of zero where nothing but -inf was seen."""
    most = greatest_lane(e, e.load(few.at(e, "most", row), few.vector, 4))
    nothing = e.compare("oeq", most, e.const(-math.inf, "float"))
    highest = e.splat(e.select(nothing, e.const(0.0, "float"), most), few.lanes)
    weights = few.at(e, "weights", row)
    with e.loop(0, groups, carried=[e.zero(few.vector)]) as group:
        place = e.gep(weights, e.mul(group.index, few.lanes), "float")
        weight = exp_of_difference(e, e.load(place, few.vector, 4), highest, few.target, few.shape.exponent_scale)
        e.store(weight, place, 4)
        group.carry([e.binary("fadd", group.values[0], weight)])
    e.store(e.reduce("fadd", group.values[0]), few.at(e, "total", row), 4)


def _emit_sums(e: Emitter, few: _Few, batch: tuple[Value, ...], first: int, rows: int, seen: Value) -> None:
    """Results of `rows` rows, as many columns at a time as there are registers."""
    columns = -(-few.shape.width // few.lanes)
    most = max(1, (few.target.registers - 1) // (rows + 1))
    most = -(-columns // -(-columns // most))
    for start in range(0, columns, most):
        vectors = min(most, columns - start)
        sums = _column_sums(e, few, batch, first, rows, start * few.lanes, vectors, seen)
        for i in range(rows):
            total = e.load(few.at(e, "total", first + i), "float", 4)
            results = finished_results(e, few.shape, sums[i * vectors : (i + 1) * vectors], total)
            for column, result in zip(range(start * few.lanes, few.shape.width, few.lanes), results, strict=False):
                mask = first_lanes(min(few.lanes, few.shape.width - column), few.lanes)
                few.write(e, (*batch, e.const(first + i), e.const(column)), result, mask)


def _column_sums(
    e: Emitter, few: _Few, batch: tuple[Value, ...], first: int, rows: int, column: int, vectors: int, seen: Value
) -> list[Value]:
    """sums[row, vector] over all keys of weights times values; few sums are kept in parts, for keys side by side."""
    count = rows * vectors
    parts = min(_MOST_PARTS, max(1, _LEAST_SUMS // count))
    zeros = [e.zero(few.vector)] * count
    whole = e.mul(e.udiv(seen, parts), parts)
    with e.loop(0, whole, parts, carried=zeros * parts) as t:
        done: list[Value] = []
        for part in range(parts):
            ahead = (*batch, e.add(t.index, part + _AHEAD), e.const(column))
            elements = min(vectors * few.lanes, few.shape.width - column)
            fetch_row(e, few.operand, few.pointers.value, few.shape.value, ahead, elements)
        for part in range(parts):
            done += _add_key(e, few, batch, first, rows, column, vectors, e.add(t.index, part), t.values[part * count : (part + 1) * count])
        t.carry(done)
    sums = t.values[:count]
    for part in range(1, parts):
        sums = [e.binary("fadd", a, b) for a, b in zip(sums, t.values[part * count : (part + 1) * count], strict=True)]
    if parts > 1:
        with e.loop(whole, seen, carried=sums) as t:
            t.carry(_add_key(e, few, batch, first, rows, column, vectors, t.index, t.values))
        sums = t.values
    return sums


def _add_key(
    e: Emitter, few: _Few, batch: tuple[Value, ...], first: int, rows: int, column: int, vectors: int, key: Value, sums: list[Value]
) -> list[Value]:
    """sums + weights[row, key] * value[key]."""
    shape, lanes = few.shape, few.lanes
    line = few.operand.step(e, few.pointers.value, address(e, shape.value, (*batch, key, e.const(column))))
    tail = first_lanes(min(lanes, shape.width - column - (vectors - 1) * lanes), lanes)
    loaded = [few.operand.load(e, few.operand.step(e, line, j * lanes), lanes, tail if j == vectors - 1 else None) for j in range(vectors)]
    totals = []
    for i in range(rows):
        weight = e.splat(e.load(e.gep(few.at(e, "weights", first + i), key, "float"), "float", 4), lanes)
        totals += [multiply_add(e, weight, loaded[j], sums[i * vectors + j]) for j in range(vectors)]
    return totals
