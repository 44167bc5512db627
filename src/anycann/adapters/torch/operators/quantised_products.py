"""Products of integers with scales, and of floats with weights that are kept as integers."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from anycann.adapters.torch.operators import packing
from anycann.adapters.torch.operators.float8_products import FLOAT8, float8_product
from anycann.adapters.torch.operators.precision import dtype_of
from anycann.adapters.torch.operators.registry import bound, composed, opaque, refuse, refuse_given, require, sizes

# sums of this many products of two bytes are exact in float32
_EXACT_DEPTH = 1024
_HALF_OF_A_NIBBLE = 8


def integer_product(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    """int32 x1 @ x2 of int8 tensors, exact: parts of the depth are multiplied as float32, which hold their sums, and added as integers."""
    depth = x1.shape[-1]
    total = (x1[..., :_EXACT_DEPTH].float() @ x2[..., :_EXACT_DEPTH, :].float()).to(torch.int32)
    for begin in range(_EXACT_DEPTH, depth, _EXACT_DEPTH):
        part = slice(begin, begin + _EXACT_DEPTH)
        total += (x1[..., part].float() @ x2[..., part, :].float()).to(torch.int32)
    return total


def _product_shape(x1: torch.Tensor, x2: torch.Tensor) -> list[int]:
    depth = x1.shape[-1] * (8 if x1.dtype == torch.int32 else 1)
    columns = x2.shape[-1] * 8 if x2.dtype == torch.int32 and x2.shape[-2] == depth else x2.shape[-1]
    batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    return [*batch, x1.shape[-2], columns]


def _quant_matmul_shape(x1: torch.Tensor, x2: torch.Tensor, scale: torch.Tensor, **options: object) -> torch.Tensor:
    number = options.get("output_dtype")
    default = torch.bfloat16 if x1.dtype in FLOAT8 else torch.int8
    dtype = dtype_of(number if isinstance(number, int) else None, "npu_quant_matmul", "output_dtype", default)
    return x1.new_empty(_product_shape(x1, x2), dtype=dtype)


@opaque(
    "npu_quant_matmul(Tensor x1, Tensor x2, Tensor scale, *, Tensor? offset=None, Tensor? pertoken_scale=None, Tensor? bias=None, "
    "int? output_dtype=None, int? x1_dtype=None, int? x2_dtype=None, int? pertoken_scale_dtype=None, int? scale_dtype=None, "
    "int[]? group_sizes=None, Tensor? y_scale=None) -> Tensor",
    shape=_quant_matmul_shape,
    missing="float4 operands, y_scale, group_sizes other than those of int4 and float8 by groups of the depth",
)
def quant_matmul(
    x1: torch.Tensor,
    x2: torch.Tensor,
    scale: torch.Tensor,
    *,
    offset: torch.Tensor | None = None,
    pertoken_scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    output_dtype: int | None = None,
    x1_dtype: int | None = None,
    x2_dtype: int | None = None,
    pertoken_scale_dtype: int | None = None,
    scale_dtype: int | None = None,
    group_sizes: list[int] | None = None,
    y_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """(x1 @ x2 + int32 bias) * scale [* pertoken_scale] + offset or float bias, of int8 or of four-bit integers in int32.

    scale: float, or int64 of `npu_trans_quant_param`. output_dtype: int8 (None), float16, bfloat16 or int32 (the sums). Of float8: with
    floats as scales, or powers of two for each 32 of the depth (see `float8_product`), plus a float bias; bfloat16 unless said otherwise.
    """
    operator = "npu_quant_matmul"
    if x1.dtype in FLOAT8:
        refuse_given(operator, "it is not computed for float8", offset=offset, y_scale=y_scale)
        y = float8_product(operator, x1, x2, scale, pertoken_scale, group_sizes)
        return (y if bias is None else y + bias.float()).to(dtype_of(output_dtype, operator, "output_dtype", torch.bfloat16))
    refuse_given(
        operator,
        "it is for float8 and float4 operands, which these are not",
        x1_dtype=x1_dtype,
        x2_dtype=x2_dtype,
        pertoken_scale_dtype=pertoken_scale_dtype,
        scale_dtype=scale_dtype,
        y_scale=y_scale,
    )
    if group_sizes and any(size > 1 for size in group_sizes):
        return _by_groups(operator, x1, x2, scale, offset, pertoken_scale, bias, output_dtype, group_sizes)
    left, right = _integers(operator, x1, x2)
    sums = integer_product(left, right)
    if bias is not None and bias.dtype == torch.int32:
        sums = sums + bias
    dtype = dtype_of(output_dtype, operator, "output_dtype", torch.int8)
    if dtype == torch.int32:
        return sums
    y = sums.float() * packing.scale_of(scale)
    y = y if pertoken_scale is None else y * pertoken_scale.reshape(-1, 1).float()
    y = y if bias is None or bias.dtype == torch.int32 else y + bias.float()
    if offset is not None:
        y = y + offset.float()
    elif scale.dtype == torch.int64 and dtype == torch.int8:
        y = y + packing.offset_of(scale)
    return y.to(dtype) if dtype.is_floating_point else packing.rounded(y, dtype)


def _integers(operator: str, x1: torch.Tensor, x2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if x1.dtype == torch.int8 and x2.dtype == torch.int8:
        require(x1.shape[-1] == x2.shape[-2], operator, f"x1 and x2 of {sizes(x1, x2)}", "equal depths")
        return x1, x2
    if x1.dtype != torch.int32 or x2.dtype != torch.int32:
        refuse(operator, f"x1 of {x1.dtype} with x2 of {x2.dtype}", "int8, or four-bit integers in int32")
    left = packing.unpack_int4(x1)
    right = packing.weight_of_int4(x2, left.shape[-1])
    require(left.shape[-1] == right.shape[-2], operator, f"x1 and x2 of {sizes(x1, x2)}, as int4", "equal depths")
    return left, right


def _by_groups(
    operator: str,
    x1: torch.Tensor,
    x2: torch.Tensor,
    scale: torch.Tensor,
    offset: torch.Tensor | None,
    pertoken_scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    output_dtype: int | None,
    group_sizes: list[int],
) -> torch.Tensor:
    """Four-bit integers with a scale and an offset (subtracted) for each group of the depth: sum of groups * scale, by token.

    A left side of bytes is multiplied less 8, as two halves of four bits with a sign are, and the offset (N,) is added to the sum.
    """
    group = group_sizes[2]
    if group_sizes[:2] == [0, 0] and x1.dtype == torch.int8 and x2.dtype == torch.int32 and pertoken_scale is not None and bias is None:
        return _bytes_by_groups(x1, x2, scale, offset, pertoken_scale, group).to(
            dtype_of(output_dtype, operator, "output_dtype", torch.bfloat16)
        )
    if group_sizes[:2] not in ([0, 0], [1, 1]) or x1.dtype != torch.int32 or pertoken_scale is None or bias is not None:
        refuse(operator, f"group_sizes={group_sizes}", "[0 or 1, 0 or 1, k] with int4 weights, pertoken_scale and no bias is computed")
    left, right = _integers(operator, x1, x2)
    total = torch.zeros(left.shape[0], right.shape[1])
    for number, begin in enumerate(range(0, left.shape[1], group)):
        part = right[begin : begin + group].float()
        part = part if offset is None else part - offset[number].float()
        total += (left[:, begin : begin + group].float() @ part) * scale[number].float()
    return (total * pertoken_scale.reshape(-1, 1)).to(dtype_of(output_dtype, operator, "output_dtype", torch.bfloat16))


def _bytes_by_groups(
    x1: torch.Tensor, x2: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor | None, pertoken_scale: torch.Tensor, group: int
) -> torch.Tensor:
    scales = packing.scale_of(scale).reshape(-1, scale.shape[-1])
    weight = packing.weight_of_int4(x2, x1.shape[-1]).float() * scales.repeat_interleave(group, 0)[: x1.shape[-1]]
    total = (x1.float() - _HALF_OF_A_NIBBLE) @ weight
    return (total if offset is None else total + offset.float()) * pertoken_scale.reshape(-1, 1)


def dequantised_weight(
    operator: str, weight: torch.Tensor, rows: int, scale: torch.Tensor, offset: torch.Tensor | None, group_size: int = 0
) -> torch.Tensor:
    """float32 (weight + offset) * scale of an integer weight (rows, columns); with groups, row i of scales is for group i of rows."""
    if weight.dtype not in (torch.int8, torch.int32):
        refuse(operator, f"a weight of {weight.dtype}", "int8, or four-bit integers in int32")
    values = (packing.weight_of_int4(weight, rows) if weight.dtype == torch.int32 else weight).float()
    scales, offsets = packing.scale_of(scale), None if offset is None else offset.float()
    if group_size:
        scales = scales.repeat_interleave(group_size, -2)[..., :rows, :]
        offsets = None if offsets is None else offsets.repeat_interleave(group_size, -2)[..., :rows, :]
    return (values if offsets is None else values + offsets) * scales


@composed(
    "npu_weight_quant_batchmatmul(Tensor x, Tensor weight, Tensor antiquant_scale, Tensor? antiquant_offset=None, "
    "Tensor? quant_scale=None, Tensor? quant_offset=None, Tensor? bias=None, int antiquant_group_size=0, int inner_precise=0, "
    "int? weight_dtype=None) -> Tensor",
    missing="float8 and float4 weights",
)
def weight_quant_batchmatmul(
    x: torch.Tensor,
    weight: torch.Tensor,
    antiquant_scale: torch.Tensor,
    antiquant_offset: torch.Tensor | None = None,
    quant_scale: torch.Tensor | None = None,
    quant_offset: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    antiquant_group_size: int = 0,
    inner_precise: int = 0,
    weight_dtype: int | None = None,
) -> torch.Tensor:
    """x @ ((weight + antiquant_offset) * antiquant_scale) + bias, quantised to int8 by quant_scale and quant_offset if given."""
    operator = "npu_weight_quant_batchmatmul"
    refuse_given(operator, "it is for float8 and float4 weights", weight_dtype=weight_dtype)
    require(x.dim() >= 2 and weight.dim() >= 2, operator, sizes(x, weight), "matrices")
    right = dequantised_weight(operator, weight, x.shape[-1], antiquant_scale, antiquant_offset, antiquant_group_size)
    y = x.float() @ right
    y = y if bias is None else y + bias.float()
    if quant_scale is None:
        return y.to(x.dtype)
    y = y * packing.scale_of(quant_scale)
    y = y if quant_offset is None else y + quant_offset.float()
    return packing.rounded(y, torch.int8)


def _conv_shape(*given: Any, **options: Any) -> torch.Tensor:
    a = bound("npu_quant_conv2d", given, options)
    like = functional.conv2d(
        a.input.new_empty(a.input.shape, dtype=torch.float32),
        a.weight.new_empty(a.weight.shape, dtype=torch.float32),
        None,
        a.strides,
        a.pads,
        a.dilations,
        a.groups,
    )
    return like.to(dtype_of(a.output_dtype, "npu_quant_conv2d", "output_dtype", torch.float16))


@opaque(
    "npu_quant_conv2d(Tensor input, Tensor weight, Tensor scale, int[2] strides=1, int[2] pads=0, int[2] dilations=1, int groups=1, "
    "int offset_x=0, str round_mode='rint', int? output_dtype=None, Tensor? bias=None, Tensor? offset=None, int? input_dtype=None, "
    "int? weight_dtype=None) -> Tensor",
    shape=_conv_shape,
    missing="offset_x, offset, float8 operands",
)
def quant_conv2d(*given: Any, **options: Any) -> torch.Tensor:
    """(conv2d of int8 input and weight + int32 bias) * scale of each output channel, + float bias, as float16 unless said otherwise."""
    operator = "npu_quant_conv2d"
    a = bound(operator, given, options)
    refuse_given(
        operator, "it belongs to operands that are not computed", offset=a.offset, input_dtype=a.input_dtype, weight_dtype=a.weight_dtype
    )
    if a.offset_x or a.round_mode != "rint" or a.input.dtype != torch.int8 or a.weight.dtype != torch.int8:
        refuse(
            operator,
            f"offset_x={a.offset_x}, round_mode={a.round_mode!r} of {sizes(a.input, a.weight)}",
            "0 and 'rint' of int8 are computed",
        )
    # sums of products of bytes are exact in float64
    sums = functional.conv2d(a.input.double(), a.weight.double(), None, a.strides, a.pads, a.dilations, a.groups)
    channels = (1, -1, 1, 1)
    if a.bias is not None:
        whole = a.bias.dtype == torch.int32
        sums = sums + a.bias.double().reshape(channels) if whole else sums
    y = sums.float() * packing.scale_of(a.scale).reshape(channels)
    if a.bias is not None and a.bias.dtype != torch.int32:
        y = y + a.bias.float().reshape(channels)
    dtype = dtype_of(a.output_dtype, operator, "output_dtype", torch.float16)
    return y.to(dtype) if dtype.is_floating_point else packing.rounded(y, dtype)
