"""The error function, powers and remainders, for float and (but for remainders) double registers of any lane count."""

from __future__ import annotations

import math

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value
from anycann.codegen.vector_math_basic import (
    absolute,
    add,
    any_lane,
    at_most,
    copy_sign,
    div,
    format_of,
    from_bits,
    infinity,
    integer,
    mul,
    mul_add,
    nan,
    polynomial,
    real,
    reciprocal,
    scaled_add,
    sqrt,
    sub,
    to_bits,
    trunc,
)
from anycann.codegen.vector_math_exponential import CONSTANTS, exp, log, split_logarithm
from anycann.support.errors import UnsupportedError

# (erf x) / x in 2 x^2 / ERF_ONE^2 - 1, from where on erf x is taken for 1
ERF_ONE = 3.9
ERF_WHOLE = (
    (0.3625839650631, -0.1810110807419, 0.1346910744905, -0.1095328852534, 0.0906700193882, -0.0737964957952, 0.0579058267176)
    + (-0.0428188368678, 0.0291349794716, -0.0194358341396, 0.0135807944462, -0.0072856852785, 0.0019058152102, -0.0013370381203)
    + (0.0019222078845, -0.0007666025194)
)
ERF_BORDER = 0.92
# for double: (erf x) / x - 1 in x^2 below the border
ERF_TAIL = (
    (0.1283791670955126, -0.37612638903183715, 0.11283791670953128, -0.026866170644688357, 0.005223977620366516)
    + (-0.0008548326679942316, 0.00012055318223016758, -1.4925231967362037e-05, 1.645417140192309e-06, -1.6265551868241286e-07)
    + (1.3992819471603494e-08, -8.358898675703541e-10)
)
# for double: log(1 - erf x) above it, in x less the border; from the end on erf rounds to 1
ERF_END = 6.0
LOG_ERFC = (
    (-1.6438622984246616, -2.5048892852620366, -0.8327370232694997, -0.044900895319354525, 0.01084721707962783)
    + (-0.002087458222086897, 0.00021731723791648574, 4.598213572681109e-05, -3.46467807968863e-05, 1.1250853048211907e-05)
    + (-2.0936863973240346e-06, -1.0898653704335344e-08, 1.7842031418529376e-07, -7.801149730975263e-08, 2.0857951699048425e-08)
    + (-3.8437284289016706e-09, 4.791134552316676e-10, -3.6528697333738994e-11, 1.2871884236309959e-12)
)
QUOTIENT_BITS = 28  # of a remainder's quotient per step: 28 + 24 bits of the divisor are exact in double
REMAINDER_STEPS = 10  # 2^276 is the largest quotient of two floats


def erf(e: Emitter, x: Value) -> Value:
    """float: x P(x^2), one polynomial up to where erf rounds to 1: <= 4 ulp, in half the time of the other form.

    double: x + x P(x^2) up to 0.92, 1 - exp(Q(x)) with Q fitted to log erfc above (the form of N. Juffa's erff). <= 2 ulp.
    """
    return _erf_in_one(e, x) if format_of(x).element == "float" else _erf_in_parts(e, x)


def _erf_in_one(e: Emitter, x: Value) -> Value:
    place = mul_add(e, mul(e, x, x), real(e, x, 2 / ERF_ONE**2), real(e, x, -1.0))
    inside = mul(e, x, polynomial(e, place, ERF_WHOLE))
    return e.select(e.compare("ogt", absolute(e, x), real(e, x, ERF_ONE)), copy_sign(e, real(e, x, 1.0), x), inside)


def _erf_in_parts(e: Emitter, x: Value) -> Value:
    magnitude = absolute(e, x)
    near = mul_add(e, magnitude, polynomial(e, mul(e, magnitude, magnitude), ERF_TAIL), magnitude)
    position = sub(e, at_most(e, magnitude, ERF_END), real(e, x, ERF_BORDER))
    far = sub(e, real(e, x, 1.0), exp(e, polynomial(e, position, LOG_ERFC)))
    return copy_sign(e, e.select(e.compare("ogt", magnitude, real(e, x, ERF_BORDER)), far, near), x)


