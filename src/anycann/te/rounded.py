"""Integers that are stored nowhere: a value that was quantised and is dequantised at once keeps its number, and loses what packed it.

cast(cast(n + zero, uint8), int32) - zero  ->  n, where n is known to lie within the bytes that n + zero may be.
"""

from __future__ import annotations

import math

from anycann.te import dtypes
from anycann.te.expression import Const, Expr, Op
from anycann.te.simplify import EVERYTHING, Range

_NARROW = {dtypes.uint8: Range(0, 255), dtypes.int8: Range(-128, 127), dtypes.uint16: Range(0, 65535), dtypes.int16: Range(-32768, 32767)}


def simplified(expr: Op) -> Expr:
    """The same int32 by fewer operations, or `expr`."""
    if expr.dtype is not dtypes.int32:
        return expr
    if expr.name == "cast":
        return _widened(expr)
    if expr.name in ("add", "sub") and isinstance(expr.operands[1], Const):
        return _shifted(expr, expr.operands[0], expr.operands[1])
    return expr


def _widened(expr: Op) -> Expr:
    """What was an int32 before it was packed, if packing left it as it was."""
    packed = expr.operands[0]
    if not isinstance(packed, Op) or packed.name != "cast" or packed.operands[0].dtype is not dtypes.int32 or packed.dtype not in _NARROW:
        return expr
    limits, inside = _NARROW[packed.dtype], value_range(packed.operands[0])
    return packed.operands[0] if limits.low <= inside.low and inside.high <= limits.high else expr


def _shifted(expr: Op, left: Expr, by: Const) -> Expr:
    """(n + a) - b -> n + (a - b): int32 wraps, so every order of additions gives the same."""
    if not isinstance(left, Op) or left.name not in ("add", "sub") or not isinstance(left.operands[1], Const):
        return expr
    total = _sign(left) * int(left.operands[1].value) + _sign(expr) * int(by.value)
    if not -(1 << 31) <= total < 1 << 31:
        return expr
    return left.operands[0] if total == 0 else Op("add", (left.operands[0], Const(total, dtypes.int32)), dtypes.int32)


def _sign(expr: Op) -> int:
    return 1 if expr.name == "add" else -1


def value_range(expr: Expr) -> Range:
    """Bounds of a rounded value as `graph/ops/quantize.py` writes it: literals, sums with literals, clamps by comparison, rounding."""
    if isinstance(expr, Const):
        return Range(float(expr.value), float(expr.value))
    if not isinstance(expr, Op):
        return EVERYTHING
    if expr.name == "nearest":
        inside = value_range(expr.operands[0])
        return EVERYTHING if math.isinf(inside.low) or math.isinf(inside.high) else Range(round(inside.low), round(inside.high))
    if expr.name in ("add", "sub") and isinstance(expr.operands[1], Const) and expr.dtype is dtypes.int32:
        inside, shift = value_range(expr.operands[0]), _sign(expr) * float(expr.operands[1].value)
        return Range(inside.low + shift, inside.high + shift)
    return _range_of_select(expr)


def _range_of_select(expr: Op) -> Range:
    """select(v > c, v, c) is not below c, select(v < c, v, c) not above it; NaN gives c."""
    condition = expr.operands[0]
    if expr.name != "select" or not isinstance(condition, Op) or condition.name not in ("gt", "lt"):
        return EVERYTHING
    value, limit = expr.operands[1:]
    if condition.operands[0] is not value or condition.operands[1] is not limit or not isinstance(limit, Const):
        return EVERYTHING
    inside, bound = value_range(value), float(limit.value)
    if condition.name == "gt":
        return Range(max(inside.low, bound), max(inside.high, bound))
    return Range(min(inside.low, bound), min(inside.high, bound))
