"""Operators that move elements without looking at them: views, permutations, cutting, joining and repeating."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from anycann.graph.ops import shape_on_host
from anycann.graph.ops.common import EVERY_DTYPE, broadcast_index, empty, floats, normal_axes, normal_axis, replaced, retyped
from anycann.graph.registry import Lowering, NotLowered, Sample, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor


# ---- views: the same elements in the same order
def reshaped(source: Tensor, shape: Sequence[int]) -> Tensor:
    """The elements of `source`, in row-major order, under another shape of as many elements."""
    if source.size == 0:
        return empty(shape, source.dtype)

    def element(*indices: Expr) -> Expr:
        flat: Expr = x.const(0, dtypes.int64)
        for extent, index in zip(shape, indices, strict=True):
            flat = flat * extent + index
        places: list[Expr] = []
        for extent in reversed(source.shape):
            places.append(flat % extent if extent > 1 else x.const(0, dtypes.int64))
            flat = flat // extent
        return source[tuple(reversed(places))]

    return te.compute(shape, element)


def _view_samples(rng: np.random.Generator) -> Iterable[Sample]:
    return [Sample((floats(rng, *shape),)) for shape in ((), (37,), (2, 3, 5, 7), (0, 3))]


@operator("Identity", view=True, samples=lambda rng: [*_view_samples(rng), *retyped(Sample((floats(rng, 3, 17),)), EVERY_DTYPE)])
def identity(context: Lowering) -> Tensor:
    """The operand."""
    return _copied(context.operand(0))


def _copied(source: Tensor) -> Tensor:
    return te.compute(source.shape, lambda *index: source[index])


def _dropout_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((floats(rng, 3, 17), np.array(0.3, np.float32)), outputs=2)
    yield Sample((floats(rng, 2, 3, 5, 7), np.array(0.3, np.float32), np.array(False)), constant=(2,))


@operator("Dropout", samples=_dropout_samples)
def dropout(context: Lowering) -> Sequence[Tensor]:
    """The operand, at inference; the mask is all true."""
    training = context.constant(2)
    if training is not None and bool(training.reshape(-1)[0]):
        raise NotLowered("dropout while training")
    kept = [te.compute(type_.shape, lambda *_: x.const(True, dtypes.bool_)) for type_ in context.outputs[1:]]
    return [_copied(context.operand(0)), *kept]


def _reshape_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, new in (
        ((2, 3, 5, 7), [2, 15, 7]), ((2, 3, 5, 7), [6, -1]), ((2, 20, 3, 3), [0, 9, 20]), ((4, 6), [2, 2, 3, 2]), ((4, 6), [3, 8]),
        ((7,), [1, 7, 1]), ((1,), []), ((), [1, 1]), ((0, 3), [3, 0]), ((1, 3, 4, 4), [1, 2, 4, 6]),
    ):  # fmt: skip
        yield Sample((floats(rng, *shape), np.array(new, np.int64)), {"allowzero": int(shape == (0, 3))}, constant=(1,))


@operator("Reshape", view=True, samples=_reshape_samples, host=shape_on_host.reshaped)
def reshape(context: Lowering) -> Tensor:
    """Another shape of as many elements."""
    return reshaped(context.operand(0), context.outputs[0].shape)


@operator("Flatten", view=True, samples=lambda rng: [Sample((floats(rng, 2, 3, 5, 7),), {"axis": axis}) for axis in (0, 1, 2, 4, -1)])
def flatten(context: Lowering) -> Tensor:
    """A matrix: the axes before `axis`, and the rest."""
    return reshaped(context.operand(0), context.outputs[0].shape)


def _squeeze_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((floats(rng, 1, 3, 1, 5),))
    for axes in ([0], [2], [-2, 0]):
        yield Sample((floats(rng, 1, 3, 1, 5), np.array(axes, np.int64)), constant=(1,))


def _unsqueeze_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for axes in ([0], [-1], [1, 3], [0, 4, -2]):
        yield Sample((floats(rng, 3, 5), np.array(axes, np.int64)), constant=(1,))


@operator("Squeeze", view=True, samples=_squeeze_samples)
def squeeze(context: Lowering) -> Tensor:
    """Without axes of extent 1."""
    return reshaped(context.operand(0), context.outputs[0].shape)


@operator("Unsqueeze", view=True, samples=_unsqueeze_samples, host=shape_on_host.with_axes)
def unsqueeze(context: Lowering) -> Tensor:
    """With new axes of extent 1."""
    return reshaped(context.operand(0), context.outputs[0].shape)


# ---- permuting
def _transpose_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, perm in (
        ((5, 7), None), ((2, 3, 5, 7), [0, 2, 3, 1]), ((2, 20, 5, 3), [0, 1, 3, 2]), ((2, 3, 5, 7), None), ((2, 17, 3), [1, 0, 2]),
        ((33, 40), [1, 0]), ((4,), [0]), ((), None), ((0, 3), [1, 0]), ((2, 3, 2, 3, 2), [4, 0, 3, 1, 2]),
        ((2, 37, 20), [0, 2, 1]), ((300, 18), [1, 0]), ((2, 19, 6, 8), [0, 2, 3, 1]), ((2, 5, 9, 33), [0, 3, 1, 2]), ((16, 32), [1, 0]),
    ):  # fmt: skip
        yield Sample((floats(rng, *shape),), {"perm": perm})
    yield from retyped(Sample((floats(rng, 21, 18),)), EVERY_DTYPE)


@operator("Transpose", samples=_transpose_samples, host=shape_on_host.transposed)
def transpose(context: Lowering) -> Tensor:
    """Axes in another order."""
    source = context.operand(0)
    order = context.integers("perm") or tuple(reversed(range(source.rank)))
    places = [order.index(axis) for axis in range(source.rank)]
    return te.compute(context.outputs[0].shape, lambda *index: source[tuple(index[place] for place in places)])


# ---- cutting
_FAR = np.iinfo(np.int64)


def _slice_samples(rng: np.random.Generator) -> Iterable[Sample]:
    def one(shape: tuple[int, ...], *lists: list[int]) -> Sample:
        return Sample((floats(rng, *shape), *(np.array(v, np.int64) for v in lists)), constant=tuple(range(1, 1 + len(lists))))

    yield one((7, 33), [1, 0], [5, 30])
    yield one((7, 33), [-4], [_FAR.max], [1])
    yield one((7, 33), [-1], [_FAR.min], [-1], [-1])
    yield one((2, 20, 9, 8), [1, 7], [18, 0], [1, -2], [3, -2])
    yield one((2, 20, 9, 8), [0, 1], [100, 8], [2, 3], [2, 1])
    yield one((5,), [3], [3])
    yield one((5,), [4], [-9], [0], [-3])
    yield from retyped(one((3, 20), [2], [19], [1], [3]), EVERY_DTYPE)


@operator("Slice", samples=_slice_samples, host=shape_on_host.cut)
def cut(context: Lowering) -> Tensor:
    """Python's slices of some axes, but that backwards from before the first element is from it."""
    source, shape = context.operand(0), context.outputs[0].shape
    starts, ends, steps = context.constant(1), context.constant(2), context.constant(4)
    if starts is None or ends is None:
        raise NotLowered("a slice without starts or ends")
    axes = context.constant(3)
    listed = normal_axes(range(len(starts)) if axes is None else axes, source.rank)
    begins, strides = [0] * source.rank, [1] * source.rank
    for number, axis in enumerate(listed):
        step = 1 if steps is None else int(steps[number])
        size = source.shape[axis]
        begin = shape_on_host.begin_of(int(starts[number]), step, size)
        begins[axis], _, strides[axis] = slice(begin, int(ends[number]), step).indices(size)
    if 0 in shape:
        return empty(shape, source.dtype)
    return te.compute(shape, lambda *index: source[tuple(i * s + b for i, s, b in zip(index, strides, begins, strict=True))])


