"""The places of what is not zero, in order: one index an axis each, and how many there are."""

from __future__ import annotations

from math import prod

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value
from anycann.support.records import dataclass
from anycann.te.dtypes import DType


@dataclass(frozen=True)
class PlacesProblem:
    """The tensor that is searched, of at least one axis and one element."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        return prod(self.shape)


def emit_places(e: Emitter, problem: PlacesProblem, x: Value, places: Value, count: Value) -> int:
    """Write `places`, int32 [axes, size] with -1 behind the places, and `count`, int32 [1]. One task.

    Without a branch: each element's place is written behind the last one found, where the next one writes again if it was zero.
    """
    *outer, extent = problem.shape
    with e.loop(e.begin, e.end):
        with e.loop(0, prod(outer), carried=[e.const(0)]) as row:
            (found,) = row.values
            start = e.mul(row.index, extent)
            last = _axis(e, problem, places, len(outer))
            with e.loop(0, extent, carried=[found]) as at:
                (behind,) = at.values
                e.store(e.cast("trunc", at.index, "i32"), e.gep(last, behind, "i32"), 4)
                at.carry([e.add(behind, e.cast("zext", _is_not_zero(e, problem.dtype, x, e.add(start, at.index)), "i64"))])
            (now,) = at.values
            _fill_outer(e, problem, places, row.index, found, now)
            row.carry([now])
        (total,) = row.values
        for axis in range(len(problem.shape)):
            _fill(e, _axis(e, problem, places, axis), total, e.const(problem.size), e.const(-1, "i32"))
        e.store(e.cast("trunc", total, "i32"), count, 4)
    return 1


def _axis(e: Emitter, problem: PlacesProblem, places: Value, axis: int) -> Value:
    return e.gep(places, axis * problem.size, "i32")


def _is_not_zero(e: Emitter, dtype: DType, x: Value, number: Value) -> Value:
    """Of a number of floating point by its bits but the sign: denormal ones are not zero, whatever arithmetic takes them for."""
    bits = f"i{8 * dtype.nbytes}"
    element = e.load(e.gep(x, number, bits), bits, dtype.nbytes)
    if dtype.is_float:
        element = e.binary("shl", element, e.const(1, bits))
    return e.compare("ne", element, e.const(0, bits))


def _fill_outer(e: Emitter, problem: PlacesProblem, places: Value, row: Value, start: Value, stop: Value) -> None:
    """The indices of a row on all axes but the last, for the places from `start` to `stop`."""
    for axis in reversed(range(len(problem.shape) - 1)):
        index = e.urem(row, problem.shape[axis]) if axis else row
        row = e.udiv(row, problem.shape[axis]) if axis else row
        _fill(e, _axis(e, problem, places, axis), start, stop, e.cast("trunc", index, "i32"))


def _fill(e: Emitter, to: Value, start: Value, stop: Value, value: Value) -> None:
    with e.loop(start, stop) as at:
        e.store(value, e.gep(to, at.index, "i32"), 4)
