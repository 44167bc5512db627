"""What comes back through activations, softmax, dropout, pooling, and parts of tensors."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from anycann.frontends.torch_fx.builder import Builder, axis_of, meta, shape_of
from anycann.frontends.torch_fx.pooling import NEAREST, NEAREST_EXACT, batched, resizing, windows
from anycann.frontends.torch_fx.products import spread
from anycann.frontends.torch_fx.shapes import bounds
from anycann.frontends.torch_fx.table import DEVICE, Call, NotTranslated, Translation, translation


# ---- activations
def _gradient(op_type: str, known: str, **attributes: str) -> Translation:
    """An operator of the device; `known` is the argument that it reads beside the gradient, attributes are named with the arguments."""

    def translate(b: Builder, call: Call) -> ir.Value:
        if getattr(call, "self_is_result", False) or getattr(call, "is_result", False):
            raise NotTranslated("a gradient from the result of an activation that changes its operand")
        dtype = call.result.dtype
        given = {name: _attribute(getattr(call, argument)) for name, argument in attributes.items()}
        return b.op(op_type, b.value(call.grad_output, dtype), b.value(getattr(call, known), dtype), domain=DEVICE, **given)

    return translate


def _attribute(value: Any) -> Any:
    return value if isinstance(value, str) else float(value)


translation("threshold_backward.default")(_gradient("ThresholdGrad", "self", threshold="threshold"))
translation("sigmoid_backward.default")(_gradient("SigmoidGrad", "output"))
translation("tanh_backward.default")(_gradient("TanhGrad", "output"))
translation("gelu_backward.default")(_gradient("GeluGrad", "self", approximate="approximate"))
translation("silu_backward.default")(_gradient("SiluGrad", "self"))
translation("mish_backward.default")(_gradient("MishGrad", "self"))
translation("hardswish_backward.default")(_gradient("HardSwishGrad", "self"))
translation("hardsigmoid_backward.default")(_gradient("HardSigmoidGrad", "self"))
translation("hardtanh_backward.default")(_gradient("HardTanhGrad", "self", min="min_val", max="max_val"))
translation("leaky_relu_backward.default")(_gradient("LeakyReluGrad", "self", alpha="negative_slope"))
translation("elu_backward.default")(_gradient("EluGrad", "self_or_result", alpha="alpha", scale="scale", input_scale="input_scale"))
translation("softplus_backward.default")(_gradient("SoftplusGrad", "self", beta="beta", threshold="threshold"))
translation("log_sigmoid_backward.default")(_gradient("LogSigmoidGrad", "self"))


@translation("native_dropout_backward.default")
def _dropout(b: Builder, call: Call) -> ir.Value:
    return b.op("DropoutGrad", b.value(call.grad_output), b.value(call.mask, torch.bool), domain=DEVICE, scale=float(call.scale))


# ---- along an axis
def _along(op_type: str) -> Translation:
    def translate(b: Builder, call: Call) -> ir.Value:
        rank = len(shape_of(call.output))
        if not rank:
            raise NotTranslated("a tensor without dimensions")
        operands = b.value(call.grad_output), b.value(call.output, meta(call.grad_output).dtype)
        result = b.op(op_type, *operands, domain=DEVICE, axis=axis_of(call.dim, rank))
        return result if meta(call.grad_output).dtype == call.input_dtype else b.cast(result, call.input_dtype)

    return translate


translation("_softmax_backward_data.default")(_along("SoftmaxGrad"))
translation("_log_softmax_backward_data.default")(_along("LogSoftmaxGrad"))


# ---- pooling
@translation("max_pool2d_with_indices_backward.default")
def _max_pool(b: Builder, call: Call) -> ir.Value:
    batched(call, 2)
    attributes = {name: value for name, value in windows(call, 2).items() if name != "ceil_mode"}
    attributes |= {"dilations": spread(call.dilation, 2), "input_shape": shape_of(call.self)}
    return b.op("MaxPoolGrad", b.value(call.grad_output), b.value(call.indices), domain=DEVICE, **attributes)


@translation("avg_pool2d_backward.default")
def _average_pool(b: Builder, call: Call) -> ir.Value:
    batched(call, 2)
    if call.divisor_override is not None or call.ceil_mode:
        raise NotTranslated("avg_pool2d with another divisor, or with ceil_mode")
    attributes = {name: value for name, value in windows(call, 2).items() if name != "ceil_mode"}
    attributes |= {"count_include_pad": int(call.count_include_pad), "input_shape": shape_of(call.self)}
    return b.op("AveragePoolGrad", b.value(call.grad_output), domain=DEVICE, **attributes)


@translation("_adaptive_avg_pool2d_backward.default")
def _adaptive_pool(b: Builder, call: Call) -> ir.Value:
    batched(call, 2)
    return b.op("AdaptiveAveragePoolGrad", b.value(call.grad_output), domain=DEVICE, input_shape=shape_of(call.self))


def _resized(nearest: dict[str, str] | None) -> Translation:
    def translate(b: Builder, call: Call) -> ir.Value:
        shape = [int(size) for size in call.input_size]
        attributes = resizing(call, nearest, shape[2:], shape_of(call.grad_output)[2:])
        return b.op("ResizeGrad", b.value(call.grad_output), domain=DEVICE, input_shape=shape, **attributes)

    return translate


translation("upsample_nearest2d_backward.default")(_resized(NEAREST))
translation("_upsample_nearest_exact2d_backward.default")(_resized(NEAREST_EXACT))
translation("upsample_bilinear2d_backward.default")(_resized(None))


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
