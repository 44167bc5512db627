"""Scatters: to computed places one update after the other; to known places turned round, each element taking the update meant for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
import math

import numpy as np

from anycann.graph.ops.common import floats, guarded, integers, normal_axis, replaced, retyped
from anycann.graph.ops.shape import reshaped
from anycann.graph.registry import Lowering, NotLowered, Sample, operator
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.routines import Scatter
from anycann.te.tensor import Tensor

Index = tuple[Expr, ...]


def _chosen(context: Lowering, last: np.ndarray, update: Callable[[Index, Expr], Expr]) -> Tensor:
    """The data with updates at known places: for every element `last` is the number of the last update that goes there, -1 for none."""
    data, table, count = context.operand(0), te.table(last), int(last.max(initial=0)) + 1

    def element(*index: Expr) -> Expr:
        place = table[index]
        return x.select(place >= 0, update(index, x.clamp(place, 0, count - 1)), data[index])

    return te.compute(data.shape, element)


def _routine(context: Lowering, axis: int | None) -> Tensor:
    """The data with updates at computed places."""
    data, places, updates = (context.operand(number) for number in range(3))
    if places.dtype.kind != "int":
        raise NotLowered(f"places of {places.dtype}")
    kind = context.text("reduction", "none")
    return te.contraction(Scatter(0, data, places, updates, axis, kind), data.shape, data.dtype)


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
    known = _known(context)
    if known is None:
        return _routine(context, axis)
    others = [d for d in range(data.rank) if d != axis and indices.shape[d] < data.shape[d]]

    def update(index: Index, p: Expr) -> Expr:
        covered = x.all_of([index[d] < indices.shape[d] for d in others])
        return guarded(covered, updates[replaced(index, axis, p)], 0)

    return _chosen(context, _last_of_elements(known, data.shape, axis), update)


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
    known = _known(context)
    if known is None:
        return _routine(context, None)
    updates = reshaped(context.operand(2), (count, *data.shape[depth:]))
    last = _last_of_slices(known.reshape(count, depth), data.shape)
    return _chosen(context, last, lambda index, p: updates[(p, *index[depth:])])


def _last_of_slices(indices: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    last = np.full(shape, -1, np.int64)
    for number, row in enumerate(indices):
        last[tuple(int(i) % extent for i, extent in zip(row, shape, strict=False))] = number
    return last
