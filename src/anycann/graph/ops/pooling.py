"""Pooling: a reduction over the taps of a sliding window, or over all of space."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
import math

import numpy as np

from anycann.graph.ops.common import all_inside, floats, guarded, integers, retyped
from anycann.graph.ops.reduction import reduce_axes, row_of
from anycann.graph.ops.windows import Window, window
from anycann.graph.registry import Lowering, Sample, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.dtypes import DType
from anycann.te.expression import Expr
from anycann.te.tensor import Reduction, Tensor

Index = tuple[Expr, ...]
_SHAPES = (
    ((2, 20, 9, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 3, 7, 9), {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 0, 0, 2]}),
    ((1, 3, 8, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ((1, 17, 10, 7), {"kernel_shape": [3, 2], "strides": [3, 3], "pads": [0, 1, 1, 0], "ceil_mode": 1}),
    ((1, 3, 7, 6), {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 3, 7, 6), {"kernel_shape": [2, 3], "auto_pad": "SAME_LOWER"}),
    ((1, 3, 9, 9), {"kernel_shape": [2, 2], "dilations": [3, 2]}),
    ((2, 3, 20), {"kernel_shape": [4], "strides": [3], "pads": [2, 1]}),
    ((1, 2, 5, 4, 6), {"kernel_shape": [2, 2, 3], "pads": [1, 0, 1, 0, 1, 1]}),
)


def _samples(*extra: dict[str, object], types: Sequence[str] = ("float64", "float16")) -> Callable[[np.random.Generator], Iterable[Sample]]:
    def draw(rng: np.random.Generator) -> Iterable[Sample]:
        for shape, attributes in _SHAPES:
            for more in extra or ({},):
                yield Sample((floats(rng, *shape),), {**attributes, **more})
        yield from retyped(Sample((floats(rng, 1, 3, 4, 20),), {"kernel_shape": [2, 2]}), types)

    return draw


def slide(context: Lowering) -> Window:
    """The node's window. Without `kernel_shape` there is none: the schema asks for it."""
    source = context.operand(0)
    return window(context, source.shape[2:], context.integers("kernel_shape") or (), context.outputs[0].shape[2:])


def taps_of(view: Window, index: Sequence[Expr]) -> tuple[Expr, Expr, tuple[Expr, ...]]:
    """(n, c, places in the input) for an index [n, c, *out, *taps]."""
    rank = len(view.size)
    n, c, *rest = index
    steps = zip(rest[:rank], view.strides, view.begins, rest[rank:], view.dilations, strict=True)
    return n, c, tuple(o * s - b + k * d for o, s, b, k, d in steps)


def windowed(context: Lowering, kind: str, neutral: float, body: Callable[[Expr], Expr]) -> Reduction:
    """`kind` of body(tap) over the taps of each window that lie inside the tensor; `neutral` stands for the others."""
    source, view = context.operand(0), slide(context)

    def element(*index: Expr) -> Expr:
        n, c, places = taps_of(view, index)
        return guarded(all_inside(places, view.size), body(source[(n, c, *places)]), neutral)

    return te.reduce(kind, context.outputs[0].shape, view.kernel, element)


# ---- largest
def _least(dtype: DType) -> float:
    if dtype.is_float:
        return -math.inf
    return -(1 << 8 * dtype.nbytes - 1) if dtype.kind == "int" else 0


def _max_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield from _samples({}, types=("float64", "float16", "int8", "uint8"))(rng)
    for shape, attributes in (((1, 20, 6, 7), {"strides": [2, 2], "pads": [1, 1, 0, 1]}), ((2, 3, 4, 4), {"storage_order": 1})):
        yield Sample((integers(rng, *shape, dtype="float32"),), {"kernel_shape": [2, 3], **attributes}, outputs=2)