def _split_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((floats(rng, 2, 20, 3, 4),), {"axis": 1, "num_outputs": 2}, outputs=2)
    yield Sample((floats(rng, 7, 3),), {"axis": 0, "num_outputs": 3}, outputs=3)
    yield Sample((floats(rng, 4, 9), np.array([2, 7, 0], np.int64)), {"axis": -1}, constant=(1,), outputs=3)
    yield Sample((floats(rng, 2, 9, 4, 4), np.array([1, 8], np.int64)), {"axis": 1}, constant=(1,), outputs=2)


@operator("Split", samples=_split_samples)
def split(context: Lowering) -> Sequence[Tensor]:
    """Consecutive parts along an axis."""
    source = context.operand(0)
    axis = normal_axis(context.integer("axis"), source.rank)
    outputs: list[Tensor] = []
    offset = 0
    for type_ in context.outputs:
        outputs.append(_piece(source, type_.shape, axis, offset))
        offset += type_.shape[axis]
    return outputs


def _piece(source: Tensor, shape: tuple[int, ...], axis: int, offset: int) -> Tensor:
    if 0 in shape:
        return empty(shape, source.dtype)
    return te.compute(shape, lambda *index: source[replaced(index, axis, index[axis] + offset)])


# ---- joining and repeating
def _concat_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for axis, shapes in (
        (0, [(3, 5), (1, 5), (4, 5)]), (-1, [(3, 5), (3, 17)]), (1, [(2, 20, 3, 3), (2, 3, 3, 3)]), (1, [(2, 16, 3, 3), (2, 16, 3, 3)]),
        (1, [(2, 3), (2, 0), (2, 1)]), (0, [(7,)]), (3, [(2, 3, 4, 1), (2, 3, 4, 5)]),
    ):  # fmt: skip
        yield Sample(tuple(floats(rng, *shape) for shape in shapes), {"axis": axis})
    yield from retyped(Sample((floats(rng, 3, 5), floats(rng, 3, 20)), {"axis": 1}), EVERY_DTYPE)


