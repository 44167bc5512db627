"""Convolution and matrix products as plain reductions: the slowest way, to check lowerings without the kernel generators."""

from __future__ import annotations

import math

import numpy as np

from anycann.graph.ops.convolution_gradients import plain_weight_gradient
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.contractions import Convolution, MatMul, WeightGradient
from anycann.te.dtypes import DType
from anycann.te.expression import Expr
from anycann.te.tensor import Contraction, Tensor


def naive(contraction: Contraction) -> Tensor:
    """The same tensor as a reduction."""
    operator = contraction.operator
    if isinstance(operator, MatMul):
        return matmul(operator, contraction.shape, contraction.dtype)
    if isinstance(operator, WeightGradient):
        plain = plain_weight_gradient(operator, contraction.shape)
        return te.compute(plain.shape, lambda *index: x.cast(plain[index], contraction.dtype))
    assert isinstance(operator, Convolution)
    return transposed(operator, contraction) if operator.transposed else convolution(operator, contraction.shape, contraction.dtype)


def matmul(operator: MatMul, shape: tuple[int, ...], dtype: DType) -> Tensor:
    a, b = operator.a, operator.b
    depth = a.shape[-2] if operator.transpose_a else a.shape[-1]
    assert depth == (b.shape[-1] if operator.transpose_b else b.shape[-2])
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    assert shape == (*batch, a.shape[-1 if operator.transpose_a else -2], b.shape[-2 if operator.transpose_b else -1])

    def place(tensor: Tensor, batch_index: tuple[Expr, ...], row: Expr, column: Expr) -> Expr:
        own = batch_index[len(batch_index) - (tensor.rank - 2) :] if tensor.rank > 2 else ()
        own = tuple(x.const(0, dtypes.int64) if e == 1 else i for e, i in zip(tensor.shape, own, strict=False))
        return tensor[(*own, row, column)]

    def element(*index: Expr) -> Expr:
        *outer, m, n, k = index
        left = place(a, tuple(outer), *((k, m) if operator.transpose_a else (m, k)))
        right = place(b, tuple(outer), *((n, k) if operator.transpose_b else (k, n)))
        weight = less(right, operator.zero_b, 0, dtype)
        if operator.scale is not None:
            weight = weight * operator.scale[k // operator.scale_rows, n]
        return less(left, operator.zero_a, 0, dtype) * weight

    return te.reduce("sum", shape, (depth,), element)


def less(value: Expr, zero: Tensor | None, place: Expr | int, dtype: DType) -> Expr:
    """An element less its zero point, of which there is one for all or one a channel."""
    if zero is None:
        return x.cast(value, dtype)
    index = (0,) * zero.rank if zero.size == 1 else (place,)
    return x.cast(value, dtype) - x.cast(zero[index], dtype)


def convolution(operator: Convolution, shape: tuple[int, ...], dtype: DType) -> Tensor:
    data, weights = operator.x, operator.w
    spatial = len(operator.strides)
    out_channels, in_group, *kernel = weights.shape
    per_group = out_channels // operator.group
    assert shape == (data.shape[0], out_channels, *operator.out_size)

    def element(*index: Expr) -> Expr:
        n, o, *rest = index
        out, (i, *taps) = rest[:spatial], rest[spatial:]
        places = [
            p * s - b + t * d for p, s, b, t, d in zip(out, operator.strides, operator.pads_begin, taps, operator.dilations, strict=True)
        ]
        inside = x.all_of([(p >= 0) & (p < size) for p, size in zip(places, data.shape[2:], strict=True)])
        place = (n, (o // per_group) * in_group + i, *places)
        value = less(data[place], operator.zero_point, 0, dtype) * less(weights[(o, i, *taps)], operator.weight_zero, o, dtype)
        return x.select(inside, value, 0) if inside is not None else value

    return te.reduce("sum", shape, (in_group, *kernel), element)


def transposed(operator: Convolution, contraction: Contraction) -> Tensor:
    data, weights = operator.x, operator.w
    spatial = len(operator.strides)
    channels, per_group, *kernel = weights.shape
    in_group = channels // operator.group
    assert contraction.shape == (data.shape[0], per_group * operator.group, *operator.out_size)
    assert math.prod(operator.strides) > 0

    def element(*index: Expr) -> Expr:
        n, o, *rest = index
        out, (i, *taps) = rest[:spatial], rest[spatial:]
        channel = (o // per_group) * in_group + i
        scaled = [p + b - t * d for p, b, t, d in zip(out, operator.pads_begin, taps, operator.dilations, strict=True)]
        places = [p // s for p, s in zip(scaled, operator.strides, strict=True)]
        tests = [
            x.equal(p % s, 0) & (q >= 0) & (q < size)
            for p, q, s, size in zip(scaled, places, operator.strides, data.shape[2:], strict=True)
        ]
        inside = x.all_of(tests)
        dtype = contraction.dtype
        value = less(data[(n, channel, *places)], operator.zero_point, 0, dtype) * x.cast(weights[(channel, o % per_group, *taps)], dtype)
        return x.select(inside, value, 0) if inside is not None else value

    return te.reduce("sum", contraction.shape, (in_group, *kernel), element)
