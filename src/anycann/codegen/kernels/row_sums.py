"""Rows added up by number: each task has a range of the result's rows, makes them zero, and adds what belongs there, in order."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_shape import addition
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te.dtypes import DType

_TASK_ELEMENTS, _MOST_TASKS = 1 << 14, 32


@dataclass(frozen=True)
class RowSumsProblem:
    """`count` rows of `size` elements go to the `rows` rows of the result; number `skipped` goes nowhere, nor does one out of range."""

    rows: int
    size: int
    count: int
    skipped: int | None
    dtype: DType
    place_dtype: DType

    @property
    def tasks(self) -> int:
        """Ranges of rows."""
        return max(1, min(_MOST_TASKS, self.rows, (self.rows + self.count) * self.size // _TASK_ELEMENTS))


def emit_row_sums(e: Emitter, problem: RowSumsProblem, target: Target, places: Value, updates: Value, result: Value) -> int:
    """Write the loop over tasks; returns how many there are."""
    each = -(-problem.rows // problem.tasks)
    lanes = max(1, target.lanes * 4 // problem.dtype.nbytes)
    with e.loop(e.begin, e.end) as task:
        first = e.mul(task.index, each)
        stop = e.smin(e.add(first, each), e.const(problem.rows))
        start = e.mul(first, problem.size)
        _clear(e, problem, lanes, e.gep(result, start, problem.dtype.storage), e.sub(e.mul(stop, problem.size), start))
        with e.loop(0, problem.count) as update:
            storage = problem.place_dtype.storage
            place = e.load(e.gep(places, update.index, storage), storage, problem.place_dtype.nbytes)
            place = place if problem.place_dtype.nbytes == 8 else e.cast("sext", place, "i64")
            mine = e.binary("and", e.compare("sge", place, first), e.compare("slt", place, stop))
            if problem.skipped is not None:
                mine = e.binary("and", mine, e.compare("ne", place, e.const(problem.skipped)))
            with e.when(mine):
                source = e.gep(updates, e.mul(update.index, problem.size), problem.dtype.storage)
                _add(e, problem, lanes, source, e.gep(result, e.mul(place, problem.size), problem.dtype.storage))
    return problem.tasks


def _clear(e: Emitter, problem: RowSumsProblem, lanes: int, to: Value, count: Value) -> None:
    """Zero in `count` elements."""
    storage, whole = problem.dtype.storage, e.sub(count, e.urem(count, lanes))
    with e.loop(0, whole, lanes) as at:
        e.store(e.zero(vector_type(storage, lanes)), e.gep(to, at.index, storage), problem.dtype.nbytes)
    with e.loop(whole, count) as at:
        e.store(e.zero(storage), e.gep(to, at.index, storage), problem.dtype.nbytes)


def _add(e: Emitter, problem: RowSumsProblem, lanes: int, source: Value, to: Value) -> None:
    """to += source, a row."""
    dtype, whole = problem.dtype, problem.size - problem.size % lanes
    for start, stop, width in ((0, whole, lanes), (whole, problem.size, 1)):
        with e.loop(start, stop, width) as at:
            type_, place = vector_type(dtype.storage, width), e.gep(to, at.index, dtype.storage)
            old = e.load(place, type_, dtype.nbytes)
            new = e.load(e.gep(source, at.index, dtype.storage), type_, dtype.nbytes)
            e.store(e.binary(addition(old), old, new), place, dtype.nbytes)
