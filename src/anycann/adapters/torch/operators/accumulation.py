"""Products of groups added to what is there, as gradients of experts' weights are gathered."""

from __future__ import annotations

from typing import Any

import torch

from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import composed, opaque, refuse, require, sizes

_ADD = (
    "Tensor x, Tensor weight, Tensor group_list, *, bool transpose_x=True, bool transpose_weight=False, int group_type=2, "
    "int? group_list_type=0"
)
_ROWS, _DEPTH = 0, 2  # what group_type says is grouped
_ONE_RESULT = 3  # split_item


def _products(x: torch.Tensor, weight: torch.Tensor, group_type: int, **groups: Any) -> torch.Tensor:
    (result,) = torch.ops.npu.npu_grouped_matmul([wide(x)], [wide(weight)], split_item=_ONE_RESULT, group_type=group_type, **groups)
    return result


def _save(ctx: Any, inputs: tuple[torch.Tensor, ...], keyword_only_inputs: dict[str, Any], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])
    ctx.list_type = keyword_only_inputs["group_list_type"]


def _differentiate(ctx: Any, above: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, weight, group_list = ctx.saved_tensors
    each = wide(above).reshape(group_list.shape[0], x.shape[1], weight.shape[1])
    ends = group_list if ctx.list_type == 0 else group_list.cumsum(0)
    grouped = torch.arange(x.shape[0], device=x.device)[:, None] < ends[-1]  # a single group is multiplied with all rows

    def by(rows: torch.Tensor, factors: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return torch.where(grouped, _products(rows, factors, _ROWS, group_list=ends), 0).to(dtype)

    by_x = by(weight, each.mT, x.dtype) if ctx.needs_input_grad[1] else None
    return above, by_x, by(x, each, weight.dtype) if ctx.needs_input_grad[2] else None, None


@opaque(
    f"npu_grouped_matmul_add(Tensor self, {_ADD}) -> Tensor",
    shape=lambda self, *given, **options: torch.empty_like(self),
    gradient=(_save, _differentiate),
    missing="transpose_x=False, transpose_weight, other group types",
)
def grouped_matmul_add(
    self: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    group_list: torch.Tensor,
    *,
    transpose_x: bool = True,
    transpose_weight: bool = False,
    group_type: int = 2,
    group_list_type: int | None = 0,
) -> torch.Tensor:
    """self + x[rows].T @ weight[rows] for each group of rows of x (K, M) and weight (K, N): (groups M, N), or (groups, M, N).

    group_list: where the groups end (group_list_type 0), or how many rows they have (1).
    """
    operator = "npu_grouped_matmul_add"
    require(group_type == 2, operator, f"group_type only supports 2, but got {group_type}", "2")
    if not transpose_x or transpose_weight:
        refuse(operator, f"transpose_x={transpose_x}, transpose_weight={transpose_weight}", "True and False are what the interface takes")
    groups = group_list.shape[0]
    require(self.numel() == groups * x.shape[1] * weight.shape[1], operator, sizes(self, x, weight), "(groups M, N), (K, M) and (K, N)")
    products = _products(x.T, weight, _DEPTH, group_list=group_list, group_list_type=group_list_type)
    return (wide(self) + products.reshape(self.shape)).to(self.dtype)


@composed(f"npu_grouped_matmul_add_(Tensor(a!) self, {_ADD}) -> Tensor(a!)", missing="transpose_x=False, transpose_weight")
def grouped_matmul_add_(
    self: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    group_list: torch.Tensor,
    *,
    transpose_x: bool = True,
    transpose_weight: bool = False,
    group_type: int = 2,
    group_list_type: int | None = 0,
) -> torch.Tensor:
    """`npu_grouped_matmul_add` over self."""
    given = (self, x, weight, group_list)
    sums = grouped_matmul_add(
        *given, transpose_x=transpose_x, transpose_weight=transpose_weight, group_type=group_type, group_list_type=group_list_type
    )
    return self.copy_(sums)
