"""Normalisations: elements shifted and scaled by statistics of their row, channel or group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
import math

import numpy as np

from anycann.graph.ops import floats_on_host
from anycann.graph.ops.common import broadcast_index, floats, like_first, normal_axes, normal_axis, retyped
from anycann.graph.ops.reduction import Index, reduce_axes, row_of
from anycann.graph.registry import Lowering, NotLowered, Sample, TensorType, operator
from anycann.support.errors import ModelError
from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor


@dataclass(frozen=True)
class Statistics:
    """Mean and inverse deviation of each row of `source` over `axes`; read with the index of an element."""

    source: Tensor
    axes: tuple[int, ...]
    total: Tensor | None
    squares: Tensor
    epsilon: float

    @property
    def count(self) -> int:
        return math.prod(self.source.shape[axis] for axis in self.axes)

    def mean(self, row: Index) -> Expr:
        """The mean of a row; zero where it was left out."""
        return x.const(0, self.source.dtype) if self.total is None else self.total[row] / self.count

    def inverse(self, row: Index) -> Expr:
        """1 / sqrt(mean of squares + epsilon) of a row."""
        squares = self.squares[row] / self.count + self.epsilon
        return x.const(1.0, squares.dtype) / x.unary("sqrt", squares)

    def normal(self, index: Index) -> Expr:
        """The normalised element."""
        row = row_of(index, self.axes)
        value = self.source[index] if self.total is None else self.source[index] - self.mean(row)
        return value * self.inverse(row)


def statistics(source: Tensor, axes: Sequence[int], epsilon: float, centred: bool = True) -> Statistics:
    """Two passes, so that a large mean costs no digits; `centred=False` leaves the mean out (RMS)."""
    count = math.prod(source.shape[axis] for axis in axes)
    if not centred:
        squares = reduce_axes("sum", source.shape, axes, lambda index: source[index] * source[index])
        return Statistics(source, tuple(axes), None, squares, epsilon)
    total = reduce_axes("sum", source.shape, axes, lambda index: source[index])

    def square(index: Index) -> Expr:
        difference = source[index] - total[row_of(index, axes)] / count
        return difference * difference

    return Statistics(source, tuple(axes), total, reduce_axes("sum", source.shape, axes, square), epsilon)


def channel(tensor: Tensor, index: Sequence[Expr]) -> Expr:
    """The element of a per-channel vector for an index [n, c, ...]."""
    return tensor[index[1]] if len(index) > 1 else tensor[x.const(0, dtypes.int64)]


# ---- rows: everything from `axis` on
def scaled(context: Lowering, stats: Statistics, scale: Tensor | None, bias: Tensor | None) -> Tensor:
    """normal * scale + bias, both broadcast, in the type of the first output. Raises ModelError where they do not fit."""
    shape = stats.source.shape
    for operand in (scale, bias):
        if operand is not None and not _spreads(operand.shape, shape):
            raise ModelError(f"scale or bias of shape {list(operand.shape)} does not fit what is normalised, {list(shape)}")

    def element(*index: Expr) -> Expr:
        value = stats.normal(index)
        value = value if scale is None else value * x.cast(scale[broadcast_index(scale, index)], value.dtype)
        value = value if bias is None else value + x.cast(bias[broadcast_index(bias, index)], value.dtype)
        return x.cast(value, context.outputs[0].dtype)

    return te.compute(shape, element)


def _spreads(own: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether broadcasting takes an operand to `shape`."""
    fits = all(size in (1, wanted) for size, wanted in zip(reversed(own), reversed(shape), strict=False))
    return len(own) <= len(shape) and fits


def row_statistics(type_: TensorType, stats: Statistics, value: str) -> Tensor:
    """The mean or the inverse deviation of each row, reduced axes kept with extent 1."""
    read = stats.mean if value == "mean" else stats.inverse
    shape = [1 if axis in stats.axes else extent for axis, extent in enumerate(stats.source.shape)]  # an output without a name has no type
    return te.compute(shape, lambda *index: x.cast(read(row_of(index, stats.axes)), type_.dtype))


