"""Scatters: the data is copied, then each update goes to its place, in order; one whose place does not exist goes nowhere."""

from __future__ import annotations

from collections.abc import Sequence
import math

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.copying import emit_copy
from anycann.codegen.values import Value
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te.dtypes import DType


@dataclass(frozen=True)
class ScatterProblem:
    """Shapes of the data and of the places. axis: that of ScatterElements; None: the last axis of the places holds indices (ScatterND)."""

    data: tuple[int, ...]
    places: tuple[int, ...]
    axis: int | None
    kind: str
    dtype: DType
    place_dtype: DType

    @property
    def tasks(self) -> int:
        """Rows of the data along its first axis, where an update stays in its row; else one."""
        return self.data[0] if self.axis else 1


@dataclass(frozen=True)
class ScatterPointers:
    """Operands and result."""

    data: Value
    places: Value
    updates: Value
    result: Value


def emit_scatter(e: Emitter, problem: ScatterProblem, target: Target, pointers: ScatterPointers) -> int:
    """Write the loop over tasks; the answer is how many there are."""
    with e.loop(e.begin, e.end) as task:
        nbytes = math.prod(problem.data) // problem.tasks * problem.dtype.nbytes
        start = e.mul(task.index, nbytes)
        emit_copy(e, e.gep(pointers.data, start, "i8"), e.gep(pointers.result, start, "i8"), nbytes)
        if problem.axis is None:
            _emit_slices(e, problem, target, pointers)
        elif problem.tasks == 1:
            _emit_elements(e, problem, pointers, None)
        else:
            with e.when(e.compare("slt", task.index, e.const(problem.places[0]))):
                _emit_elements(e, problem, pointers, task.index)
    return problem.tasks


# ---- slices
def _emit_slices(e: Emitter, problem: ScatterProblem, target: Target, pointers: ScatterPointers) -> None:
    depth = problem.places[-1]
    strides = _strides(problem.data)[:depth]
    slice_ = math.prod(problem.data[depth:])
    storage = problem.dtype.storage
    with e.loop(0, math.prod(problem.places[:-1])) as update:
        offset, good = e.const(0), e.const(1, "i1")
        for number, (extent, stride) in enumerate(zip(problem.data, strides, strict=False)):
            index, inside = _place(e, problem, pointers.places, e.add(e.mul(update.index, depth), number), extent)
            offset, good = e.add(offset, e.mul(index, stride)), e.binary("and", good, inside)
        with e.when(good):
            source = e.gep(pointers.updates, e.mul(update.index, slice_), storage)
            _emit_slice(e, problem, target, source, e.gep(pointers.result, offset, storage), slice_)


def _emit_slice(e: Emitter, problem: ScatterProblem, target: Target, source: Value, to: Value, size: int) -> None:
    if problem.kind == "none":
        emit_copy(e, source, to, size * problem.dtype.nbytes)
        return
    lanes = max(1, target.lanes * 4 // problem.dtype.nbytes)
    whole = size // lanes
    if whole and lanes > 1:
        with e.loop(0, whole) as vector:
            _combine(e, problem, source, to, e.mul(vector.index, lanes), lanes)
    with e.loop(whole * lanes if lanes > 1 else 0, size) as element:
        _combine(e, problem, source, to, element.index, 1)


# ---- single elements
def _emit_elements(e: Emitter, problem: ScatterProblem, pointers: ScatterPointers, row: Value | None) -> None:
    """Every element of the places, or of their row `row`."""
    assert problem.axis is not None
    strides, own = _strides(problem.data), _strides(problem.places)
    first = 0 if row is None else 1
    begin = (e.const(0), e.const(0)) if row is None else (e.mul(row, strides[0]), e.mul(row, own[0]))

    def nest(axis: int, target: Value, source: Value) -> None:
        if axis == len(problem.places):
            index, inside = _place(e, problem, pointers.places, source, problem.data[problem.axis or 0])
            with e.when(inside):
                at = e.add(target, e.mul(index, strides[problem.axis or 0]))
                storage = problem.dtype.storage
                _combine(e, problem, e.gep(pointers.updates, source, storage), e.gep(pointers.result, at, storage), e.const(0), 1)
            return
        with e.loop(0, problem.places[axis]) as i:
            moved = target if axis == problem.axis else e.add(target, e.mul(i.index, strides[axis]))
            nest(axis + 1, moved, e.add(source, e.mul(i.index, own[axis])))

    nest(first, *begin)


def _place(e: Emitter, problem: ScatterProblem, places: Value, number: Value, extent: int) -> tuple[Value, Value]:
    """The index counted from the front, and whether there is such a place."""
    dtype = problem.place_dtype
    index = e.load(e.gep(places, number, dtype.storage), dtype.storage, dtype.nbytes)
    index = index if dtype.nbytes == 8 else e.cast("sext", index, "i64")
    # plain addition: an index may be any number, and only what is found inside is used
    moved = e.op(f"add i64 {index.text}, {extent}", "i64")
    index = e.select(e.compare("slt", index, e.const(0)), moved, index)
    return index, e.compare("ult", index, e.const(extent))


def _combine(e: Emitter, problem: ScatterProblem, source: Value, to: Value, at: Value, lanes: int) -> None:
    """to[at] = to[at] with source[at]."""
    dtype = problem.dtype
    type_ = f"<{lanes} x {dtype.storage}>" if lanes > 1 else dtype.storage
    place = e.gep(to, at, dtype.storage)
    new = e.load(e.gep(source, at, dtype.storage), type_, dtype.nbytes)
    if problem.kind != "none":
        old = e.load(place, type_, dtype.nbytes)
        new = _combined(e, problem.kind, dtype, old, new)
    e.store(new, place, dtype.nbytes)


def _combined(e: Emitter, kind: str, dtype: DType, old: Value, new: Value) -> Value:
    if kind in ("add", "mul"):
        return e.binary(f"f{kind}" if dtype.is_float else kind, old, new)
    if dtype.is_float:  # a value that is no number wins
        better = e.compare("ogt" if kind == "max" else "olt", new, old)
        return e.select(e.binary("or", better, e.compare("uno", new, new)), new, old)
    return e.intrinsic(f"{'s' if dtype.kind == 'int' else 'u'}{kind}", [old, new])


def _strides(shape: Sequence[int]) -> list[int]:
    """Elements between neighbours along each axis."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
