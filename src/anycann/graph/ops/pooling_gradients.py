"""Pooling as training needs it: the largest element with its place in the plane, and backward of the largest and of the mean.

Backward reads instead of adding up where windows overlap: every input element looks at the few windows that cover it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
import math
from typing import Any

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import all_inside, floats, guarded, index_map, infer_as, integer, retyped
from anycann.graph.ops.device import DOMAIN
from anycann.graph.ops.pooling import slide, taps_of, windowed
from anycann.graph.ops.windows import Window, window
from anycann.graph.registry import Lowering, Sample, TensorType, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.routines import PlaneSums
from anycann.te.tensor import Placeholder, Tensor

Array = np.ndarray[Any, Any]

_SHAPES: tuple[tuple[tuple[int, ...], dict[str, object]], ...] = (
    ((2, 20, 9, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 3, 7, 9), {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 0, 0, 1]}),
    ((1, 3, 8, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ((2, 5, 10, 7), {"kernel_shape": [2, 2], "strides": [3, 3]}),
    ((2, 3, 20), {"kernel_shape": [4], "strides": [3], "pads": [2, 1]}),
    ((1, 2, 5, 4, 6), {"kernel_shape": [2, 2, 3], "pads": [1, 0, 1, 0, 1, 1]}),
)
_DILATED: tuple[tuple[int, ...], dict[str, object]] = ((1, 3, 9, 9), {"kernel_shape": [2, 2], "dilations": [3, 2], "strides": [2, 1]})


def _ints(value: object, default: Sequence[int]) -> tuple[int, ...]:
    return tuple(default) if value is None else tuple(int(v) for v in value)  # type: ignore[attr-defined]


def plane_at(place: Sequence[int | slice]) -> Any:
    """The numpy index of a place in every plane."""
    return (Ellipsis, *place)


def _out_size(size: Sequence[int], attributes: dict[str, object]) -> tuple[int, ...]:
    """As the attributes say; with ceil_mode a last window that begins inside the input or its front padding counts."""
    kernel, rank = _ints(attributes["kernel_shape"], ()), len(size)
    strides, dilations = _ints(attributes.get("strides"), [1] * rank), _ints(attributes.get("dilations"), [1] * rank)
    pads = _ints(attributes.get("pads"), [0] * 2 * rank)
    found = []
    for n, extent in enumerate(size):
        room = extent + pads[n] + pads[rank + n] - dilations[n] * (kernel[n] - 1) - 1
        out = (-(-room // strides[n]) if attributes.get("ceil_mode") else room // strides[n]) + 1
        found.append(out - 1 if attributes.get("ceil_mode") and (out - 1) * strides[n] >= extent + pads[n] else out)
    return tuple(found)


def _windows(
    size: Sequence[int], out: Sequence[int], attributes: dict[str, object]
) -> Iterable[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
    """Each place of the result with the input places that its window has inside the input, in order."""
    kernel, rank = _ints(attributes["kernel_shape"], ()), len(size)
    strides, dilations = _ints(attributes.get("strides"), [1] * rank), _ints(attributes.get("dilations"), [1] * rank)
    pads = _ints(attributes.get("pads"), [0] * 2 * rank)
    for place in product(*map(range, out)):
        taps = product(*(range(extent) for extent in kernel))
        inputs = (tuple(o * s - p + t * d for o, s, p, t, d in zip(place, strides, pads, tap, dilations, strict=False)) for tap in taps)
        yield place, [i for i in inputs if all(0 <= at < extent for at, extent in zip(i, size, strict=True))]


# ---- largest
def _infer_largest(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    (found,) = infer_as("MaxPool", node, inputs)
    return [found, TensorType(dtypes.int64, found.shape)][: len(node.outputs)]


def _largest_by_numpy(data: Array, **attributes: object) -> tuple[Array, Array]:
    size = data.shape[2:]
    out = _out_size(size, attributes)
    y, places = np.empty((*data.shape[:2], *out), data.dtype), np.empty((*data.shape[:2], *out), np.int64)
    for place, inputs in _windows(size, out, attributes):
        flat = np.array([np.ravel_multi_index(i, size) for i in inputs])
        values = data.reshape(*data.shape[:2], -1)[..., flat]
        y[plane_at(place)], places[plane_at(place)] = values.max(-1), flat[values.argmax(-1)]
    return y, places


def _largest_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, attributes in (*_SHAPES, _DILATED):
        yield Sample((rng.integers(-9, 9, shape).astype(np.float32),), attributes, outputs=2)
    yield from retyped(Sample((floats(rng, 2, 3, 4, 20),), {"kernel_shape": [2, 2]}, outputs=2), ("float64", "float16"))


@operator("MaxPoolWithIndices", domain=DOMAIN, samples=_largest_samples, infer=_infer_largest, reference=_largest_by_numpy)
def max_pool_with_indices(context: Lowering) -> Sequence[Tensor]:
    """The largest element of each window, and its place in the flattened plane of its image and channel, the first of equals."""
    source, view = context.operand(0), slide(context)
    largest = windowed(context, "max", -math.inf, lambda a: a)
    if len(context.outputs) == 1:
        return [largest]

    def place(*index: Expr) -> Expr:
        n, c, places = taps_of(view, index)
        flat: Expr = places[0]
        for extent, at in zip(view.size[1:], places[1:], strict=True):
            flat = flat * extent + at
        best = largest[tuple(index[: source.rank])]
        found = guarded(all_inside(places, view.size), x.equal(source[(n, c, *places)], best), False)
        return x.select(found, flat, math.prod(view.size) - 1)

    return [largest, te.reduce("min", context.outputs[1].shape, view.kernel, place)]


def summed(shape: Sequence[int], candidates: Sequence[int], part: Any) -> Any:
    """The sum of part(index, candidate) over all candidates, written out: there are few."""

    def element(*index: Expr) -> Expr:
        total: Expr | None = None
        for candidate in product(*map(range, candidates)):
            value = part(*index, *(integer(c) for c in candidate))
            total = value if total is None else total + value
        assert total is not None
        return total

    return element


def like_attribute(name: str) -> Any:
    """Inference for an operator whose result has the first operand's type and the shape that attribute `name` gives."""

    def infer(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
        assert inputs[0] is not None
        return [TensorType(inputs[0].dtype, tuple(node.attributes.get_ints(name, ())))]

    return infer


def _covering(view: Window, index: Sequence[Expr], out: Sequence[int]) -> tuple[tuple[Expr, ...], Expr | None]:
    """The result places of the windows that may cover an input, by the candidates behind its index; and whether there is such a place."""
    rank = len(view.size)
    places, candidates = index[2 : 2 + rank], index[2 + rank :]
    found = tuple((i + b) // s - k for i, b, s, k in zip(places, view.begins, view.strides, candidates, strict=True))
    return found, all_inside(found, out)


def _candidates(view: Window) -> tuple[int, ...]:
    """Windows along each axis that an input may lie in."""
    return tuple(-(-span // stride) for span, stride in zip(view.spans, view.strides, strict=True))


def _input_window(context: Lowering) -> tuple[tuple[int, ...], Window, tuple[int, ...]]:
    shape, out = context.outputs[0].shape, context.operand(0).shape[2:]
    return shape, window(context, shape[2:], context.integers("kernel_shape") or (), out), out


def _max_gradient_by_numpy(dy: Array, places: Array, input_shape: Sequence[int] = (), **_: object) -> Array:
    dx = np.zeros((*input_shape[:2], math.prod(input_shape[2:])), dy.dtype)
    for n, c in product(range(dy.shape[0]), range(dy.shape[1])):
        np.add.at(dx[n, c], places[n, c].ravel(), dy[n, c].ravel())
    return dx.reshape(input_shape)


def _max_gradient_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, attributes in (*_SHAPES, _DILATED):
        _, places = _largest_by_numpy(floats(rng, *shape), **attributes)
        yield Sample((floats(rng, *places.shape), places), {**attributes, "input_shape": list(shape)})
    sample = Sample((floats(rng, *places.shape), places), {**attributes, "input_shape": list(shape)})
    yield from retyped(sample, ("float64", "float16"), 0)


@operator(
    "MaxPoolGrad", domain=DOMAIN, samples=_max_gradient_samples, infer=like_attribute("input_shape"), reference=_max_gradient_by_numpy
)
def max_pool_gradient(context: Lowering) -> Tensor:
    """Operands dy and the places of MaxPoolWithIndices: what each input gets from the windows that it was the largest of."""
    dy, places = context.operand(0), context.operand(1)
    shape, view, out = _input_window(context)
    if dy.dtype in (dtypes.float32, dtypes.float64) and isinstance(dy, Placeholder) and isinstance(places, Placeholder):
        work = PlaneSums(0, places, dy, math.prod(shape[:2]), math.prod(shape[2:]), math.prod(out))
        return te.contraction(work, shape, dy.dtype)

    def part(*index: Expr) -> Expr:
        found, present = _covering(view, index, out)
        own: Expr = index[2]
        for extent, at in zip(shape[3:], index[3 : len(shape)], strict=True):
            own = own * extent + at
        chosen = x.equal(places[(*index[:2], *found)], own)
        return guarded(present, x.select(chosen, dy[(*index[:2], *found)], 0), 0)

    return te.compute(shape, summed(shape, _candidates(view), part))


# ---- mean
def _tap_counts(view: Window, axis: int, out: int, include_padding: bool) -> Array:
    """Taps of each window along an axis that count."""
    low, high = (-view.begins[axis], view.size[axis] + view.ends[axis]) if include_padding else (0, view.size[axis])
    places = np.arange(out)[:, None] * view.strides[axis] - view.begins[axis] + np.arange(view.kernel[axis])
    return np.asarray(((places >= low) & (places < high)).sum(axis=1))


def _average_gradient_by_numpy(
    dy: Array, input_shape: Sequence[int] = (), count_include_pad: int = 1, divisor_override: int = 0, **attributes: object
) -> Array:
    size, rank = tuple(input_shape[2:]), len(input_shape) - 2
    dx = np.zeros(input_shape, dy.dtype)
    strides, pads = _ints(attributes.get("strides"), [1] * rank), _ints(attributes.get("pads"), [0] * 2 * rank)
    kernel = _ints(attributes["kernel_shape"], ())
    for place, inputs in _windows(size, dy.shape[2:], attributes):
        starts = [o * s - p for o, s, p in zip(place, strides, pads, strict=False)]
        padded = [min(b + k, n + pads[rank + a]) - b for a, (b, k, n) in enumerate(zip(starts, kernel, size, strict=True))]
        count = divisor_override or (math.prod(padded) if count_include_pad else len(inputs))
        for i in inputs:
            dx[plane_at(i)] += dy[plane_at(place)] / count
    return dx


def _average_gradient_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, attributes in _SHAPES:
        dy = floats(rng, *shape[:2], *_out_size(shape[2:], attributes))
        for more in ({"count_include_pad": 1}, {"count_include_pad": 0}, {"divisor_override": 3}):
            yield Sample((dy,), {**attributes, **more, "input_shape": list(shape)})
    yield from retyped(Sample((dy,), {**attributes, "input_shape": list(shape)}), ("float64",))


@operator(
    "AveragePoolGrad",
    domain=DOMAIN,
    samples=_average_gradient_samples,
    infer=like_attribute("input_shape"),
    reference=_average_gradient_by_numpy,
)
def average_pool_gradient(context: Lowering) -> Tensor:
    """Operand dy. The divisor is divisor_override, if given, else the taps that count: by default those in the padding too."""
    dy = context.operand(0)
    shape, view, out = _input_window(context)
    divisor, include = context.integer("divisor_override"), context.integer("count_include_pad", 1) == 1
    counts = [_tap_counts(view, axis, extent, include) for axis, extent in enumerate(out)]

    def part(*index: Expr) -> Expr:
        found, present = _covering(view, index, out)
        rank = len(view.size)
        last = [i + b - o * s for i, b, o, s in zip(index[2 : 2 + rank], view.begins, found, view.strides, strict=True)]
        taps = all_inside(last, view.kernel)
        conditions = [c for c in (present, taps) if c is not None]
        safe = [x.clamp(o, 0, extent - 1) for o, extent in zip(found, out, strict=True)]
        count: Expr = integer(divisor or 1)
        for number, at in zip(() if divisor else counts, safe, strict=False):
            count = count * index_map(number, at)
        return guarded(x.all_of(conditions), dy[(*index[:2], *found)] / x.cast(count, dy.dtype), 0)

    return te.compute(shape, summed(shape, _candidates(view), part))
