"""The few best elements of many rows at once, a row a lane: each element sinks into the sorted list of those that are best so far."""

from __future__ import annotations

from collections.abc import Sequence

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.top_k import TopK, element_key
from anycann.codegen.values import Value, vector_type
from anycann.target.target import Target

MOST = 8  # elements of a list, each in two registers
LONGEST = 256  # rows of which each element is gathered: beyond, reading along the row is faster


def takes_rows(problem: TopK, lanes: int) -> bool:
    """Whether rows are short, or lie side by side, so that their elements are read a vector at a time."""
    rows = problem.outer * problem.inner
    side_by_side = problem.inner >= lanes
    return problem.key_bits == 32 and problem.count <= MOST and rows >= lanes and (side_by_side or problem.extent <= LONGEST)


def emit_top_k_of_rows(e: Emitter, problem: TopK, target: Target, x: Value, values: Value | None, places: Value | None) -> int:
    """Write the loop over tasks, a vector of rows each; the last one takes rows again where they are no whole vectors."""
    lanes, side_by_side = target.lanes, problem.inner >= target.lanes
    along = problem.inner if side_by_side else problem.outer * problem.inner
    vectors = -(-along // lanes)
    with e.loop(e.begin, e.end) as task:
        outer = e.udiv(task.index, vectors) if side_by_side else e.const(0)
        first = e.smin(e.mul(e.urem(task.index, vectors) if side_by_side else task.index, lanes), e.const(along - lanes))
        rows = _Rows(e, problem, lanes, x, e.add(e.mul(outer, problem.inner), first), side_by_side)
        rows.write(rows.best(), values, places)
    return vectors * (problem.outer if side_by_side else 1)


class _Rows:
    """The rows from number `first` on: a row's number is its place among all that are beside it and before it.

    Where rows lie side by side, elements of a vector of rows follow each other, and the start of a row is a number; else it is a vector.
    """

    def __init__(self, e: Emitter, problem: TopK, lanes: int, x: Value, first: Value, side_by_side: bool):
        self.e, self.problem, self.lanes, self.x = e, problem, lanes, x
        self.numbers = first if side_by_side else e.binary("add", e.splat(first, lanes), e.lane_numbers(lanes))
        self.start = self._starts(problem.extent)

    def best(self) -> list[tuple[Value, Value]]:
        """(order, place) of the best elements, the best first. Equal ones stay in the order of their places."""
        e, problem, places = self.e, self.problem, vector_type("i32", self.lanes)
        found: list[tuple[Value, Value]] = []
        for place in range(problem.count):
            found = self._sink(found, self._key(e.const(place)), e.const(place, places))
        carried = [value for pair in found for value in pair]
        with e.loop(problem.count, problem.extent, carried=carried) as element:
            here = e.splat(e.cast("trunc", element.index, "i32"), self.lanes)
            longer = self._sink(_pairs(element.values), self._key(element.index), here)
            element.carry([value for pair in longer[:-1] for value in pair])
        return _pairs(element.values)

    def write(self, best: Sequence[tuple[Value, Value]], values: Value | None, places: Value | None) -> None:
        """To the results, of which one may be unwanted."""
        e, problem, dtype = self.e, self.problem, self.problem.dtype
        starts = self._starts(problem.count)
        for rank, (_, narrow) in enumerate(best):
            place, to = e.cast("zext", narrow, "i64"), self._further(starts, e.const(rank * problem.inner))
            if places is not None:
                self._store(place, places, to, 8)
            if values is not None:
                apart = e.binary("mul", place, e.const(problem.inner, place.type))
                each = self.start if self.start.lanes > 1 else e.binary("add", e.splat(self.start, self.lanes), e.lane_numbers(self.lanes))
                element = e.gather(self.x, e.binary("add", each, apart), dtype.storage, dtype.nbytes)
                self._store(element, values, to, dtype.nbytes)

    def _sink(self, best: Sequence[tuple[Value, Value]], key: Value, place: Value) -> list[tuple[Value, Value]]:
        """The list with one more element, which moves what is worse, and with it all behind that."""
        e, longer, carried = self.e, list[tuple[Value, Value]](), (key, place)
        for each in best:
            better = e.compare("sgt", key, each[0])
            longer.append((e.select(better, carried[0], each[0]), e.select(better, carried[1], each[1])))
            carried = e.select(better, each[0], carried[0]), e.select(better, each[1], carried[1])
        return [*longer, carried]

    def _key(self, place: Value) -> Value:
        """Integers in the order of the elements at a place of each row, the best greatest."""
        e, problem, dtype = self.e, self.problem, self.problem.dtype
        at = self._further(self.start, e.mul(place, problem.inner))
        if at.lanes > 1:
            element = e.gather(self.x, at, dtype.storage, dtype.nbytes)
        else:
            element = e.load(e.gep(self.x, at, dtype.storage), vector_type(dtype.storage, self.lanes), dtype.nbytes)
        return element_key(e, element, problem)

    def _starts(self, extent: int) -> Value:
        """Where rows of `extent` elements begin."""
        e, inner, type_ = self.e, self.problem.inner, self.numbers.type
        if inner == 1:
            return e.binary("mul", self.numbers, e.const(extent, type_))
        before = e.binary("mul", e.binary("udiv", self.numbers, e.const(inner, type_)), e.const(extent * inner, type_))
        return e.binary("add", before, e.binary("urem", self.numbers, e.const(inner, type_)))

    def _further(self, starts: Value, distance: Value) -> Value:
        return self.e.binary("add", starts, self.e.splat(distance, starts.lanes))

    def _store(self, value: Value, result: Value, to: Value, align: int) -> None:
        if to.lanes > 1:
            self.e.scatter(value, result, to, align)
        else:
            self.e.store(value, self.e.gep(result, to, value.element), align)


def _pairs(values: Sequence[Value]) -> list[tuple[Value, Value]]:
    return list(zip(values[::2], values[1::2], strict=True))
