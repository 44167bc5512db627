"""What comes back through Resize: every input element gathers from the outputs that it was mixed into, so nothing is added up in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from anycann.graph.ops.common import floats, retyped
from anycann.graph.ops.device import DOMAIN
from anycann.graph.ops.pooling_gradients import like_attribute
from anycann.graph.ops.resize import AxisResize, Taps, mixed, taps_of
from anycann.graph.registry import Lowering, Sample, operator
from anycann.te.tensor import Tensor

Array = np.ndarray[Any, Any]

_WAYS: tuple[dict[str, object], ...] = (
    {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    {"mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"},
    {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
    {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
)
_SIZES = (((2, 20, 5, 4), (10, 8)), ((1, 3, 6, 7), (3, 2)), ((1, 2, 3, 5), (7, 1)), ((1, 17, 1, 3), (4, 9)), ((2, 1, 4, 4), (4, 30)))


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    for way in _WAYS:
        for shape, out in _SIZES:
            yield Sample((floats(rng, *shape[:2], *out),), {**way, "input_shape": list(shape)})
        yield Sample((floats(rng, 2, 3, 11),), {**way, "input_shape": [2, 3, 4]})
    yield from retyped(Sample((floats(rng, 1, 2, 6, 6),), {**_WAYS[2], "input_shape": [1, 2, 3, 3]}), ("float64", "float16"))


def _by_numpy(dy: Array, input_shape: Any = (), **attributes: Any) -> Array:
    """One axis after the other: each output gives its part to the one or two inputs that it was made of."""
    for axis in range(2, dy.ndim):
        size, out = input_shape[axis], dy.shape[axis]
        given, taken = np.moveaxis(dy, axis, 0), np.zeros((size, *np.delete(dy.shape, axis)), dy.dtype)
        for o in range(out):
            for place, part in _parts(o, size, out, **attributes):
                taken[min(max(place, 0), size - 1)] += (given[o] * part).astype(dy.dtype)
        dy = np.moveaxis(taken, 0, axis)
    return dy


def _parts(o: int, size: int, out: int, mode: str, coordinate_transformation_mode: str, nearest_mode: str = "") -> list[tuple[int, float]]:
    """Inputs of output `o`, with their parts."""
    at: dict[str, Callable[[], float]] = {
        "asymmetric": lambda: o * size / out,
        "half_pixel": lambda: (o + 0.5) * size / out - 0.5,
        "align_corners": lambda: o * (size - 1) / (out - 1) if out > 1 else 0.0,
    }
    place = at[coordinate_transformation_mode]()
    if mode == "nearest":
        return [(int(np.floor(place if nearest_mode == "floor" else place + 0.5)), 1.0)]
    first = int(np.floor(place))
    return [(first, 1 - (place - first)), (first + 1, place - first)]


@operator("ResizeGrad", domain=DOMAIN, samples=_samples, infer=like_attribute("input_shape"), reference=_by_numpy)
def resize_gradient(context: Lowering) -> Tensor:
    """Operand dy [N, C, ...]; input_shape is x's, mode and its rules are those of Resize by sizes along all axes behind the channels."""
    dy, shape = context.operand(0), context.outputs[0].shape
    axes = [AxisResize(axis, shape[axis], dy.shape[axis], dy.shape[axis] / shape[axis]) for axis in range(2, dy.rank)]
    changed = [part for part in axes if part.size != part.out]
    return mixed(dy, [_turned(taps_of(context, part), part.size) for part in changed], shape, dy.dtype)


def _turned(taps: Taps, size: int) -> Taps:
    """The outputs that each of `size` inputs was mixed into, with the same weights.

    Inputs of fewer outputs than others read one of theirs again, with weight 0.
    """
    outputs = np.arange(taps.places.shape[1])
    matrix = np.zeros((size, len(outputs)))
    for places, weights in zip(taps.places, taps.weights, strict=True):
        np.add.at(matrix, (places, outputs), weights)
    counts = (matrix != 0).sum(axis=1)
    order = np.argsort(matrix == 0, axis=1, kind="stable")[:, : max(counts.max(), 1)]
    spare = np.arange(order.shape[1]) >= counts[:, None]
    weights = np.where(spare, 0.0, np.take_along_axis(matrix, order, axis=1))
    return Taps(taps.axis, np.where(spare, order[:, :1], order).T, weights.T, np.zeros(size, bool))
