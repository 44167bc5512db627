"""Reductions along axes, the positions of extremes, and running sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
import math

import numpy as np

from anycann.graph.ops.common import floats, integers, normal_axes, normal_axis, retyped
from anycann.graph.registry import Lowering, Sample, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Reduction, Tensor

Index = tuple[Expr, ...]


def reduce_axes(kind: str, shape: Sequence[int], axes: Sequence[int], body: Callable[[Index], Expr]) -> Reduction:
    """`kind` (sum, prod, max, min) of body(index) over `axes` of an index space; the result has the other axes only."""
    kept = [axis for axis in range(len(shape)) if axis not in axes]

    def element(*own: Expr) -> Expr:
        places = dict(zip([*kept, *axes], own, strict=True))
        return body(tuple(places[axis] for axis in range(len(shape))))

    return te.reduce(kind, [shape[axis] for axis in kept], [shape[axis] for axis in axes], element)


def row_of(index: Index, axes: Sequence[int]) -> Index:
    """The index into what `reduce_axes` made, for an index of the whole space."""
    return tuple(place for axis, place in enumerate(index) if axis not in axes)


def with_kept_axes(context: Lowering, result: Tensor, axes: Sequence[int], finish: Callable[[Expr], Expr]) -> Tensor:
    """finish(result) in the shape of the first output: reduced axes are dropped, or kept with extent 1."""
    keep = context.integer("keepdims", 1) == 1
    return te.compute(context.outputs[0].shape, lambda *index: finish(result[row_of(index, axes) if keep else index]))


def _same(a: Expr) -> Expr:
    return a


def _axes(context: Lowering, rank: int) -> tuple[int, ...]:
    given = context.constant(1)
    if given is None or given.size == 0:
        return () if context.integer("noop_with_empty_axes") else tuple(range(rank))
    return tuple(sorted(set(normal_axes(given.reshape(-1), rank))))


def _reduce_samples(low: float, high: float, types: Sequence[str]) -> Callable[[np.random.Generator], Iterable[Sample]]:
    def draw(rng: np.random.Generator) -> Iterable[Sample]:
        for shape, axes, keep in (
            ((3, 17), [1], 1), ((3, 17), [0], 0), ((2, 20, 3, 5), [2, 3], 1), ((2, 20, 3, 5), [1], 0), ((2, 3, 4, 5), [-1, 0], 1),
            ((4, 70), [-1], 1), ((37,), [0], 0), ((3, 1, 4), [1], 1), ((2, 3, 4, 5), [0, 1, 2, 3], 0),
        ):  # fmt: skip
            yield Sample((floats(rng, *shape, low=low, high=high), np.array(axes, np.int64)), {"keepdims": keep}, constant=(1,))
        yield Sample((floats(rng, 3, 4, 5, low=low, high=high),))
        yield Sample((floats(rng, 3, 4, low=low, high=high), np.zeros(0, np.int64)), {"noop_with_empty_axes": 1}, constant=(1,))
        yield from retyped(Sample((floats(rng, 3, 20, low=low, high=high), np.array([1], np.int64)), constant=(1,)), types, 0)

    return draw


def _reduction(
    op_type: str, kind: str, body: Callable[[Expr], Expr] = _same, finish: Callable[[Expr, int], Expr] = lambda a, n: a,
    low: float = -2.0, types: Sequence[str] = ("float64", "float16", "int32", "int64"),
) -> None:  # fmt: skip
    """Define an operator: finish(kind of body(element), number of elements)."""

    @operator(op_type, samples=_reduce_samples(low, 2.0, types))
    def lower(context: Lowering) -> Tensor:
        source = context.operand(0)
        axes = _axes(context, source.rank)
        count = math.prod(source.shape[axis] for axis in axes)
        result = reduce_axes(kind, source.shape, axes, lambda index: body(source[index]))
        return with_kept_axes(context, result, axes, lambda a: finish(a, count))


def _abs(a: Expr) -> Expr:
    return x.unary("abs", a)


def _root(a: Expr, _: int) -> Expr:
    return x.unary("sqrt", a) if a.dtype.is_float else x.cast(x.unary("sqrt", x.cast(a, dtypes.float64)), a.dtype)


_reduction("ReduceSum", "sum")
_reduction("ReduceMean", "sum", finish=lambda a, count: a / count)
_reduction("ReduceMax", "max", types=("float64", "float16", "int8", "uint8", "int32", "int64", "bool"))
_reduction("ReduceMin", "min", types=("float64", "float16", "int8", "uint8", "int32", "int64", "bool"))
_reduction("ReduceProd", "prod")
_reduction("ReduceL1", "sum", _abs)
_reduction("ReduceL2", "sum", lambda a: a * a, _root, types=("float64",))
_reduction("ReduceSumSquare", "sum", lambda a: a * a)
_reduction("ReduceLogSum", "sum", finish=lambda a, _: x.unary("log", a), low=0.1, types=("float64",))


@operator("ReduceLogSumExp", samples=_reduce_samples(-30.0, 2.0, ("float64",)))
def reduce_log_sum_exp(context: Lowering) -> Tensor:
    """Shifted by the largest element, so that nothing overflows."""
    source = context.operand(0)
    axes = _axes(context, source.rank)
    largest = reduce_axes("max", source.shape, axes, lambda index: source[index])

    def shift(row: Index) -> Expr:
        return x.select(_abs(largest[row]) < math.inf, largest[row], 0.0)

    total = reduce_axes("sum", source.shape, axes, lambda index: x.unary("exp", source[index] - shift(row_of(index, axes))))
    keep = context.integer("keepdims", 1) == 1

    def element(*index: Expr) -> Expr:
        row = row_of(index, axes) if keep else index
        return x.unary("log", total[row]) + shift(row)

    return te.compute(context.outputs[0].shape, element)


# ---- positions of extremes
def first_position(source: Tensor, axis: int, kind: str, last: bool) -> Reduction:
    """Where along `axis` the max or min is, the first or last such place; a NaN is the extreme, as in numpy."""
    extreme = reduce_axes(kind, source.shape, [axis], lambda index: source[index])

    def place(index: Index) -> Expr:
        value, best = source[index], extreme[row_of(index, [axis])]
        found = x.equal(value, best)
        if source.dtype.is_float:
            found = found | (x.not_equal(value, value))
        return x.select(found, index[axis], -1 if last else source.shape[axis])

    return reduce_axes("max" if last else "min", source.shape, [axis], place)


def _extreme_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, axis in (((3, 17), 1), ((3, 17), 0), ((2, 20, 3, 5), 1), ((2, 3, 4, 5), -1), ((70,), 0), ((3, 1), 1)):
        for last, keep in ((0, 1), (1, 0)):
            whole = integers(rng, *shape, low=-3, high=3, dtype="float32")
            yield Sample((whole,), {"axis": axis, "select_last_index": last, "keepdims": keep})
    yield from retyped(Sample((floats(rng, 3, 20, low=-90, high=90),), {"axis": 1}), ("int8", "uint8", "int32", "int64", "float64"))
    yield Sample((np.array([[1, np.nan, 5], [np.inf, 2, np.inf]], np.float32),), {"axis": 1})


def _extreme(op_type: str, kind: str) -> None:
    @operator(op_type, samples=_extreme_samples)
    def lower(context: Lowering) -> Tensor:
        source = context.operand(0)
        axis = normal_axis(context.integer("axis"), source.rank)
        result = first_position(source, axis, kind, context.integer("select_last_index") == 1)
        return with_kept_axes(context, result, [axis], _same)


_extreme("ArgMax", "max")
_extreme("ArgMin", "min")
