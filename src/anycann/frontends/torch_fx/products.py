"""Products: matrices, convolutions, attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from anycann.frontends.torch_fx.builder import Builder, axis_of, meta, shape_of
from anycann.frontends.torch_fx.table import DEVICE, Call, NotTranslated, translation


def product(b: Builder, first: ir.Value, second: Any) -> ir.Value:
    """A product whose second matrix is an argument. Where that is transposed while it runs, the product's kernel reads it so."""
    if _is_transposed(second) and b.is_computed(second.args[0]):
        return b.op("FusedMatMul", first, b.value(second.args[0]), domain="com.microsoft", transB=1)
    return b.op("MatMul", first, b.value(second))


def _is_transposed(argument: Any) -> bool:
    """Whether an argument is a matrix of another matrix's columns."""
    if not isinstance(argument, torch.fx.Node) or len(shape_of(argument)) != 2:
        return False
    name = str(argument.target)
    if name == "aten.permute.default":
        return [axis_of(dim, 2) for dim in argument.args[1]] == [1, 0]
    return name == "aten.t.default" or (name == "aten.transpose.int" and axis_of(argument.args[1], 2) != axis_of(argument.args[2], 2))


@translation("mm.default", "bmm.default")
def _product(b: Builder, call: Call) -> ir.Value:
    return product(b, b.value(call.self), call.mat2)


@translation("matmul.default")
def _matmul(b: Builder, call: Call) -> ir.Value:
    return b.op("MatMul", b.value(call.self), b.value(call.other))


@translation("mv.default")
def _mv(b: Builder, call: Call) -> ir.Value:
    return b.op("MatMul", b.value(call.self), b.value(call.vec))


@translation("dot.default")
def _dot(b: Builder, call: Call) -> ir.Value:
    return b.op("MatMul", b.value(call.self), b.value(call.tensor))


@translation("addmm.default")
def _addmm(b: Builder, call: Call) -> ir.Value:
    if not call.result.dtype.is_floating_point:
        raise NotTranslated("addmm of integers")
    if call.alpha == call.beta == 1:
        return b.op("Add", product(b, b.value(call.mat1), call.mat2), b.value(call.self))
    operands = b.value(call.mat1), b.value(call.mat2)
    if call.beta == 0:
        return b.op("Gemm", *operands, alpha=float(call.alpha))
    return b.op("Gemm", *operands, b.value(call.self), alpha=float(call.alpha), beta=float(call.beta))


@translation("baddbmm.default")
def _baddbmm(b: Builder, call: Call) -> ir.Value:
    dtype = call.result.dtype
    product = b.op("MatMul", b.value(call.batch1), b.value(call.batch2))
    product = product if call.alpha == 1 else b.op("Mul", product, b.scalar(call.alpha, dtype))
    if call.beta == 0:
        return product
    added = b.value(call.self)
    return b.op("Add", product, added if call.beta == 1 else b.op("Mul", added, b.scalar(call.beta, dtype)))


@translation("linear.default")
def _linear(b: Builder, call: Call) -> ir.Value:
    if b.is_computed(call.weight):
        found = b.op("FusedMatMul", b.value(call.input), b.value(call.weight), domain="com.microsoft", transB=1)
    else:
        found = b.op("MatMul", b.value(call.input), b.op("Transpose", b.value(call.weight), perm=[1, 0]))
    return found if call.bias is None else b.op("Add", found, b.value(call.bias))


@translation("linear_backward.default")
def _linear_backward(b: Builder, call: Call) -> Sequence[ir.Value | None]:
    """The gradients of operand, weight and bias of a linear layer on the npu."""
    given, shape = b.value(call.grad_output), shape_of(call.grad_output)
    wants_input, wants_weight, wants_bias = call.output_mask
    to_weight = None
    if wants_weight:
        rows = b.reshape(given, (-1, shape[-1])), b.reshape(b.value(call.self), (-1, shape_of(call.self)[-1]))
        to_weight = b.op("Gemm", *rows, transA=1)
    to_input = b.op("MatMul", given, b.value(call.weight)) if wants_input else None
    to_bias = b.op("ReduceSum", given, b.integers(*range(len(shape) - 1)), keepdims=0) if wants_bias else None
    return [to_input, to_weight, to_bias]


