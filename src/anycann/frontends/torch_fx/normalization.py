"""Normalisations, and their statistics."""

from __future__ import annotations

from collections.abc import Sequence
import math

import onnx_ir as ir
import torch

from anycann.frontends.torch_fx.builder import Builder, meta, shape_of
from anycann.frontends.torch_fx.table import Call, NotTranslated, translation


def factor(b: Builder, argument: object, shape: Sequence[int], dtype: torch.dtype, default: float) -> ir.Value:
    """A scale or shift, or the constant that an absent one stands for."""
    return b.full(default, shape, dtype) if argument is None else b.value(argument)


@translation("native_layer_norm.default")
def _layer_norm(b: Builder, call: Call) -> Sequence[ir.Value]:
    shape, dtype = tuple(call.normalized_shape), meta(call.input).dtype
    if dtype == torch.float64:
        raise NotTranslated("statistics of float64 are float32 in ONNX")
    operands = b.value(call.input), factor(b, call.weight, shape, dtype, 1), b.optional(call.bias)
    count = 3 if call.used & {1, 2} else 1
    results = b.ops("LayerNormalization", *operands, count=count, axis=-len(shape), epsilon=float(call.eps))
    return [results[0], *(b.cast(_float(r), call.result[1].dtype) for r in results[1:]), *[None] * (3 - count)]  # type: ignore[list-item]


def _float(value: ir.Value) -> ir.Value:
    value.type = ir.TensorType(ir.DataType.FLOAT)
    return value


@translation("_fused_rms_norm.default")
def _rms_norm(b: Builder, call: Call) -> Sequence[ir.Value | None]:
    if 1 in call.used:
        raise NotTranslated("rms_norm that keeps its statistics")
    dtype, shape = meta(call.input).dtype, tuple(call.normalized_shape)
    epsilon = float(torch.finfo(dtype).eps if call.eps is None else call.eps)
    operands = b.value(call.input), factor(b, call.weight, shape, dtype, 1)
    return [b.op("RMSNormalization", *operands, axis=-len(shape), epsilon=epsilon), None]


@translation("native_group_norm.default")
def _group_norm(b: Builder, call: Call) -> Sequence[ir.Value | None]:
    shape, dtype = shape_of(call.input), meta(call.input).dtype
    value, channels = b.value(call.input), shape[1:2]
    operands = factor(b, call.weight, channels, dtype, 1), factor(b, call.bias, channels, dtype, 0)
    result = b.op("GroupNormalization", value, *operands, num_groups=call.group, epsilon=float(call.eps))
    if not call.used & {1, 2}:
        return [result, None, None]
    groups = b.reshape(value, (shape[0], call.group, math.prod(shape[1:]) // call.group))
    mean, deviation = moments(b, groups, [2], float(call.eps), dtype)
    return [result, b.reshape(mean, call.result[1].shape), b.reshape(deviation, call.result[2].shape)]


def moments(b: Builder, value: ir.Value, axes: Sequence[int], epsilon: float, dtype: torch.dtype) -> tuple[ir.Value, ir.Value]:
    """The mean, and one over the standard deviation, with axes kept."""
    mean = b.op("ReduceMean", value, b.integers(*axes), keepdims=1)
    away = b.op("Sub", value, mean)
    variance = b.op("ReduceMean", b.op("Mul", away, away), b.integers(*axes), keepdims=1)
    return mean, b.op("Reciprocal", b.op("Sqrt", b.op("Add", variance, b.scalar(epsilon, dtype))))


# ---- over the batch
@translation("_native_batch_norm_legit_no_training.default")
def _batch_norm_inference(b: Builder, call: Call) -> Sequence[ir.Value]:
    nothing = [b.full(0, result.shape, result.dtype) for result in call.result[1:]]
    return [_with_running_statistics(b, call), *nothing]


def _with_running_statistics(b: Builder, call: Call) -> ir.Value:
    dtype, channels = meta(call.input).dtype, shape_of(call.input)[1:2]
    scale, shift = (factor(b, argument, channels, dtype, default) for argument, default in ((call.weight, 1), (call.bias, 0)))
    statistics = b.value(call.running_mean), b.value(call.running_var)
    return b.op("BatchNormalization", b.value(call.input), scale, shift, *statistics, epsilon=float(call.eps))


@translation("_native_batch_norm_legit_functional.default")
def _batch_norm(b: Builder, call: Call) -> Sequence[ir.Value]:
    if not call.training:
        nothing = [b.full(0, result.shape, result.dtype) for result in call.result[1:3]]
        return [_with_running_statistics(b, call), *nothing, *(b.op("Identity", b.value(v)) for v in (call.running_mean, call.running_var))]
    shape, dtype = shape_of(call.input), meta(call.input).dtype
    if dtype in (torch.float16, torch.bfloat16):
        raise NotTranslated("batch statistics of 16 bits")
    axes, across = [0, *range(2, len(shape))], (1, shape[1], *[1] * (len(shape) - 2))
    value = b.value(call.input)
    mean = b.op("ReduceMean", value, b.integers(*axes), keepdims=1)
    away = b.op("Sub", value, mean)
    variance = b.op("ReduceMean", b.op("Mul", away, away), b.integers(*axes), keepdims=1)
    deviation = b.op("Reciprocal", b.op("Sqrt", b.op("Add", variance, b.scalar(float(call.eps), dtype))))
    scale = deviation if call.weight is None else b.op("Mul", deviation, b.reshape(b.value(call.weight), across))
    result = b.op("Mul", away, scale)
    result = result if call.bias is None else b.op("Add", result, b.reshape(b.value(call.bias), across))
    count = math.prod(shape[axis] for axis in axes)
    unbiased = b.op("Mul", variance, b.scalar(count / max(count - 1, 1), dtype))
    running = [_moved(b, old, new, call, dtype) for old, new in ((call.running_mean, mean), (call.running_var, unbiased))]
    return [result, *(b.reshape(v, shape[1:2]) for v in (mean, deviation)), *running]


def _moved(b: Builder, old: object, new: ir.Value, call: Call, dtype: torch.dtype) -> ir.Value:
    """A running statistic after this batch."""
    kept = b.op("Mul", b.value(old), b.scalar(1 - call.momentum, dtype))
    return b.op("Add", kept, b.op("Mul", b.reshape(new, shape_of(old)), b.scalar(call.momentum, dtype)))
