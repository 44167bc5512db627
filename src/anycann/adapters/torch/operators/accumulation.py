"""Products of groups added to what is there, as gradients of experts' weights are gathered."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import composed, refuse, require, sizes

_ADD = (
    "Tensor x, Tensor weight, Tensor group_list, *, bool transpose_x=True, bool transpose_weight=False, int group_type=2, "
    "int? group_list_type=0"
)


@composed(f"npu_grouped_matmul_add(Tensor self, {_ADD}) -> Tensor", missing="transpose_x=False, transpose_weight, other group types")
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
    rows = torch.arange(x.shape[0], device=x.device)
    ends = group_list if group_list_type == 0 else group_list.cumsum(0)
    groups = ends.shape[0]
    require(self.numel() == groups * x.shape[1] * weight.shape[1], operator, sizes(self, x, weight), "(groups M, N), (K, M) and (K, N)")
    group = torch.searchsorted(ends, rows, right=True)
    parts = [wide(x) * (group == number)[:, None] for number in range(groups)]
    products = torch.stack([part.T @ wide(weight) for part in parts])
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
