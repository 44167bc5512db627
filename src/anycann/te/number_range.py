"""Bounds of the numbers that an expression makes, where it shows them: bytes, literals, clamps, and sums and products of these."""

from __future__ import annotations

from collections.abc import Mapping
import math

from anycann.te import dtypes
from anycann.te.dtypes import DType
from anycann.te.expression import Const, Expr, Load, Op
from anycann.te.simplify import Range
from anycann.te.traversal import walk

_INTEGERS = ("int", "uint")
_LARGE = 1 << 64


def number_range(expr: Expr) -> Range | None:
    """The least and the greatest number, give or take rounding; None where they are not known or it may be NaN. One may be infinite."""
    known: dict[int, Range | None] = {}
    for each in walk(expr):
        known[id(each)] = _found(each, known)
    return known[id(expr)]


def _found(expr: Expr, known: Mapping[int, Range | None]) -> Range | None:
    """The range of an expression from those of its operands."""
    if isinstance(expr, Const):
        return Range(float(expr.value), float(expr.value)) if _is_number(expr) else None
    if isinstance(expr, Load):
        return _all(expr.dtype)
    if not isinstance(expr, Op):
        return None
    if expr.name == "select":
        condition, value, bound = expr.operands
        return _held(condition, value, bound, known)
    ranges = [known[id(operand)] for operand in expr.operands]
    finite = [each for each in ranges if each is not None and math.isfinite(each.low) and math.isfinite(each.high)]
    if len(finite) < len(ranges):
        return None
    if expr.name == "cast":
        return _of_cast(finite[0], expr.operands[0].dtype, expr.dtype)
    found = _of_operation(expr.name, finite)
    return None if found is None or _wraps(found, expr.dtype) else found


def _held(condition: Expr, value: Expr, bound: Expr, known: Mapping[int, Range | None]) -> Range | None:
    """select(value > literal, value, literal), or with <: whatever the value is, NaN too, it ends at the literal."""
    if not (isinstance(condition, Op) and condition.name in ("lt", "gt") and isinstance(bound, Const) and _is_number(bound)):
        return None
    if condition.operands[0] is not value or condition.operands[1] is not bound:
        return None
    inner, limit = known[id(value)] or Range(-math.inf, math.inf), float(bound.value)
    choose = max if condition.name == "gt" else min
    return Range(choose(inner.low, limit), choose(inner.high, limit))


def _is_number(literal: Const) -> bool:
    """False for what is not finite, and for tables, which are literals too."""
    return abs(literal.value) < _LARGE


def _all(dtype: DType) -> Range | None:
    """Every number of a type of one or two bytes."""
    if dtype.kind not in _INTEGERS or dtype.nbytes > 2:
        return None
    bits = 8 * dtype.nbytes
    return Range(0, (1 << bits) - 1) if dtype.kind == "uint" else Range(-(1 << bits - 1), (1 << bits - 1) - 1)


def _wraps(found: Range, dtype: DType) -> bool:
    """Whether integers of a type do not hold all of a range."""
    bits = 8 * dtype.nbytes - (dtype.kind == "int")
    return dtype.kind in _INTEGERS and not found.within(-(1 << bits) if dtype.kind == "int" else 0, (1 << bits) - 1)


def _of_cast(inner: Range, source: DType, target: DType) -> Range | None:
    if source.kind not in _INTEGERS:
        return None
    if target in (dtypes.float32, dtypes.float64):
        return inner
    if target.kind not in _INTEGERS:
        return None
    return _all(target) if _wraps(inner, target) else inner


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