@operator("Concat", samples=_concat_samples, host=shape_on_host.joined)
def concat(context: Lowering) -> Tensor:
    """Each element comes from the operand its position falls into."""
    operands = [t for t in context.inputs if t is not None and t.size]
    shape = context.outputs[0].shape
    axis = normal_axis(context.integer("axis"), len(shape))
    if not operands:
        return empty(shape, context.outputs[0].dtype)

    def element(*index: Expr) -> Expr:
        end = shape[axis]
        result: Expr | None = None
        for operand in reversed(operands):
            end -= operand.shape[axis]
            value = operand[replaced(index, axis, index[axis] - end)]
            result = value if result is None else x.select(index[axis] < end + operand.shape[axis], value, result)
        assert result is not None
        return result

    return te.compute(shape, element)


def _expand_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, new in (((3, 1), [2, 3, 4]), ((1, 20, 1, 1), [2, 20, 3, 5]), ((), [5]), ((5,), [1]), ((4, 1), [0]), ((3, 1), [3, 17])):
        yield Sample((floats(rng, *shape), np.array(new, np.int64)), constant=(1,))
    yield from retyped(Sample((floats(rng, 3, 1), np.array([3, 17], np.int64)), constant=(1,)), EVERY_DTYPE, 0)


@operator("Expand", samples=_expand_samples, host=shape_on_host.expanded)
def expand(context: Lowering) -> Tensor:
    """Broadcast to a shape."""
    source = context.operand(0)
    return te.compute(context.outputs[0].shape, lambda *index: source[broadcast_index(source, index)])


def _tile_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, repeats in (((3, 5), [2, 1]), ((3, 5), [1, 4]), ((2, 3, 4, 5), [1, 2, 3, 1]), ((7,), [0]), ((1, 4), [5, 2])):
        yield Sample((floats(rng, *shape), np.array(repeats, np.int64)), constant=(1,))


@operator("Tile", samples=_tile_samples)
def tile(context: Lowering) -> Tensor:
    """Repeated along each axis."""
    source, shape = context.operand(0), context.outputs[0].shape
    if 0 in shape:
        return empty(shape, source.dtype)
    return te.compute(shape, lambda *index: source[tuple(i % extent for i, extent in zip(index, source.shape, strict=True))])
