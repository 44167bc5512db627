"""Single operators of the transformer library, which write their results into tensors that are given."""

from __future__ import annotations

from typing import Any

import torch

from anycann.adapters.torch.operators import packing
from anycann.adapters.torch.operators.normalisation import rms_norm
from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import bound, composed, refuse, require, sizes

_MOST_AXES = 8


@composed("atb::_npu_matmul_add_fp32(Tensor x, Tensor weight, Tensor(a!) C) -> ()")
def matmul_add_fp32(x: torch.Tensor, weight: torch.Tensor, C: torch.Tensor) -> None:
    """Adds x.T @ weight (K, M) and (K, N) to C (M, N) in float32, as gradients of weights are gathered."""
    fits = x.dim() == weight.dim() == 2 and C.shape == (x.shape[1], weight.shape[1])
    require(fits, "_npu_matmul_add_fp32", sizes(x, weight, C), "(K, M), (K, N) and (M, N)")
    C.addmm_(wide(x).T, wide(weight))


@composed("atb::_npu_quantize_per_tensor(Tensor x, Tensor scale, Tensor zero_point, Tensor(a!) y) -> ()", differentiable=False)
def quantize_per_tensor(x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, y: torch.Tensor) -> None:
    """y = round(x / scale) + zero_point as int8; no zero points count as zeros."""
    for tensor in (x, scale, zero_point, y):
        problem = f"ATB tensor supports at most {_MOST_AXES} dimensions, but got {tensor.dim()}"
        require(tensor.dim() <= _MOST_AXES, "_npu_quantize_per_tensor", problem, f"up to {_MOST_AXES} axes")
    rounded = torch.round(wide(x) / wide(scale))
    y.copy_(packing.rounded(rounded + zero_point if zero_point.numel() else rounded, torch.int8))


@composed(
    "atb::_npu_quant_rms_norm(Tensor self, Tensor gamma, Tensor beta, Tensor scale, Tensor offset, Tensor(a!) output, float eps=1e-05)"
    " -> ()",
    differentiable=False,
)
def quant_rms_norm(
    self: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    scale: torch.Tensor,
    offset: torch.Tensor,
    output: torch.Tensor,
    eps: float = 1e-5,
) -> None:
    """output = round((rms_norm(self) gamma + beta) / scale + offset) as int8, over the last axis."""
    y = rms_norm(wide(self), wide(gamma).reshape(-1), eps)[0] + wide(beta).reshape(-1)
    output.copy_(packing.rounded(y / wide(scale) + offset, torch.int8))


@composed("atb::_npu_group_topk(Tensor(a!) self, int k=0, int group_num=1, int n=1) -> ()", differentiable=False)
def group_topk(self: torch.Tensor, k: int = 0, group_num: int = 1, n: int = 1) -> None:
    """Zeroes all experts (rows, experts) but those of the k best of group_num groups; a group is as good as the sum of its n best."""
    self.copy_(_best_groups(self, k, group_num, n))


def _best_groups(x: torch.Tensor, k: int, group_num: int, n: int) -> torch.Tensor:
    groups = x.unflatten(1, (group_num, -1))
    worth = groups.float().topk(n, -1).values.sum(-1)
    left_out = torch.sort(worth, dim=1, descending=True, stable=True).indices[:, k:]
    kept = torch.ones_like(worth).scatter(1, left_out, 0.0).bool()
    return torch.where(kept[..., None], groups, groups.new_zeros(())).flatten(1)


_TOPK = (
    "Tensor x, Tensor add_num, *, Tensor? mapping_num=None, Tensor? mapping_table=None, str? activation_type=None, int group_num=1, "
    "int group_topk=1, int n=1, int k=1, bool is_norm=True, float scale=1, bool enable_expert_mapping=False"
)
_ACTIVATIONS = "activations other than the sigmoid"


@composed(f"atb::npu_fused_add_topk_div({_TOPK}) -> (Tensor, Tensor)", missing=_ACTIVATIONS)
def fused_add_topk_div(*given: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """(weights (rows, k), experts): of sigmoid(x), the k largest of sigmoid(x) + add_num in the best groups (see `_npu_group_topk`).

    is_norm: over their sum, times scale. enable_expert_mapping: expert e stands for mapping_num[e] of mapping_table[e], row after row.
    """
    operator = "npu_fused_add_topk_div"
    a = bound(operator, given, options)
    if a.activation_type not in (None, "activation_sigmoid"):
        refuse(operator, f"activation_type={a.activation_type!r}", "'activation_sigmoid' is computed")
    shares = torch.sigmoid(wide(a.x))
    merit = _best_groups(shares + wide(a.add_num), a.group_topk, a.group_num, a.n)
    experts = torch.sort(merit, dim=-1, descending=True, stable=True).indices[:, : a.k]
    weights = shares.gather(-1, experts)
    weights = weights / weights.sum(-1, keepdim=True) * a.scale if a.is_norm else weights
    if a.enable_expert_mapping:
        rows = torch.arange(experts.shape[0], device=experts.device)[:, None]
        experts = a.mapping_table[experts, rows % a.mapping_num.clamp(min=1)[experts]]
    return weights.float(), experts.to(torch.int32)


@composed(
    f"atb::npu_fused_add_topk_div.out({_TOPK}, Tensor(a!) y, Tensor(b!) indices) -> (Tensor(a!), Tensor(b!))",
    missing=_ACTIVATIONS,
    differentiable=False,
)
def fused_add_topk_div_into(*given: Any, y: torch.Tensor, indices: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The same into tensors that are given."""
    weights, experts = fused_add_topk_div(*given, **options)
    return y.copy_(weights), indices.copy_(experts)
