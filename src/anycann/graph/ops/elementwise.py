"""Arithmetic and activations: one output element from the operands' elements at the same (broadcast) place."""

from __future__ import annotations

from collections.abc import Callable
import math


from anycann.graph.ops.common import binary_samples, elementwise, unary_samples
from anycann.graph.registry import Lowering, NotLowered, Samples, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te.dtypes import DType
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor


def _unary(op_type: str, function: Callable[[Expr], Expr], samples: Samples | None = None) -> None:
    @operator(op_type, samples=samples or unary_samples())
    def lower(context: Lowering) -> Tensor:
        return elementwise(context, function, context.operand(0))


def _binary(op_type: str, function: Callable[[Expr, Expr], Expr], samples: Samples | None = None) -> None:
    @operator(op_type, samples=samples or binary_samples())
    def lower(context: Lowering) -> Tensor:
        return elementwise(context, function, context.operand(0), context.operand(1))


def named(name: str) -> Callable[[Expr], Expr]:
    """The function of codegen/vector_math.py called `name`."""
    return lambda a: x.unary(name, a)


for _op_type, _name, _low, _high in (
    ("Exp", "exp", -5, 5), ("Log", "log", 0.01, 9), ("Sqrt", "sqrt", 0, 9), ("Tanh", "tanh", -4, 4), ("Erf", "erf", -3, 3),
    ("Sigmoid", "sigmoid", -9, 9), ("Sin", "sin", -9, 9), ("Cos", "cos", -9, 9), ("Tan", "tan", -1, 1), ("Floor", "floor", -5, 5),
    ("Ceil", "ceil", -5, 5), ("Round", "round", -5, 5), ("Softplus", "softplus", -9, 9), ("Asin", "asin", -1, 1), ("Acos", "acos", -1, 1),
    ("Atan", "atan", -9, 9), ("Sinh", "sinh", -3, 3), ("Cosh", "cosh", -3, 3), ("Asinh", "asinh", -9, 9), ("Acosh", "acosh", 1, 9),
    ("Atanh", "atanh", -0.9, 0.9), ("Abs", "abs", -3, 3), ("Neg", "neg", -3, 3), ("Sign", "sign", -3, 3),
):  # fmt: skip
    _unary(_op_type, named(_name), unary_samples(_low, _high))

_unary("Relu", lambda a: x.maximum(a, 0))
_unary("Reciprocal", lambda a: x.const(1.0, a.dtype) / a, unary_samples(0.5, 3))
_unary("Softsign", lambda a: a / (x.unary("abs", a) + 1.0))
_unary("HardSwish", lambda a: a * x.clamp(a * (1 / 6) + 0.5, 0.0, 1.0))
_unary("Mish", lambda a: a * x.unary("tanh", x.unary("softplus", a)))

_binary("Add", lambda a, b: a + b)
_binary("Sub", lambda a, b: a - b)
_binary("Mul", lambda a, b: a * b)
_binary("Div", lambda a, b: a / b, binary_samples(0.5, 3))


@operator("Pow", samples=binary_samples(0.5, 3))
def power(context: Lowering) -> Tensor:
    """x ** y; small constant exponents are multiplications and square roots."""
    base, exponent = context.operand(0), context.operand(1)
    if not base.dtype.is_float or not exponent.dtype.is_float:
        raise NotLowered(f"power of {base.dtype} to {exponent.dtype}")
    known = context.node.inputs[1].const_value if context.node.inputs[1] is not None else None
    value = float(known.numpy().reshape(-1)[0]) if known is not None and known.size == 1 else math.nan
    special: dict[float, Callable[[Expr], Expr]] = {1.0: lambda a: a, 2.0: lambda a: a * a, 3.0: lambda a: a * a * a, 0.5: named("sqrt")}
    if value in special:
        return elementwise(context, special[value], base)
    return elementwise(context, lambda a, b: x.binary("pow", a, x.cast(b, a.dtype)), base, exponent)


def _fold(op_type: str, function: Callable[[Expr, Expr], Expr]) -> None:
    """Variadic operators."""

    @operator(op_type, samples=binary_samples())
    def lower(context: Lowering) -> Tensor:
        def all_of(*parts: Expr) -> Expr:
            total = parts[0]
            for part in parts[1:]:
                total = function(total, part)
            return total

        return elementwise(context, all_of, *(context.operand(i) for i in range(len(context.inputs))))


_fold("Max", x.maximum)
_fold("Min", x.minimum)
_fold("Sum", lambda a, b: a + b)


@operator("Mean", samples=binary_samples())
def mean(context: Lowering) -> Tensor:
    count = len(context.inputs)
    return elementwise(context, lambda *parts: sum(parts[1:], parts[0]) / count, *(context.operand(i) for i in range(count)))


@operator("LeakyRelu", samples=unary_samples(attributes={"alpha": 0.2}))
def leaky_relu(context: Lowering) -> Tensor:
    alpha = context.number("alpha")
    return elementwise(context, lambda a: x.select(a < 0, a * alpha, a), context.operand(0))


@operator("PRelu", samples=binary_samples())
def prelu(context: Lowering) -> Tensor:
    return elementwise(context, lambda a, slope: x.select(a < 0, a * slope, a), context.operand(0), context.operand(1))


