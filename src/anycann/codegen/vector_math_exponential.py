"""Exponentials, logarithms and the hyperbolic functions, for float and double registers of any lane count.

exp: x = n ln 2 + r with ln 2 in two parts (Cody and Waite, Software Manual for the Elementary Functions, 1980), a polynomial for e^r.
log: x = 2^k (1 + f), log(1 + f) = f - s (f - R(s^2)) with s = f / (2 + f) (the identity FreeBSD's msun documents). The polynomials are
weighted least-squares fits on Chebyshev nodes, reweighted towards the largest error (Lawson), made for this file in 50 digits.
"""

from __future__ import annotations

import math

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value
from anycann.codegen.vector_math_basic import (
    absolute,
    add,
    at_least,
    at_most,
    copy_sign,
    div,
    fmax,
    format_of,
    from_bits,
    infinity,
    integer,
    mul,
    mul_add,
    nan,
    polynomial,
    real,
    scaled_add,
    sqrt,
    sub,
    to_bits,
)
from anycann.support.records import dataclass


@dataclass(frozen=True)
class Constants:
    """The numbers of one format: ln 2 in two parts, where exp leaves the format, and the polynomials' coefficients, lowest first."""

    ln2_high: float
    ln2_low: float
    log_ln2_high: float  # more bits than ln2_high: here the factor is an exponent, there a rounded x / ln 2
    log_ln2_low: float
    exp_underflow: float
    exp_overflow: float
    minus_one: float  # expm1 is -1 from here down, tanh is 1 from its half up
    half_root_bits: int  # the bits of sqrt(1/2)
    exp_tail: tuple[float, ...]  # (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2
    log_tail: tuple[float, ...]  # (log((1 + s) / (1 - s)) - 2 s) / s^3 in s^2


CONSTANTS = {
    "float": Constants(
        0.693359375,
        -2.1219444005469058277e-4,
        0.693138122558593750,
        9.0580006144591834e-06,
        -104.0,
        89.0,
        -20.0,
        0x3F3504F3,
        (0.5, 0.16666506230831146, 0.041666168719530106, 0.00837031938135624, 0.0013953037559986115),
        (0.6666677594184875, 0.3997722566127777, 0.2988048195838928),
    ),
    "double": Constants(
        6.93147180369123816490e-01,
        1.90821492927058770002e-10,
        6.93147180369123816490e-01,
        1.90821492927058770002e-10,
        -746.0,
        710.0,
        -40.0,
        0x3FE6A09E667F3BCD,
        (0.5, 0.16666666666666688, 0.041666666666666734, 0.00833333333331388, 0.0013888888888853555, 0.000198412699041132)
        + (2.4801587382224496e-05, 2.7557227221629647e-06, 2.7557226771111485e-07, 2.5114671517528642e-08, 2.0928830999064455e-09),
        (0.6666666666666737, 0.3999999999939417, 0.2857142874735463, 0.22222198024553955, 0.1818359474411038)
        + (0.15313226135651842, 0.14804638652189211),
    ),
}


def exp(e: Emitter, x: Value) -> Value:
    """e^x; 0 and inf beyond the format, denormal results rounded once more. <= 1.5 ulp. Where denormals are zero, so is 2^-125 and less."""
    constants = CONSTANTS[format_of(x).element]
    if e.flushes and not e.scales and format_of(x).element == "float":
        return _exp_without_denormals(e, at_most(e, at_least(e, x, _EXP_FLUSHES), constants.exp_overflow))
    shifted, r = _reduced(e, at_most(e, at_least(e, x, constants.exp_underflow), constants.exp_overflow))
    return _scale(e, polynomial(e, r, (1.0, 1.0, *constants.exp_tail)), shifted)


