"""Steps of optimisers: parameter, gradient and moments in, all of them moved out, one pass over memory.

Hyperparameters are operands of one element, so that a schedule changes them without another kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import floats, retyped
from anycann.graph.ops.device import DOMAIN
from anycann.graph.registry import Lowering, Sample, TensorType, operator
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor

Array = np.ndarray[Any, Any]
_SHAPES = ((), (37,), (3, 17), (2, 20, 3, 5))


def _all_like_first(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    assert inputs[0] is not None
    return [inputs[0]] * len(node.outputs)


def _flag(context: Lowering, name: str) -> bool:
    return context.integer(name) == 1


def _parameter(context: Lowering, number: int) -> Expr:
    """The element of an operand of one element, in the type of the parameter."""
    tensor = context.operand(number)
    return x.cast(tensor[tuple(x.const(0, te.axes_of((1,))[0].dtype) for _ in tensor.shape)], context.operand(0).dtype)


# ---- gradient descent with momentum
def _sgd_by_numpy(
    p: Array,
    g: Array,
    buffer: Array | None,
    rate: Array,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: int = 0,
    maximize: int = 0,
    first: int = 0,
) -> tuple[Array, ...]:
    step = (-g if maximize else g) + weight_decay * p
    moved = step if first or buffer is None else momentum * buffer + (1 - dampening) * step
    if momentum:
        step = step + momentum * moved if nesterov else moved
    return np.asarray(p - rate.reshape(()) * step, p.dtype), np.asarray(moved, p.dtype)


def _sgd_samples(rng: np.random.Generator) -> Iterable[Sample]:
    rate = np.array(0.125, np.float32)
    for shape in _SHAPES:
        operands = (floats(rng, *shape), floats(rng, *shape), floats(rng, *shape), rate)
        yield Sample((*operands[:2], None, rate), {"weight_decay": 0.25})
        yield Sample(operands, {"momentum": 0.5, "dampening": 0.25, "maximize": 1}, outputs=2)
        yield Sample(operands, {"momentum": 0.5, "nesterov": 1, "weight_decay": 0.125}, outputs=2)
        yield Sample(operands, {"momentum": 0.5, "first": 1}, outputs=2)
    yield from retyped(Sample(operands, {"momentum": 0.5}, outputs=2), ("float64",))


@operator("SgdStep", domain=DOMAIN, samples=_sgd_samples, infer=_all_like_first, reference=_sgd_by_numpy)
def sgd_step(context: Lowering) -> Sequence[Tensor]:
    """Operands parameter, gradient, momentum buffer?, rate (one element); results parameter and buffer.

    first=1: the buffer begins as the gradient, whatever it held.
    """
    p, g = context.operand(0), context.operand(1)
    momentum = context.number("momentum")
    buffer = context.operand(2) if context.has(2) and not _flag(context, "first") else None

    def gradient(index: tuple[Expr, ...]) -> Expr:
        value: Expr = -g[index] if _flag(context, "maximize") else g[index]
        return value + context.number("weight_decay") * p[index] if context.number("weight_decay") else value

    def moved(index: tuple[Expr, ...]) -> Expr:
        return gradient(index) if buffer is None else momentum * buffer[index] + (1 - context.number("dampening")) * gradient(index)

    def parameter(*index: Expr) -> Expr:
        step = gradient(index) if not momentum else moved(index)
        if momentum and _flag(context, "nesterov"):
            step = gradient(index) + momentum * moved(index)
        return p[index] - _parameter(context, 3) * step

    return [te.compute(p.shape, parameter), te.compute(p.shape, lambda *index: moved(index))][: len(context.outputs)]


# ---- Adam
def _adam_by_numpy(
    p: Array,
    g: Array,
    mean: Array,
    square: Array,
    largest: Array | None,
    rate: Array,
    step: Array,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: int = 0,
    maximize: int = 0,
) -> tuple[Array, ...]:
    speed, count = rate.reshape(()), step.reshape(()).astype(np.float64)
    gradient = -g if maximize else g
    start = p * (1 - speed * weight_decay) if decoupled else p
    gradient = gradient if decoupled else gradient + weight_decay * p
    mean, square = beta1 * mean + (1 - beta1) * gradient, beta2 * square + (1 - beta2) * gradient**2
    bound = square if largest is None else np.maximum(largest, square)
    divisor = np.sqrt(bound) / np.sqrt(1 - beta2**count) + epsilon
    moved = start - speed / (1 - beta1**count) * mean / divisor
    return tuple(np.asarray(a, p.dtype) for a in (moved, mean, square, bound))


def _adam_samples(rng: np.random.Generator) -> Iterable[Sample]:
    numbers = (np.array(0.0625, np.float32), np.array(3, np.float32))
    for shape in _SHAPES:
        moments = (floats(rng, *shape), floats(rng, *shape), floats(rng, *shape), floats(rng, *shape, low=0.0))
        betas: dict[str, object] = {"beta1": 0.75, "beta2": 0.875, "epsilon": 2.0**-10}
        yield Sample((*moments, None, *numbers), betas, outputs=3)
        yield Sample((*moments, None, *numbers), {**betas, "weight_decay": 0.25, "decoupled": 1}, outputs=3)
        yield Sample((*moments, floats(rng, *shape, low=0.0), *numbers), {**betas, "weight_decay": 0.25, "maximize": 1}, outputs=4)
    yield from retyped(Sample((*moments, None, *numbers), betas, outputs=3), ("float64",))


@operator("AdamStep", domain=DOMAIN, samples=_adam_samples, infer=_all_like_first, reference=_adam_by_numpy)
def adam_step(context: Lowering) -> Sequence[Tensor]:
    """Operands parameter, gradient, mean, mean square, largest mean square?, rate, number of the step (from 1; one element each).

    Results: parameter, mean, mean square, largest. decoupled=1: weight decay by AdamW, beside the gradient.
    Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015; Loshchilov and Hutter, 2019, for AdamW.
    """
    p, g, mean, square = (context.operand(n) for n in range(4))
    beta1, beta2, decay = context.number("beta1", 0.9), context.number("beta2", 0.999), context.number("weight_decay")
    rate, step, decoupled = _parameter(context, 5), _parameter(context, 6), _flag(context, "decoupled")

    def gradient(index: tuple[Expr, ...]) -> Expr:
        value: Expr = -g[index] if _flag(context, "maximize") else g[index]
        return value if decoupled or not decay else value + decay * p[index]

    def first(index: tuple[Expr, ...]) -> Expr:
        return beta1 * mean[index] + (1 - beta1) * gradient(index)

    def second(index: tuple[Expr, ...]) -> Expr:
        value = gradient(index)
        return beta2 * square[index] + (1 - beta2) * (value * value)

    def bound(index: tuple[Expr, ...]) -> Expr:
        return x.maximum(context.operand(4)[index], second(index)) if context.has(4) else second(index)

    def unbias(beta: float) -> Expr:
        return 1 - x.binary("pow", x.const(beta, p.dtype), step)

    def parameter(*index: Expr) -> Expr:
        start: Expr = p[index] * (1 - rate * decay) if decoupled and decay else p[index]
        divisor = x.unary("sqrt", bound(index)) / x.unary("sqrt", unbias(beta2)) + context.number("epsilon", 1e-8)
        return start - rate / unbias(beta1) * first(index) / divisor

    found = [te.compute(p.shape, lambda *index, of=of: of(index)) for of in (first, second, bound)]
    return [te.compute(p.shape, parameter), *found][: len(context.outputs)]