@operator("ThresholdedRelu", samples=unary_samples(attributes={"alpha": 0.7}))
def thresholded_relu(context: Lowering) -> Tensor:
    alpha = context.number("alpha")
    return elementwise(context, lambda a: x.select(a > alpha, a, 0.0), context.operand(0))


@operator("Elu", samples=unary_samples(attributes={"alpha": 0.7}))
def elu(context: Lowering) -> Tensor:
    alpha = context.number("alpha")
    return elementwise(context, lambda a: x.select(a < 0, (x.unary("exp", a) - 1.0) * alpha, a), context.operand(0))


@operator("Selu", samples=unary_samples())
def selu(context: Lowering) -> Tensor:
    alpha, gamma = context.number("alpha"), context.number("gamma")
    return elementwise(context, lambda a: x.select(a > 0, a, x.unary("exp", a) * alpha - alpha) * gamma, context.operand(0))


@operator("Celu", samples=unary_samples(attributes={"alpha": 0.7}))
def celu(context: Lowering) -> Tensor:
    alpha = context.number("alpha")
    return elementwise(
        context, lambda a: x.maximum(a, 0.0) + x.minimum((x.unary("exp", a * (1 / alpha)) - 1.0) * alpha, 0.0), context.operand(0)
    )


@operator("HardSigmoid", samples=unary_samples(attributes={"alpha": 0.3, "beta": 0.4}))
def hard_sigmoid(context: Lowering) -> Tensor:
    alpha, beta = context.number("alpha"), context.number("beta")
    return elementwise(context, lambda a: x.clamp(a * alpha + beta, 0.0, 1.0), context.operand(0))


@operator("Gelu", samples=unary_samples())
def gelu(context: Lowering) -> Tensor:
    if context.text("approximate") == "tanh":
        scale = math.sqrt(2 / math.pi)
        return elementwise(
            context, lambda a: a * 0.5 * (x.unary("tanh", (a + a * a * a * 0.044715) * scale) + 1.0), context.operand(0)
        )
    return elementwise(context, lambda a: a * 0.5 * (x.unary("erf", a * (1 / math.sqrt(2))) + 1.0), context.operand(0))


@operator("Clip", samples=unary_samples())
def clip(context: Lowering) -> Tensor:
    operands = [context.operand(i) for i in range(3) if context.has(i)]
    low, high = context.has(1), context.has(2)

    def clamp(a: Expr, *bounds: Expr) -> Expr:
        return x.clamp(a, bounds[0] if low else None, bounds[-1] if high else None)

    return elementwise(context, clamp, *operands)


def _compare(op_type: str, name: str) -> None:
    @operator(op_type, samples=binary_samples())
    def lower(context: Lowering) -> Tensor:
        return elementwise(context, lambda a, b: x.compare(name, a, b), context.operand(0), context.operand(1))


for _op_type, _name in (("Equal", "eq"), ("Less", "lt"), ("LessOrEqual", "le"), ("Greater", "gt"), ("GreaterOrEqual", "ge")):
    _compare(_op_type, _name)


def _logical(op_type: str, name: str) -> None:
    _binary(op_type, lambda a, b: x.binary(name, a, b), lambda rng: [])


for _op_type, _name in (("And", "and"), ("Or", "or"), ("Xor", "xor"), ("BitwiseAnd", "and"), ("BitwiseOr", "or"), ("BitwiseXor", "xor")):
    _logical(_op_type, _name)
_unary("Not", x.logical_not, lambda rng: [])
_unary("BitwiseNot", x.logical_not, lambda rng: [])


@operator("Where")
def where(context: Lowering) -> Tensor:
    return elementwise(context, x.select, context.operand(0), context.operand(1), context.operand(2))


@operator("IsNaN", samples=unary_samples())
def is_nan(context: Lowering) -> Tensor:
    return elementwise(context, lambda a: x.not_equal(a, a), context.operand(0))


@operator("IsInf", samples=unary_samples())
def is_inf(context: Lowering) -> Tensor:
    positive, negative = context.integer("detect_positive"), context.integer("detect_negative")

    def infinite(a: Expr) -> Expr:
        above = x.equal(a, math.inf) if positive else x.const(False, dtypes.bool_)
        below = x.equal(a, -math.inf) if negative else x.const(False, dtypes.bool_)
        return above | below

    return elementwise(context, infinite, context.operand(0))


@operator("Cast", samples=unary_samples(attributes={"to": 7}))
def cast(context: Lowering) -> Tensor:
    return _cast(context, context.outputs[0].dtype)


@operator("CastLike")
def cast_like(context: Lowering) -> Tensor:
    return _cast(context, context.outputs[0].dtype)


def _cast(context: Lowering, dtype: DType) -> Tensor:
    return elementwise(context, lambda a: x.cast(a, dtype), context.operand(0))


@operator("Mod")
def modulo(context: Lowering) -> Tensor:
    """Integers: the sign of the divisor (Python); fmod=1: the sign of the dividend (C)."""
    a = context.operand(0)
    name = "rem" if context.integer("fmod") else "floormod"
    if a.dtype.is_float:
        name = "fmod" if context.integer("fmod") else "mod"
    return elementwise(context, lambda p, q: x.binary(name, p, q), a, context.operand(1))


@operator("BitShift")
def bit_shift(context: Lowering) -> Tensor:
    name = "shl" if context.text("direction") == "LEFT" else "shr"
    return elementwise(context, lambda a, b: x.binary(name, a, b), context.operand(0), context.operand(1))


