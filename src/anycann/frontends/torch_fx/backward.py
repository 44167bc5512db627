"""What comes back through activations, softmax, dropout and parts; elementwise formulas that are fused with their neighbours."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from anycann.frontends.torch_fx.builder import Builder, axis_of, meta, shape_of
from anycann.frontends.torch_fx.shapes import bounds
from anycann.frontends.torch_fx.table import Call, NotTranslated, translation


@translation("threshold_backward.default")
def _threshold(b: Builder, call: Call) -> ir.Value:
    dtype = call.result.dtype
    passes = b.op("Greater", b.value(call.self, dtype), b.scalar(call.threshold, dtype))
    return b.op("Where", passes, b.value(call.grad_output, dtype), b.scalar(0, dtype))


@translation("sigmoid_backward.default")
def _sigmoid(b: Builder, call: Call) -> ir.Value:
    y = b.value(call.output)
    slope = b.op("Mul", y, b.op("Sub", b.scalar(1, call.result.dtype), y))
    return b.op("Mul", b.value(call.grad_output), slope)


@translation("tanh_backward.default")
def _tanh(b: Builder, call: Call) -> ir.Value:
    y = b.value(call.output)
    return b.op("Mul", b.value(call.grad_output), b.op("Sub", b.scalar(1, call.result.dtype), b.op("Mul", y, y)))


@translation("silu_backward.default")
def _silu(b: Builder, call: Call) -> ir.Value:
    x, one = b.value(call.self), b.scalar(1, call.result.dtype)
    gate = b.op("Sigmoid", x)
    slope = b.op("Mul", gate, b.op("Add", one, b.op("Mul", x, b.op("Sub", one, gate))))
    return b.op("Mul", b.value(call.grad_output), slope)


@translation("gelu_backward.default")
def _gelu(b: Builder, call: Call) -> ir.Value:
    x, dtype = b.value(call.self), call.result.dtype

    def times(value: ir.Value, number: float) -> ir.Value:
        return b.op("Mul", value, b.scalar(number, dtype))

    def plus(value: ir.Value, number: float) -> ir.Value:
        return b.op("Add", value, b.scalar(number, dtype))

    square = b.op("Mul", x, x)
    if call.approximate == "none":
        share = times(plus(b.op("Erf", times(x, math.sqrt(0.5))), 1), 0.5)
        density = times(b.op("Exp", times(square, -0.5)), 1 / math.sqrt(2 * math.pi))
        slope = b.op("Add", share, b.op("Mul", x, density))
    else:
        root = math.sqrt(2 / math.pi)
        bent = b.op("Tanh", times(b.op("Mul", x, plus(times(square, 0.044715), 1)), root))
        inner = times(plus(times(square, 3 * 0.044715), 1), root)
        steep = b.op("Mul", b.op("Sub", b.scalar(1, dtype), b.op("Mul", bent, bent)), inner)
        slope = times(b.op("Add", plus(bent, 1), b.op("Mul", x, steep)), 0.5)
    return b.op("Mul", b.value(call.grad_output), slope)


@translation("hardtanh_backward.default")
def _hardtanh(b: Builder, call: Call) -> ir.Value:
    x, dtype = b.value(call.self), call.result.dtype
    inside = b.op("And", b.op("Greater", x, b.scalar(call.min_val, dtype)), b.op("Less", x, b.scalar(call.max_val, dtype)))
    return b.op("Where", inside, b.value(call.grad_output), b.scalar(0, dtype))


@translation("leaky_relu_backward.default")
def _leaky_relu(b: Builder, call: Call) -> ir.Value:
    given, dtype = b.value(call.grad_output), call.result.dtype
    passes = b.op("Greater", b.value(call.self), b.scalar(0, dtype))
    return b.op("Where", passes, given, b.op("Mul", given, b.scalar(call.negative_slope, dtype)))


# ---- along an axis
@translation("_softmax_backward_data.default")
def _softmax(b: Builder, call: Call) -> ir.Value:
    y, given = b.value(call.output), b.value(call.grad_output)
    axis = _axis(call)
    product = b.op("Mul", given, y)
    return b.cast(b.op("Sub", product, b.op("Mul", y, b.op("ReduceSum", product, b.integers(axis), keepdims=1))), call.input_dtype)


@translation("_log_softmax_backward_data.default")
def _log_softmax(b: Builder, call: Call) -> ir.Value:
    given = b.value(call.grad_output)
    total = b.op("ReduceSum", given, b.integers(_axis(call)), keepdims=1)
    return b.cast(b.op("Sub", given, b.op("Mul", b.op("Exp", b.value(call.output)), total)), call.input_dtype)


def _axis(call: Call) -> int:
    rank = len(shape_of(call.output))
    if not rank or meta(call.output).dtype != call.input_dtype:
        raise NotTranslated("a tensor without dimensions, or of another dtype than its result")
    return axis_of(call.dim, rank)


# ---- dropout
@translation("native_dropout_backward.default")
def _dropout(b: Builder, call: Call) -> ir.Value:
    dtype = call.result.dtype
    kept = b.op("Where", b.value(call.mask, torch.bool), b.value(call.grad_output), b.scalar(0, dtype))
    return b.op("Mul", kept, b.scalar(float(call.scale), dtype))


# ---- parts
@translation("select_backward.default")
def _select(b: Builder, call: Call) -> ir.Value:
    rank = len(call.input_sizes)
    axis = axis_of(call.dim, rank)
    size = int(call.input_sizes[axis])
    index = call.index % size
    return _padded(b, b.op("Unsqueeze", b.value(call.grad_output), b.integers(axis)), rank, axis, index, size - index - 1, call)


@translation("slice_backward.default")
def _slice(b: Builder, call: Call) -> ir.Value:
    rank = len(call.input_sizes)
    axis = axis_of(call.dim, rank)
    if call.step != 1:
        raise NotTranslated("slices with steps")
    start, end = bounds(call.start, call.end, int(call.input_sizes[axis]))
    return _padded(b, b.value(call.grad_output), rank, axis, start, int(call.input_sizes[axis]) - end, call)


def _padded(b: Builder, value: ir.Value, rank: int, axis: int, low: int, high: int, call: Call) -> ir.Value:
    """Zeros before and behind along an axis."""
    pads = [0] * (2 * rank)
    pads[axis], pads[rank + axis] = low, high
    return b.op("Pad", value, b.integers(*pads), b.scalar(0, call.result.dtype))


@translation("embedding_dense_backward.default")
def _embedding(b: Builder, call: Call) -> ir.Value:
    if call.scale_grad_by_freq:
        raise NotTranslated("embedding gradients scaled by frequency")
    width, dtype = int(call.result.shape[1]), call.result.dtype
    indices = b.value(call.indices, torch.int64)
    given = b.value(call.grad_output)
    if call.padding_idx >= 0:
        padding = b.op("Equal", indices, b.scalar(call.padding_idx, torch.int64))
        given = b.op("Where", b.op("Unsqueeze", padding, b.integers(-1)), b.scalar(0, dtype), given)
    rows = b.reshape(given, (-1, width)) if width else given
    zeros = b.full(0, (call.num_weights, width), dtype)
    return b.op("ScatterND", zeros, b.reshape(indices, (-1, 1)), rows, reduction="add")