def pow(e: Emitter, x: Value, y: Value) -> Value:
    """x^y with every special case of C's pow. float <= 1 ulp (computed in double); double <= 2 + |y log x| / 25 ulp.

    A literal exponent of `_SHORT` costs a few instructions, and up to 2.5 ulp.
    """
    for exponent, short in _SHORT.items():
        if y.text == real(e, y, exponent).text:
            return short(e, x)
    magnitude = _pow_of_float(e, absolute(e, x), y) if x.element == "float" else _pow_of_double(e, absolute(e, x), y)
    return _pow_special(e, x, y, magnitude)


def fmod(e: Emitter, x: Value, y: Value) -> Value:
    """The exact remainder with the sign of `x` (C fmod, numpy.fmod). float only: raises UnsupportedError for double."""
    if format_of(x).element != "float":
        raise UnsupportedError(f"the floating-point remainder is generated for float registers, got {x.type}")
    a, b = (absolute(e, e.cast("fpext", v, "double")) for v in (x, y))
    many = e.compare("oge", div(e, a, b), real(e, a, 2.0**QUOTIENT_BITS))
    with e.loop(0, e.select(any_lane(e, many), e.const(REMAINDER_STEPS), e.const(1)), carried=[a]) as loop:
        loop.carry([_remainder_step(e, loop.values[0], b)])
    r = loop.values[0]
    r = e.select(e.compare("olt", r, real(e, r, 0.0)), add(e, r, b), r)
    infinite = e.compare("oeq", b, infinity(e, b))
    finite_a = e.compare("olt", a, infinity(e, a))
    r = e.select(e.binary("and", infinite, finite_a), a, r)
    return copy_sign(e, e.cast("fptrunc", r, "float"), x)


def mod(e: Emitter, x: Value, y: Value) -> Value:
    """The remainder with the sign of `y` (Python's %, numpy.mod). float only, as fmod."""
    r, zero = fmod(e, x, y), real(e, x, 0.0)
    other_sign = e.binary("xor", e.compare("olt", r, zero), e.compare("olt", y, zero))
    moved = e.select(other_sign, add(e, r, y), r)
    return e.select(e.compare("oeq", r, zero), copy_sign(e, r, y), moved)


def _remainder_step(e: Emitter, r: Value, b: Value) -> Value:
    """r - q b for the first bits of the quotient; exact, possibly just below zero in the last step."""
    bits = e.binary("and", to_bits(e, div(e, r, b)), integer(e, r, -1 << (52 - QUOTIENT_BITS)))
    return sub(e, r, mul(e, trunc(e, from_bits(e, bits)), b))


def _first(e: Emitter, x: Value) -> Value:
    return x


def _square(e: Emitter, x: Value) -> Value:
    return mul(e, x, x)


def _cube(e: Emitter, x: Value) -> Value:
    return mul(e, mul(e, x, x), x)


def _power_half(e: Emitter, x: Value) -> Value:
    """sqrt but for pow(-0, 1/2) = 0 and pow(-inf, 1/2) = inf."""
    root = sqrt(e, add(e, x, real(e, x, 0.0)))
    return e.select(e.compare("oeq", x, real(e, x, -math.inf)), infinity(e, x), root)


def _power_quarter(e: Emitter, x: Value) -> Value:
    return sqrt(e, _power_half(e, x))


def _power_three_quarters(e: Emitter, x: Value) -> Value:
    root = _power_half(e, x)
    return mul(e, root, sqrt(e, root))


def _power_three_halves(e: Emitter, x: Value) -> Value:
    return mul(e, absolute(e, x), _power_half(e, x))


def _power_minus_half(e: Emitter, x: Value) -> Value:
    return reciprocal(e, _power_half(e, x))


_SHORT = {
    -1.0: reciprocal,
    -0.5: _power_minus_half,
    1.0: _first,
    2.0: _square,
    3.0: _cube,
    0.25: _power_quarter,
    0.5: _power_half,
    0.75: _power_three_quarters,
    1.5: _power_three_halves,
}


def _pow_of_float(e: Emitter, x: Value, y: Value) -> Value:
    """exp(y log x) in double, rounded once."""
    product = mul(e, log(e, e.cast("fpext", x, "double")), e.cast("fpext", y, "double"))
    return e.cast("fptrunc", exp(e, product), "float")


