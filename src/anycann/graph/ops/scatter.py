"""Scatters, turned round: each element of the result looks for the update that is meant for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
import math

import numpy as np

from anycann.graph.ops.common import floats, guarded, integer, integers, normal_axis, replaced, retyped
from anycann.graph.ops.shape import reshaped
from anycann.graph.registry import Lowering, NotLowered, Sample, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor

Index = tuple[Expr, ...]
LIMIT = 1 << 24  # comparisons; beyond that the host scatters faster
_KINDS: dict[str, tuple[str, str]] = {"add": ("sum", "add"), "mul": ("prod", "mul"), "max": ("max", "max"), "min": ("min", "min")}


def _neutral(kind: str, tensor: Tensor) -> float:
    if kind in ("sum", "prod"):
        return 0 if kind == "sum" else 1
    if tensor.dtype.is_float:
        return -math.inf if kind == "max" else math.inf
    bits = 8 * tensor.dtype.nbytes - (1 if tensor.dtype.kind == "int" else 0)
    low = -(1 << bits) if tensor.dtype.kind == "int" else 0
    return low if kind == "max" else (1 << bits) - 1


def _scattered(
    context: Lowering, count: int, hits: Callable[[Index, Expr], Expr], update: Callable[[Index, Expr], Expr], known: np.ndarray | None
) -> Tensor:
    """The data with updates applied. hits(index, p): does update p go to element `index`; update(index, p): what it brings.

    known: for every element the last update that goes there, -1 for none, if that is known while compiling.
    """
    data, reduction = context.operand(0), context.text("reduction", "none")
    if known is None and data.size * count > LIMIT:
        raise NotLowered(f"{count} updates at computed places of {data.size} elements")
    if reduction == "none":
        last = te.table(known) if known is not None else _last(data, count, hits)

        def chosen(*index: Expr) -> Expr:
            place = last[index]
            return x.select(place >= 0, update(index, x.clamp(place, 0, count - 1)), data[index])

        return te.compute(data.shape, chosen)
    kind, combine = _KINDS[reduction]

    def contribution(*index: Expr) -> Expr:
        *own, p = index
        return x.select(hits(tuple(own), p), update(tuple(own), p), _neutral(kind, data))

    total = te.reduce(kind, data.shape, [count], contribution)
    return te.compute(data.shape, lambda *index: x.binary(combine, data[index], total[index]))


def _last(data: Tensor, count: int, hits: Callable[[Index, Expr], Expr]) -> Tensor:
    return te.reduce("max", data.shape, [count], lambda *index: x.select(hits(tuple(index[:-1]), index[-1]), index[-1], -1))


def _counted_from_front(index: Expr, extent: int) -> Expr:
    index = x.cast(index, dtypes.int64)
    return x.select(index < 0, index + extent, index)


def _known(context: Lowering) -> np.ndarray | None:
    """Constant indices, for a scatter where the last update of an element counts."""
    if context.text("reduction", "none") != "none":
        return None
    try:
        return context.constant(1)
    except NotLowered:
        return None


# ---- along an axis
def _element_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, indices, axis in (((5, 7), (3, 7), 0), ((3, 20), (2, 9), 1), ((2, 5, 3, 4), (2, 5, 3, 4), -2), ((9,), (4,), 0)):
        for reduction in ("none", "add", "mul", "max", "min"):
            places = integers(rng, *indices, low=-shape[axis], high=shape[axis] - 1)
            if reduction == "none":  # which of two updates of one element wins is not specified
                places = np.argsort(rng.random(indices), axis=axis).astype(np.int64)
            operands = (floats(rng, *shape), places, floats(rng, *indices))
            yield Sample(operands, {"axis": axis, "reduction": reduction})
        yield Sample((floats(rng, *shape), np.zeros_like(places) - 1, floats(rng, *indices)), {"axis": axis}, constant=(1,))
    yield from retyped(
        Sample((floats(rng, 9), integers(rng, 4, low=0, high=8), floats(rng, 4)), {"reduction": "max"}), ("int32", "uint8", "float64")
    )


@operator("ScatterElements", samples=_element_samples)
def scatter_elements(context: Lowering) -> Tensor:
    """Update [.., p, ..] goes where the index of the same place says, along one axis."""
    data, indices, updates = context.operand(0), context.operand(1), context.operand(2)
    axis = normal_axis(context.integer("axis"), data.rank)
    if indices.size == 0:
        return te.compute(data.shape, lambda *index: data[index])
    count = indices.shape[axis]
    others = [d for d in range(data.rank) if d != axis and indices.shape[d] < data.shape[d]]

    def covered(index: Index) -> Expr | None:
        return x.all_of([index[d] < indices.shape[d] for d in others])

    def hits(index: Index, p: Expr) -> Expr:
        place = _counted_from_front(indices[replaced(index, axis, p)], data.shape[axis])
        return guarded(covered(index), x.equal(place, index[axis]), False)

    def update(index: Index, p: Expr) -> Expr:
        return guarded(covered(index), updates[replaced(index, axis, p)], 0)

    known = _known(context)
    return _scattered(context, count, hits, update, None if known is None else _last_of_elements(known, data.shape, axis))


def _last_of_elements(indices: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray:
    last = np.full(shape, -1, np.int64)
    for place in np.ndindex(*indices.shape):
        target = [*place]
        target[axis] = int(indices[place]) % shape[axis]
        last[tuple(target)] = place[axis]
    return last


# ---- slices
def _slice_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, outer, depth in (((9, 20), (4,), 1), ((5, 6, 3), (2, 3), 2), ((7,), (5,), 1), ((4, 5), (2, 2), 2), ((2, 5, 3, 4), (4,), 2)):
        bounds = np.array(shape[:depth])
        flat = rng.permutation(int(bounds.prod()))[: math.prod(outer)]
        places = np.stack(np.unravel_index(flat, bounds), axis=-1).reshape(*outer, depth).astype(np.int64)
        for reduction in ("none", "add", "mul", "max", "min"):
            operands = (floats(rng, *shape), places - (0 if reduction == "none" else bounds), floats(rng, *outer, *shape[depth:]))
            yield Sample(operands, {"reduction": reduction})
        yield Sample(operands, constant=(1,))


@operator("ScatterND", samples=_slice_samples)
def scatter_nd(context: Lowering) -> Tensor:
    """Each row of the indices says which slice of the data an update replaces."""
    data, depth = context.operand(0), context.operand(1).shape[-1]
    count = math.prod(context.operand(1).shape[:-1])
    if count == 0 or data.size == 0:
        return te.compute(data.shape, lambda *index: data[index])
    indices = reshaped(context.operand(1), (count, depth))
    updates = reshaped(context.operand(2), (count, *data.shape[depth:]))

    def hits(index: Index, p: Expr) -> Expr:
        same = [x.equal(_counted_from_front(indices[p, integer(k)], data.shape[k]), index[k]) for k in range(depth)]
        found = x.all_of(same)
        return x.const(True, dtypes.bool_) if found is None else found

    known = _known(context)
    last = None if known is None else _last_of_slices(known.reshape(count, depth), data.shape)
    return _scattered(context, count, hits, lambda index, p: updates[(p, *index[depth:])], last)


def _last_of_slices(indices: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    last = np.full(shape, -1, np.int64)
    for number, row in enumerate(indices):
        last[tuple(int(i) % extent for i, extent in zip(row, shape, strict=False))] = number
    return last
