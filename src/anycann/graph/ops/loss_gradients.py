"""The negative log likelihood as PyTorch trains with it, and backward. ONNX's own losses are in loss.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import floats, integers, wrapped
from anycann.graph.ops.device import DOMAIN
from anycann.graph.ops.reduction import reduce_axes
from anycann.graph.registry import Lowering, Sample, TensorType, operator
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor

Array = np.ndarray[Any, Any]
IGNORED = -100  # the class that counts for nothing, unless the node says another


def _cases(rng: np.random.Generator) -> Iterable[tuple[Array, Array, Array | None, dict[str, object]]]:
    for shape in ((7, 5), (2, 20, 3, 4), (64, 33), (3, 4, 5)):
        for reduction in ("none", "sum", "mean"):
            target = integers(rng, shape[0], *shape[2:], low=0, high=shape[1] - 1)
            yield floats(rng, *shape), target, None, {"reduction": reduction}
            yield floats(rng, *shape), target, floats(rng, shape[1], low=0.1), {"reduction": reduction, "ignore_index": 2}
            some = np.where(np.arange(target.size).reshape(target.shape) % 3, target, IGNORED)
            yield floats(rng, *shape), some, None, {"reduction": reduction}


def _weights_by_numpy(target: Array, weight: Array | None, classes: int, ignored: int) -> tuple[Array, Array]:
    """(what each target counts, the class it reads)."""
    safe = np.where(target == ignored, 0, target)
    counts = np.ones(classes) if weight is None else weight
    return np.where(target == ignored, 0, counts[safe]), safe


def _infer_loss(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    data, target = inputs[0], inputs[1]
    assert data is not None
    assert target is not None
    shape = target.shape if node.attributes.get_string("reduction", "mean") == "none" else ()
    return [TensorType(data.dtype, shape), TensorType(data.dtype, ())][: len(node.outputs)]


def _loss_by_numpy(
    data: Array, target: Array, weight: Array | None = None, reduction: str = "mean", ignore_index: int = IGNORED
) -> tuple[Array, Array]:
    counts, safe = _weights_by_numpy(target, weight, data.shape[1], ignore_index)
    losses = -np.take_along_axis(data, np.expand_dims(safe, 1), 1)[:, 0] * counts
    total = np.asarray(0 if reduction == "none" else counts.sum(), data.dtype)
    if reduction != "none":
        losses = losses.sum() / (total if reduction == "mean" else 1)
    return np.asarray(losses, data.dtype), total


def _loss_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for data, target, weight, attributes in _cases(rng):
        yield Sample((data, target, weight), attributes, outputs=2)


def _count(context: Lowering, target: Expr, weight: Tensor | None, classes: int, like: Tensor) -> Expr:
    """What a target counts: the weight of its class, nothing if that is ignored."""
    value: Expr = x.const(1, like.dtype) if weight is None else weight[wrapped(target, classes)]
    return x.select(x.equal(target, context.integer("ignore_index", IGNORED)), 0, value)


@operator("NllLoss", domain=DOMAIN, samples=_loss_samples, infer=_infer_loss, reference=_loss_by_numpy)
def negative_log_likelihood(context: Lowering) -> Sequence[Tensor]:
    """Operands x (logarithms [N, C, ...]), target, weight?; results the loss, and the sum of what was counted (0 for "none")."""
    source, target = context.operand(0), context.operand(1)
    weight, classes = context.operand(2) if context.has(2) else None, source.shape[1]

    def count(index: Sequence[Expr]) -> Expr:
        return _count(context, target[tuple(index)], weight, classes, source)

    def loss(*index: Expr) -> Expr:
        return -source[(index[0], wrapped(target[index], classes), *index[1:])] * count(index)

    reduction, axes = context.text("reduction", "mean"), range(target.rank)
    if reduction == "none":
        return [te.compute(target.shape, loss), te.compute((), lambda: 0, source.dtype)]
    total = reduce_axes("sum", target.shape, axes, lambda index: loss(*index))
    counted = reduce_axes("sum", target.shape, axes, count)
    mean = te.compute((), lambda: total[()] / counted[()] if reduction == "mean" else total[()])
    return [mean, te.compute((), lambda: counted[()])]


def _like_operand(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    assert inputs[1] is not None
    return [inputs[1]]


def _gradient_by_numpy(
    dy: Array,
    data: Array,
    target: Array,
    weight: Array | None,
    total: Array,
    reduction: str = "mean",
    ignore_index: int = IGNORED,
) -> Array:
    counts, safe = _weights_by_numpy(target, weight, data.shape[1], ignore_index)
    gradient = -counts * (dy / total if reduction == "mean" else dy)
    dx = np.zeros(data.shape)
    np.put_along_axis(dx, np.expand_dims(safe, 1), np.expand_dims(np.broadcast_to(gradient, target.shape), 1), 1)
    return dx.astype(data.dtype)


def _gradient_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for data, target, weight, attributes in _cases(rng):
        loss, total = _loss_by_numpy(data, target, weight, **attributes)  # type: ignore[arg-type]
        yield Sample((floats(rng, *loss.shape), data, target, weight, total), attributes)


@operator("NllLossGrad", domain=DOMAIN, samples=_gradient_samples, infer=_like_operand, reference=_gradient_by_numpy)
def negative_log_likelihood_gradient(context: Lowering) -> Tensor:
    """Operands dy, x (of which only the shape counts), target, weight?, the sum that was counted."""
    dy, source, target, total = (context.operand(n) for n in (0, 1, 2, 4))
    weight, classes = context.operand(3) if context.has(3) else None, source.shape[1]
    reduction = context.text("reduction", "mean")

    def element(*index: Expr) -> Expr:
        chosen = target[(index[0], *index[2:])]
        gradient: Expr = dy[(index[0], *index[2:])] if reduction == "none" else dy[()]
        gradient = gradient / total[()] if reduction == "mean" else gradient
        return x.select(x.equal(x.cast(chosen, index[1].dtype), index[1]), -gradient * _count(context, chosen, weight, classes, source), 0)

    return te.compute(source.shape, element)