def _pow_of_double(e: Emitter, x: Value, y: Value) -> Value:
    """exp(high) (1 + low) for y log x = high + low: the logarithm and the product in two doubles (Dekker 1971)."""
    log_high, log_low = _log_in_two_parts(e, x)
    high = mul(e, y, log_high)
    y_top, log_top = _top_half(e, y), _top_half(e, log_high)
    y_rest, log_rest = sub(e, y, y_top), sub(e, log_high, log_top)
    low = mul_add(e, y_top, log_rest, sub(e, mul(e, y_top, log_top), high))
    low = mul_add(e, y, log_low, mul_add(e, y_rest, log_rest, mul_add(e, y_rest, log_top, low)))
    in_range = e.compare("olt", absolute(e, high), real(e, x, 1000.0))
    return mul(e, exp(e, high), add(e, real(e, x, 1.0), e.select(in_range, low, real(e, x, 0.0))))


def _log_in_two_parts(e: Emitter, x: Value) -> tuple[Value, Value]:
    """log x = high + low with a relative error of 2^-58; high alone carries the special values."""
    constants = CONSTANTS["double"]
    f, exponent = split_logarithm(e, x)
    d = add(e, f, real(e, x, 2.0))
    d_lost = sub(e, f, sub(e, d, real(e, x, 2.0)))
    s = div(e, f, d)
    s_top, d_top = _top_half(e, s), _top_half(e, d)
    rest = sub(e, sub(e, f, mul(e, s_top, d_top)), mul(e, s_top, sub(e, d, d_top)))
    s_low = div(e, sub(e, rest, mul(e, s_top, d_lost)), d)
    square = mul(e, s, s)
    tail = mul(e, mul(e, s, square), polynomial(e, square, constants.log_tail))
    large = mul(e, exponent, real(e, x, constants.log_ln2_high))
    twice = scaled(e, s_top, 2.0)
    total = add(e, large, twice)
    lost = sub(e, twice, sub(e, total, large))  # exact: `large` is zero, or larger than `twice`
    small = add(e, scaled_add(e, exponent, constants.log_ln2_low, lost), add(e, tail, scaled(e, s_low, 2.0)))
    high = add(e, total, small)
    special = e.compare("une", sub(e, x, x), real(e, x, 0.0))
    special = e.binary("or", special, e.compare("oeq", x, real(e, x, 0.0)))
    low = e.select(special, real(e, x, 0.0), sub(e, small, sub(e, high, total)))
    return e.select(special, log(e, x), high), low


def scaled(e: Emitter, x: Value, factor: float) -> Value:
    """x * factor."""
    return mul(e, x, real(e, x, factor))


def _top_half(e: Emitter, x: Value) -> Value:
    """The first 26 bits of a double: products of two of them are exact."""
    return from_bits(e, e.binary("and", to_bits(e, x), integer(e, x, -1 << 27)))


def _pow_special(e: Emitter, x: Value, y: Value, magnitude: Value) -> Value:
    """`magnitude` = |x|^y with the sign, the NaN and the ones of C's pow (C11 F.10.4.4)."""
    zero, one = real(e, x, 0.0), real(e, x, 1.0)
    half = scaled(e, y, 0.5)
    whole = e.compare("oeq", trunc(e, y), y)
    odd = e.binary("and", whole, e.compare("one", trunc(e, half), half))
    result = e.select(odd, copy_sign(e, magnitude, x), magnitude)
    negative = e.binary("and", e.compare("olt", x, zero), e.compare("ogt", x, real(e, x, -math.inf)))
    not_real = e.binary("and", negative, e.compare("une", trunc(e, y), y))
    result = e.select(not_real, nan(e, x), result)
    minus_one = e.binary("and", e.compare("oeq", x, real(e, x, -1.0)), e.compare("oeq", absolute(e, y), infinity(e, y)))
    ones = e.binary("or", e.compare("oeq", y, zero), e.binary("or", e.compare("oeq", x, one), minus_one))
    return e.select(ones, one, result)
