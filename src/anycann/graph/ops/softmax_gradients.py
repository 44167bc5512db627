"""Backward of softmax and log-softmax, from their results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from anycann.graph.ops.common import floats, like_first, normal_axis, retyped
from anycann.graph.ops.device import DOMAIN
from anycann.graph.ops.reduction import reduce_axes, row_of
from anycann.graph.ops.training_normalization import narrowed, widened
from anycann.graph.registry import Lowering, Sample, operator
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor

Array = np.ndarray[Any, Any]


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, axis in (((3, 17), -1), ((3, 17), 0), ((2, 20, 3, 5), 1), ((2, 3, 4, 5), -1), ((4, 70), 1), ((37,), 0), ((3, 1), 1)):
        weights = np.exp(floats(rng, *shape))
        weights /= weights.sum(axis, keepdims=True)
        yield Sample((floats(rng, *shape), weights), {"axis": axis})
    yield from retyped(Sample((floats(rng, 3, 20), floats(rng, 3, 20, low=0.0, high=0.1)), {"axis": 1}), ("float64", "float16"))


def _by_numpy(dy: Array, y: Array, axis: int = -1) -> Array:
    return np.asarray(y * (dy - (dy * y).sum(axis, keepdims=True)), dy.dtype)


@operator("SoftmaxGrad", domain=DOMAIN, samples=_samples, infer=like_first, reference=_by_numpy)
def softmax_gradient(context: Lowering) -> Tensor:
    """Operands dy, y; y * (dy - sum of dy * y of the row)."""
    dy, y = widened(context.operand(0)), widened(context.operand(1))
    axis = normal_axis(context.integer("axis", -1), dy.rank)
    total = reduce_axes("sum", dy.shape, [axis], lambda index: dy[index] * y[index])
    result = te.compute(dy.shape, lambda *index: y[index] * (dy[index] - total[row_of(index, [axis])]))
    return narrowed([result], context.outputs)[0]


def _logarithms(rng: np.random.Generator) -> Iterable[Sample]:
    for sample in _samples(rng):
        dy, y = sample.operands
        assert y is not None
        yield Sample((dy, np.log(y)), sample.attributes)


def _log_by_numpy(dy: Array, y: Array, axis: int = -1) -> Array:
    return np.asarray(dy - np.exp(y) * dy.sum(axis, keepdims=True), dy.dtype)


@operator("LogSoftmaxGrad", domain=DOMAIN, samples=_logarithms, infer=like_first, reference=_log_by_numpy)
def log_softmax_gradient(context: Lowering) -> Tensor:
    """Operands dy, y; dy - exp(y) * sum of dy of the row."""
    dy, y = widened(context.operand(0)), widened(context.operand(1))
    axis = normal_axis(context.integer("axis", -1), dy.rank)
    total = reduce_axes("sum", dy.shape, [axis], lambda index: dy[index])

    def element(*index: Expr) -> Expr:
        return dy[index] - x.unary("exp", y[index]) * total[row_of(index, [axis])]

    return narrowed([te.compute(dy.shape, element)], context.outputs)[0]
