"""Averages over windows fitted to a number of results, and backward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
import math
from typing import Any

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import floats, guarded, index_map, integer, retyped
from anycann.graph.ops.device import DOMAIN
from anycann.graph.ops.pooling_gradients import like_attribute, plane_at, summed
from anycann.graph.registry import Lowering, Sample, TensorType, operator
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor

Array = np.ndarray[Any, Any]


def _edges(size: int, out: int) -> tuple[Array, Array]:
    """First input and the one behind the last of each of `out` windows that cover `size` inputs."""
    places = np.arange(out)
    return places * size // out, -(-(places + 1) * size // out)


def _infer_adaptive(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    assert inputs[0] is not None
    return [TensorType(inputs[0].dtype, (*inputs[0].shape[:2], *node.attributes.get_ints("output_size", ())))]


def _adaptive_by_numpy(data: Array, output_size: Sequence[int] = ()) -> Array:
    y = np.empty((*data.shape[:2], *output_size), data.dtype)
    edges = [_edges(size, out) for size, out in zip(data.shape[2:], output_size, strict=True)]
    for place in product(*map(range, output_size)):
        box = tuple(slice(first[o], stop[o]) for o, (first, stop) in zip(place, edges, strict=True))
        y[plane_at(place)] = data[plane_at(box)].mean(tuple(range(2, data.ndim)))
    return y


_FITTED = (((2, 20, 9, 7), (4, 3)), ((1, 3, 8, 8), (1, 1)), ((2, 3, 6, 6), (3, 2)), ((2, 3, 4, 4), (7, 7)), ((2, 5, 11), (4,)))


def _adaptive_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, out in _FITTED:
        yield Sample((floats(rng, *shape),), {"output_size": list(out)})
    yield from retyped(Sample((floats(rng, 2, 3, 7, 5),), {"output_size": [2, 2]}), ("float64",))


@operator("AdaptiveAveragePool", domain=DOMAIN, samples=_adaptive_samples, infer=_infer_adaptive, reference=_adaptive_by_numpy)
def adaptive_average_pool(context: Lowering) -> Tensor:
    """The mean of each of `output_size` windows that cover the input, as even as can be."""
    source, shape = context.operand(0), context.outputs[0].shape
    size = source.shape[2:]
    edges = [_edges(extent, out) for extent, out in zip(size, shape[2:], strict=True)]
    longest = [int((stop - first).max()) for first, stop in edges]

    def part(*index: Expr) -> Expr:
        n, c, *rest = index
        out, taps = rest[: len(size)], rest[len(size) :]
        places = [index_map(first, o) + k for (first, _), o, k in zip(edges, out, taps, strict=True)]
        uneven = [p < index_map(stop, o) for (first, stop), p, o in zip(edges, places, out, strict=True) if len(set(stop - first)) > 1]
        safe = tuple(x.clamp(p, 0, extent - 1) for p, extent in zip(places, size, strict=True))
        return guarded(x.all_of(uneven), source[(n, c, *safe)], 0)

    total = te.reduce("sum", shape, longest, part)
    return te.compute(shape, lambda *index: total[index] / x.cast(_fitted_count(edges, index[2:]), source.dtype))


def _fitted_count(edges: Sequence[tuple[Array, Array]], places: Sequence[Expr]) -> Expr:
    count: Expr = integer(1)
    for (first, stop), place in zip(edges, places, strict=True):
        count = count * index_map(stop - first, place)
    return count


def _adaptive_gradient_by_numpy(dy: Array, input_shape: Sequence[int] = ()) -> Array:
    dx = np.zeros(input_shape, dy.dtype)
    edges = [_edges(size, out) for size, out in zip(input_shape[2:], dy.shape[2:], strict=True)]
    for place in product(*map(range, dy.shape[2:])):
        box = tuple(slice(first[o], stop[o]) for o, (first, stop) in zip(place, edges, strict=True))
        count = math.prod(s.stop - s.start for s in box)
        dx[plane_at(box)] += (dy[plane_at(place)] / count).reshape(*dy.shape[:2], *[1] * len(box))
    return dx


def _adaptive_gradient_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, out in _FITTED:
        yield Sample((floats(rng, *shape[:2], *out),), {"input_shape": list(shape)})
    yield from retyped(Sample((floats(rng, 2, 3, 2, 2),), {"input_shape": [2, 3, 7, 5]}), ("float64",))


@operator(
    "AdaptiveAveragePoolGrad",
    domain=DOMAIN,
    samples=_adaptive_gradient_samples,
    infer=like_attribute("input_shape"),
    reference=_adaptive_gradient_by_numpy,
)
def adaptive_average_pool_gradient(context: Lowering) -> Tensor:
    """Operand dy: each input's share of the windows that it lies in."""
    dy, shape = context.operand(0), context.outputs[0].shape
    out = dy.shape[2:]
    edges = [_edges(extent, count) for extent, count in zip(shape[2:], out, strict=True)]
    ranges = [_covering_range(extent, *edge) for extent, edge in zip(shape[2:], edges, strict=True)]

    def part(*index: Expr) -> Expr:
        places, candidates = index[2 : len(shape)], index[len(shape) :]
        found = [index_map(first, place) + k for (first, _), place, k in zip(ranges, places, candidates, strict=True)]
        missing = [
            o < index_map(stop, place) for (first, stop), o, place in zip(ranges, found, places, strict=True) if len(set(stop - first)) > 1
        ]
        safe = tuple(x.clamp(o, 0, extent - 1) for o, extent in zip(found, out, strict=True))
        return guarded(x.all_of(missing), dy[(*index[:2], *safe)] / x.cast(_fitted_count(edges, safe), dy.dtype), 0)

    return te.compute(shape, summed(shape, [int((stop - first).max()) for first, stop in ranges], part))


def _covering_range(size: int, first: Array, stop: Array) -> tuple[Array, Array]:
    """First window and the one behind the last that each of `size` inputs lies in."""
    places = np.arange(size)[:, None]
    inside = (places >= first) & (places < stop)
    return inside.argmax(1), len(first) - inside[:, ::-1].argmax(1)