def exp_of_small(e: Emitter, x: Value) -> Value:
    """e^x for x up to 40 (2^58): as `exp`, with fewer instructions for the power of two."""
    shifted, r = _reduced(e, at_least(e, x, CONSTANTS[format_of(x).element].exp_underflow))
    return _scale_small(e, polynomial(e, r, (1.0, 1.0, *CONSTANTS[format_of(x).element].exp_tail)), shifted)


def falling_exp(e: Emitter, x: Value) -> tuple[Value, Value]:
    """x and e^-x, both for the nearest x for which e^-x is a normal number; but x is not bounded above. <= 1.5 ulp."""
    form = format_of(x)
    end = (form.bias - 1.5) * math.log(2.0)
    x = at_least(e, x, -end)
    bounded = at_most(e, x, end)
    shifted = mul_add(e, bounded, real(e, x, -1.0 / math.log(2.0)), real(e, x, form.magic))
    constants, whole = CONSTANTS[form.element], _whole(e, shifted)
    negative = scaled_add(e, whole, constants.ln2_low, scaled_add(e, whole, constants.ln2_high, bounded))
    signed = [-number if power % 2 else number for power, number in enumerate((1.0, 1.0, *constants.exp_tail))]
    return x, _scale_by(e, polynomial(e, negative, signed), shifted, 0)


_EXP_FLUSHES = -87.5  # n is -126 there, and the power of two zero


def _exp_without_denormals(e: Emitter, x: Value) -> Value:
    """e^x of a float as 2 e^r times 2^(n - 1): one power of two reaches infinity, and is zero for n = -126."""
    form = format_of(x)
    shifted, r = _reduced(e, x, form.magic + form.bias - 1)
    power = from_bits(e, e.binary("shl", to_bits(e, shifted), integer(e, x, form.mantissa_bits)))
    return mul(e, polynomial(e, r, [2 * c for c in (1.0, 1.0, *CONSTANTS[form.element].exp_tail)]), power)


def exp2(e: Emitter, x: Value) -> Value:
    """2^x: the fraction's exponential times a power of two. <= 1.5 ulp."""
    form = format_of(x)
    x = at_most(e, at_least(e, x, -form.bias - form.mantissa_bits - 2.0), form.bias + 2.0)
    shifted = add(e, x, real(e, x, form.magic))
    r = mul(e, sub(e, x, _whole(e, shifted)), real(e, x, math.log(2.0)))
    return _scale(e, polynomial(e, r, (1.0, 1.0, *CONSTANTS[form.element].exp_tail)), shifted)


def expm1(e: Emitter, x: Value) -> Value:
    """e^x - 1 without cancellation near zero. <= 2 ulp."""
    quarter = _quarter_expm1(e, x)
    return e.select(_is_tiny(e, x), x, mul(e, quarter, real(e, x, 4.0)))


def log(e: Emitter, x: Value) -> Value:
    """Natural logarithm; -inf at zero, NaN below, denormals exact. <= 1 ulp."""
    form = format_of(x)
    constants = CONSTANTS[form.element]
    f, exponent = split_logarithm(e, x)
    s = div(e, f, add(e, f, real(e, x, 2.0)))
    square = mul(e, s, s)
    tail = mul(e, square, polynomial(e, square, constants.log_tail))
    half_square = mul(e, mul(e, f, f), real(e, x, 0.5))
    low = mul_add(e, s, add(e, half_square, tail), mul(e, exponent, real(e, x, constants.log_ln2_low)))
    near = sub(e, f, sub(e, half_square, low))
    return _outside_logarithm(e, x, scaled_add(e, exponent, constants.log_ln2_high, near))


def log1p(e: Emitter, x: Value) -> Value:
    """log(1 + x) with the rounding of 1 + x added back (Kahan, as in HP-15C Advanced Functions Handbook). <= 2 ulp."""
    one = real(e, x, 1.0)
    u = add(e, x, one)
    lost = div(e, sub(e, x, sub(e, u, one)), u)
    regular = e.select(e.compare("olt", absolute(e, lost), one), lost, real(e, x, 0.0))
    return e.select(_is_tiny(e, x), x, add(e, log(e, u), regular))


