"""Normalisations as training needs them, with their statistics as results; normalization_gradients.py has what follows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import broadcast_index, floats, normal_axis, retyped
from anycann.graph.ops.device import DOMAIN
from anycann.graph.ops.normalization import channel, grouped, statistics
from anycann.graph.ops.reduction import Index, row_of
from anycann.graph.registry import Lowering, Sample, TensorType, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.dtypes import DType
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor

Array = np.ndarray[Any, Any]


def wide_type(dtype: DType) -> DType:
    """What statistics of elements of `dtype` are computed and kept in."""
    return dtypes.float64 if dtype is dtypes.float64 else dtypes.float32


def widened(tensor: Tensor) -> Tensor:
    """The elements in the type of their statistics."""
    wide = wide_type(tensor.dtype)
    return tensor if tensor.dtype is wide else te.compute(tensor.shape, lambda *index: x.cast(tensor[index], wide))


def narrowed(values: Sequence[Tensor], types: Sequence[TensorType]) -> list[Tensor]:
    """Each result in the type that inference says."""
    return [_cast(value, type_.dtype) for value, type_ in zip(values, types, strict=False)]


def _cast(value: Tensor, dtype: DType) -> Tensor:
    return value if value.dtype is dtype else te.compute(value.shape, lambda *index: x.cast(value[index], dtype))


def optional(context: Lowering, number: int) -> Tensor | None:
    """Operand `number` in the type of statistics; None if it is absent."""
    return widened(context.operand(number)) if context.has(number) else None


def types_with_statistics(inputs: Sequence[TensorType | None], *shapes: Sequence[int]) -> list[TensorType]:
    """The type of the first operand, then statistics of these shapes."""
    first = inputs[0]
    assert first is not None
    return [first, *(TensorType(wide_type(first.dtype), tuple(shape)) for shape in shapes)]


# ---- batches: statistics a channel
def _infer_batch_training(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    assert inputs[0] is not None
    channels = (inputs[0].shape[1],)
    return types_with_statistics(inputs, channels, channels, channels, channels)[: len(node.outputs)]


def _batch_training_by_numpy(
    data: Array,
    scale: Array | None = None,
    bias: Array | None = None,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    epsilon: float = 1e-5,
    momentum: float = 0.1,
) -> tuple[Array, ...]:
    axes, column = (0, *range(2, data.ndim)), (-1, *[1] * (data.ndim - 2))
    kept = np.float64 if data.dtype == np.float64 else np.float32
    wide = data.astype(np.float64)
    mean, variance, count = wide.mean(axes), wide.var(axes), data.size / data.shape[1]
    inverse = 1 / np.sqrt(variance + epsilon)
    y = (wide - mean.reshape(column)) * inverse.reshape(column)
    y = y * (1 if scale is None else scale.reshape(column)) + (0 if bias is None else bias.reshape(column))
    old_mean, old_variance = (np.zeros(data.shape[1]) if a is None else a for a in (running_mean, running_var))
    unbiased = variance * count / max(1.0, count - 1)
    moved = [(1 - momentum) * old + momentum * new for old, new in ((old_mean, mean), (old_variance, unbiased))]
    return (y.astype(data.dtype), *(a.astype(kept) for a in (mean, inverse, *moved)))


BATCHES = ((2, 20, 3, 5), (7, 17), (2, 5, 37), (2, 3, 2, 3, 4), (3, 16, 8, 8), (5, 32, 1, 1))


def _batch_training_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape in BATCHES:
        vectors = [floats(rng, shape[1], low=0.1) for _ in range(4)]
        yield Sample((floats(rng, *shape) + 5, *vectors), {"epsilon": 1e-3, "momentum": 0.25}, outputs=5)
        yield Sample((floats(rng, *shape),), outputs=3)
    operands = (floats(rng, 3, 17, 2), *(floats(rng, 17, low=0.2) for _ in range(4)))
    yield from retyped(Sample(operands, {"momentum": 0.25}, outputs=5), ("float64",))
    yield from retyped(Sample(operands, {"momentum": 0.25}, outputs=5), ("float16", "bfloat16"), 0)


@operator(
    "BatchNormTraining",
    domain=DOMAIN,
    samples=_batch_training_samples,
    infer=_infer_batch_training,
    reference=_batch_training_by_numpy,
)
def batch_norm_training(context: Lowering) -> Sequence[Tensor]:
    """Operands x, scale?, bias?, running mean?, running variance?; results y, mean, 1 / deviation, both running statistics moved.

    A running statistic moves by `momentum` (0.1) of the way to that of the batch, the variance to the unbiased one; absent it is zero.
    """
    source, scale, bias, *running = widened(context.operand(0)), *(optional(context, n) for n in range(1, 5))
    axes = (0, *range(2, source.rank))
    stats = statistics(source, axes, context.number("epsilon", 1e-5))
    momentum = context.number("momentum", 0.1)

    def element(*index: Expr) -> Expr:
        value = stats.normal(index)
        value = value if scale is None else value * channel(scale, index)
        return value if bias is None else value + channel(bias, index)

    def moved(old: Tensor | None, c: Expr, new: Expr) -> Expr:
        return new * momentum if old is None else old[c] * (1 - momentum) + new * momentum

    unbiased = max(1, stats.count - 1)
    size = (source.shape[1],)
    vectors = (
        te.compute(size, lambda c: stats.mean((c,))),
        te.compute(size, lambda c: stats.inverse((c,))),
        te.compute(size, lambda c: moved(running[0], c, stats.mean((c,)))),
        te.compute(size, lambda c: moved(running[1], c, stats.squares[c] / unbiased)),
    )
    return narrowed([te.compute(source.shape, element), *vectors], context.outputs)


# ---- rows: everything from an axis on
def row_axes(node: ir.Node, rank: int) -> tuple[int, ...]:
    """The axes of a row: everything from the node's `axis` (-1) on."""
    return tuple(range(normal_axis(node.attributes.get_int("axis", -1), rank), rank))