@translation("convolution.default")
def _convolution(b: Builder, call: Call) -> ir.Value:
    if not call.result.dtype.is_floating_point:
        raise NotTranslated("a convolution of integers")
    rank = len(shape_of(call.input)) - 2
    attributes = {
        "strides": spread(call.stride, rank),
        "pads": spread(call.padding, rank) * 2,
        "dilations": spread(call.dilation, rank),
        "group": call.groups,
        "kernel_shape": shape_of(call.weight)[2:],
    }
    operands = b.value(call.input), b.value(call.weight), b.optional(call.bias)
    if call.transposed:
        return b.op("ConvTranspose", *operands, output_padding=spread(call.output_padding, rank), **attributes)
    return b.op("Conv", *operands, **attributes)


@translation("convolution_backward.default")
def _convolution_backward(b: Builder, call: Call) -> Sequence[ir.Value | None]:
    rank = len(shape_of(call.input)) - 2
    given, source, weight = b.value(call.grad_output), b.value(call.input), b.value(call.weight)
    pads = spread(call.padding, rank) * 2
    attributes: dict[str, Any] = {"strides": spread(call.stride, rank), "dilations": spread(call.dilation, rank)}
    attributes |= {"pads": pads, "group": call.groups}
    kernel: dict[str, Any] = {"kernel_shape": shape_of(call.weight)[2:]}
    wants_input, wants_weight, wants_bias = call.output_mask
    to_input = to_weight = to_bias = None
    if wants_input and call.transposed:
        to_input = b.op("Conv", given, weight, **kernel, **attributes)
    elif wants_input:
        to_input = b.op("ConvInputGrad", given, weight, domain=DEVICE, input_shape=shape_of(call.input), **attributes)
    if wants_weight:
        pair = (given, source) if call.transposed else (source, given)
        to_weight = b.op("ConvWeightGrad", *pair, domain=DEVICE, **kernel, **attributes)
    if wants_bias:
        to_bias = b.op("ReduceSum", given, b.integers(0, *range(2, rank + 2)), keepdims=0)
    return [to_input, to_weight, to_bias]


def spread(sizes: Sequence[int], rank: int) -> list[int]:
    """One number for each axis; a single one counts for all."""
    return [int(size) for size in (list(sizes) * rank if len(sizes) == 1 else sizes)]


@translation("_scaled_dot_product_flash_attention_for_cpu.default")
def _flash_attention(b: Builder, call: Call) -> Sequence[ir.Value | None]:
    if call.dropout_p:
        raise NotTranslated("attention with dropout")
    if 1 in call.used:
        raise NotTranslated("attention that keeps the logarithms of its sums")
    return [_attention_of(b, call), None]


@translation("anycann.attention.default")
def _attention(b: Builder, call: Call) -> ir.Value:
    return _attention_of(b, call)


def _attention_of(b: Builder, call: Call) -> ir.Value:
    _check_causal(call)
    operands = b.value(call.query), b.value(call.key), b.value(call.value), b.optional(call.attn_mask)
    return b.op("Attention", *operands, is_causal=int(call.is_causal), scale=call.scale)


@translation("anycann.attention_backward.default")
def _attention_backward(b: Builder, call: Call) -> Sequence[ir.Value]:
    _check_causal(call)
    if meta(call.query).dtype != torch.float32 or (call.attn_mask is not None and meta(call.attn_mask).dtype != torch.float32):
        raise NotTranslated("gradients of attention in other types than float32")
    mask = b.optional(call.attn_mask)
    if mask is not None and shape_of(call.attn_mask)[-1] != shape_of(call.key)[2]:
        raise NotTranslated("a mask that is one number for all keys")
    operands = b.value(call.grad_out), b.value(call.query), b.value(call.key), b.value(call.value), mask
    return b.ops("AttentionGrad", *operands, count=3, domain=DEVICE, scale=float(call.scale), is_causal=int(call.is_causal))


def _check_causal(call: Call) -> None:
    """Raises NotTranslated where it matters which corner of the scores the triangle begins in."""
    if call.is_causal and shape_of(call.query)[2] != shape_of(call.key)[2]:
        raise NotTranslated("causal attention to another number of keys than queries")
