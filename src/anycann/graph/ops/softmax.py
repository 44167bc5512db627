"""Softmax and its relatives: rows that become distributions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from anycann.graph.ops.common import floats, normal_axis, retyped
from anycann.graph.ops.reduction import first_position, reduce_axes, row_of
from anycann.graph.registry import Lowering, Sample, operator
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor


def softmax_samples(rng: np.random.Generator) -> Iterable[Sample]:
    """Every axis, rows longer and shorter than a vector, large values."""
    for shape, axis in (
        ((3, 17), None),
        ((3, 17), 0),
        ((2, 20, 3, 5), 1),
        ((2, 3, 4, 5), -1),
        ((4, 70), 1),
        ((37,), 0),
        ((3, 1), 1),
        ((0, 3), 1),
    ):
        yield Sample((floats(rng, *shape, low=-8, high=8),), {} if axis is None else {"axis": axis})
    yield Sample((floats(rng, 3, 17, low=500, high=900),))
    yield from retyped(Sample((floats(rng, 3, 20),)), ("float64", "float16", "bfloat16"))


def _shifted(source: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(source minus the largest of its row, sum of the exponentials of that). A NaN makes the sum one, whatever is the largest."""
    largest = reduce_axes("largest_number", source.shape, axes, lambda index: source[index])
    shifted = te.compute(source.shape, lambda *index: source[index] - largest[row_of(index, axes)])
    return shifted, reduce_axes("sum", source.shape, axes, lambda index: x.unary("exp", shifted[index]))


def softmax_of(source: Tensor, axes: Sequence[int]) -> Tensor:
    """exp(x - max) / sum of that, over axes counted from the front."""
    shifted, total = _shifted(source, axes)
    one = x.const(1, source.dtype)  # one division a row
    return te.compute(source.shape, lambda *index: x.unary("exp", shifted[index]) * (one / total[row_of(index, axes)]))


@operator("Softmax", samples=softmax_samples)
def softmax(context: Lowering) -> Tensor:
    """Stable for any finite operand: the largest exponential is 1."""
    source = context.operand(0)
    return softmax_of(source, [normal_axis(context.integer("axis"), source.rank)])


@operator("LogSoftmax", samples=softmax_samples)
def log_softmax(context: Lowering) -> Tensor:
    """x - max - log of the sum of exponentials."""
    source = context.operand(0)
    axes = [normal_axis(context.integer("axis"), source.rank)]
    shifted, total = _shifted(source, axes)
    return te.compute(source.shape, lambda *index: shifted[index] - x.unary("log", total[row_of(index, axes)]))


@operator("Hardmax", samples=softmax_samples)
def hardmax(context: Lowering) -> Tensor:
    """1 at the first largest element of a row, 0 elsewhere."""
    source = context.operand(0)
    axis = normal_axis(context.integer("axis"), source.rank)
    place = first_position(source, axis, "max", last=False)

    def element(*index: Expr) -> Expr:
        return x.select(x.equal(place[row_of(index, [axis])], index[axis]), x.const(1, source.dtype), x.const(0, source.dtype))

    return te.compute(source.shape, element)
