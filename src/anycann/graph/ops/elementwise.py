"""Arithmetic and activations: one output element from the operands' elements at the same (broadcast) place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
import math

import numpy as np

from anycann.graph.ops import floats_on_host
from anycann.graph.ops.common import (
    INTEGERS,
    OTHER_FLOATS,
    binary_samples,
    elementwise,
    floats,
    integers,
    like_first,
    retyped,
    unary_samples,
)  # fmt: skip
from anycann.graph.registry import Host, Lowering, Sample, Samples, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor


def _unary(op_type: str, function: Callable[[Expr], Expr], samples: Samples | None = None, quick: Host | None = None) -> None:
    @operator(op_type, samples=samples or unary_samples(), quick=quick)
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
    ("Exp", "exp", -5, 5), ("Log", "log", 0.01, 9), ("Sqrt", "sqrt", 0, 9), ("Tanh", "tanh", -4, 4),
    ("Sigmoid", "sigmoid", -9, 9), ("Sin", "sin", -9, 9), ("Cos", "cos", -9, 9), ("Tan", "tan", -1, 1), ("Floor", "floor", -5, 5),
    ("Ceil", "ceil", -5, 5), ("Round", "round", -5, 5), ("Softplus", "softplus", -9, 9), ("Asin", "asin", -1, 1), ("Acos", "acos", -1, 1),
    ("Atan", "atan", -9, 9), ("Sinh", "sinh", -3, 3), ("Cosh", "cosh", -3, 3), ("Asinh", "asinh", -9, 9), ("Acosh", "acosh", 1, 9),
    ("Atanh", "atanh", -0.9, 0.9),
):  # fmt: skip
    _unary(_op_type, named(_name), unary_samples(_low, _high))


def _sign(a: Expr) -> Expr:
    if a.dtype.is_float:
        return x.unary("sign", a)
    positive = x.select(a > 0, x.const(1, a.dtype), x.const(0, a.dtype))
    return positive if a.dtype.kind == "uint" else x.select(a < 0, x.const(-1, a.dtype), positive)


def _with_integers(signed: bool = False) -> Samples:
    """Float operands, and integers of every width."""
    names = ("int8", "int16", "int32", "int64") if signed else INTEGERS

    def draw(rng: np.random.Generator) -> Iterable[Sample]:
        yield from unary_samples()(rng)
        yield from retyped(Sample((floats(rng, 3, 20, low=-90, high=90),)), (*OTHER_FLOATS, *names))

    return draw


_unary("Abs", named("abs"), _with_integers())
_unary("Neg", named("neg"), _with_integers(signed=True))
_unary("Sign", _sign, _with_integers())
_unary("Relu", lambda a: x.maximum(a, 0), _with_integers(signed=True))
_unary("Reciprocal", lambda a: x.const(1.0, a.dtype) / a, unary_samples(0.5, 3))
_unary("Softsign", lambda a: a / (x.unary("abs", a) + 1.0), lambda rng: [Sample((floats(rng, *s),)) for s in ((1,), (3, 17), (2, 5, 4, 3))])
# onnx.reference computes erf, and the constants of HardSwish and Gelu, in float32
_unary("HardSwish", lambda a: a * x.clamp_to_unit(a * (1 / 6) + 0.5), unary_samples(types=["float16"]))
_unary("Erf", named("erf"), unary_samples(types=["float16"]), floats_on_host.error_function)
_unary("Mish", lambda a: a * x.unary("tanh_of_softplus", a))


def _arithmetic_samples(low: float, high: float) -> Samples:
    """Broadcast floats, and integers of every width."""

    def draw(rng: np.random.Generator) -> Iterable[Sample]:
        yield from binary_samples(low, high)(rng)
        pair = Sample((floats(rng, 3, 20, low=low * 9, high=high * 9), floats(rng, 20, low=low * 3, high=high * 3)))
        yield from retyped(pair, (*OTHER_FLOATS, *INTEGERS, "uint32", "int16"))

    return draw


_binary("Add", lambda a, b: a + b, _arithmetic_samples(-3, 3))
_binary("Sub", lambda a, b: a - b, _arithmetic_samples(0.5, 3))
_binary("Mul", lambda a, b: a * b, _arithmetic_samples(-3, 3))
_binary("Div", lambda a, b: a / b, _arithmetic_samples(0.5, 3))


def _power_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield from binary_samples(0.5, 3)(rng)
    for exponent in (1, 2, 3, 0.5, -1.5):
        yield Sample((floats(rng, 3, 17, low=0.1), np.array(exponent, np.float32)), constant=(1,))
    yield Sample((integers(rng, 3, 17, low=-5, high=5), integers(rng, 17, low=0, high=6)))
    yield Sample((integers(rng, 3, 17, low=-5, high=5, dtype="int32"), np.array(2, np.float32)), constant=(1,))
    yield Sample((floats(rng, 3, 17), integers(rng, 17, low=0, high=4)))


@operator("Pow", samples=_power_samples)
def power(context: Lowering) -> Tensor:
    """x ** y; small constant exponents are multiplications and square roots, integers are raised in float64."""
    base, exponent = context.operand(0), context.operand(1)
    known = context.node.inputs[1].const_value if context.node.inputs[1] is not None else None
    value = float(known.numpy().reshape(-1)[0]) if known is not None and known.size == 1 else math.nan
    special: dict[float, Callable[[Expr], Expr]] = {1.0: lambda a: a, 2.0: lambda a: a * a, 3.0: lambda a: a * a * a, 0.5: named("sqrt")}
    if value in special and (base.dtype.is_float or value != 0.5):
        return elementwise(context, special[value], base)
    work = base.dtype if base.dtype.is_float else dtypes.float64

    def raised(a: Expr, b: Expr) -> Expr:
        result = x.binary("pow", x.cast(a, work), x.cast(b, work))
        return result if base.dtype.is_float else x.cast(x.unary("round", result), base.dtype)

    return elementwise(context, raised, base, exponent)


def _fold(op_type: str, function: Callable[[Expr, Expr], Expr], types: tuple[str, ...] = OTHER_FLOATS) -> None:
    """Variadic operators."""

    def draw(rng: np.random.Generator) -> Iterable[Sample]:
        yield from binary_samples()(rng)
        yield Sample((floats(rng, 3, 17),))
        yield Sample((floats(rng, 3, 17), floats(rng, 17), floats(rng, 3, 1)))
        yield from retyped(Sample((floats(rng, 3, 20, low=-90, high=90), floats(rng, 20))), types)

    @operator(op_type, samples=draw)
    def lower(context: Lowering) -> Tensor:
        def all_of(*parts: Expr) -> Expr:
            total = parts[0]
            for part in parts[1:]:
                total = function(total, part)
            return total

        return elementwise(context, all_of, *(context.operand(i) for i in range(len(context.inputs))))


_fold("Max", x.maximum, (*OTHER_FLOATS, *INTEGERS))
_fold("Min", x.minimum, (*OTHER_FLOATS, *INTEGERS))
_fold("Sum", lambda a, b: a + b)


@operator("Mean", samples=lambda rng: [Sample((floats(rng, 3, 17),) * n) for n in (1, 3)] + [Sample((floats(rng, 3, 5), floats(rng, 5)))])
def mean(context: Lowering) -> Tensor:
    """The mean of the operands, broadcast."""
    count = len(context.inputs)
    return elementwise(context, lambda *parts: sum(parts[1:], parts[0]) / count, *(context.operand(i) for i in range(count)))


@operator("LeakyRelu", samples=unary_samples(attributes={"alpha": 0.2}))
def leaky_relu(context: Lowering) -> Tensor:
    """x, or alpha x where it is negative."""
    alpha = context.number("alpha")
    return elementwise(context, lambda a: x.select(a < 0, a * alpha, a), context.operand(0))


def _prelu_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, slope in (((37,), (37,)), ((2, 3, 5), (5,)), ((1, 20, 3, 3), (20, 1, 1)), ((3, 17), (1,))):
        yield Sample((floats(rng, *shape), floats(rng, *slope)))


@operator("PRelu", samples=_prelu_samples)
def prelu(context: Lowering) -> Tensor:
    """x, or slope x where it is negative."""
    return elementwise(context, lambda a, slope: x.select(a < 0, a * slope, a), context.operand(0), context.operand(1))


@operator("ThresholdedRelu", samples=unary_samples(attributes={"alpha": 0.7}))
def thresholded_relu(context: Lowering) -> Tensor:
    """x where it is above alpha, else 0."""
    alpha = context.number("alpha")
    return elementwise(context, lambda a: x.select(a > alpha, a, 0.0), context.operand(0))


@operator("Elu", samples=unary_samples(attributes={"alpha": 0.7}))
def elu(context: Lowering) -> Tensor:
    """x, or alpha (e^x - 1) where it is negative."""
    alpha = context.number("alpha")
    return elementwise(context, lambda a: x.select(a < 0, (x.unary("exp", a) - 1.0) * alpha, a), context.operand(0))


@operator("Selu", samples=unary_samples())
def selu(context: Lowering) -> Tensor:
    """Elu, scaled by gamma."""
    alpha, gamma = context.number("alpha"), context.number("gamma")
    return elementwise(context, lambda a: x.select(a > 0, a, x.unary("exp", a) * alpha - alpha) * gamma, context.operand(0))


@operator("Celu", samples=unary_samples(attributes={"alpha": 0.7}, types=()))
def celu(context: Lowering) -> Tensor:
    """max(0, x) + min(0, alpha (e^(x / alpha) - 1))."""
    alpha = context.number("alpha")
    return elementwise(
        context, lambda a: x.maximum(a, 0.0) + x.minimum((x.unary("exp", a * (1 / alpha)) - 1.0) * alpha, 0.0), context.operand(0)
    )


@operator("HardSigmoid", samples=unary_samples(attributes={"alpha": 0.3, "beta": 0.4}))
def hard_sigmoid(context: Lowering) -> Tensor:
    """alpha x + beta, held within 0..1."""
    alpha, beta = context.number("alpha"), context.number("beta")
    return elementwise(context, lambda a: x.clamp_to_unit(a * alpha + beta), context.operand(0))


def _gelu_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield from unary_samples(types=["float16"])(rng)
    yield from unary_samples(attributes={"approximate": "tanh"}, types=["float16"])(rng)


@operator("Gelu", samples=_gelu_samples, quick=floats_on_host.gelu)
def gelu(context: Lowering) -> Tensor:
    """x times the normal distribution function of x, or its tanh approximation."""
    return elementwise(context, named("gelu_tanh" if context.text("approximate") == "tanh" else "gelu"), context.operand(0))


def _microsoft_gelu(op_type: str, function: Callable[[Expr], Expr], biased: bool) -> None:
    def draw(rng: np.random.Generator) -> Iterable[Sample]:
        for shape in ((37,), (2, 3, 20)):
            yield Sample((floats(rng, *shape), floats(rng, shape[-1])) if biased else (floats(rng, *shape),))

    @operator(op_type, domain="com.microsoft", samples=draw, infer=like_first)
    def lower(context: Lowering) -> Tensor:
        if not context.has(1):
            return elementwise(context, function, context.operand(0))
        return elementwise(context, lambda a, b: function(a + b), context.operand(0), context.operand(1))


_microsoft_gelu("Gelu", named("gelu"), biased=False)
_microsoft_gelu("BiasGelu", named("gelu"), biased=True)
_microsoft_gelu("FastGelu", named("gelu_tanh"), biased=True)


def _clip_samples(rng: np.random.Generator) -> Iterable[Sample]:
    low, high = np.array(-1, np.float32), np.array(1.5, np.float32)
    for bounds in ((), (low,), (None, high), (low, high)):
        yield Sample((floats(rng, 3, 17), *bounds))
        yield Sample((floats(rng, 2, 5, 4, 3), *bounds), constant=(1, 2))
    yield from retyped(Sample((floats(rng, 3, 20, low=-90, high=90), low, high)), (*OTHER_FLOATS, "int8", "int32", "int64"))


@operator("Clip", samples=_clip_samples)
def clip(context: Lowering) -> Tensor:
    """Held between two scalars, either of which may be absent."""
    operands = [context.operand(i) for i in range(3) if context.has(i)]
    low, high = context.has(1), context.has(2)

    def clamp(a: Expr, *bounds: Expr) -> Expr:
        return x.clamp(a, bounds[0] if low else None, bounds[-1] if high else None)

    return elementwise(context, clamp, *operands)


@operator("Shrink", samples=unary_samples(attributes={"lambd": 0.7, "bias": 0.3}))
def shrink(context: Lowering) -> Tensor:
    """Moved towards zero by `bias`; zero where |x| <= lambd."""
    bias, limit = context.number("bias"), context.number("lambd")
    return elementwise(context, lambda a: x.select(a < -limit, a + bias, x.select(a > limit, a - bias, 0.0)), context.operand(0))


def _swish_of(context: Lowering, alpha: float) -> Tensor:
    return elementwise(context, named("silu") if alpha == 1 else lambda a: a * x.unary("sigmoid", a * alpha), context.operand(0))


@operator("Swish", samples=unary_samples(attributes={"alpha": 1.3}), infer=like_first)
def swish(context: Lowering) -> Tensor:
    """x * sigmoid(alpha x)."""
    return _swish_of(context, context.number("alpha", 1.0))


@operator("QuickGelu", domain="com.microsoft", samples=unary_samples(), infer=like_first)
def quick_gelu(context: Lowering) -> Tensor:
    """x * sigmoid(1.702 x)."""
    return _swish_of(context, context.number("alpha", 1.702))
