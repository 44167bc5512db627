"""Backward of activations: what an operand's gradient is, from the result's gradient and the activation's operand or result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
import math
from typing import Any

import numpy as np

from anycann.graph.ops.common import OTHER_FLOATS, elementwise, floats, integers, like_first, retyped
from anycann.graph.ops.device import DOMAIN
from anycann.graph.registry import Lowering, Sample, Samples, operator
from anycann.te import expression as x
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor

Array = np.ndarray[Any, Any]
Slope = Callable[[Lowering, Expr], Expr]


def _samples(*choices: dict[str, object], low: float = -4.0, high: float = 4.0) -> Samples:
    def draw(rng: np.random.Generator) -> Iterable[Sample]:
        for attributes in choices or ({},):
            for shape in ((), (37,), (3, 17), (2, 20, 3, 5)):
                yield Sample((floats(rng, *shape), floats(rng, *shape, low=low, high=high)), attributes)
            yield from retyped(Sample((floats(rng, 3, 20), floats(rng, 3, 20, low=low, high=high)), attributes), OTHER_FLOATS[:2])

    return draw


def _gradient(op_type: str, slope: Slope, reference: Callable[..., Array], samples: Samples | None = None) -> None:
    """Define `op_type`(dy, a): dy times `slope` of a. reference(a, **attributes): the slope in numpy."""

    def by_numpy(dy: Array, a: Array, **attributes: object) -> Array:
        return np.asarray(dy * reference(a, **attributes), dy.dtype)

    @operator(op_type, domain=DOMAIN, samples=samples or _samples(), infer=like_first, reference=by_numpy)
    def lower(context: Lowering) -> Tensor:
        return elementwise(context, lambda dy, a: dy * slope(context, a), context.operand(0), context.operand(1))


def _passing(op_type: str, passes: Slope, reference: Callable[..., Array], samples: Samples | None = None) -> None:
    """Define `op_type`(dy, a): dy where `passes` of a, else exactly 0. reference(a, **attributes): the same truth in numpy."""

    def by_numpy(dy: Array, a: Array, **attributes: object) -> Array:
        return np.where(reference(a, **attributes), dy, np.zeros_like(dy))

    @operator(op_type, domain=DOMAIN, samples=samples or _samples(), infer=like_first, reference=by_numpy)
    def lower(context: Lowering) -> Tensor:
        return elementwise(context, lambda dy, a: x.select(passes(context, a), dy, 0), context.operand(0), context.operand(1))


# ---- of the result
_gradient("SigmoidGrad", lambda _, y: y * (1 - y), lambda y: y * (1 - y), _samples(low=0.0, high=1.0))
_gradient("TanhGrad", lambda _, y: 1 - y * y, lambda y: 1 - y * y, _samples(low=-1.0, high=1.0))

# ---- piecewise
_passing(
    "ThresholdGrad",
    lambda context, a: x.logical_not(a <= context.number("threshold")),
    lambda a, threshold=0.0: ~(a <= threshold),
    _samples({}, {"threshold": 1.5}),
)
_passing(
    "HardTanhGrad",
    lambda context, a: (a > context.number("min", -1.0)) & (a < context.number("max", 1.0)),
    lambda a, min=-1.0, max=1.0: (a > min) & (a < max),
    _samples({}, {"min": 0.0, "max": 6.0}, high=9.0),
)
_gradient(
    "HardSigmoidGrad",
    lambda _, a: x.select((a > -3.0) & (a < 3.0), x.const(1 / 6, a.dtype), 0.0),
    lambda a: np.where((a > -3) & (a < 3), 1 / 6, 0),
)
_gradient(
    "LeakyReluGrad",
    lambda context, a: x.select(a > 0.0, x.const(1, a.dtype), context.number("alpha", 0.01)),
    lambda a, alpha=0.01: np.where(a > 0, 1, alpha),
    _samples({}, {"alpha": 0.2}),
)
_gradient(
    "HardSwishGrad",
    lambda _, a: x.select(a < -3.0, x.const(0, a.dtype), x.select(a <= 3.0, a * (1 / 3) + 0.5, x.const(1, a.dtype))),
    lambda a: np.where(a < -3, 0, np.where(a <= 3, a / 3 + 0.5, 1)),
)


# ---- smooth
def _silu(_: Lowering, a: Expr) -> Expr:
    gate = x.unary("sigmoid", a)
    return gate * (1 + a * (1 - gate))


def _sigmoid_by_numpy(a: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-a)))


def _silu_by_numpy(a: Array) -> Array:
    gate = _sigmoid_by_numpy(a)
    return np.asarray(gate * (1 + a * (1 - gate)))


def _mish(_: Lowering, a: Expr) -> Expr:
    bend = x.unary("tanh", x.unary("softplus", a))
    return bend + a * x.unary("sigmoid", a) * (1 - bend * bend)


def _mish_by_numpy(a: Array) -> Array:
    bend = np.tanh(np.log1p(np.exp(a)))
    return np.asarray(bend + a * _sigmoid_by_numpy(a) * (1 - bend**2))


_gradient("SiluGrad", _silu, _silu_by_numpy)
_gradient("MishGrad", _mish, _mish_by_numpy)
_gradient("LogSigmoidGrad", lambda _, a: x.unary("sigmoid", -a), lambda a: _sigmoid_by_numpy(-a))

_CUBE = 0.044715


def _gelu(context: Lowering, a: Expr) -> Expr:
    if context.text("approximate", "none") == "tanh":
        bend = x.unary("tanh", math.sqrt(2 / math.pi) * (a + _CUBE * a * a * a))
        steepness = math.sqrt(2 / math.pi) * (1 + 3 * _CUBE * a * a)
        return 0.5 * (1 + bend) + 0.5 * a * (1 - bend * bend) * steepness
    share = 0.5 * (1 + x.unary("erf", a * math.sqrt(0.5)))
    return share + a * (x.unary("exp", -0.5 * (a * a)) * (1 / math.sqrt(2 * math.pi)))


def _gelu_by_numpy(a: Array, approximate: str = "none") -> Array:
    if approximate == "tanh":
        bend = np.tanh(math.sqrt(2 / math.pi) * (a + _CUBE * a**3))
        return np.asarray(0.5 * (1 + bend) + 0.5 * a * (1 - bend**2) * math.sqrt(2 / math.pi) * (1 + 3 * _CUBE * a**2))
    share = 0.5 * (1 + np.vectorize(math.erf, otypes=[np.float64])(a / math.sqrt(2)))
    return np.asarray(share + a * np.exp(-(a**2) / 2) / math.sqrt(2 * math.pi))


_gradient("GeluGrad", _gelu, _gelu_by_numpy, _samples({}, {"approximate": "tanh"}))


def _elu(context: Lowering, a: Expr) -> Expr:
    scale, inside = context.number("scale", 1.0), context.number("input_scale", 1.0)
    below = context.number("alpha", 1.0) * scale * inside * x.unary("exp", x.minimum(a * inside, 0.0))
    return x.select(a > 0.0, x.const(scale, a.dtype), below)


def _elu_by_numpy(a: Array, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Array:
    return np.where(a > 0, scale, alpha * scale * input_scale * np.exp(a * input_scale))


_gradient("EluGrad", _elu, _elu_by_numpy, _samples({}, {"alpha": 1.5, "scale": 1.0625, "input_scale": 0.5}))


def _softplus(context: Lowering, a: Expr) -> Expr:
    beta, threshold = context.number("beta", 1.0), context.number("threshold", 20.0)
    return x.select(a * beta > threshold, x.const(1, a.dtype), x.unary("sigmoid", a * beta))


_gradient(
    "SoftplusGrad",
    _softplus,
    lambda a, beta=1.0, threshold=20.0: np.where(a * beta > threshold, 1, _sigmoid_by_numpy(a * beta)),
    _samples({}, {"beta": 2.0, "threshold": 3.0}),
)


# ---- dropout
def _dropout_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape in ((), (37,), (3, 17), (2, 20, 3, 5)):
        yield Sample((floats(rng, *shape), integers(rng, *shape, low=0, high=1, dtype="bool")), {"scale": 1.25})
    yield from retyped(Sample((floats(rng, 3, 20), integers(rng, 3, 20, low=0, high=1, dtype="bool")), {"scale": 2.0}), OTHER_FLOATS[:2])


@operator(
    "DropoutGrad",
    domain=DOMAIN,
    samples=_dropout_samples,
    infer=like_first,
    reference=lambda dy, mask, scale=1.0: np.asarray(dy * mask * scale, dy.dtype),
)
def dropout_gradient(context: Lowering) -> Tensor:
    """dy * scale where the mask is true."""
    scale = context.number("scale", 1.0)
    return elementwise(context, lambda dy, kept: x.select(kept, dy * scale, 0), context.operand(0), context.operand(1))
