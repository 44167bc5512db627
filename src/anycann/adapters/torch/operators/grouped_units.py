"""Products of groups of rows that are gated and quantised at once."""

from __future__ import annotations

from typing import Any

import torch

from anycann.adapters.torch.operators import packing
from anycann.adapters.torch.operators.activations import swiglu
from anycann.adapters.torch.operators.quantisation import quantise_rows
from anycann.adapters.torch.operators.quantised_products import integer_product
from anycann.adapters.torch.operators.registry import bound, opaque, refuse, refuse_given, require, sizes

_Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
_NAME = "npu_grouped_matmul_swiglu_quant"


def _shapes(
    x: torch.Tensor, weight: torch.Tensor, group_list: torch.Tensor, weight_scale: torch.Tensor, *rest: object, **_: object
) -> _Triple:
    rows = x.shape[0]
    scales = [x.new_empty(shape, dtype=torch.float32) for shape in ((rows,), ())]
    return x.new_empty((rows, weight_scale.shape[-1] // 2), dtype=torch.int8), scales[0], scales[1]


@opaque(
    f"{_NAME}(Tensor x, Tensor weight, Tensor group_list, Tensor weight_scale, Tensor x_scale, *, Tensor? bias=None, Tensor? offset=None)"
    " -> (Tensor, Tensor, Tensor)",
    shape=_shapes,
    missing="bias and offset, four-bit weights, weights of five axes",
)
def grouped_matmul_swiglu_quant(
    x: torch.Tensor,
    weight: torch.Tensor,
    group_list: torch.Tensor,
    weight_scale: torch.Tensor,
    x_scale: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    offset: torch.Tensor | None = None,
) -> _Triple:
    """(int8 (M, N / 2), scale of each row, nothing): swiglu of (x[rows] @ weight[group]) * weight_scale[group] * x_scale[rows], quantised.

    x (M, K) and weight (groups, K, N) of int8; group_list: where the groups' rows end. Rows behind the last group are zeros.
    """
    refuse_given(_NAME, "products of bytes are computed", bias=bias, offset=offset)
    fits = x.dtype == weight.dtype == torch.int8 and weight.dim() == 3 and x.shape[-1] == weight.shape[1]
    require(fits, _NAME, sizes(x, weight, weight_scale, x_scale), "int8 (M, K) and (groups, K, N), scales (groups, N) and (M,)")
    result, scales = _gated(x, weight, group_list.tolist(), weight_scale, x_scale)
    return result, scales, scales.new_zeros(())


def _gated(
    x: torch.Tensor,
    weight: torch.Tensor,
    ends: list[int],
    weight_scale: torch.Tensor,
    x_scale: torch.Tensor,
    smooth: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(int8 (M, N / 2), scale of each row) of int8 x (M, K) and weight (groups, K, N), smooth (groups, N / 2) or (groups,)."""
    result = torch.zeros(x.shape[0], weight.shape[2] // 2, dtype=torch.int8)
    scales, begin = torch.zeros(x.shape[0]), 0
    for group, end in enumerate(ends):
        rows = slice(begin, end)
        sums = integer_product(x[rows], weight[group]).float()
        y = swiglu(sums * packing.scale_of(weight_scale[group]) * x_scale[rows].float()[:, None])
        y = y if smooth is None else y * smooth[group].float()
        result[rows], scales[rows] = quantise_rows(y, int4=False, operator=_NAME)
        begin = end
    return result, scales


_SECOND = f"{_NAME}_v2"
_BYTES = (None, 0, 1)  # quant_dtype: the page names int8 0, torch 1


def _second_shapes(*given: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    a = bound(_SECOND, given, options)
    rows = a.x.shape[0]
    columns = a.weight_scale[0].shape[-1] // 2
    return a.x.new_empty((rows, columns), dtype=torch.int8), a.x.new_empty((rows,), dtype=torch.float32)


@opaque(
    f"{_SECOND}(Tensor x, Tensor[] weight, Tensor[] weight_scale, Tensor x_scale, Tensor group_list, *, Tensor? smooth_scale=None, "
    "Tensor[]? weight_assist_matrix=None, Tensor? bias=None, int? dequant_mode=0, int? dequant_dtype=0, int? quant_mode=0, "
    "int? quant_dtype=1, int? group_list_type=0, int[]? tuning_config=None, int? x_dtype=None, int? weight_dtype=None, "
    "int? weight_scale_dtype=None, int? x_scale_dtype=None) -> (Tensor, Tensor)",
    shape=_second_shapes,
    missing="four-bit weights of int8 x (weight_assist_matrix), bias, microscaling (modes 2, the dtypes), several weights",
)
def grouped_matmul_swiglu_quant_v2(*given: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """(int8 (M, N / 2), scale of each row) as of `npu_grouped_matmul_swiglu_quant`, times smooth_scale before it is quantised.

    x (M, K) and one weight (groups, K, N), both of int8 or both of four-bit integers in int32; weights also as blocks of 16 rows and 32
    (64) columns, (groups, N / 32, K / 16, 16, 32). group_list: ends (type 0) or numbers (type 1) of the groups' rows.
    """
    a = bound(_SECOND, given, options)
    refuse_given(_SECOND, "what the chip computes for it is not documented", bias=a.bias, weight_assist_matrix=a.weight_assist_matrix)
    kinds = {name: getattr(a, name) for name in ("x_dtype", "weight_dtype", "weight_scale_dtype", "x_scale_dtype")}
    refuse_given(_SECOND, "microscaling is of another chip", **kinds)
    if a.dequant_mode or a.quant_mode:
        refuse(_SECOND, f"dequant_mode={a.dequant_mode}, quant_mode={a.quant_mode}", "0, by rows and columns, is computed")
    if a.quant_dtype not in _BYTES or a.group_list_type not in (None, 0, 1):
        refuse(_SECOND, f"quant_dtype={a.quant_dtype}, group_list_type={a.group_list_type}", "int8 (0 or 1), and ends (0) or numbers (1)")
    require(len(a.weight) == len(a.weight_scale) == 1, _SECOND, f"{len(a.weight)} weights", "one weight with its scale")
    x = packing.unpack_int4(a.x) if a.x.dtype == torch.int32 else a.x
    weight, scale = _row_major(a.weight[0], x.shape[-1]), a.weight_scale[0]
    fits = x.dtype == weight.dtype == torch.int8 and weight.dim() == 3 and x.shape[-1] == weight.shape[1]
    require(fits, _SECOND, sizes(a.x, a.weight[0], scale, a.x_scale), "int8 or packed (M, K) and (groups, K, N), scales (groups, N)")
    ends = (a.group_list.cumsum(0) if a.group_list_type == 1 else a.group_list).tolist()
    return _gated(x, weight, ends, scale, a.x_scale, a.smooth_scale)


def _row_major(weight: torch.Tensor, depth: int) -> torch.Tensor:
    """int8 (groups, K, N) of a weight that may be packed, and may lie in blocks."""
    if weight.dim() == 5:
        blocks = packing.unpack_int4(weight) if weight.dtype == torch.int32 else weight
        return blocks.permute(0, 2, 3, 1, 4).flatten(3).flatten(1, 2)
    return packing.weight_of_int4(weight, depth) if weight.dtype == torch.int32 else weight
