"""Backward of normalisations, from the statistics that their forward pass kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import math
from typing import Any

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import broadcast_index, floats, retyped
from anycann.graph.ops.device import DOMAIN
from anycann.graph.ops.normalization import channel, grouped
from anycann.graph.ops.reduction import Index, reduce_axes, row_of
from anycann.graph.ops.training_normalization import (
    BATCHES,
    GROUPS,
    ROWS,
    in_group,
    narrowed,
    optional,
    row_axes,
    types_with_statistics,
    widened,
)
from anycann.graph.registry import Lowering, Sample, TensorType, operator
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Reduction, Tensor

Array = np.ndarray[Any, Any]


def _gradient_types(node: ir.Node, inputs: Sequence[TensorType | None], scale: int, inner: Sequence[int]) -> list[TensorType]:
    """dx as x; the gradients of scale and bias as the scale (operand `scale`), or as statistics of shape `inner`."""
    given = inputs[scale] if scale < len(inputs) else None
    found = types_with_statistics(inputs, inner, inner)
    return [found[0], *(found[1:] if given is None else [TensorType(given.dtype, tuple(inner))] * 2)][: len(node.outputs)]


# ---- batches: statistics a channel
def _infer_batch_gradient(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    assert inputs[0] is not None
    return _gradient_types(node, inputs, 2, inputs[0].shape[1:2])


def _batch_gradient_by_numpy(
    dy: Array, data: Array, scale: Array | None, mean: Array, inverse: Array, training: int = 1
) -> tuple[Array, ...]:
    axes, column = (0, *range(2, data.ndim)), (-1, *[1] * (data.ndim - 2))
    gradient = dy.astype(np.float64)
    normal = (data.astype(np.float64) - mean.reshape(column)) * inverse.reshape(column)
    scales, bias = (gradient * normal).sum(axes), gradient.sum(axes)
    count = data.size / data.shape[1]
    if training:
        gradient = gradient - bias.reshape(column) / count - normal * scales.reshape(column) / count
    dx = gradient * (inverse * (1 if scale is None else scale)).reshape(column)
    return dx.astype(dy.dtype), scales.astype(mean.dtype), bias.astype(mean.dtype)


def _batch_gradient_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape in BATCHES:
        for training, scale in ((1, floats(rng, shape[1])), (0, None)):
            data = floats(rng, *shape) + 2
            vectors = (scale, floats(rng, shape[1]), floats(rng, shape[1], low=0.2))
            yield Sample((floats(rng, *shape), data, *vectors), {"training": training}, outputs=3)
    operands = (floats(rng, 3, 17, 2), floats(rng, 3, 17, 2), *(floats(rng, 17, low=0.2) for _ in range(3)))
    yield from retyped(Sample(operands, outputs=3), ("float64",))
    yield from retyped(Sample(operands, outputs=3), ("float16", "bfloat16"), 0, 1)
    yield Sample(operands, outputs=1)


@operator("BatchNormGrad", domain=DOMAIN, samples=_batch_gradient_samples, infer=_infer_batch_gradient, reference=_batch_gradient_by_numpy)
def batch_norm_gradient(context: Lowering) -> Sequence[Tensor]:
    """Operands dy, x, scale?, mean, 1 / deviation; results dx, dscale, dbias. training=0: the statistics are constants."""
    dy, data, mean, inverse = (widened(context.operand(n)) for n in (0, 1, 3, 4))
    scale = optional(context, 2)
    axes = (0, *range(2, data.rank))
    count = math.prod(data.shape[axis] for axis in axes)
    total = reduce_axes("sum", dy.shape, axes, lambda index: dy[index])
    product = reduce_axes("sum", dy.shape, axes, lambda index: dy[index] * (data[index] - channel(mean, index)))

    def element(*index: Expr) -> Expr:
        row = (index[1],)
        slope = channel(inverse, index)
        factor = slope if scale is None else slope * channel(scale, index)
        if not context.integer("training", 1):
            return dy[index] * factor
        across: Expr = slope * slope * product[row] / count
        centred: Expr = dy[index] - total[row] / count
        return (centred - (data[index] - channel(mean, index)) * across) * factor

    scales = te.compute(total.shape, lambda c: product[c] * inverse[c])
    return narrowed([te.compute(dy.shape, element), scales, te.compute(total.shape, lambda c: total[c])], context.outputs)


# ---- rows: everything from an axis on
def _row_gradient(
    dy: Tensor, data: Tensor, mean: Tensor | None, inverse: Tensor, scale: Tensor | None, axes: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """(dx, dscale, dbias) of rows normalised by `inverse` and, if there is one, `mean`, both of extent 1 along `axes`."""
    count = math.prod(data.shape[axis] for axis in axes)
    outer = [axis for axis in range(data.rank) if axis not in axes]

    def weighted(index: Index) -> Expr:
        return dy[index] if scale is None else dy[index] * scale[broadcast_index(scale, index)]

    def normal(index: Index) -> Expr:
        value = data[index] if mean is None else data[index] - mean[broadcast_index(mean, index)]
        return value * inverse[broadcast_index(inverse, index)]

    product = reduce_axes("sum", dy.shape, axes, lambda index: weighted(index) * normal(index))
    total = None if mean is None else reduce_axes("sum", dy.shape, axes, weighted)

    def element(*index: Expr) -> Expr:
        row = row_of(index, axes)
        value = weighted(index) - normal(index) * (product[row] / count)
        return (value if total is None else value - total[row] / count) * inverse[broadcast_index(inverse, index)]

    scales = reduce_axes("sum", dy.shape, outer, lambda index: dy[index] * normal(index))
    return te.compute(dy.shape, element), scales, reduce_axes("sum", dy.shape, outer, lambda index: dy[index])


def _infer_layer_gradient(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    assert inputs[0] is not None
    return _gradient_types(node, inputs, 4, inputs[0].shape[row_axes(node, len(inputs[0].shape))[0] :])


def _layer_gradient_by_numpy(
    dy: Array, data: Array, mean: Array, inverse: Array, scale: Array | None = None, axis: int = -1
) -> tuple[Array, ...]:
    axes, outer = tuple(range(axis % dy.ndim, dy.ndim)), tuple(range(axis % dy.ndim))
    gradient, normal = dy.astype(np.float64), (data.astype(np.float64) - mean) * inverse
    weighted = gradient if scale is None else gradient * scale
    dx = inverse * (weighted - weighted.mean(axes, keepdims=True) - normal * (weighted * normal).mean(axes, keepdims=True))
    return dx.astype(dy.dtype), (gradient * normal).sum(outer).astype(mean.dtype), gradient.sum(outer).astype(mean.dtype)


def _layer_gradient_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, axis in ROWS:
        first = axis % len(shape)
        kept = (*shape[:first], *[1] * (len(shape) - first))
        for scale in (floats(rng, *shape[first:]), None):
            operands = (floats(rng, *shape), floats(rng, *shape) + 2, floats(rng, *kept), floats(rng, *kept, low=0.2), scale)
            yield Sample(operands, {"axis": axis}, outputs=3)
    operands = (floats(rng, 3, 20), floats(rng, 3, 20), floats(rng, 3, 1), floats(rng, 3, 1, low=0.2), floats(rng, 20))
    yield from retyped(Sample(operands, outputs=3), ("float64",))
    yield from retyped(Sample(operands, outputs=3), ("float16", "bfloat16"), 0, 1)


@operator("LayerNormGrad", domain=DOMAIN, samples=_layer_gradient_samples, infer=_infer_layer_gradient, reference=_layer_gradient_by_numpy)
def layer_norm_gradient(context: Lowering) -> Sequence[Tensor]:
    """Operands dy, x, mean, 1 / deviation (both as LayerNormalization gives them), scale?; results dx, dscale, dbias."""
    dy, data, mean, inverse = (widened(context.operand(n)) for n in range(4))
    return narrowed(_row_gradient(dy, data, mean, inverse, optional(context, 4), row_axes(context.node, dy.rank)), context.outputs)


def _infer_rms_gradient(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    assert inputs[0] is not None
    return _gradient_types(node, inputs, 3, inputs[0].shape[row_axes(node, len(inputs[0].shape))[0] :])[:2]


def _rms_gradient_by_numpy(dy: Array, data: Array, inverse: Array, scale: Array | None = None, axis: int = -1) -> tuple[Array, ...]:
    axes, outer = tuple(range(axis % dy.ndim, dy.ndim)), tuple(range(axis % dy.ndim))
    gradient, normal = dy.astype(np.float64), data.astype(np.float64) * inverse
    weighted = gradient if scale is None else gradient * scale
    dx = inverse * (weighted - normal * (weighted * normal).mean(axes, keepdims=True))
    return dx.astype(dy.dtype), (gradient * normal).sum(outer).astype(inverse.dtype)


def _rms_gradient_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for sample in _layer_gradient_samples(rng):
        dy, data, _, inverse, scale = sample.operands
        yield Sample((dy, data, inverse, scale), sample.attributes, outputs=2)


@operator("RMSNormGrad", domain=DOMAIN, samples=_rms_gradient_samples, infer=_infer_rms_gradient, reference=_rms_gradient_by_numpy)
def rms_norm_gradient(context: Lowering) -> Sequence[Tensor]:
    """Operands dy, x, 1 / root mean square, scale?; results dx, dscale."""
    dy, data, inverse = (widened(context.operand(n)) for n in range(3))
    found = _row_gradient(dy, data, None, inverse, optional(context, 3), row_axes(context.node, dy.rank))
    return narrowed(found[:2], context.outputs)


# ---- groups of channels
def _infer_group_gradient(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    assert inputs[0] is not None
    return _gradient_types(node, inputs, 4, inputs[0].shape[1:2])


def _group_gradient_by_numpy(
    dy: Array, data: Array, mean: Array, inverse: Array, scale: Array | None = None, num_groups: int = 1
) -> tuple[Array, ...]:
    column, rows = (-1, *[1] * (data.ndim - 2)), (data.shape[0], num_groups, -1)
    gradient = dy.astype(np.float64)
    normal = (data.astype(np.float64).reshape(rows) - mean[..., None]) * inverse[..., None]
    weighted = (gradient if scale is None else gradient * scale.reshape(column)).reshape(rows)
    dx = inverse[..., None] * (weighted - weighted.mean(-1, keepdims=True) - normal * (weighted * normal).mean(-1, keepdims=True))
    axes = (0, *range(2, data.ndim))
    scales = (gradient * normal.reshape(data.shape)).sum(axes)
    return dx.reshape(data.shape).astype(dy.dtype), scales.astype(mean.dtype), gradient.sum(axes).astype(mean.dtype)


def _group_gradient_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, groups in GROUPS:
        for scale in (floats(rng, shape[1]), None):
            vectors = (floats(rng, shape[0], groups), floats(rng, shape[0], groups, low=0.2), scale)
            yield Sample((floats(rng, *shape), floats(rng, *shape) + 2, *vectors), {"num_groups": groups}, outputs=3)


@operator("GroupNormGrad", domain=DOMAIN, samples=_group_gradient_samples, infer=_infer_group_gradient, reference=_group_gradient_by_numpy)
def group_norm_gradient(context: Lowering) -> Sequence[Tensor]:
    """Operands dy, x, mean, 1 / deviation (both [N, groups]), scale?; results dx, dscale, dbias."""
    dy, data, mean, inverse = (widened(context.operand(n)) for n in range(4))
    scale, groups = optional(context, 4), context.integer("num_groups", 1)
    size, axes = dy.shape[1] // groups, range(2, dy.rank + 1)
    count = math.prod(dy.shape[1:]) // groups
    gradients, elements = grouped(dy, groups), grouped(data, groups)

    def weighted(place: Index) -> Expr:
        return gradients[place] if scale is None else gradients[place] * scale[place[1] * size + place[2]]

    def normal(place: Index) -> Expr:
        return (elements[place] - mean[place[:2]]) * inverse[place[:2]]

    total = reduce_axes("sum", gradients.shape, axes, weighted)
    product = reduce_axes("sum", gradients.shape, axes, lambda place: weighted(place) * normal(place))

    def element(*index: Expr) -> Expr:
        place = in_group(index, size)
        row = place[:2]
        return (weighted(place) - total[row] / count - normal(place) * (product[row] / count)) * inverse[row]

    return narrowed([te.compute(dy.shape, element), *_channel_sums(dy, lambda index: normal(in_group(index, size)))], context.outputs)


def _channel_sums(dy: Tensor, normal: Any) -> tuple[Reduction, Reduction]:
    """The sums of dy times the normalised elements, and of dy, of each channel."""
    axes = (0, *range(2, dy.rank))
    scales = reduce_axes("sum", dy.shape, axes, lambda index: dy[index] * normal(index))
    return scales, reduce_axes("sum", dy.shape, axes, lambda index: dy[index])