def _layer_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, axis in (((3, 17), -1), ((2, 3, 20), 1), ((2, 20, 3, 5), 1), ((2, 3, 4, 5), -1), ((4, 70), -1), ((2, 3, 4, 5), 0)):
        inner = shape[axis % len(shape) :]
        for outputs in (1, 3):
            operands = (floats(rng, *shape) + 5, floats(rng, *inner), floats(rng, *inner) if outputs == 1 else None)
            yield Sample(operands, {"axis": axis, "epsilon": 1e-3}, outputs=outputs)
    yield from retyped(Sample((floats(rng, 3, 20), floats(rng, 20), floats(rng, 20))), ("float64", "float16", "bfloat16"))


@operator("LayerNormalization", samples=_layer_samples, quick=floats_on_host.layer_normalization)
def layer_normalization(context: Lowering) -> Sequence[Tensor]:
    """Rows of mean 0 and deviation 1, scaled and shifted; also the mean and the inverse deviation where they are asked for."""
    source = context.operand(0)
    axes = tuple(range(normal_axis(context.integer("axis", -1), source.rank), source.rank))
    stats = statistics(source, axes, context.number("epsilon", 1e-5))
    outputs = [scaled(context, stats, context.operand(1), context.operand(2) if context.has(2) else None)]
    outputs += [row_statistics(type_, stats, name) for type_, name in zip(context.outputs[1:], ("mean", "inverse"), strict=False)]
    return outputs


@operator("RMSNormalization", samples=lambda rng: [replace(s, operands=s.operands[:2]) for s in _layer_samples(rng) if s.outputs == 1])
def rms_normalization(context: Lowering) -> Tensor:
    """Rows divided by the root of their mean square."""
    source = context.operand(0)
    axes = tuple(range(normal_axis(context.integer("axis"), source.rank), source.rank))
    return scaled(context, statistics(source, axes, context.number("epsilon", 1e-5), centred=False), context.operand(1), None)


# ---- channels and groups
def _batch_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape in ((2, 20, 3, 5), (3, 17), (2, 5, 7), (1, 3, 2, 3, 4)):
        for constant in ((), (1, 2, 3, 4)):
            vectors = (floats(rng, shape[1]), floats(rng, shape[1]), floats(rng, shape[1]), floats(rng, shape[1], low=0.1))
            yield Sample((floats(rng, *shape), *vectors), {"epsilon": 1e-3}, constant=constant)
    yield from retyped(Sample((floats(rng, 3, 17), *(floats(rng, 17, low=0.2) for _ in range(4)))), ("float64", "float16"))


@operator("BatchNormalization", samples=_batch_samples)
def batch_normalization(context: Lowering) -> Tensor:
    """Inference: one scale and one shift a channel, computed here if the statistics are known."""
    if context.integer("training_mode"):
        raise NotLowered("batch normalisation that updates its statistics")
    source, epsilon = context.operand(0), context.number("epsilon", 1e-5)
    try:
        known = [np.asarray(context.constant(n), np.float64) for n in range(1, 5)]
    except NotLowered:
        scale, bias, mean, variance = (context.operand(n) for n in range(1, 5))

        def element(*index: Expr) -> Expr:
            deviation = x.unary("sqrt", channel(variance, index) + epsilon)
            return (source[index] - channel(mean, index)) / deviation * channel(scale, index) + channel(bias, index)

        return te.compute(source.shape, element)
    factor = known[0] / np.sqrt(known[3] + epsilon)
    scales, shifts = (te.table(v.astype(source.dtype.numpy)) for v in (factor, known[1] - known[2] * factor))
    return te.compute(source.shape, lambda *index: source[index] * channel(scales, index) + channel(shifts, index))


@operator("InstanceNormalization", samples=lambda rng: [
    Sample((floats(rng, *shape) + 3, floats(rng, shape[1]), floats(rng, shape[1])), {"epsilon": 1e-3})
    for shape in ((2, 20, 3, 5), (2, 3, 70), (1, 5, 2, 3, 4))
])  # fmt: skip
def instance_normalization(context: Lowering) -> Tensor:
    """Each channel of each image on its own."""
    source = context.operand(0)
    stats = statistics(source, range(2, source.rank), context.number("epsilon", 1e-5))
    scale, bias = context.operand(1), context.operand(2)
    return te.compute(source.shape, lambda *index: stats.normal(index) * channel(scale, index) + channel(bias, index))


