"""Products: matrices, convolutions, attention."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from anycann.frontends.torch_fx.builder import Builder, shape_of
from anycann.frontends.torch_fx.table import Call, NotTranslated, translation


@translation("mm.default", "bmm.default")
def _product(b: Builder, call: Call) -> ir.Value:
    return b.op("MatMul", b.value(call.self), b.value(call.mat2))


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
    weight = b.op("Transpose", b.value(call.weight), perm=[1, 0])
    product = b.op("MatMul", b.value(call.input), weight)
    return product if call.bias is None else b.op("Add", product, b.value(call.bias))


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


def spread(sizes: Sequence[int], rank: int) -> list[int]:
    """One number for each axis; a single one counts for all."""
    return [int(size) for size in (list(sizes) * rank if len(sizes) == 1 else sizes)]


@translation("_scaled_dot_product_flash_attention_for_cpu.default")
def _attention(b: Builder, call: Call) -> Sequence[ir.Value | None]:
    if call.dropout_p:
        raise NotTranslated("attention with dropout")
    if 1 in call.used:
        raise NotTranslated("attention that keeps the logarithms of its sums")
    operands = b.value(call.query), b.value(call.key), b.value(call.value), b.optional(call.attn_mask)
    return [b.op("Attention", *operands, is_causal=int(call.is_causal), scale=call.scale), None]
