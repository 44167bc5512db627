"""Bytes that are stored: instructions that pack 32-bit integers to bytes saturate, so a clamp before rounding needs its upper end alone."""

from __future__ import annotations

from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te.dtypes import DType
from anycann.te.expression import Const, Expr, Op

_LIMITS = {dtypes.uint8: (0, 255), dtypes.int8: (-128, 127)}


def by_packing(body: Expr, dtype: DType) -> Expr:
    """cast(nearest(clamp(v)) + zero) -> cast(clamp(nearest(min(v)) + zero)), or `body` where it is something else.

    For x86, which makes the least int32 of what is too small, and of NaN; so the zero point must not be negative, or that would wrap. LLVM
    writes the clamp of integers that are cast to bytes as packing. With AVX2 1x1 from 16 to 96 channels takes 0.92 of the time so.
    """
    packed = _operand(body, "cast")
    if packed is None or dtype not in _LIMITS or body.dtype is not dtype or packed.dtype is not dtypes.int32:
        return body
    low, high = _LIMITS[dtype]
    shift = packed.operands[1] if isinstance(packed, Op) and packed.name == "add" else Const(0, dtypes.int32)
    rounded = packed.operands[0] if isinstance(packed, Op) and packed.name == "add" else packed
    if not isinstance(shift, Const) or shift.value < 0:
        return body
    upper = _clamped(_operand(rounded, "nearest"), "lt", high - shift.value)
    value = _clamped(upper, "gt", low - shift.value)
    if value is None:
        return body
    most = Const(float(high - shift.value), dtypes.float32)
    whole = x.unary("nearest", x.select(most < value, most, value), dtypes.int32)
    return x.cast(x.clamp(whole + shift if shift.value else whole, low, high), dtype)


def _operand(expr: Expr | None, name: str) -> Expr | None:
    """The first operand of an operation of that name."""
    return expr.operands[0] if isinstance(expr, Op) and expr.name == name else None


def _clamped(expr: Expr | None, comparison: str, limit: float) -> Expr | None:
    """v of select(v `comparison` limit, v, limit)."""
    if not isinstance(expr, Op) or expr.name != "select":
        return None
    condition, value, bound = expr.operands
    if not isinstance(condition, Op) or condition.name != comparison or condition.operands[0] is not value:
        return None
    return value if isinstance(bound, Const) and bound.value == limit and condition.operands[1] is bound else None