ROWS = (((3, 17), -1), ((2, 3, 20), 1), ((2, 20, 3, 5), 1), ((2, 3, 4, 5), -1), ((4, 70), -1), ((33, 40), 1))


def _infer_rms_training(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    assert inputs[0] is not None
    shape = inputs[0].shape
    axes = row_axes(node, len(shape))
    return types_with_statistics(inputs, [1 if axis in axes else extent for axis, extent in enumerate(shape)])[: len(node.outputs)]


def _rms_training_by_numpy(data: Array, scale: Array | None = None, axis: int = -1, epsilon: float = 1e-5) -> tuple[Array, ...]:
    axes = tuple(range(axis % data.ndim, data.ndim))
    inverse = 1 / np.sqrt((data.astype(np.float64) ** 2).mean(axes, keepdims=True) + epsilon)
    kept = np.float64 if data.dtype == np.float64 else np.float32
    return (data * inverse * (1 if scale is None else scale)).astype(data.dtype), inverse.astype(kept)


def _rms_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, axis in ROWS:
        for scale in (floats(rng, *shape[axis % len(shape) :]), None):
            yield Sample((floats(rng, *shape), scale), {"axis": axis, "epsilon": 1e-3}, outputs=2)
    yield from retyped(Sample((floats(rng, 3, 20), floats(rng, 20)), outputs=2), ("float64", "float16"))


@operator("RMSNormTraining", domain=DOMAIN, samples=_rms_samples, infer=_infer_rms_training, reference=_rms_training_by_numpy)
def rms_norm_training(context: Lowering) -> Sequence[Tensor]:
    """Operands x, scale?; results y and 1 / root mean square of each row, reduced axes kept with extent 1."""
    source, scale = widened(context.operand(0)), optional(context, 1)
    axes = row_axes(context.node, source.rank)
    stats = statistics(source, axes, context.number("epsilon", 1e-5), centred=False)

    def element(*index: Expr) -> Expr:
        value = stats.normal(index)
        return value if scale is None else value * scale[broadcast_index(scale, index)]

    kept = [1 if axis in axes else extent for axis, extent in enumerate(source.shape)]
    inverse = te.compute(kept, lambda *index: stats.inverse(row_of(index, axes)))
    return narrowed([te.compute(source.shape, element), inverse], context.outputs)


# ---- groups of channels
def in_group(index: Sequence[Expr], size: int) -> Index:
    """[n, c, ...] as [n, group, channel of the group, ...]."""
    return (index[0], index[1] // size, index[1] % size, *index[2:])


def _infer_group_training(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    assert inputs[0] is not None
    groups = (inputs[0].shape[0], node.attributes.get_int("num_groups", 1))
    return types_with_statistics(inputs, groups, groups)[: len(node.outputs)]


def _group_training_by_numpy(
    data: Array, scale: Array | None = None, bias: Array | None = None, num_groups: int = 1, epsilon: float = 1e-5
) -> tuple[Array, ...]:
    column, wide = (-1, *[1] * (data.ndim - 2)), data.astype(np.float64)
    rows = wide.reshape(data.shape[0], num_groups, -1)
    mean, inverse = rows.mean(-1), 1 / np.sqrt(rows.var(-1) + epsilon)
    y = ((rows - mean[..., None]) * inverse[..., None]).reshape(data.shape)
    y = y * (1 if scale is None else scale.reshape(column)) + (0 if bias is None else bias.reshape(column))
    kept = np.float64 if data.dtype == np.float64 else np.float32
    return y.astype(data.dtype), mean.astype(kept), inverse.astype(kept)


GROUPS = (((2, 20, 3, 5), 4), ((2, 6, 7), 3), ((1, 32, 4, 4), 2), ((2, 6, 3, 3), 6), ((2, 6, 3, 3), 1))


def _group_training_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, groups in GROUPS:
        for vectors in ((floats(rng, shape[1]), floats(rng, shape[1])), (None, None)):
            yield Sample((floats(rng, *shape) + 3, *vectors), {"num_groups": groups, "epsilon": 1e-3}, outputs=3)


@operator(
    "GroupNormTraining",
    domain=DOMAIN,
    samples=_group_training_samples,
    infer=_infer_group_training,
    reference=_group_training_by_numpy,
)
def group_norm_training(context: Lowering) -> Sequence[Tensor]:
    """Operands x, scale?, bias?; results y, and mean and 1 / deviation of each image and group."""
    source, scale, bias = widened(context.operand(0)), optional(context, 1), optional(context, 2)
    groups = context.integer("num_groups", 1)
    stats = statistics(grouped(source, groups), range(2, source.rank + 1), context.number("epsilon", 1e-5))

    def element(*index: Expr) -> Expr:
        value = stats.normal(in_group(index, source.shape[1] // groups))
        value = value if scale is None else value * channel(scale, index)
        return value if bias is None else value + channel(bias, index)

    rows = (source.shape[0], groups)
    vectors = (te.compute(rows, lambda *row: stats.mean(row)), te.compute(rows, lambda *row: stats.inverse(row)))
    return narrowed([te.compute(source.shape, element), *vectors], context.outputs)
