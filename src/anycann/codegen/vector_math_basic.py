"""What the functions of `vector_math` are written with, and those that are only a few instructions long.

`fma` of LLVM is a library call on a processor without it, so products and sums are written as `fmuladd`, and no method here needs the
product unrounded: splits of constants (Cody and Waite) leave enough trailing zero bits for plain arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
import math

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value, mangle, vector_type
from anycann.support.errors import UnsupportedError
from anycann.support.records import dataclass


@dataclass(frozen=True)
class Format:
    """An IEEE binary format: its LLVM name, the integer type of the same size, the bits of the mantissa and the exponent bias."""

    element: str
    integer: str
    mantissa_bits: int
    bias: int

    @property
    def magic(self) -> float:
        """Adding it rounds to an integer and leaves that in the low bits; needs |x| < 2^mantissa_bits / 4."""
        return 1.5 * 2.0**self.mantissa_bits

    @property
    def magic_bits(self) -> int:
        """The bits of `magic` as an integer."""
        return (self.bias + self.mantissa_bits) << self.mantissa_bits | 1 << (self.mantissa_bits - 1)

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def tiny(self) -> float:
        """Below this f(x) = x + O(x^2) or x + O(x^3) rounds to x."""
        return 2.0 ** -(self.mantissa_bits + 2)


FORMATS = {"float": Format("float", "i32", 23, 127), "double": Format("double", "i64", 52, 1023)}


def format_of(x: Value) -> Format:
    """The format of a float or double register. Raises UnsupportedError for another type: half and bfloat16 are computed in float."""
    if x.element not in FORMATS:
        raise UnsupportedError(f"vector math takes float or double registers, got {x.type}")
    return FORMATS[x.element]


def real(e: Emitter, like: Value, number: float) -> Value:
    """`number` in every lane, with the type of `like`."""
    return e.const(number, like.type)


def integer(e: Emitter, like: Value, number: int) -> Value:
    """An integer literal in every lane, as wide as the float elements of `like`."""
    return e.const(number, bits_type(like))


def bits_type(x: Value) -> str:
    """The integer type with the lanes and element size of `x`."""
    name = format_of(x).integer
    return name if x.lanes == 1 else f"<{x.lanes} x {name}>"


def to_bits(e: Emitter, x: Value) -> Value:
    """The bits of float or double lanes as integers."""
    return e.cast("bitcast", x, format_of(x).integer)


def from_bits(e: Emitter, bits: Value) -> Value:
    """The float or double whose bits these i32 or i64 are."""
    return e.cast("bitcast", bits, "float" if bits.element == "i32" else "double")


def mul_add(e: Emitter, a: Value, b: Value, c: Value) -> Value:
    """a * b + c, with one rounding where the processor has an instruction for it."""
    return e.intrinsic("fmuladd", [a, b, c])


def scaled_add(e: Emitter, a: Value, factor: float, c: Value) -> Value:
    """a * factor + c."""
    return mul_add(e, a, real(e, a, factor), c)


def polynomial(e: Emitter, x: Value, coefficients: Sequence[float]) -> Value:
    """c0 + c1 x + c2 x^2 + ... by Horner's rule."""
    total = real(e, x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = mul_add(e, total, x, real(e, x, coefficient))
    return total


def add(e: Emitter, a: Value, b: Value) -> Value:
    """a + b."""
    return e.binary("fadd", a, b)


def sub(e: Emitter, a: Value, b: Value) -> Value:
    """a - b."""
    return e.binary("fsub", a, b)


def mul(e: Emitter, a: Value, b: Value) -> Value:
    """a * b."""
    return e.binary("fmul", a, b)


def div(e: Emitter, a: Value, b: Value) -> Value:
    """a / b."""
    return e.binary("fdiv", a, b)


def at_least(e: Emitter, x: Value, low: float) -> Value:
    """max(x, low); a NaN stays."""
    limit = real(e, x, low)
    return e.select(e.compare("ogt", limit, x), limit, x)


def at_most(e: Emitter, x: Value, high: float) -> Value:
    """min(x, high); a NaN stays."""
    limit = real(e, x, high)
    return e.select(e.compare("olt", limit, x), limit, x)


def is_nan(e: Emitter, x: Value) -> Value:
    """True in the lanes that are NaN."""
    return e.compare("uno", x, x)


def copy_sign(e: Emitter, magnitude: Value, sign: Value) -> Value:
    """|magnitude| with the sign bit of `sign`."""
    return e.intrinsic("copysign", [magnitude, sign])


def any_lane(e: Emitter, condition: Value) -> Value:
    """A scalar i1: does the condition hold in some lane?"""
    return e.reduce("or", condition)


def times_if(e: Emitter, condition: Value, count: int) -> Value:
    """A trip count: `count` if the condition holds in some lane, else 0. A loop of that many turns is a branch with a result."""
    return e.select(any_lane(e, condition), e.const(count), e.const(0))


def is_number(x: Value) -> bool:
    """Whether `x` is a literal other than NaN."""
    literal = x.text.startswith(("splat (", "0x")) or x.text == "zeroinitializer"
    return literal and "0x7FF8" not in x.text


def absolute(e: Emitter, x: Value) -> Value:
    """|x|: the sign bit cleared."""
    return e.intrinsic("fabs", [x])


def sign(e: Emitter, x: Value) -> Value:
    """-1, 0 or 1; NaN for NaN (numpy.sign)."""
    one = copy_sign(e, real(e, x, 1.0), x)
    return e.select(e.compare("one", x, real(e, x, 0.0)), one, add(e, x, real(e, x, 0.0)))


def fmin(e: Emitter, a: Value, b: Value) -> Value:
    """The smaller; NaN if either is NaN (numpy.minimum, ONNX Min). With a literal it is one instruction: the other operand wins ties."""
    if is_number(a) or is_number(b):
        a, b = (b, a) if is_number(b) else (a, b)
        return e.select(e.compare("olt", a, b), a, b)
    return e.extreme("minimum", b, a)


def fmax(e: Emitter, a: Value, b: Value) -> Value:
    """The larger; NaN if either is NaN (numpy.maximum, ONNX Max). With a literal it is one instruction: the other operand wins ties."""
    if is_number(a) or is_number(b):
        a, b = (b, a) if is_number(b) else (a, b)
        return e.select(e.compare("ogt", a, b), a, b)
    return e.extreme("maximum", b, a)


def floor(e: Emitter, x: Value) -> Value:
    """The next integer at or below."""
    return e.intrinsic("floor", [x])


def ceil(e: Emitter, x: Value) -> Value:
    """The next integer at or above."""
    return e.intrinsic("ceil", [x])


def trunc(e: Emitter, x: Value) -> Value:
    """The integer part."""
    return e.intrinsic("trunc", [x])


def round_half_even(e: Emitter, x: Value) -> Value:
    """To the nearest integer, halves to the even one (numpy.round, ONNX Round)."""
    return e.intrinsic("roundeven", [x])


def nearest(e: Emitter, x: Value) -> Value:
    """To the nearest integer as an int32, halves to the even one; x must lie within its range."""
    result = vector_type("i32", x.lanes)
    return e.call(f"llvm.lrint.{mangle(result)}.{mangle(x.type)}", result, [x])


def sqrt(e: Emitter, x: Value) -> Value:
    """The square root, correctly rounded; NaN below zero."""
    return e.intrinsic("sqrt", [x])


def rsqrt(e: Emitter, x: Value) -> Value:
    """1 / sqrt(x) with two roundings."""
    return reciprocal(e, sqrt(e, x))


def reciprocal(e: Emitter, x: Value) -> Value:
    """1 / x, correctly rounded."""
    return div(e, real(e, x, 1.0), x)


def nan(e: Emitter, like: Value) -> Value:
    """NaN in every lane."""
    return real(e, like, math.nan)


def infinity(e: Emitter, like: Value) -> Value:
    """+inf in every lane."""
    return real(e, like, math.inf)
