"""Products of groups of rows that are gated and quantised at once."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators import packing
from anycann.adapters.torch.operators.activations import swiglu
from anycann.adapters.torch.operators.quantisation import quantise_rows
from anycann.adapters.torch.operators.quantised_products import integer_product
from anycann.adapters.torch.operators.registry import opaque, refuse_given, require, sizes

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
    result, scales = x.new_zeros(x.shape[0], weight.shape[2] // 2), x_scale.new_zeros(x.shape[0], dtype=torch.float32)
    begin = 0
    for group, end in enumerate(group_list.tolist()):
        rows = slice(begin, end)
        sums = integer_product(x[rows], weight[group]).float()
        y = swiglu(sums * packing.scale_of(weight_scale[group]) * x_scale[rows].float()[:, None])
        result[rows], scales[rows] = quantise_rows(y, int4=False, operator=_NAME)
        begin = end
    return result, scales, scales.new_zeros(())
