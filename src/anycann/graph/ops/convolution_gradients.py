"""Backward of a convolution. The gradient of a bias is the sum of dy over all axes but the channels: ReduceSum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
import math
from typing import Any

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import all_inside, floats, guarded, retyped
from anycann.graph.ops.convolution import product as convolution
from anycann.graph.ops.device import DOMAIN
from anycann.graph.ops.matmul import ACCUMULATORS
from anycann.graph.ops.pooling_gradients import like_attribute
from anycann.graph.ops.windows import window
from anycann.graph.registry import Lowering, Sample, TensorType, operator
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.contractions import Convolution, WeightGradient
from anycann.te.expression import Expr
from anycann.te.tensor import Placeholder, Tensor

Array = np.ndarray[Any, Any]
_CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, object]], ...] = (
    ((2, 3, 9, 8), (20, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((3, 20, 5, 7), (6, 20, 1, 1), {"strides": [2, 2]}),
    ((1, 6, 8, 9), (8, 3, 3, 2), {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}),
    ((2, 20, 6, 7), (20, 1, 3, 3), {"group": 20, "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ((2, 16, 5, 6), (32, 8, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    ((2, 3, 20), (5, 3, 4), {"pads": [2, 1], "dilations": [2]}),
    ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"pads": [1, 1, 0, 0, 1, 1]}),
)


def _attribute(attributes: dict[str, object], name: str, default: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(v) for v in attributes.get(name, default))  # type: ignore[attr-defined]


def _out_size(size: Sequence[int], kernel: Sequence[int], attributes: dict[str, object]) -> tuple[int, ...]:
    rank = len(size)
    strides, dilations = _attribute(attributes, "strides", [1] * rank), _attribute(attributes, "dilations", [1] * rank)
    pads = _attribute(attributes, "pads", [0] * 2 * rank)
    ends = zip(size, pads[:rank], pads[rank:], dilations, kernel, strides, strict=True)
    return tuple((n + b + p - d * (k - 1) - 1) // s + 1 for n, b, p, d, k, s in ends)


def _taps(size: Sequence[int], kernel: Sequence[int], out: Sequence[int], attributes: dict[str, object]) -> Iterator[tuple[Any, Any]]:
    """For each tap, where it reads the input and which results it is part of, as numpy slices of whole tensors."""
    rank = len(size)
    strides, dilations = _attribute(attributes, "strides", [1] * rank), _attribute(attributes, "dilations", [1] * rank)
    pads = _attribute(attributes, "pads", [0] * 2 * rank)
    for tap in product(*map(range, kernel)):
        seen: list[slice] = [slice(None), slice(None)]
        made: list[slice] = [slice(None), slice(None)]
        for n, o, s, d, p, k in zip(size, out, strides, dilations, pads, tap, strict=False):
            places = np.arange(o) * s - p + k * d
            valid = np.flatnonzero((places >= 0) & (places < n))
            first, stop = (int(valid[0]), int(valid[-1]) + 1) if valid.size else (0, 0)
            made.append(slice(first, stop))
            seen.append(slice(int(places[first]), int(places[first]) + (stop - first) * s, s) if valid.size else slice(0, 0))
        yield tuple(seen), tuple(made)


# ---- of the input
def _input_by_numpy(dy: Array, weights: Array, input_shape: Sequence[int] = (), group: int = 1, **attributes: object) -> Array:
    dx = np.zeros(input_shape, dy.dtype)
    outputs, inputs = weights.shape[0] // group, weights.shape[1]
    flat = weights.reshape(*weights.shape[:2], -1)
    for tap, (seen, made) in enumerate(_taps(input_shape[2:], weights.shape[2:], dy.shape[2:], attributes)):
        for g in range(group):
            own = slice(g * outputs, (g + 1) * outputs)
            added = np.tensordot(dy[made][:, own], flat[own, :, tap], (1, 0))
            dx[:, g * inputs : (g + 1) * inputs][seen] += np.moveaxis(added, -1, 1)
    return dx


def _input_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, weights, attributes in _CASES:
        dy = floats(rng, shape[0], weights[0], *_out_size(shape[2:], weights[2:], attributes))
        sample = Sample((dy, floats(rng, *weights)), {**attributes, "input_shape": list(shape)})
        yield sample
    yield from retyped(sample, ("float64", "float16"))


@operator("ConvInputGrad", domain=DOMAIN, samples=_input_samples, infer=like_attribute("input_shape"), reference=_input_by_numpy)
def convolution_input_gradient(context: Lowering) -> Tensor:
    """Operands dy, w ([O, I / group, *kernel]): a transposed convolution to the size of the input."""
    dy, weights, type_ = context.operand(0), context.operand(1), context.outputs[0]
    view = window(context, type_.shape[2:], weights.shape[2:], dy.shape[2:])
    group = context.integer("group", 1)
    work = Convolution(dy, weights, view.strides, view.begins, view.dilations, group, type_.shape[2:], transposed=True)
    result = convolution(context, work)
    return te.compute(type_.shape, lambda *index: x.cast(result[index], type_.dtype))


# ---- of the weights
def _infer_weights(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    data, dy = inputs[0], inputs[1]
    assert data is not None
    assert dy is not None
    return [TensorType(dy.dtype, (dy.shape[1], data.shape[1] // node.attributes.get_int("group", 1), *_kernel(node)))]


def _kernel(node: ir.Node) -> Sequence[int]:
    return node.attributes.get_ints("kernel_shape", ())


def _weights_by_numpy(data: Array, dy: Array, kernel_shape: Sequence[int] = (), group: int = 1, **attributes: object) -> Array:
    outputs, inputs = dy.shape[1] // group, data.shape[1] // group
    dw = np.zeros((dy.shape[1], inputs, math.prod(kernel_shape)), np.float64)
    pixels = (0, *range(2, data.ndim))
    for tap, (seen, made) in enumerate(_taps(data.shape[2:], kernel_shape, dy.shape[2:], attributes)):
        for g in range(group):
            own = slice(g * outputs, (g + 1) * outputs)
            dw[own, :, tap] = np.tensordot(dy[made][:, own], data[seen][:, g * inputs : (g + 1) * inputs], (pixels, pixels))
    return dw.reshape(dy.shape[1], inputs, *kernel_shape).astype(dy.dtype)


def _weights_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, weights, attributes in _CASES:
        dy = floats(rng, shape[0], weights[0], *_out_size(shape[2:], weights[2:], attributes))
        sample = Sample((floats(rng, *shape), dy), {**attributes, "kernel_shape": list(weights[2:])})
        yield sample
    yield from retyped(sample, ("float64", "float16"))


@operator("ConvWeightGrad", domain=DOMAIN, samples=_weights_samples, infer=_infer_weights, reference=_weights_by_numpy)
def convolution_weight_gradient(context: Lowering) -> Tensor:
    """Operands x, dy: the products of every pixel of dy with the pixels of x that each tap reads for it, summed over the batch."""
    data, dy, type_ = context.operand(0), context.operand(1), context.outputs[0]
    view = window(context, data.shape[2:], context.integers("kernel_shape") or (), dy.shape[2:])
    group = context.integer("group", 1)
    work = WeightGradient(data, dy, view.kernel, view.strides, view.begins, view.dilations, group)
    narrow = type_.dtype in (dtypes.float32, dtypes.float16, dtypes.bfloat16)
    if narrow and work.fills_vectors and isinstance(data, Placeholder) and isinstance(dy, Placeholder):
        return te.contraction(work, type_.shape, type_.dtype)
    result = plain_weight_gradient(work, type_.shape)
    return te.compute(type_.shape, lambda *index: x.cast(result[index], type_.dtype))


def plain_weight_gradient(work: WeightGradient, shape: Sequence[int]) -> Tensor:
    """One sum an element, kept in float32 for 16-bit floats."""
    data, dy, rank = work.x, work.dy, len(work.strides)
    outputs, dtype = dy.shape[1] // work.group, ACCUMULATORS.get(data.dtype, data.dtype)

    def element(*index: Expr) -> Expr:
        o, i, *rest = index
        taps, (n, *out) = rest[:rank], rest[rank:]
        steps = zip(out, work.strides, work.pads_begin, taps, work.dilations, strict=True)
        places = tuple(p * s - b + t * d for p, s, b, t, d in steps)
        value = x.cast(data[(n, o // outputs * shape[1] + i, *places)], dtype) * x.cast(dy[(n, o, *out)], dtype)
        return guarded(all_inside(places, data.shape[2:]), value, 0)

    return te.reduce("sum", shape, (dy.shape[0], *dy.shape[2:]), element)
