"""x / c for a number c that is known while compiling: a product and a multiply-add, where a division takes ten cycles a vector.

1 / c is the sum of two numbers, the second as small as the last digit of the first, so x / c is fma(x, first, x * second) (Brisebarre,
Muller, Raina: Accelerating correctly rounded floating-point division when the divisor is known in advance, 2004).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value
from anycann.te.expression import Const, Expr

_KINDS: Mapping[str, tuple[Any, float]] = {"float": (np.float32, 2.0**100), "double": (np.float64, 2.0**900)}  # and the widest divisor


def divided(e: Emitter, x: Value, divisor: Expr) -> Value | None:
    """x / divisor where that is known; None where it is not, where it is a power of two, which LLVM multiplies by, or without FMA.

    The nearest number, but for quotients that lie within a two-millionth of their last digit from half-way between two: there it may be the
    other one, as it may be for an x so near zero (2^-100, a double 2^-960) that the smaller product is denormal. So a quotient that is a
    number is exact. Infinity, zero and what is no number are as a division has them.
    """
    if not e.fuses or not isinstance(divisor, Const) or x.element not in _KINDS:
        return None
    parts = inverse(float(divisor.value), x.element)
    if parts is None:
        return None
    first, second = (e.const(part, x.type) for part in parts)
    return e.fma(x, first, e.binary("fmul", x, second))


def inverse(divisor: float, element: str) -> tuple[float, float] | None:
    """1 / divisor as the sum of two numbers of type float or double, of one sign, so that no infinities are subtracted.

    None for a power of two, and where the second would be denormal or there is none.
    """
    kind, widest = _KINDS[element]
    if not 1 / widest <= abs(divisor) <= widest:
        return None
    divisor = float(kind(divisor))
    if abs(np.frexp(divisor)[0]) == 0.5:
        return None
    exact = 1 / Fraction(divisor)
    first = kind(float(exact))
    if abs(Fraction(float(first))) > abs(exact):
        first = np.nextafter(first, kind(0))
    return float(first), float(kind(float(exact - Fraction(float(first)))))
