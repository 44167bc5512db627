"""sin, cos, tan and their inverses, for float and double registers of any lane count.

x = n pi/2 + r: below 10^6 with pi/2 in three parts (Cody and Waite, 1980), above it with 24-bit pieces of 2/pi (Payne and Hanek, Radian
Reduction for Trigonometric Functions, 1983): each piece times x is exact in double, so its multiple of 4 can be dropped before adding.
float arguments are reduced in double. The polynomials are weighted least-squares fits on Chebyshev nodes, made for this file in 50 digits.
"""

from __future__ import annotations

import math

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value
from anycann.codegen.vector_math_basic import (
    absolute,
    add,
    copy_sign,
    div,
    format_of,
    integer,
    mul,
    mul_add,
    polynomial,
    real,
    round_half_even,
    scaled_add,
    sqrt,
    sub,
    times_if,
    to_bits,
)
from anycann.support.records import dataclass

PI_HALF_PARTS = (1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
PI_HALF_LOW = 6.12323399573676603587e-17  # pi/2 less its nearest double
CODY_WAITE_LIMIT = 1.0e6
TWO_OVER_PI_PIECES = (0xA2F983, 0x6E4E44, 0x1529FC, 0x2757D1, 0xF534DD, 0xC0DB62, 0x95993C, 0x439041, 0xFE5163, 0xABDEBB, 0xC561B7)
LARGEST_DOUBLE_ARGUMENT = 2.0**128  # what the pieces above cover


@dataclass(frozen=True)
class Tails:
    """Coefficients in r^2, lowest first, of (sin r - r) / r^3, (cos r - 1 + r^2 / 2) / r^4, (asin x - x) / x^3 and (atan x - x) / x^3."""

    sin: tuple[float, ...]
    cos: tuple[float, ...]
    asin: tuple[float, ...]
    atan: tuple[float, ...]


TAILS = {
    "float": Tails(
        (-0.16666653752326965, 0.008332127705216408, -0.00019510462880134583),
        (0.04166664555668831, -0.0013887310633435845, 2.4431747078779154e-05),
        (0.16666753590106964, 0.07495289295911789, 0.04547041282057762, 0.024182120338082314, 0.04215923324227333),
        (-0.33332952857017517, 0.19977878034114838, -0.13879281282424927, 0.08058300614356995),
    ),
    "double": Tails(
        (-0.16666666666666666, 0.008333333333333321, -0.00019841269841253592, 2.755731921341615e-06, -2.5052104707855913e-08)
        + (1.6058340435276056e-10, -7.577388841270802e-13),
        (0.041666666666666664, -0.0013888888888888872, 2.4801587301569866e-05, -2.755731921467345e-07, 2.087675420755167e-09)
        + (-1.1470275229152731e-11, 4.73729400927042e-14),
        (0.16666666666666763, 0.07499999999970107, 0.044642857175272874, 0.030381942676065893, 0.022372215880877018)
        + (0.017351595985547214, 0.013981012409884001, 0.01139734496185903, 0.010789023032804296, 0.003673330060679315)
        + (0.02178782987579345, -0.02111270332080142, 0.032699639583596035),
        (-0.33333333333330184, 0.19999999999095885, -0.14285714195777013, 0.11111106672148437, -0.09090782785224127)
        + (0.07690072751595328, -0.06641153311260918, 0.05692675205385137, -0.04359403616166672, 0.021262658228684037),
    ),
}


def sin(e: Emitter, x: Value) -> Value:
    """Sine; NaN at +-inf. <= 1.5 ulp for every float; double <= 2 ulp up to 10^6, absolute error 1e-15 up to 2^128, NaN beyond."""
    r, quadrant = _reduce(e, x)
    return e.select(_is_tiny(e, x), x, _pick(e, r, quadrant))


def cos(e: Emitter, x: Value) -> Value:
    """Cosine, as `sin` a quarter turn on."""
    r, quadrant = _reduce(e, x)
    return _pick(e, r, e.binary("add", quadrant, e.const(1, quadrant.type)))


def tan(e: Emitter, x: Value) -> Value:
    """sin / cos of the reduced argument; -cos / sin in odd quadrants. <= 4 ulp where sin has 2."""
    r, quadrant = _reduce(e, x)
    sine, cosine = _sin_near_zero(e, r), _cos_near_zero(e, r)
    odd = _bit_set(e, quadrant, 1)
    negated = e.op(f"fneg {r.type} {cosine.text}", r.type)
    quotient = div(e, e.select(odd, negated, sine), e.select(odd, sine, cosine))
    return e.select(_is_tiny(e, x), x, quotient)


def asin(e: Emitter, x: Value) -> Value:
    """Arc sine; above 1/2 as pi/2 - 2 asin(sqrt((1 - |x|) / 2)); NaN beyond +-1. <= 3 ulp."""
    outer, core = _asin_core(e, x)
    low = sub(e, real(e, x, PI_HALF_LOW), add(e, core, core))
    folded = add(e, real(e, x, math.pi / 2), low if format_of(x).element == "double" else _minus_twice(e, core))
    return copy_sign(e, e.select(outer, folded, core), x)


def acos(e: Emitter, x: Value) -> Value:
    """Arc cosine: pi/2 - asin x inside +-1/2, 2 asin(sqrt((1 - |x|) / 2)) or pi less it outside; NaN beyond +-1. <= 3 ulp."""
    outer, core = _asin_core(e, x)
    double = add(e, core, core)
    negative = e.compare("olt", x, real(e, x, 0.0))
    folded = e.select(negative, sub(e, real(e, x, math.pi), double), double)
    signed = copy_sign(e, core, x)
    inner = sub(e, real(e, x, math.pi / 2), sub(e, signed, real(e, x, PI_HALF_LOW)))
    return e.select(outer, folded, inner)


def atan(e: Emitter, x: Value) -> Value:
    """Arc tangent, brought below tan(pi/8) by atan x = pi/4 + atan((x - 1) / (x + 1)) = pi/2 - atan(1 / x) (Cephes). <= 3 ulp."""
    one, zero, magnitude = real(e, x, 1.0), real(e, x, 0.0), absolute(e, x)
    above = e.compare("ogt", magnitude, real(e, x, math.tan(3 * math.pi / 8)))
    middle = e.compare("ogt", magnitude, real(e, x, math.tan(math.pi / 8)))
    top = e.select(above, real(e, x, -1.0), e.select(middle, sub(e, magnitude, one), magnitude))
    bottom = e.select(above, magnitude, e.select(middle, add(e, magnitude, one), one))
    offset = e.select(above, real(e, x, math.pi / 2), e.select(middle, real(e, x, math.pi / 4), zero))
    offset_low = e.select(above, real(e, x, PI_HALF_LOW), e.select(middle, real(e, x, PI_HALF_LOW / 2), zero))
    t = div(e, top, bottom)
    square = mul(e, t, t)
    tail = mul(e, mul(e, square, t), polynomial(e, square, TAILS[format_of(x).element].atan))
    return copy_sign(e, add(e, offset, add(e, t, add(e, tail, offset_low))), x)


def _minus_twice(e: Emitter, x: Value) -> Value:
    """-2 x plus what pi/2 lost when rounded to float."""
    return scaled_add(e, x, -2.0, real(e, x, -4.37113900018624283e-8))


def _asin_core(e: Emitter, x: Value) -> tuple[Value, Value]:
    """(|x| > 1/2, asin of |x| or of sqrt((1 - |x|) / 2))."""
    magnitude, half = absolute(e, x), real(e, x, 0.5)
    outer = e.compare("ogt", magnitude, half)
    folded = scaled_add(e, magnitude, -0.5, half)
    square = e.select(outer, folded, mul(e, magnitude, magnitude))
    t = e.select(outer, sqrt(e, folded), magnitude)
    tail = polynomial(e, square, TAILS[format_of(x).element].asin)
    return outer, mul_add(e, mul(e, t, square), tail, t)


def _reduce(e: Emitter, x: Value) -> tuple[Value, Value]:
    """(r, quadrant): r in +-pi/4 with the type of `x`, the low two bits of the i64 lanes `quadrant` the number of quarter turns."""
    is_single = format_of(x).element == "float"
    wide = e.cast("fpext", x, "double") if is_single else x
    turns = round_half_even(e, mul(e, wide, real(e, wide, 2.0 / math.pi)))
    r = wide
    for part in PI_HALF_PARTS:
        r = scaled_add(e, turns, -part, r)
    far = e.compare("ogt", absolute(e, wide), real(e, wide, CODY_WAITE_LIMIT))
    with e.loop(0, times_if(e, far, 1), carried=[r, turns]) as loop:
        far_r, far_turns = _reduce_far(e, wide, is_single)
        loop.carry([e.select(far, far_r, loop.values[0]), e.select(far, far_turns, loop.values[1])])
    r, turns = loop.values
    low_bits = to_bits(e, add(e, turns, real(e, turns, format_of(wide).magic)))
    return (e.cast("fptrunc", r, "float") if is_single else r), low_bits


def _reduce_far(e: Emitter, x: Value, is_single: bool) -> tuple[Value, Value]:
    """(r, quarter turns modulo a small multiple of 4) by products with pieces of 2/pi; a double is taken in two halves of 26 bits."""
    if is_single:
        halves = [x]
    else:
        inside = e.select(e.compare("olt", absolute(e, x), real(e, x, LARGEST_DOUBLE_ARGUMENT)), x, real(e, x, math.nan))
        mask = integer(e, x, -1 << 27)
        high = e.cast("bitcast", e.binary("and", to_bits(e, inside), mask), "double")
        halves = [high, sub(e, inside, high)]
    fraction, turns = real(e, x, 0.0), real(e, x, 0.0)
    for number, piece in enumerate(TWO_OVER_PI_PIECES[: 9 if is_single else None]):
        for half in halves:
            quarter = mul(e, half, real(e, x, piece * 2.0 ** (-24 * (number + 1) - 2)))
            rest = sub(e, quarter, round_half_even(e, quarter))
            fraction = scaled_add(e, rest, 4.0, fraction)
            whole = round_half_even(e, fraction)
            fraction, turns = sub(e, fraction, whole), add(e, turns, whole)
    return mul(e, fraction, real(e, x, math.pi / 2)), turns


def _pick(e: Emitter, r: Value, quadrant: Value) -> Value:
    """sin(r + quadrant pi/2)."""
    value = e.select(_bit_set(e, quadrant, 1), _cos_near_zero(e, r), _sin_near_zero(e, r))
    return e.select(_bit_set(e, quadrant, 2), e.op(f"fneg {r.type} {value.text}", r.type), value)


def _bit_set(e: Emitter, bits: Value, bit: int) -> Value:
    return e.compare("ne", e.binary("and", bits, e.const(bit, bits.type)), e.const(0, bits.type))


def _sin_near_zero(e: Emitter, r: Value) -> Value:
    square = mul(e, r, r)
    return mul_add(e, mul(e, square, r), polynomial(e, square, TAILS[format_of(r).element].sin), r)


def _cos_near_zero(e: Emitter, r: Value) -> Value:
    square = mul(e, r, r)
    tail = mul(e, mul(e, square, square), polynomial(e, square, TAILS[format_of(r).element].cos))
    return add(e, scaled_add(e, square, -0.5, real(e, r, 1.0)), tail)


def _is_tiny(e: Emitter, x: Value) -> Value:
    return e.compare("olt", absolute(e, x), real(e, x, format_of(x).tiny))
