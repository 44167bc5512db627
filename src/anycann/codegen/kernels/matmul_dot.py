"""Matrix products whose lanes run along k: one column, or few rows times a transposed matrix. Nothing is packed or copied.

A group of results, as many as a register has lanes, shares the vectors of the one row (or column) on the other side; their sums are then
added up lane by lane in a tree of shuffles, which leaves the group's results in the lanes of one register.
"""

from __future__ import annotations

from dataclasses import dataclass

from anycann.codegen.emitter import Emitter, Value
from anycann.codegen.kernels.matmul_panel import PanelKernel
from anycann.codegen.kernels.matmul_shape import Operand, Strides, addition, first_lanes, multiply_add
from anycann.codegen.kernels.matmul_writer import MatmulIndex, batch_index, offset


@dataclass(frozen=True)
class _Side:
    """One operand: where a row (of A) or column (of B) begins is pointer + batch offset + index * stride."""

    operand: Operand
    pointer: Value
    batch: tuple[int, ...]
    stride: int

    def start(self, e: Emitter, batch: tuple[Value, ...], index: Value) -> Value:
        return self.operand.step(e, self.pointer, e.add(offset(e, batch, self.batch), e.mul(index, self.stride)))


def emit_dots(e: Emitter, kernel: PanelKernel) -> int:
    """The loop over tasks. Returns their number: batches x parts of the groups."""
    shape = kernel.shape
    results = shape.m if shape.n == 1 else shape.n
    groups = -(-results // kernel.lanes)
    parts = -(-groups // kernel.tile.row_blocks)
    full, rest = divmod(results, kernel.lanes)
    with e.loop(e.begin, e.end) as task:
        batch = batch_index(e, e.udiv(task.index, parts), shape.batch)
        first = e.mul(e.urem(task.index, parts), kernel.tile.row_blocks)
        last = e.smin(e.add(first, kernel.tile.row_blocks), e.const(groups))
        with e.loop(first, last) as group:
            for count, predicate in ((kernel.lanes, "slt"), (rest, "eq")):
                if count == 0 or (count == kernel.lanes and full == 0):
                    continue
                with e.when(e.compare(predicate, group.index, e.const(full))):
                    _emit_group(e, kernel, batch, e.mul(group.index, kernel.lanes), count)
    return shape.batches * parts


def _emit_group(e: Emitter, kernel: PanelKernel, batch: tuple[Value, ...], first: Value, count: int) -> None:
    shape = kernel.shape
    a, b = _side(kernel, shape.a, kernel.a, "a"), _side(kernel, shape.b, kernel.b, "b")
    if shape.n == 1:
        total = _group(e, kernel, a, b, batch, first, e.const(0), count)
        e.store(total, e.scratch, shape.accumulator.nbytes)
        with e.loop(0, count) as row:
            _write_one(e, kernel, batch, e.add(first, row.index), row.index)
        return
    with e.loop(0, shape.m) as m:
        total = _group(e, kernel, b, a, batch, first, m.index, count)
        place = MatmulIndex(batch, m.index, first)
        if kernel.start:
            total = e.binary(addition(total), total, kernel.start(e, place))
        kernel.write(e, place, total, first_lanes(e, count, kernel.lanes))


def _write_one(e: Emitter, kernel: PanelKernel, batch: tuple[Value, ...], m: Value, lane: Value) -> None:
    """One result of a single column, from scratch: there are no neighbours along n, so the writer gets a scalar."""
    register = kernel.shape.accumulator.register
    total = e.load(e.gep(e.scratch, lane, register), register, kernel.shape.accumulator.nbytes)
    place = MatmulIndex(batch, m, e.const(0))
    if kernel.start:
        first = kernel.start(e, place)
        total = e.binary(addition(total), total, e.extract(first, 0) if first.lanes > 1 else first)
    kernel.write(e, place, total, None)


def _side(kernel: PanelKernel, strides: Strides, pointer: Value, name: str) -> _Side:
    shape = kernel.shape
    operand = Operand(shape.a_dtype if name == "a" else shape.b_dtype, shape.accumulator)
    return _Side(operand, pointer, strides.batch, strides.row if name == "a" else strides.column)


def _group(
    e: Emitter, kernel: PanelKernel, many: _Side, one: _Side, batch: tuple[Value, ...], first: Value, index: Value, count: int
) -> Value:
    """The dot products of `count` neighbours of `many` with `index` of `one`, one in each lane."""
    lanes, k = kernel.lanes, kernel.shape.k
    starts = [many.start(e, batch, e.add(first, i)) for i in range(count)]
    other = one.start(e, batch, index)
    whole = k - k % lanes
    with e.loop(0, whole, lanes, carried=[e.zero(kernel.vector)] * count) as loop:
        loop.carry(_multiply(e, kernel, many, one, starts, other, loop.index, loop.values, None))
    sums = loop.values
    if k % lanes:
        sums = _multiply(e, kernel, many, one, starts, other, e.const(whole), sums, first_lanes(e, k % lanes, lanes))
    return add_across(e, sums + [e.zero(kernel.vector)] * (lanes - count))


def _multiply(
    e: Emitter,
    kernel: PanelKernel,
    many: _Side,
    one: _Side,
    starts: list[Value],
    other: Value,
    k: Value,
    sums: list[Value],
    mask: Value | None,
) -> list[Value]:
    shared = one.operand.load(e, one.operand.step(e, other, k), kernel.lanes, mask)
    result = []
    for start, total in zip(starts, sums, strict=True):
        result.append(multiply_add(e, many.operand.load(e, many.operand.step(e, start, k), kernel.lanes, mask), shared, total))
    return result


def add_across(e: Emitter, vectors: list[Value]) -> Value:
    """Lane i of the result is the sum of the lanes of vector i; as many vectors as lanes, a power of two."""
    size = len(vectors)
    distance = size // 2
    while distance:
        upper = [lane if lane & distance == 0 else size + lane - distance for lane in range(size)]
        lower = [lane + distance if lane & distance == 0 else size + lane for lane in range(size)]
        pairs = [(vectors[i], vectors[i + distance]) for i in range(distance)]
        vectors = [e.binary(addition(a), e.shuffle(a, b, upper), e.shuffle(a, b, lower)) for a, b in pairs]
        distance //= 2
    return vectors[0]
