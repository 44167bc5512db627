"""tanh and the logistic function as recurrent cells need them: errors are small beside 1, not beside the result.

The cells of a recurrent layer wait for these functions in every step. tanh(x) = x P(x^2) / Q(x^2), for |x| up to where it is 1: two short
polynomials side by side and one division, 13 instructions where the form with an exponential takes 26. sigmoid(x) is (1 + tanh(x / 2)) / 2,
14 where that takes 31. P and Q are a weighted least-squares fit on Chebyshev nodes, reweighted by the denominator (Sanathanan and Koerner,
1963) and towards the largest error (Lawson), in 53 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value
from anycann.codegen.vector_math_basic import add, at_least, at_most, div, mul, polynomial, real

_END = 8.2  # tanh rounds to 1 from a little further on; here P / Q has it too
_ABOVE = (0.9999999616, 0.1342552564, 0.003548938625, 2.151254789e-05, 1.467120826e-08)  # lowest coefficient first
_BELOW = (1.0, 0.4675884317, 0.02607860578, 0.000337389986, 8.300660339e-07)


def cell_tanh(e: Emitter, x: Value) -> Value:
    """tanh of a float register, within 3e-7 and within 3e-7 of itself; never beyond 1; a NaN stays."""
    return _ratio(e, x, _END, _ABOVE, _BELOW)


def cell_sigmoid(e: Emitter, x: Value) -> Value:
    """1 / (1 + e^-x) of a float register, within 2e-7, so that small results have few digits; within 0..1; a NaN stays."""
    above = [coefficient / 4.0 ** (power + 1) for power, coefficient in enumerate(_ABOVE)]
    below = [coefficient / 4.0**power for power, coefficient in enumerate(_BELOW)]
    return add(e, _ratio(e, x, 2 * _END, above, below), real(e, x, 0.5))


def _ratio(e: Emitter, x: Value, end: float, above: Sequence[float], below: Sequence[float]) -> Value:
    """y P(y^2) / Q(y^2), for y = x within -end..end."""
    y = at_most(e, at_least(e, x, -end), end)
    square = mul(e, y, y)
    return div(e, mul(e, y, polynomial(e, square, above)), polynomial(e, square, below))


CELLS: dict[str, Callable[[Emitter, Value], Value]] = {"cell_sigmoid": cell_sigmoid, "cell_tanh": cell_tanh}
