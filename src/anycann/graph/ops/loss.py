"""Losses of classification: the negative log likelihood, and softmax with it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from anycann.graph.ops.common import floats, integers, wrapped
from anycann.graph.ops.reduction import reduce_axes, row_of
from anycann.graph.registry import Lowering, NotLowered, Sample, operator
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor


def _loss_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape in ((5, 7), (2, 20, 3, 4), (3, 5, 6)):
        target = integers(rng, shape[0], *shape[2:], low=0, high=shape[1] - 1)
        for reduction in ("none", "sum", "mean"):
            yield Sample((floats(rng, *shape), target), {"reduction": reduction})
            weights = floats(rng, shape[1], low=0.1)
            yield Sample((floats(rng, *shape), target, weights), {"reduction": reduction, "ignore_index": 2})


def _ignored(context: Lowering) -> int | None:
    value = context.attribute("ignore_index")
    return None if value is None else int(value)  # type: ignore[call-overload]


def _weight(context: Lowering, target: Expr, classes: int, like: Tensor) -> Expr:
    """What an element counts: the weight of its class, nothing if its class is ignored."""
    weight: Expr = x.const(1, like.dtype)
    if context.has(2):
        weight = context.operand(2)[wrapped(target, classes)]
    ignored = _ignored(context)
    return weight if ignored is None else x.select(x.equal(target, ignored), 0, weight)


@operator("NegativeLogLikelihoodLoss", samples=_loss_samples)
def negative_log_likelihood(context: Lowering) -> Tensor:
    """-x[target] * weight, for each element or over all; the mean is by the sum of the weights."""
    source, target, reduction = context.operand(0), context.operand(1), context.text("reduction", "mean")
    classes, axes = source.shape[1], range(target.rank)

    def loss(*index: Expr) -> Expr:
        chosen = target[index]
        value = source[(index[0], wrapped(chosen, classes), *index[1:])]
        return -value * _weight(context, chosen, classes, source)

    if reduction == "none":
        return te.compute(target.shape, loss)
    total = reduce_axes("sum", target.shape, axes, lambda index: loss(*index))
    if reduction == "sum":
        return te.compute((), lambda: total[()])
    weights = reduce_axes("sum", target.shape, axes, lambda index: _weight(context, target[index], classes, source))
    return te.compute((), lambda: total[()] / weights[()])


def _entropy_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for sample in _loss_samples(rng):
        if sample.attributes["reduction"] == "none":
            yield sample
            yield Sample(sample.operands, sample.attributes, outputs=2)


@operator("SoftmaxCrossEntropyLoss", samples=_entropy_samples)
def softmax_cross_entropy(context: Lowering) -> list[Tensor]:
    """The loss of each element and, if asked for, the logarithms of the softmax. Their sum over all would need a second nest of loops."""
    if context.text("reduction", "mean") != "none":
        raise NotLowered("a loss summed over all elements reads rows that are not finished")
    source, target = context.operand(0), context.operand(1)
    largest = reduce_axes("max", source.shape, [1], lambda index: source[index])
    total = reduce_axes("sum", source.shape, [1], lambda index: x.unary("exp", source[index] - largest[row_of(index, [1])]))

    def logarithm(index: tuple[Expr, ...]) -> Expr:
        row = row_of(index, [1])
        return source[index] - largest[row] - x.unary("log", total[row])

    def loss(*index: Expr) -> Expr:
        chosen = target[index]
        place = (index[0], wrapped(chosen, source.shape[1]), *index[1:])
        return -logarithm(place) * _weight(context, chosen, source.shape[1], source)

    outputs: list[Tensor] = [te.compute(target.shape, loss)]
    return [*outputs, *(te.compute(source.shape, lambda *index: logarithm(index)) for _ in context.outputs[1:])]