@operator("MaxPool", samples=_max_samples)
def max_pool(context: Lowering) -> Sequence[Tensor]:
    """The largest tap of each window, and where it was: its place in the flattened tensor, the first of equals."""
    source, view = context.operand(0), slide(context)
    largest = windowed(context, "max", _least(source.dtype), lambda a: a)
    if len(context.outputs) == 1:
        return [largest]
    order = range(len(view.size)) if context.integer("storage_order") == 0 else range(len(view.size) - 1, -1, -1)

    def place(*index: Expr) -> Expr:
        n, c, places = taps_of(view, index)
        flat: Expr = n * source.shape[1] + c
        for axis in order:
            flat = flat * view.size[axis] + places[axis]
        best = largest[tuple(index[: source.rank])]
        found = guarded(all_inside(places, view.size), x.equal(source[(n, c, *places)], best), False)
        return x.select(found, flat, source.size)

    return [largest, te.reduce("min", context.outputs[1].shape, view.kernel, place)]


# ---- mean
def _tap_counts(view: Window, axis: int, out: int, include_padding: bool) -> np.ndarray:
    """How many taps of each output position along an axis count, as float32: those inside the tensor, or inside its padded extent."""
    low = -view.begins[axis] if include_padding else 0
    high = view.size[axis] + (view.ends[axis] if include_padding else 0)
    places = np.arange(out)[:, None] * view.strides[axis] - view.begins[axis] + np.arange(view.kernel[axis]) * view.dilations[axis]
    return np.asarray(((places >= low) & (places < high)).sum(axis=1), np.float32)


@operator("AveragePool", samples=_samples({"count_include_pad": 0}, {"count_include_pad": 1}))
def average_pool(context: Lowering) -> Tensor:
    """The mean of the taps that count."""
    type_, view = context.outputs[0], slide(context)
    total = windowed(context, "sum", 0, lambda a: a)
    include = context.integer("count_include_pad") == 1
    counts = [_tap_counts(view, axis, out, include) for axis, out in enumerate(type_.shape[2:])]

    def element(*index: Expr) -> Expr:
        count: Expr = x.const(1.0, dtypes.float32)
        for number, place in zip(counts, index[2:], strict=True):
            count = count * (te.table(number)[place] if np.ptp(number) else float(number[0]))
        return total[index] / x.cast(count, type_.dtype)

    return te.compute(type_.shape, element)


# ---- norms
def power(value: Expr, p: float) -> Expr:
    """|value| ** p."""
    if p == 2:
        return value * value
    return x.unary("abs", value) if p == 1 else x.binary("pow", x.unary("abs", value), x.const(p, value.dtype))


def root(value: Expr, p: float) -> Expr:
    """value ** (1 / p) of a value that is not negative."""
    if p == 2:
        return x.unary("sqrt", value)
    return value if p == 1 else x.binary("pow", value, x.const(1 / p, value.dtype))


@operator("LpPool", samples=_samples({"p": 1}, {"p": 2}, {"p": 3}))
def lp_pool(context: Lowering) -> Tensor:
    """The p-norm of the taps inside the tensor."""
    p = context.number("p", 2)
    total = windowed(context, "sum", 0, lambda a: power(a, p))
    return te.compute(context.outputs[0].shape, lambda *index: root(total[index], p))


# ---- over all of space
def _global_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape in ((2, 20, 3, 5), (1, 3, 37), (1, 3, 2, 3, 4), (2, 3, 1, 1)):
        yield Sample((floats(rng, *shape),))
    yield from retyped(Sample((floats(rng, 1, 3, 4, 20),)), ("float16",))


def _global(op_type: str, kind: str, body: Callable[[Expr, float], Expr], finish: Callable[[Expr, int, float], Expr]) -> None:
    @operator(op_type, samples=_global_samples)
    def lower(context: Lowering) -> Tensor:
        source, p = context.operand(0), context.number("p", 2)
        axes = range(2, source.rank)
        count = math.prod(source.shape[2:])
        total = reduce_axes(kind, source.shape, axes, lambda index: body(source[index], p))
        return te.compute(context.outputs[0].shape, lambda *index: finish(total[row_of(index, axes)], count, p))


_global("GlobalAveragePool", "sum", lambda a, p: a, lambda a, count, p: a / count)
_global("GlobalMaxPool", "max", lambda a, p: a, lambda a, count, p: a)
_global("GlobalLpPool", "sum", power, lambda a, count, p: root(a, p))
