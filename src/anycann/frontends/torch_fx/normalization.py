"""Normalisations, and their statistics."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from anycann.frontends.torch_fx.builder import Builder, meta, onnx_dtype, shape_of
from anycann.frontends.torch_fx.table import DEVICE, Call, NotTranslated, translation


def factor(b: Builder, argument: object, shape: Sequence[int], dtype: torch.dtype, default: float) -> ir.Value:
    """A scale or shift, or the constant that an absent one stands for."""
    return b.full(default, shape, dtype) if argument is None else b.value(argument)


@translation("native_layer_norm.default")
def _layer_norm(b: Builder, call: Call) -> Sequence[ir.Value | None]:
    shape, dtype = tuple(call.normalized_shape), meta(call.input).dtype
    if dtype == torch.float64:
        raise NotTranslated("statistics of float64 are float32 in ONNX")
    operands = b.value(call.input), factor(b, call.weight, shape, dtype, 1), b.optional(call.bias)
    count = 3 if call.used & {1, 2} else 1
    results = b.ops("LayerNormalization", *operands, count=count, axis=-len(shape), epsilon=float(call.eps))
    return [*_narrowed(b, call, results), *[None] * (3 - count)]


def _narrowed(b: Builder, call: Call, results: Sequence[ir.Value]) -> list[ir.Value]:
    """The results of a normalisation, whose statistics are kept in 32 bits where its elements have 16, as torch types them."""
    for value, fake in zip(results[1:], call.result[1:], strict=False):
        value.type = ir.TensorType(onnx_dtype(torch.float64 if fake.dtype == torch.float64 else torch.float32))
    return [results[0], *(b.cast(value, fake.dtype) for value, fake in zip(results[1:], call.result[1:], strict=False))]


@translation("native_layer_norm_backward.default")
def _layer_norm_backward(b: Builder, call: Call) -> Sequence[ir.Value | None]:
    operands = b.value(call.grad_out), b.value(call.input), b.value(call.mean), b.value(call.rstd), b.optional(call.weight)
    return _masked(call, b.ops("LayerNormGrad", *operands, count=3, domain=DEVICE, axis=-len(call.normalized_shape)))


def _masked(call: Call, results: Sequence[ir.Value]) -> Sequence[ir.Value | None]:
    """The gradients that are asked for."""
    return [result if wanted else None for result, wanted in zip(results, call.output_mask, strict=True)]


@translation("_fused_rms_norm.default")
def _rms_norm(b: Builder, call: Call) -> Sequence[ir.Value | None]:
    dtype, shape = meta(call.input).dtype, tuple(call.normalized_shape)
    epsilon = float(torch.finfo(dtype).eps if call.eps is None else call.eps)
    if 1 in call.used:
        attributes = {"axis": -len(shape), "epsilon": epsilon}
        results = b.ops("RMSNormTraining", b.value(call.input), b.optional(call.weight), count=2, domain=DEVICE, **attributes)
        return _narrowed(b, call, results)
    operands = b.value(call.input), factor(b, call.weight, shape, dtype, 1)
    return [b.op("RMSNormalization", *operands, axis=-len(shape), epsilon=epsilon), None]


@translation("_fused_rms_norm_backward.default")
def _rms_norm_backward(b: Builder, call: Call) -> Sequence[ir.Value | None]:
    operands = b.value(call.grad_out), b.value(call.input), b.value(call.rstd), b.optional(call.weight)
    return _masked(call, b.ops("RMSNormGrad", *operands, count=2, domain=DEVICE, axis=-len(call.normalized_shape)))


@translation("native_group_norm.default")
def _group_norm(b: Builder, call: Call) -> Sequence[ir.Value | None]:
    channels, dtype = shape_of(call.input)[1:2], meta(call.input).dtype
    attributes = {"num_groups": call.group, "epsilon": float(call.eps)}
    if call.used & {1, 2}:
        operands = b.value(call.input), b.optional(call.weight), b.optional(call.bias)
        return _narrowed(b, call, b.ops("GroupNormTraining", *operands, count=3, domain=DEVICE, **attributes))
    scale, shift = factor(b, call.weight, channels, dtype, 1), factor(b, call.bias, channels, dtype, 0)
    return [b.op("GroupNormalization", b.value(call.input), scale, shift, **attributes), None, None]


@translation("native_group_norm_backward.default")
def _group_norm_backward(b: Builder, call: Call) -> Sequence[ir.Value | None]:
    operands = b.value(call.grad_out), b.value(call.input), b.value(call.mean), b.value(call.rstd), b.optional(call.weight)
    return _masked(call, b.ops("GroupNormGrad", *operands, count=3, domain=DEVICE, num_groups=call.group))


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
    operands = (call.input, call.weight, call.bias, call.running_mean, call.running_var)
    attributes = {"epsilon": float(call.eps), "momentum": float(call.momentum)}
    results = b.ops("BatchNormTraining", *(b.optional(operand) for operand in operands), count=5, domain=DEVICE, **attributes)
    return _narrowed(b, call, results)


@translation("native_batch_norm.default")
def _batch_norm_in_place(b: Builder, call: Call) -> Sequence[ir.Value]:
    if not call.training:
        nothing = [b.full(0, result.shape, result.dtype) for result in call.result[1:]]
        return [_with_running_statistics(b, call), *nothing]
    if call.running_mean is not None:
        raise NotTranslated("running statistics that change in place")
    operands = b.value(call.input), b.optional(call.weight), b.optional(call.bias)
    return _narrowed(b, call, b.ops("BatchNormTraining", *operands, count=3, domain=DEVICE, epsilon=float(call.eps)))


@translation("native_batch_norm_backward.default")
def _batch_norm_backward(b: Builder, call: Call) -> Sequence[ir.Value | None]:
    operands = b.value(call.grad_out), b.value(call.input), b.optional(call.weight)
    if call.train:
        statistics = b.value(call.save_mean), b.value(call.save_invstd)
    else:
        dtype = meta(call.running_var).dtype
        variance = b.op("Add", b.value(call.running_var), b.scalar(float(call.eps), dtype))
        statistics = b.value(call.running_mean), b.op("Reciprocal", b.op("Sqrt", variance))
    return _masked(call, b.ops("BatchNormGrad", *operands, *statistics, count=3, domain=DEVICE, training=int(call.train)))
