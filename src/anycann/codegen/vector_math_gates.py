"""Activations that let a part of x through, x g(x), as one function: GELU, its approximation by tanh, and SiLU.

Of the first two g(-y) falls from 1/2 towards 0 about as e^(-y^2), and its eighth or sixteenth root so slowly that a short polynomial
follows it all the way. With y = |x|, x g(x) = max(x, 0) - y g(-y), for g(y) = 1 - g(-y): no exponential, no division, 16 and 19
instructions where x / 2 (1 + erf) took 27 and the form with tanh more than 40. Odd and even powers are summed side by side, for nothing
else of a byte product's tail runs meanwhile: with GELU ViT-B/16's take 0.975 of the time (AVX2). The polynomials are weighted least-squares
fits on Chebyshev nodes, reweighted towards the largest error of y g(-y) (Lawson), in 53 bits.
"""

from __future__ import annotations

from collections.abc import Callable
import math

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value
from anycann.codegen.vector_math_basic import absolute, add, at_most, div, fmax, format_of, mul, mul_add, polynomial, real
from anycann.codegen.vector_math_exponential import falling_exp, tanh
from anycann.codegen.vector_math_special import erf
from anycann.support.records import dataclass


@dataclass(frozen=True)
class Gate:
    """g(-y) for 0 <= y <= end is the polynomial in y, squared so many times; beyond `end` y g(-y) is taken for what it is there."""

    polynomial: tuple[float, ...]  # lowest coefficient first
    squarings: int
    end: float


NORMAL = Gate(
    (0.9170039882, -0.09145714354, -0.03192927729, -0.0006694831657, 0.001501643325, 3.597974565e-05, -6.084408575e-05)
    + (7.586017374e-06, -3.036884088e-07),
    squarings=3,
    end=5.75,
)
BY_TANH = Gate(
    (0.9576030127, -0.04774855304, -0.01789130896, -0.001113961348, 0.0004466989981, 0.0001399960465, -8.087455062e-05)
    + (4.464763781e-06, 4.217338954e-06, -9.181619001e-07, 5.728626063e-08),
    squarings=4,
    end=5.2,
)


def gelu(e: Emitter, x: Value) -> Value:
    """x times the normal distribution function of x. float: within 3e-7, and for -3 < x within 2e-6 of itself; double: as erf."""
    return _gated(e, x, NORMAL) if format_of(x).element == "float" else _half_and(e, x, erf(e, mul(e, x, real(e, x, math.sqrt(0.5)))))


def gelu_tanh(e: Emitter, x: Value) -> Value:
    """x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2. float: within 4e-7, and for -3 < x within 2e-5 of itself; double: as tanh."""
    if format_of(x).element == "float":
        return _gated(e, x, BY_TANH)
    bend = mul_add(e, mul(e, x, x), real(e, x, 0.044715), real(e, x, 1.0))
    return _half_and(e, x, tanh(e, mul(e, mul(e, x, real(e, x, math.sqrt(2 / math.pi))), bend)))


def _gated(e: Emitter, x: Value, gate: Gate) -> Value:
    y = at_most(e, absolute(e, x), gate.end)
    square = mul(e, y, y)
    odd, even = polynomial(e, square, gate.polynomial[1::2]), polynomial(e, square, gate.polynomial[::2])
    share = mul_add(e, odd, y, even)
    for _ in range(gate.squarings):
        share = mul(e, share, share)
    return mul_add(e, e.op(f"fneg {y.type} {y.text}", y.type), share, fmax(e, x, real(e, x, 0.0)))


def _half_and(e: Emitter, x: Value, odd: Value) -> Value:
    """x (1 + odd) / 2."""
    return mul(e, mul(e, x, real(e, x, 0.5)), add(e, odd, real(e, x, 1.0)))


def silu(e: Emitter, x: Value) -> Value:
    """x / (1 + e^-x): 17 instructions where x times the logistic function takes 22. <= 3 ulp; below -86 (double: -707) within 1e-35."""
    x, t = falling_exp(e, x)
    return div(e, x, add(e, t, real(e, x, 1.0)))


GATES: dict[str, Callable[[Emitter, Value], Value]] = {"gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}
