"""Operators that put elements in order or add them up along an axis: sequential work, each a routine of its own (te/routines.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import math

import numpy as np

from anycann.graph.ops import indexing_on_host
from anycann.graph.ops.common import empty, floats, integers, normal_axis, retyped
from anycann.graph.registry import Lowering, NotLowered, Sample, operator
from anycann.te import tensor as te
from anycann.te.routines import Running, Selection
from anycann.te.tensor import Tensor


def _around(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """The tensor seen as [outer, extent, inner] around the axis."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


# ---- the best
def _top_k_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, count, axis in (
        ((3, 17), 5, -1),
        ((3, 17), 17, 1),
        ((9, 5), 4, 0),
        ((2, 7, 20), 7, 1),
        ((700,), 1, 0),
        ((2, 1500), 300, 1),
        ((400,), 399, 0),
    ):
        for largest in (1, 0):
            yield Sample((floats(rng, *shape), np.array([count])), {"axis": axis, "largest": largest}, (1,), 2)
            repeated = integers(rng, *shape, low=-2, high=2).astype(np.float32) * np.float32(0.5)
            yield Sample((repeated, np.array([count])), {"axis": axis, "largest": largest}, (1,), 2)
    rising = np.arange(2000, dtype=np.float32).reshape(2, 1000)
    yield Sample((rising, np.array([33])), {}, (1,), 2)
    yield Sample((rising, np.array([33])), {"largest": 0}, (1,), 2)
    types = ("float64", "float16", "int64", "int32", "int8", "uint8", "uint64", "uint16")
    yield from retyped(Sample((floats(rng, 3, 90, low=-100, high=100), np.array([20])), constant=(1,), outputs=2), types, 0)


@operator("TopK", samples=_top_k_samples, host=indexing_on_host.best)
def top_k(context: Lowering) -> Sequence[Tensor]:
    """The k best elements along an axis and their places, in order, whether that is asked for or not; of equal ones the first."""
    source, result = context.operand(0), context.outputs[0]
    axis = normal_axis(context.integer("axis", -1), source.rank)
    count = result.shape[axis]
    if 0 in result.shape:
        return [empty(type_.shape, type_.dtype) for type_ in context.outputs]
    if not 0 < count <= source.shape[axis]:
        raise NotLowered(f"{count} of {source.shape[axis]} elements")
    largest = context.integer("largest", 1) == 1
    parts = [Selection(number, source, *_around(source.shape, axis), count, largest) for number in range(len(context.outputs))]
    return [te.contraction(part, type_.shape, type_.dtype) for part, type_ in zip(parts, context.outputs, strict=True)]


# ---- running sums and products
def _running_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, axis in (((3, 17), 1), ((3, 17), 0), ((2, 5, 3, 4), -3), ((40,), 0), ((2, 9, 70), 1), ((9, 30), -1)):
        for exclusive, reverse in ((0, 0), (1, 0), (0, 1), (1, 1)):
            yield Sample((floats(rng, *shape), np.array(axis, np.int64)), {"exclusive": exclusive, "reverse": reverse}, constant=(1,))
    yield Sample((floats(rng, 20), np.array(0, np.int64)))
    yield from retyped(Sample((floats(rng, 3, 20), np.array(1, np.int64)), constant=(1,)), ("int32", "int64", "float64"), 0)


def _running(op_type: str, kind: str) -> None:
    @operator(op_type, samples=_running_samples)
    def lower(context: Lowering) -> Tensor:
        """Each element with all before it along the axis."""
        source = context.operand(0)
        known = None if source.rank == 1 else context.constant(1)
        axis = 0 if known is None else normal_axis(int(known.reshape(-1)[0]), source.rank)
        if source.size == 0:
            return empty(source.shape, source.dtype)
        flags = (context.integer("exclusive") == 1, context.integer("reverse") == 1)
        return te.contraction(Running(0, source, *_around(source.shape, axis), kind, *flags), source.shape, source.dtype)


_running("CumSum", "add")
_running("CumProd", "mul")