def tanh(e: Emitter, x: Value) -> Value:
    """t / (t + 2) for t = e^2|x| - 1. <= 3 ulp."""
    magnitude = at_most(e, absolute(e, x), -0.5 * CONSTANTS[format_of(x).element].minus_one)
    n, tail = _power_and_tail(e, add(e, magnitude, magnitude))
    power = _power_of_two(e, n, x)
    t = mul_add(e, tail, power, sub(e, power, real(e, x, 1.0)))
    return copy_sign(e, div(e, t, add(e, t, real(e, x, 2.0))), x)


def tanh_of_softplus(e: Emitter, x: Value) -> Value:
    """n / (n + 2) for n = (1 + e^x)^2 - 1 = e^x (e^x + 2): what Mish multiplies x by. <= 4 ulp."""
    two = real(e, x, 2.0)
    t = exp_of_small(e, at_most(e, x, -CONSTANTS[format_of(x).element].minus_one))
    n = mul(e, t, add(e, t, two))
    return div(e, n, add(e, n, two))


def sigmoid(e: Emitter, x: Value) -> Value:
    """1 / (1 + e^-x), from e^-|x| so that nothing overflows and small results keep their digits. <= 3 ulp."""
    one = real(e, x, 1.0)
    if e.flushes and not e.scales:  # only a denormal result would lose digits
        return div(e, one, add(e, one, exp(e, e.op(f"fneg {x.type} {x.text}", x.type))))
    t = exp_of_small(e, e.op(f"fneg {x.type} {absolute(e, x).text}", x.type))
    above = e.select(e.compare("olt", x, real(e, x, 0.0)), t, one)
    return div(e, above, add(e, t, one))


def softplus(e: Emitter, x: Value) -> Value:
    """log(1 + e^x) = max(x, 0) + log1p(e^-|x|). <= 2 ulp."""
    t = exp_of_small(e, e.op(f"fneg {x.type} {absolute(e, x).text}", x.type))
    return add(e, fmax(e, x, real(e, x, 0.0)), log1p(e, t))


def sinh(e: Emitter, x: Value) -> Value:
    """(e^x - e^-x) / 2 from h = (e^|x| - 1) / 2 as h + h / (2 h + 1). <= 3 ulp."""
    h = mul(e, _quarter_expm1(e, absolute(e, x)), real(e, x, 2.0))
    quotient = div(e, h, add(e, add(e, h, h), real(e, x, 1.0)))
    finite = e.select(e.compare("oeq", h, infinity(e, x)), h, add(e, h, quotient))
    return e.select(_is_tiny(e, x), x, copy_sign(e, finite, x))


def cosh(e: Emitter, x: Value) -> Value:
    """t + 1 / (4 t) for t = e^|x| / 2, which overflows only where cosh does. <= 2 ulp."""
    magnitude = at_most(e, absolute(e, x), CONSTANTS[format_of(x).element].exp_overflow + 1.0)
    shifted, r = _reduced(e, magnitude)
    t = _scale(e, polynomial(e, r, (1.0, 1.0, *CONSTANTS[format_of(x).element].exp_tail)), sub(e, shifted, real(e, x, 1.0)))
    return add(e, t, div(e, real(e, x, 0.25), t))


def asinh(e: Emitter, x: Value) -> Value:
    """log1p(|x| + x^2 / (1 + sqrt(1 + x^2))), log(2 |x|) where x^2 would overflow. <= 4 ulp."""
    one, magnitude = real(e, x, 1.0), absolute(e, x)
    large = e.compare("ogt", magnitude, real(e, x, 1.0 / format_of(x).tiny))
    small = e.select(large, one, magnitude)
    square = mul(e, small, small)
    root = sqrt(e, add(e, square, one))
    near = log1p(e, add(e, small, div(e, square, add(e, root, one))))
    return e.select(_is_tiny(e, x), x, copy_sign(e, e.select(large, _log_of_double(e, magnitude), near), x))


