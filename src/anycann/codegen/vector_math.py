"""Elementary functions on registers: `f(e, x)` appends the instructions that compute f lane by lane, and returns the result.

`x` is a float or double register of any lane count (half and bfloat16 are computed in float). Nothing external is called. Infinities, NaN,
denormals and arguments of any size give what C's libm gives; the docstring of each function names its method and its error in ulp.
"""

from __future__ import annotations

from collections.abc import Callable

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value
from anycann.codegen.vector_math_basic import (
    absolute,
    ceil,
    floor,
    fmax,
    fmin,
    nearest,
    reciprocal,
    round_half_even,
    rsqrt,
    sign,
    sqrt,
    trunc,
)
from anycann.codegen.vector_math_exponential import (
    acosh,
    asinh,
    atanh,
    cosh,
    exp,
    exp2,
    expm1,
    log,
    log1p,
    sigmoid,
    sinh,
    softplus,
    tanh,
    tanh_of_softplus,
)
from anycann.codegen.vector_math_gates import GATES
from anycann.codegen.vector_math_special import erf, fmod, mod, pow
from anycann.codegen.vector_math_trigonometric import acos, asin, atan, cos, sin, tan

UNARY: dict[str, Callable[[Emitter, Value], Value]] = {
    "abs": absolute,
    "acos": acos,
    "acosh": acosh,
    "asin": asin,
    "asinh": asinh,
    "atan": atan,
    "atanh": atanh,
    "ceil": ceil,
    "cos": cos,
    "cosh": cosh,
    "erf": erf,
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "floor": floor,
    "log": log,
    "log1p": log1p,
    "reciprocal": reciprocal,
    "round_half_even": round_half_even,
    "rsqrt": rsqrt,
    "sigmoid": sigmoid,
    "sign": sign,
    "sin": sin,
    "sinh": sinh,
    "softplus": softplus,
    "sqrt": sqrt,
    "tan": tan,
    "tanh": tanh,
    "tanh_of_softplus": tanh_of_softplus,
    "trunc": trunc,
}
BINARY: dict[str, Callable[[Emitter, Value, Value], Value]] = {"fmax": fmax, "fmin": fmin, "fmod": fmod, "mod": mod, "pow": pow}

DOUBLE = frozenset(UNARY) | {"fmax", "fmin", "pow"}
"""The names that take double registers as well; the others raise UnsupportedError for them."""

FUNCTIONS: dict[str, Callable[..., Value]] = {
    **UNARY,
    **BINARY,
    **GATES,
    "floormod": mod,
    "max": fmax,
    "min": fmin,
    "nearest": nearest,
    "rem": fmod,
    "round": round_half_even,
}
"""By the names of tensor expressions."""

__all__ = [
    "BINARY",
    "DOUBLE",
    "FUNCTIONS",
    "GATES",
    "UNARY",
    "absolute",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "fmax",
    "fmin",
    "fmod",
    "log",
    "log1p",
    "mod",
    "pow",
    "reciprocal",
    "round_half_even",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "softplus",
    "sqrt",
    "tan",
    "tanh",
    "tanh_of_softplus",
    "trunc",
]
