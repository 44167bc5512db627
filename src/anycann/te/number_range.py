"""Bounds of the numbers that an expression makes, where it shows them: bytes, literals, clamps, and sums and products of these."""

from __future__ import annotations

from functools import lru_cache
import math

from anycann.te import dtypes
from anycann.te.dtypes import DType
from anycann.te.expression import Const, Expr, Load, Op
from anycann.te.simplify import Range

_INTEGERS = ("int", "uint")


@lru_cache(maxsize=1024)  # a kernel asks for that of its one store once for each vector of a tile
def number_range(expr: Expr) -> Range | None:
    """The least and the greatest number, give or take rounding; None where they are not known or it may be NaN. One may be infinite."""
    if isinstance(expr, Const):
        return Range(float(expr.value), float(expr.value)) if math.isfinite(expr.value) else None
    if isinstance(expr, Load):
        return _all(expr.dtype)
    if not isinstance(expr, Op):
        return None
    if expr.name == "select":
        return _held(*expr.operands)
    ranges = [number_range(operand) for operand in expr.operands]
    known = [each for each in ranges if each is not None and math.isfinite(each.low) and math.isfinite(each.high)]
    if len(known) < len(ranges):
        return None
    return _of_cast(known[0], expr.operands[0].dtype, expr.dtype) if expr.name == "cast" else _of_operation(expr.name, known)


def _all(dtype: DType) -> Range | None:
    """Every number of a type of one or two bytes."""
    if dtype.kind not in _INTEGERS or dtype.nbytes > 2:
        return None
    bits = 8 * dtype.nbytes
    return Range(0, (1 << bits) - 1) if dtype.kind == "uint" else Range(-(1 << bits - 1), (1 << bits - 1) - 1)


def _held(condition: Expr, value: Expr, bound: Expr) -> Range | None:
    """select(value > literal, value, literal), or with <: whatever the value is, NaN too, it ends at the literal."""
    if not (isinstance(condition, Op) and condition.name in ("lt", "gt") and isinstance(bound, Const) and math.isfinite(bound.value)):
        return None
    if condition.operands[0] is not value or condition.operands[1] is not bound:
        return None
    inner, limit = number_range(value) or Range(-math.inf, math.inf), float(bound.value)
    if condition.name == "gt":
        return Range(max(inner.low, limit), max(inner.high, limit))
    return Range(min(inner.low, limit), min(inner.high, limit))


def _of_cast(inner: Range, source: DType, target: DType) -> Range | None:
    if source.kind not in _INTEGERS:
        return None
    if target in (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64):
        return inner
    whole = _all(target)
    return inner if whole is not None and whole.low <= inner.low and inner.high <= whole.high else whole


def _of_operation(name: str, ranges: list[Range]) -> Range | None:
    first, last = ranges[0], ranges[-1]
    if name in ("nearest", "round"):
        return Range(round(first.low), round(first.high))
    if name == "neg":
        return Range(-first.high, -first.low)
    if name == "add":
        return Range(first.low + last.low, first.high + last.high)
    if name == "sub":
        return Range(first.low - last.high, first.high - last.low)
    if name == "mul":
        corners = [x * y for x in (first.low, first.high) for y in (last.low, last.high)]
        return Range(min(corners), max(corners))
    if name in ("min", "max"):
        choose = min if name == "min" else max
        return Range(choose(first.low, last.low), choose(first.high, last.high))
    return None