def acosh(e: Emitter, x: Value) -> Value:
    """log1p(t + sqrt(2 t + t^2)) for t = x - 1, log(2 x) where t^2 would overflow; NaN below 1. <= 4 ulp."""
    large = e.compare("ogt", x, real(e, x, 1.0 / format_of(x).tiny))
    t = sub(e, e.select(large, real(e, x, 1.0), x), real(e, x, 1.0))
    near = log1p(e, add(e, t, sqrt(e, mul_add(e, t, t, add(e, t, t)))))
    checked = e.select(e.compare("olt", x, real(e, x, 1.0)), nan(e, x), near)
    return e.select(large, _log_of_double(e, x), checked)


def atanh(e: Emitter, x: Value) -> Value:
    """log1p(2 |x| / (1 - |x|)) / 2; +-inf at +-1, NaN beyond. <= 4 ulp."""
    magnitude = absolute(e, x)
    ratio = div(e, add(e, magnitude, magnitude), sub(e, real(e, x, 1.0), magnitude))
    result = copy_sign(e, mul(e, log1p(e, ratio), real(e, x, 0.5)), x)
    return e.select(_is_tiny(e, x), x, result)


def split_logarithm(e: Emitter, x: Value) -> tuple[Value, Value]:
    """(f, k) with x = 2^k (1 + f) and sqrt(1/2) <= 1 + f < sqrt(2); k as a float. Meaningless for zero, negatives, inf and NaN."""
    form = format_of(x)
    constants = CONSTANTS[form.element]
    shift = form.mantissa_bits + 1
    denormal = e.compare("olt", x, real(e, x, form.smallest_normal))
    normal = e.select(denormal, mul(e, x, real(e, x, 2.0**shift)), x)
    one_bits = form.bias << form.mantissa_bits
    moved = e.binary("add", to_bits(e, normal), integer(e, x, one_bits - constants.half_root_bits))
    biased = e.binary("lshr", moved, integer(e, x, form.mantissa_bits))
    offset = e.select(denormal, integer(e, x, form.bias + shift), integer(e, x, form.bias))
    exponent = e.cast("sitofp", e.binary("sub", biased, offset), form.element)
    mantissa = e.binary("and", moved, integer(e, x, (1 << form.mantissa_bits) - 1))
    one_plus_f = from_bits(e, e.binary("add", mantissa, integer(e, x, constants.half_root_bits)))
    return sub(e, one_plus_f, real(e, x, 1.0)), exponent


def _outside_logarithm(e: Emitter, x: Value, inside: Value) -> Value:
    """`inside` for finite positive x; inf, NaN, zero and negatives as C's log has them."""
    zero = real(e, x, 0.0)
    finite = e.select(e.compare("olt", x, infinity(e, x)), inside, x)
    at_zero = e.select(e.compare("oeq", x, zero), real(e, x, -math.inf), finite)
    return e.select(e.compare("olt", x, zero), nan(e, x), at_zero)


def _log_of_double(e: Emitter, x: Value) -> Value:
    """log(2 x) where 2 x may overflow."""
    return add(e, log(e, x), real(e, x, math.log(2.0)))


def _is_tiny(e: Emitter, x: Value) -> Value:
    return e.compare("olt", absolute(e, x), real(e, x, format_of(x).tiny))


def _quarter_expm1(e: Emitter, x: Value) -> Value:
    """(e^x - 1) / 4: a quarter, so that the power of two stays in range until sinh overflows. Denormal x loses its last bits."""
    constants = CONSTANTS[format_of(x).element]
    n, tail = _power_and_tail(e, at_most(e, at_least(e, x, constants.minus_one), constants.exp_overflow + 0.5))
    power = _power_of_two(e, e.binary("sub", n, integer(e, x, 2)), x)
    return mul_add(e, tail, power, sub(e, power, real(e, x, 0.25)))