def _group_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, groups in (((2, 20, 3, 5), 4), ((2, 6, 7), 3), ((1, 32, 4, 4), 2), ((2, 6, 3, 3), 6), ((2, 6, 3, 3), 1)):
        yield Sample((floats(rng, *shape) + 3, floats(rng, shape[1]), floats(rng, shape[1])), {"num_groups": groups})


@operator("GroupNormalization", samples=_group_samples, infer=like_first)
def group_normalization(context: Lowering) -> Tensor:
    """Groups of neighbouring channels share their statistics."""
    source, scale, bias = context.operand(0), context.operand(1), context.operand(2)
    groups = context.integer("num_groups", 1)
    stats = statistics(grouped(source, groups), range(2, source.rank + 1), context.number("epsilon", 1e-5))
    size = source.shape[1] // groups

    def element(*index: Expr) -> Expr:
        place = (index[0], index[1] // size, index[1] % size, *index[2:])
        return stats.normal(place) * channel(scale, index) + channel(bias, index)

    return te.compute(source.shape, element)


def grouped(source: Tensor, groups: int) -> Tensor:
    """[N, C, ...] seen as [N, groups, C / groups, ...]."""
    batch, channels, *spatial = source.shape
    size = channels // groups
    return te.compute((batch, groups, size, *spatial), lambda n, g, c, *rest: source[(n, g * size + c, *rest)])


def _mean_variance_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((floats(rng, 2, 20, 3, 5),))
    yield Sample((floats(rng, 2, 3, 4, 5),), {"axes": [0, 2]})
    yield Sample((floats(rng, 3, 17),), {"axes": [1]})


@operator("MeanVarianceNormalization", samples=_mean_variance_samples, infer=like_first)
def mean_variance_normalization(context: Lowering) -> Tensor:
    """(x - mean) / (deviation + 1e-9), as its function in the specification."""
    source = context.operand(0)
    axes = normal_axes(context.integers("axes"), source.rank)
    stats = statistics(source, sorted(axes), 0.0)

    def element(*index: Expr) -> Expr:
        row = row_of(index, axes)
        return (source[index] - stats.mean(row)) / (x.unary("sqrt", stats.squares[row] / stats.count) + 1e-9)

    return te.compute(source.shape, element)


# ---- norms
def _lp_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, axis, p in (((3, 17), 1, 2), ((3, 17), 0, 2), ((2, 20, 3, 5), 1, 2), ((2, 3, 5), -1, 1)):
        yield Sample((floats(rng, *shape, low=0.1),), {"axis": axis, "p": p})
    yield Sample((np.zeros((2, 3), np.float32),), {"axis": 1})


@operator("LpNormalization", samples=_lp_samples)
def lp_normalization(context: Lowering) -> Tensor:
    """Rows of norm 1; a row of zeros stays."""
    source = context.operand(0)
    axis, p = normal_axis(context.integer("axis"), source.rank), context.integer("p")
    total = reduce_axes("sum", source.shape, [axis], lambda i: source[i] * source[i] if p == 2 else x.unary("abs", source[i]))

    def element(*index: Expr) -> Expr:
        sums = total[row_of(index, [axis])]
        norm = x.unary("sqrt", sums) if p == 2 else sums
        return source[index] / x.select(x.equal(norm, 0), x.const(1, norm.dtype), norm)

    return te.compute(source.shape, element)


@operator("LRN", samples=lambda rng: [
    Sample((floats(rng, 20, 20, 3, 5),), {"size": 5, "alpha": 0.3}),
    Sample((floats(rng, 6, 6, 2, 2),), {"size": 4, "bias": 2.0, "beta": 0.5}),
])  # fmt: skip
def local_response_normalization(context: Lowering) -> Tensor:
    """x / (bias + alpha / size * sum of squares of the neighbouring channels) ** beta."""
    source, size = context.operand(0), context.integer("size")
    alpha, beta, bias = context.number("alpha"), context.number("beta"), context.number("bias")
    channels = source.shape[1]

    def square(*index: Expr) -> Expr:
        *own, offset = index
        place = own[1] + offset - (size - 1) // 2
        value = source[(own[0], place, *own[2:])]
        return x.select((place >= 0) & (place < channels), value * value, 0)

    total = te.reduce("sum", source.shape, [size], square)

    def element(*index: Expr) -> Expr:
        base = total[index] * (alpha / size) + bias
        return source[index] / x.binary("pow", base, x.const(beta, base.dtype))

    return te.compute(source.shape, element)
