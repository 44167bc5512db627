"""Products of integers with more at their end: sums of batches, biases, GELU."""

from __future__ import annotations

import torch
from torch.nn import functional

from anycann.adapters.torch.operators import packing
from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.quantised_products import integer_product
from anycann.adapters.torch.operators.registry import composed, require, sizes

_APPROXIMATIONS = {"gelu_erf": "none", "gelu_tanh": "tanh"}


@composed(
    "npu_dequant_bias(Tensor x, Tensor weight_scale, Tensor? activation_scale, Tensor? bias, *, ScalarType? output_dtype=None) -> Tensor"
)
def dequant_bias(
    x: torch.Tensor,
    weight_scale: torch.Tensor,
    activation_scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    *,
    output_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """(x + int32 bias) * weight_scale (N,) * activation_scale (M,) + float bias of int32 sums (M, N), as float16 or bfloat16."""
    operator, dtype = "npu_dequant_bias", output_dtype or torch.float16
    require(dtype in (torch.float16, torch.bfloat16), operator, f"output_dtype {dtype}", "Only supported: float16 and bfloat16")
    sums, behind = (x, bias) if bias is None or bias.dtype != torch.int32 else (x + bias, None)
    y = sums.float() * weight_scale.float()
    y = y if activation_scale is None else y * activation_scale.float()[:, None]
    return (y if behind is None else y + wide(behind)).to(dtype)


@composed(
    "npu_quant_matmul_gelu(Tensor x1, Tensor x2, Tensor x1_scale, Tensor x2_scale, *, Tensor? bias=None, str? approximate='gelu_erf')"
    " -> Tensor"
)
def quant_matmul_gelu(
    x1: torch.Tensor,
    x2: torch.Tensor,
    x1_scale: torch.Tensor,
    x2_scale: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    approximate: str | None = "gelu_erf",
) -> torch.Tensor:
    """GELU of (x1 @ x2 + int32 bias) * x2_scale * x1_scale (M,) + float bias, of int8 or of four-bit integers in int32.

    As bfloat16 if x2_scale is that, else as float16.
    """
    operator = "npu_quant_matmul_gelu"
    known = approximate in _APPROXIMATIONS
    require(known, operator, f"approximate must be 'gelu_tanh' or 'gelu_erf', but got {approximate}", "gelu_tanh, gelu_erf")
    require(x1.dtype == x2.dtype and x1.dtype in (torch.int8, torch.int32), operator, sizes(x1, x2), "int8, or four-bit integers in int32")
    left = packing.unpack_int4(x1) if x1.dtype == torch.int32 else x1
    right = packing.weight_of_int4(x2, left.shape[-1]) if x2.dtype == torch.int32 else x2
    sums = integer_product(left, right)
    whole = bias is not None and bias.dtype == torch.int32
    y = (sums + bias if whole else sums).float() * wide(x2_scale) * wide(x1_scale)[:, None]
    y = y if bias is None or whole else y + wide(bias)
    dtype = torch.bfloat16 if x2_scale.dtype == torch.bfloat16 else torch.float16
    return functional.gelu(y, approximate=_APPROXIMATIONS[str(approximate)]).to(dtype)


@composed("npu_quant_matmul_reduce_sum(Tensor x1, Tensor x2, *, Tensor? x1_scale=None, Tensor? x2_scale=None) -> Tensor")
def quant_matmul_reduce_sum(
    x1: torch.Tensor, x2: torch.Tensor, *, x1_scale: torch.Tensor | None = None, x2_scale: torch.Tensor | None = None
) -> torch.Tensor:
    """The sum over batches of (x1 @ x2) * x1_scale (B, M) * x2_scale (N,) of int8 (B, M, K) and (B, K, N), as bfloat16."""
    operator, given = "npu_quant_matmul_reduce_sum", sizes(x1, x2, x1_scale, x2_scale)
    require(x1_scale is not None and x2_scale is not None, operator, given, "both scales")
    require(x1.dim() == x2.dim() == 3, operator, given, "(B, M, K) and (B, K, N)")
    assert x1_scale is not None
    assert x2_scale is not None
    return (integer_product(x1, x2).float() * x1_scale[..., None] * x2_scale.float()).sum(0).to(torch.bfloat16)