def _power_and_tail(e: Emitter, x: Value) -> tuple[Value, Value]:
    """(n, t) with e^x = 2^n (1 + t), n an integer."""
    shifted, r = _reduced(e, x)
    return _integer(e, shifted), mul_add(e, polynomial(e, r, CONSTANTS[format_of(x).element].exp_tail), mul(e, r, r), r)


def _reduced(e: Emitter, x: Value, magic: float | None = None) -> tuple[Value, Value]:
    """(n + magic, r) with x = n ln 2 + r, n a whole number in the low bits of the first, and |r| <= ln 2 / 2. Any bits for NaN."""
    form = format_of(x)
    constants, magic = CONSTANTS[form.element], form.magic if magic is None else magic
    shifted = mul_add(e, x, real(e, x, 1.0 / math.log(2.0)), real(e, x, magic))
    whole = sub(e, shifted, real(e, x, magic))
    return shifted, scaled_add(e, whole, -constants.ln2_low, scaled_add(e, whole, -constants.ln2_high, x))


def _whole(e: Emitter, shifted: Value) -> Value:
    """n of n + magic."""
    return sub(e, shifted, real(e, shifted, format_of(shifted).magic))


def _integer(e: Emitter, shifted: Value) -> Value:
    """n of n + magic as an integer of the same size."""
    return e.binary("sub", to_bits(e, shifted), integer(e, shifted, format_of(shifted).magic_bits))


def _power_of_two(e: Emitter, n: Value, like: Value) -> Value:
    form = format_of(like)
    return from_bits(e, e.binary("shl", e.binary("add", n, integer(e, like, form.bias)), integer(e, like, form.mantissa_bits)))


def _scale(e: Emitter, x: Value, shifted: Value) -> Value:
    """x * 2^n for n + magic: in two steps, as 2^n alone leaves the format where the product is denormal or just below overflow."""
    if _scales(e, x):
        return _scaled(e, x, shifted)
    n = _integer(e, shifted)
    first = e.binary("ashr", n, integer(e, x, 1))
    second = e.binary("sub", n, first)
    return mul(e, mul(e, x, _power_of_two(e, first, x)), _power_of_two(e, second, x))


_RAISED = 64  # 2^(n + 64) is a normal number of either format for every n from where x 2^n is no denormal but zero


def _scale_small(e: Emitter, x: Value, shifted: Value) -> Value:
    """x * 2^n for n + magic and n < 60."""
    return _scaled(e, x, shifted) if _scales(e, x) else mul(e, _scale_by(e, x, shifted, _RAISED), real(e, x, 2.0**-_RAISED))


def _scale_by(e: Emitter, x: Value, shifted: Value, more: int) -> Value:
    """x * 2^(n + more) for n + magic, a normal power: low bits of n + magic are its exponent, for those of magic are zeros."""
    if _scales(e, x) and not more:
        return _scaled(e, x, shifted)
    form = format_of(x)
    moved = e.binary("shl", to_bits(e, shifted), integer(e, x, form.mantissa_bits))
    return mul(e, x, from_bits(e, e.binary("add", moved, integer(e, x, (form.bias + more) << form.mantissa_bits))))


def _scales(e: Emitter, x: Value) -> bool:
    """Whether one instruction multiplies x by powers of two."""
    return e.scales and x.type in _SUFFIXES


_SUFFIXES = {"<16 x float>": "ps", "<8 x double>": "pd"}


def _scaled(e: Emitter, x: Value, shifted: Value) -> Value:
    lanes, current = Value("-1", f"i{x.lanes}"), e.const(4, "i32")
    operands = [x, _whole(e, shifted), e.zero(x.type), lanes, current]
    return e.call(f"llvm.x86.avx512.mask.scalef.{_SUFFIXES[x.type]}.512", x.type, operands)
