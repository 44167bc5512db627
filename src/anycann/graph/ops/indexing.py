"""Operators that choose elements by computed or regular positions: gathers, one-hot, padding, blocks and space."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from anycann.graph.ops import indexing_on_host
from anycann.graph.ops.common import (
    EVERY_DTYPE,
    all_inside,
    empty,
    floats,
    guarded,
    index_map,
    integers,
    normal_axes,
    normal_axis,
    replaced,
    retyped,
    wrapped,
)  # fmt: skip
from anycann.graph.registry import Lowering, Sample, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor


# ---- gathers: an index that is out of range reads the nearest element, never outside the tensor
def _gather_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, indices, axis in (
        ((9, 5), (3, 2), 0),
        ((9, 17), (4,), -1),
        ((2, 9, 3, 4), (5,), 1),
        ((2, 20, 3, 4), (2, 2), 2),
        ((7,), (), 0),
    ):
        yield Sample((floats(rng, *shape), integers(rng, *indices, low=-shape[axis], high=shape[axis] - 1)), {"axis": axis})
    yield Sample((floats(rng, 9, 5), integers(rng, 3, low=0, high=8, dtype="int32")), constant=(1,))
    yield from retyped(Sample((floats(rng, 9, 20), integers(rng, 3, low=-9, high=8))), EVERY_DTYPE)


@operator("Gather", samples=_gather_samples, host=indexing_on_host.gathered)
def gather(context: Lowering) -> Tensor:
    """Slices along one axis, by index."""
    data, indices = context.operand(0), context.operand(1)
    shape = context.outputs[0].shape
    axis = normal_axis(context.integer("axis"), data.rank)
    if 0 in shape or data.size == 0:
        return empty(shape, data.dtype)

    def element(*index: Expr) -> Expr:
        place = wrapped(indices[index[axis : axis + indices.rank]], data.shape[axis])
        return data[(*index[:axis], place, *index[axis + indices.rank :])]

    return te.compute(shape, element)


def _gather_elements_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, indices, axis in (((9, 5), (3, 5), 0), ((3, 17), (3, 20), 1), ((2, 5, 3, 4), (2, 5, 3, 4), -2), ((7,), (4,), 0)):
        yield Sample((floats(rng, *shape), integers(rng, *indices, low=-shape[axis], high=shape[axis] - 1)), {"axis": axis})


@operator("GatherElements", samples=_gather_elements_samples, host=indexing_on_host.gathered_elements)
def gather_elements(context: Lowering) -> Tensor:
    """One element along an axis for each element of the indices."""
    data, indices = context.operand(0), context.operand(1)
    axis = normal_axis(context.integer("axis"), data.rank)
    if indices.size == 0 or data.size == 0:
        return empty(indices.shape, data.dtype)
    return te.compute(indices.shape, lambda *index: data[replaced(index, axis, wrapped(indices[index], data.shape[axis]))])


def _gather_nd_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((floats(rng, 5, 5, 5), integers(rng, 7, 2, low=-5, high=4)))
    yield Sample((floats(rng, 5, 5, 5), integers(rng, 3, 4, 3, low=-5, high=4)))
    yield Sample((floats(rng, 2, 5, 6), integers(rng, 2, 1, low=-5, high=4)), {"batch_dims": 1})
    yield Sample((floats(rng, 2, 3, 4, 5), integers(rng, 2, 3, 2, 1, low=-4, high=3)), {"batch_dims": 2})


@operator("GatherND", samples=_gather_nd_samples, host=indexing_on_host.gathered_points)
def gather_nd(context: Lowering) -> Tensor:
    """Slices at the places that the last axis of the indices spells out."""
    data, indices = context.operand(0), context.operand(1)
    shape, batch = context.outputs[0].shape, context.integer("batch_dims")
    depth = indices.shape[-1]
    if 0 in shape or data.size == 0:
        return empty(shape, data.dtype)

    def element(*index: Expr) -> Expr:
        outer = index[: indices.rank - 1]
        places = [wrapped(indices[(*outer, x.const(k, dtypes.int64))], data.shape[batch + k]) for k in range(depth)]
        return data[(*index[:batch], *places, *index[indices.rank - 1 :])]

    return te.compute(shape, element)


def _one_hot_samples(rng: np.random.Generator) -> Iterable[Sample]:
    values = np.array([2.5, -1.0], np.float32)
    for shape, axis in (((7,), -1), ((3, 5), 0), ((3, 5), 1), ((2, 3, 4), -2)):
        yield Sample((integers(rng, *shape, low=-10, high=9), np.array(10, np.int64), values), {"axis": axis}, constant=(1,))
    yield Sample((np.array([1.0, 3.0, -1.0], np.float32), np.array(4, np.int64), np.array([0, 1], np.int32)), constant=(1,))


@operator("OneHot", samples=_one_hot_samples)
def one_hot(context: Lowering) -> Tensor:
    """`on` where the position along the new axis is the index; an index out of range is nowhere."""
    indices, values, shape = context.operand(0), context.operand(2), context.outputs[0].shape
    axis = normal_axis(context.integer("axis"), len(shape))
    depth = shape[axis]

    def element(*index: Expr) -> Expr:
        chosen = x.cast(indices[(*index[:axis], *index[axis + 1 :])], dtypes.int64)
        place = x.select(chosen < 0, chosen + depth, chosen)
        return x.select(x.equal(place, index[axis]), values[1], values[0])

    return te.compute(shape, element)


def _reverse_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((floats(rng, 5, 3, 17), np.array([5, 1, 3], np.int64)))
    yield Sample((floats(rng, 3, 6, 2), np.array([2, 6, 1], np.int64)), {"batch_axis": 0, "time_axis": 1})


@operator("ReverseSequence", samples=_reverse_samples)
def reverse_sequence(context: Lowering) -> Tensor:
    """The first `length` steps of each row backwards, the rest as they are."""
    data, lengths = context.operand(0), context.operand(1)
    time, batch = context.integer("time_axis"), context.integer("batch_axis")

    def element(*index: Expr) -> Expr:
        length = lengths[index[batch]]
        place = x.select(index[time] < length, length - 1 - index[time], index[time])
        return data[replaced(index, time, x.clamp(place, 0, data.shape[time] - 1))]

    return te.compute(data.shape, element)


# ---- padding
def _pad_samples(rng: np.random.Generator) -> Iterable[Sample]:
    def one(
        shape: tuple[int, ...], pads: list[int], mode: str = "constant", value: float | None = None, axes: list[int] | None = None
    ) -> Sample:
        border = None if value is None else np.array(value, np.float32)
        operands: list[np.ndarray | None] = [floats(rng, *shape), np.array(pads, np.int64), border]
        operands += [] if axes is None else [np.array(axes, np.int64)]
        return Sample(tuple(operands), {"mode": mode}, constant=(1, 3))

    for mode in ("constant", "edge", "reflect", "wrap"):
        yield one((3, 17), [1, 3, 2, 4], mode)
        yield one((2, 20, 5, 6), [0, 0, 2, 1, 0, 0, 1, 3], mode)
        yield one((2, 3, 5), [2, 1], mode, axes=[-1])
    yield one((2, 3, 4, 5), [0, 2, 0, 0, 0, 1, 0, 0], value=-2.0)
    yield one((3,), [7, 9], "reflect")
    yield one((3,), [7, 9], "wrap")
    yield one((5,), [0, 0])
    yield from retyped(Sample((floats(rng, 3, 5), np.array([1, 3, 2, 14], np.int64)), constant=(1,)), (*EVERY_DTYPE[:-1],))


def _mirrored(place: Expr, extent: int, before: int, after: int) -> Expr:
    if max(before, after) >= extent:
        return index_map(np.pad(np.arange(extent), (max(before, 0), max(after, 0)), mode="reflect"), place + max(before, 0))
    once = x.maximum(place, -place)
    return x.clamp(x.minimum(once, 2 * (extent - 1) - once), 0, extent - 1)


_PAD: dict[str, Callable[[Expr, int, int, int], Expr]] = {
    "edge": lambda place, extent, before, after: x.clamp(place, 0, extent - 1),
    "wrap": lambda place, extent, before, after: place % extent,
    "reflect": _mirrored,
}


@operator("Pad", samples=_pad_samples)
def pad(context: Lowering) -> Tensor:
    """A border of a constant, of the edge, of the mirrored or of the repeated tensor; negative widths cut."""
    data, pads, shape, mode = context.operand(0), context.constant(1), context.outputs[0].shape, context.text("mode")
    assert pads is not None
    axes = normal_axes(context.constant(3), data.rank)
    begins, ends = [0] * data.rank, [0] * data.rank
    for number, axis in enumerate(axes):
        begins[axis], ends[axis] = int(pads[number]), int(pads[number + len(axes)])
    if mode == "constant":
        return _pad_constant(context, data, begins)

    def element(*index: Expr) -> Expr:
        places = [
            i if b == 0 and e == 0 else _PAD[mode](i - b, n, b, e) for i, n, b, e in zip(index, data.shape, begins, ends, strict=True)
        ]
        return data[tuple(places)]

    return empty(shape, data.dtype) if 0 in shape or data.size == 0 else te.compute(shape, element)


def _pad_constant(context: Lowering, data: Tensor, begins: Sequence[int]) -> Tensor:
    value = context.operand(2) if context.has(2) else None

    def element(*index: Expr) -> Expr:
        places = tuple(i - b for i, b in zip(index, begins, strict=True))
        border: x.Operand = 0 if value is None else value[(x.const(0, dtypes.int64),) * value.rank]
        if data.size == 0:
            return x.wrap(border, data.dtype)
        return guarded(all_inside(places, data.shape), data[places], border)

    return te.compute(context.outputs[0].shape, element)


# ---- tensors made of positions
@operator("Range", samples=lambda rng: [
    Sample((np.array(3, np.int64), np.array(40, np.int64), np.array(2, np.int64)), constant=(0, 1, 2)),
    Sample(tuple(np.array(v, np.float32) for v in (5, -3, -0.25)), constant=(0, 1, 2)),
])  # fmt: skip
def number_range(context: Lowering) -> Tensor:
    """start, start + step ..."""
    start, step, dtype = context.operand(0), context.operand(2), context.outputs[0].dtype
    return te.compute(context.outputs[0].shape, lambda i: start[()] + x.cast(i, dtype) * step[()])


@operator("ConstantOfShape", samples=lambda rng: [Sample((np.array(shape, np.int64),), constant=(0,)) for shape in ([3, 5], [0, 2], [4])])
def constant_of_shape(context: Lowering) -> Tensor:
    """One value everywhere, float32 zero unless the attribute says another."""
    type_ = context.outputs[0]
    value = context.attribute("value")
    number = 0.0 if value is None else value.numpy().reshape(-1)[0]  # type: ignore[attr-defined]
    return te.compute(type_.shape, lambda *_: x.const(number.item() if isinstance(number, np.generic) else number, type_.dtype))


@operator("EyeLike", samples=lambda rng: [Sample((floats(rng, 5, 17),), {"k": k, "dtype": to}) for k, to in ((0, None), (-2, 7), (3, 11))])
def eye_like(context: Lowering) -> Tensor:
    """Ones on diagonal k."""
    type_, k = context.outputs[0], context.integer("k")
    one, zero = x.const(1, type_.dtype), x.const(0, type_.dtype)
    return te.compute(type_.shape, lambda i, j: x.select(x.equal(i + k, j), one, zero))


def _trilu_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, k, upper in (((5, 17), None, 1), ((2, 5, 5), 1, 0), ((2, 3, 4, 5), -1, 1), ((3, 4), 9, 1), ((0, 4), 0, 0)):
        yield Sample((floats(rng, *shape), None if k is None else np.array(k, np.int64)), {"upper": upper})
    yield from retyped(Sample((floats(rng, 5, 20),)), ("int64", "bool", "float64"))


@operator("Trilu", samples=_trilu_samples)
def trilu(context: Lowering) -> Tensor:
    """The upper or lower triangle, zeros elsewhere. `k` may be computed at run time."""
    data, upper = context.operand(0), context.integer("upper") == 1
    k = context.operand(1) if context.has(1) else None

    def element(*index: Expr) -> Expr:
        above = index[-1] - index[-2]
        shift: x.Operand = 0 if k is None else k[(x.const(0, dtypes.int64),) * k.rank]
        return x.select(above >= shift if upper else above <= shift, data[index], 0)

    return te.compute(data.shape, element)
