"""Mixtures of experts: which experts get which tokens, the tokens sorted by expert, and their results put together again."""

from __future__ import annotations

from typing import Any

import torch

from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import bound, composed, opaque, refuse, refuse_given, require, sizes

_Pair = tuple[torch.Tensor, torch.Tensor]
_Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@composed("npu_moe_gating_top_k_softmax(Tensor x, Tensor? finished=None, int k=1) -> (Tensor, Tensor, Tensor)")
def gating_top_k_softmax(x: torch.Tensor, finished: torch.Tensor | None = None, k: int = 1) -> _Triple:
    """(k largest of the softmax of each row, their experts, the places of source rows, column after column).

    Experts of rows that are finished are the number of experts.
    """
    require(0 < k <= x.shape[-1], "npu_moe_gating_top_k_softmax", f"k {k} of {sizes(x)}", "1 to the number of experts")
    probabilities = torch.softmax(wide(x), -1)
    experts = torch.sort(probabilities, dim=-1, descending=True, stable=True).indices[..., :k]
    largest = probabilities.gather(-1, experts)
    if finished is not None:
        experts = torch.where(finished.reshape(*x.shape[:-1], 1), x.shape[-1], experts)
    rows = x.shape[:-1].numel()
    places = torch.arange(rows * k, dtype=torch.int32, device=x.device).reshape(k, rows).T.reshape(experts.shape).contiguous()
    return largest.to(x.dtype), experts.to(torch.int32), places


@composed(
    "npu_moe_gating_top_k(Tensor x, int k, *, Tensor? bias=None, Tensor? input_ids=None, Tensor? tid2eid=None, int k_group=1, "
    "int group_count=1, int group_select_mode=0, int renorm=0, int norm_type=0, bool out_flag=False, "
    "float routed_scaling_factor=1.0, float eps=1e-20) -> (Tensor, Tensor, Tensor)",
    missing="renorm other than 0, input_ids, tid2eid",
)
def gating_top_k(
    x: torch.Tensor,
    k: int,
    *,
    bias: torch.Tensor | None = None,
    input_ids: torch.Tensor | None = None,
    tid2eid: torch.Tensor | None = None,
    k_group: int = 1,
    group_count: int = 1,
    group_select_mode: int = 0,
    renorm: int = 0,
    norm_type: int = 0,
    out_flag: bool = False,
    routed_scaling_factor: float = 1.0,
    eps: float = 1e-20,
) -> _Triple:
    """(weights, experts, all probabilities as float32): the k best experts of the k_group best of group_count groups.

    norm_type: 0 softmax, 1 sigmoid whose weights are divided by their sum. group_select_mode: a group is as good as its best expert (0),
    as the sum of its best two (1). The bias takes part in the choice, not in the weights.
    """
    operator = "npu_moe_gating_top_k"
    refuse_given(operator, "what it means is not documented", input_ids=input_ids, tid2eid=tid2eid)
    if renorm:
        refuse(operator, f"renorm={renorm}", "0 is documented")
    require(x.shape[-1] % group_count == 0, operator, f"{group_count} groups of {sizes(x)}", "a divisor of the number of experts")
    logits = wide(x)
    probabilities = torch.softmax(logits, -1) if norm_type == 0 else torch.sigmoid(logits)
    merit = probabilities if bias is None else probabilities + wide(bias)
    if group_count > 1:
        grouped = merit.unflatten(-1, (group_count, -1))
        of_groups = grouped.amax(-1) if group_select_mode == 0 else grouped.topk(2, -1).values.sum(-1)
        best = torch.sort(of_groups, dim=-1, descending=True, stable=True).indices[..., :k_group]
        chosen = torch.zeros_like(of_groups, dtype=torch.bool).scatter(-1, best, True)
        merit = grouped.masked_fill(~chosen[..., None], -torch.inf).flatten(-2)
    experts = torch.sort(merit, dim=-1, descending=True, stable=True).indices[..., :k]
    weights = probabilities.gather(-1, experts)
    if norm_type == 1:
        weights = weights / (weights.sum(-1, keepdim=True) + eps)
    return (weights * routed_scaling_factor).to(x.dtype), experts.to(torch.int32), probabilities


@composed("npu_moe_compute_expert_tokens(Tensor sorted_expert_for_source_row, int num_expert) -> Tensor", differentiable=False)
def compute_expert_tokens(sorted_expert_for_source_row: torch.Tensor, num_expert: int) -> torch.Tensor:
    """How many rows of a sorted list belong to each expert or one before it: (num_expert,)."""
    experts = torch.arange(num_expert, dtype=sorted_expert_for_source_row.dtype, device=sorted_expert_for_source_row.device)
    return torch.searchsorted(sorted_expert_for_source_row, experts, right=True).to(sorted_expert_for_source_row.dtype)


@composed("npu_moe_init_routing(Tensor x, Tensor row_idx, Tensor expert_idx, int active_num) -> (Tensor, Tensor, Tensor)")
def init_routing(x: torch.Tensor, row_idx: torch.Tensor, expert_idx: torch.Tensor, active_num: int) -> _Triple:
    """(tokens sorted by expert, where each source row went, the sorted experts); of the tokens as many as active_num rows have."""
    fits = expert_idx.dim() == 2 and expert_idx.shape == row_idx.shape and len(expert_idx) == len(x)
    require(fits, "npu_moe_init_routing", sizes(x, row_idx, expert_idx), "x (rows, H), row_idx and expert_idx (rows, k)")
    rows, k = expert_idx.shape
    experts, order = torch.sort(expert_idx.reshape(-1), stable=True)
    sources = row_idx.reshape(-1)[order].long()
    places = torch.zeros_like(row_idx.reshape(-1)).index_copy(0, sources, torch.arange(rows * k, dtype=row_idx.dtype, device=x.device))
    return x[sources[: min(active_num, rows) * k] % rows], places, experts


_SECOND = (
    "npu_moe_init_routing_v2(Tensor x, Tensor expert_idx, *, Tensor? scale=None, Tensor? offset=None, int active_num=-1, "
    "int expert_capacity=-1, int expert_num=-1, int drop_pad_mode=0, int expert_tokens_num_type=0, bool expert_tokens_num_flag=False, "
    "int quant_mode=-1, int[2] active_expert_range=[], int row_idx_type=0, int? x_dtype=None) -> (Tensor, Tensor, Tensor, Tensor)"
)
_SECOND_NAME = "npu_moe_init_routing_v2"


def _init_routing_v2_shapes(*given: Any, **options: Any) -> tuple[torch.Tensor, ...]:
    a = bound(_SECOND_NAME, given, options)
    rows, k = a.expert_idx.shape
    first, last = a.active_expert_range or (0, a.expert_num)
    shape = (a.expert_num, a.expert_capacity) if a.drop_pad_mode else (rows * k if a.active_num <= 0 else min(a.active_num, rows * k),)
    tokens = a.x.new_empty((*shape, a.x.shape[1]), dtype=torch.int8 if a.quant_mode == 1 else a.x.dtype)
    counts = (a.expert_num, 2) if a.expert_tokens_num_type == 2 else (last - first,)
    scale = (torch.Size(shape).numel(),)
    return (
        tokens,
        a.x.new_empty(rows * k, dtype=torch.int32),
        a.x.new_empty(counts, dtype=torch.int64),
        a.x.new_empty(scale, dtype=torch.float32),
    )


@opaque(_SECOND, shape=_init_routing_v2_shapes, missing="quant_mode other than -1 and 1 (int8, dynamic), offset, x_dtype")
def init_routing_v2(*given: Any, **options: Any) -> tuple[torch.Tensor, ...]:
    """(tokens sorted by expert, indices, tokens of each expert, scales): for the experts of a range, with a place for each token of an
    expert (drop_pad_mode 1: (experts, capacity, H), tokens too many left out) or one behind another.

    row_idx_type 0: where each source went (-1: nowhere), 1: the source of each token. Counts: cumulated (0), single (1), or pairs of
    expert and count (2). quant_mode 1: rows times their expert's scale, quantised by their largest value.
    """
    a = bound(_SECOND_NAME, given, options)
    refuse_given(_SECOND_NAME, "it belongs to forms of quantisation that are not computed", offset=a.offset, x_dtype=a.x_dtype)
    if a.quant_mode not in (-1, 1):
        refuse(_SECOND_NAME, f"quant_mode={a.quant_mode}", "-1 (none) and 1 (int8, dynamic) are computed")
    return routed(a)


def routed(a: Any) -> tuple[torch.Tensor, ...]:
    """What `npu_moe_init_routing_v2` returns for its arguments; `quant_mode` 0 is static quantisation, by scale[0] and offset[0]."""
    first, last = a.active_expert_range or (0, a.expert_num)
    experts = a.expert_idx.reshape(-1).long()
    inside = (experts >= first) & (experts < last)
    order = torch.sort(torch.where(experts >= first, experts, 2**31), stable=True).indices
    available = int(inside.sum())
    sources, owners = order[:available], experts[order[:available]]
    counts = torch.bincount(owners - first, minlength=last - first)
    places, size = _places(a, sources, owners, counts, first)
    kept = places < size
    tokens, scales = _token_rows(a, sources[kept], owners[kept], first)
    result = tokens.new_zeros(size, a.x.shape[1]).index_copy(0, places[kept], tokens)
    all_scales = torch.zeros(size).index_copy(0, places[kept], scales)
    shape = (a.expert_num, a.expert_capacity, a.x.shape[1]) if a.drop_pad_mode else (size, a.x.shape[1])
    return result.reshape(shape), _indices(a, order, sources, places, size), _counted(a, counts, first), all_scales


def _places(a: Any, sources: torch.Tensor, owners: torch.Tensor, counts: torch.Tensor, first: int) -> tuple[torch.Tensor, int]:
    """Where each sorted token goes, and how many places there are; places that are not there stand for tokens left out."""
    running = torch.arange(sources.shape[0])
    if not a.drop_pad_mode:
        total = a.expert_idx.numel()
        return running, total if a.active_num <= 0 else min(a.active_num, total)
    within = running - (counts.cumsum(0) - counts)[owners - first]
    size = a.expert_num * a.expert_capacity
    return torch.where(within < a.expert_capacity, owners * a.expert_capacity + within, size), size


def _token_rows(a: Any, sources: torch.Tensor, owners: torch.Tensor, first: int) -> _Pair:
    """The rows of x, and their scales."""
    k = a.expert_idx.shape[1]
    rows = a.x[sources // k]
    if a.quant_mode == -1:
        return rows, torch.zeros(rows.shape[0]) if a.scale is None else a.scale.reshape(-1)[sources // k].float()
    values = rows.float()
    if a.quant_mode == 0:
        shifted = values * a.scale[0] + (0 if a.offset is None else a.offset[0])
        return torch.round(shifted).clamp(-128, 127).to(torch.int8), torch.zeros(rows.shape[0])
    if a.scale is not None and rows.shape[0]:
        values = values * (a.scale if a.scale.shape[0] == 1 else a.scale[owners - first])
    scales = values.abs().amax(-1) / 127
    return torch.nan_to_num(torch.round(values / scales[:, None])).to(torch.int8), scales


def _indices(a: Any, order: torch.Tensor, sources: torch.Tensor, places: torch.Tensor, size: int) -> torch.Tensor:
    if a.row_idx_type == 1 and not a.drop_pad_mode:
        return order.to(torch.int32)
    kept = torch.where(places < size, places, -1) if a.drop_pad_mode else places
    return torch.full((order.shape[0],), -1, dtype=torch.int32).index_copy(0, sources, kept.to(torch.int32))


def _counted(a: Any, counts: torch.Tensor, first: int) -> torch.Tensor:
    if not a.expert_tokens_num_flag:
        return torch.zeros((a.expert_num, 2) if a.expert_tokens_num_type == 2 else counts.shape, dtype=torch.int64)
    if a.expert_tokens_num_type == 2:
        used = torch.nonzero(counts).reshape(-1)
        pairs = torch.stack((used + first, counts[used]), 1)
        return torch.cat((pairs, pairs.new_zeros(a.expert_num - pairs.shape[0], 2)))
    return counts.cumsum(0) if a.expert_tokens_num_type == 0 and not a.drop_pad_mode else counts


@composed(
    "npu_moe_finalize_routing(Tensor expanded_permuted_rows, Tensor? skip1, Tensor? skip2, Tensor? bias, Tensor? scales, "
    "Tensor expanded_src_to_dst_row, Tensor? export_for_source_row, int? drop_pad_mode=0, int? k=1) -> Tensor"
)
def finalize_routing(
    expanded_permuted_rows: torch.Tensor,
    skip1: torch.Tensor | None,
    skip2: torch.Tensor | None,
    bias: torch.Tensor | None,
    scales: torch.Tensor | None,
    expanded_src_to_dst_row: torch.Tensor,
    export_for_source_row: torch.Tensor | None,
    drop_pad_mode: int | None = 0,
    k: int | None = 1,
) -> torch.Tensor:
    """skip1 + skip2 + the sum over experts of scales * (rows + the expert's bias); a row index of -1 stands for a row of zeros.

    drop_pad_mode 0 and 1: indices expert after expert; 2 and 3: row after row.
    """
    operator = "npu_moe_finalize_routing"
    count = scales.shape[1] if scales is not None else (k or 1)
    rows = expanded_permuted_rows.reshape(-1, expanded_permuted_rows.shape[-1])
    places = expanded_src_to_dst_row.long()
    places = places.reshape(count, -1).T if (drop_pad_mode or 0) < 2 else places.reshape(-1, count)
    parts = torch.where(places[..., None] < 0, wide(rows).new_zeros(()), wide(rows)[places.clamp(min=0)])
    if bias is not None:
        require(export_for_source_row is not None, operator, "a bias without experts of the rows", "export_for_source_row")
        assert export_for_source_row is not None
        parts = parts + wide(bias)[export_for_source_row.long().reshape(places.shape)]
    parts = parts if scales is None else parts * wide(scales)[..., None]
    total = parts.sum(1)
    for skip in (skip1, skip2):
        total = total if skip is None else total + wide(skip)
    return total.to(expanded_permuted_rows.dtype)


@composed("npu_moe_token_permute(Tensor tokens, Tensor indices, int? num_out_tokens=None, bool padded_mode=False) -> (Tensor, Tensor)")
def token_permute(tokens: torch.Tensor, indices: torch.Tensor, num_out_tokens: int | None = None, padded_mode: bool = False) -> _Pair:
    """(tokens sorted by their experts, where each went as int32); indices (T,) or (T, K); num_out_tokens of them are kept."""
    if padded_mode:
        refuse("npu_moe_token_permute", "padded_mode=True", "the interface does not take it yet")
    k = 1 if indices.dim() == 1 else indices.shape[1]
    order = torch.argsort(indices.reshape(-1), stable=True)
    kept = order[:num_out_tokens] if num_out_tokens else order
    return tokens[kept // k], torch.argsort(order).to(torch.int32)


@composed(
    "npu_moe_token_unpermute(Tensor permuted_tokens, Tensor sorted_indices, Tensor? probs=None, bool padded_mode=False, "
    "int[]? restore_shape=None) -> Tensor"
)
def token_unpermute(
    permuted_tokens: torch.Tensor,
    sorted_indices: torch.Tensor,
    probs: torch.Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: list[int] | None = None,
) -> torch.Tensor:
    """The sum of the K results of each token, times probs (T, K) if given; tokens that were not kept count as zeros."""
    if padded_mode:
        refuse("npu_moe_token_unpermute", "padded_mode=True", "the interface does not take it yet")
    k = 1 if probs is None or probs.dim() == 1 else probs.shape[1]
    missing = sorted_indices.numel() - permuted_tokens.shape[0]
    rows = torch.cat((permuted_tokens, permuted_tokens.new_zeros(missing, permuted_tokens.shape[1]))) if missing > 0 else permuted_tokens
    parts = wide(rows[sorted_indices.reshape(-1).long()]).reshape(-1, k, permuted_tokens.shape[1])
    parts = parts if probs is None else parts * wide(probs).reshape(-1, k, 1)
    return parts.sum(1).to(permuted_tokens.dtype)


@composed(
    "npu_moe_re_routing(Tensor tokens, Tensor expert_token_num_per_rank, *, Tensor? per_token_scales=None, int expert_token_num_type=1, "
    "int idx_type=0, int? tokens_dtype=None) -> (Tensor, Tensor, Tensor, Tensor)",
    missing="expert_token_num_type 0, idx_type 1, tokens_dtype",
)
def re_routing(
    tokens: torch.Tensor,
    expert_token_num_per_rank: torch.Tensor,
    *,
    per_token_scales: torch.Tensor | None = None,
    expert_token_num_type: int = 1,
    idx_type: int = 0,
    tokens_dtype: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(tokens sorted by expert instead of by rank, their scales, where each was, tokens of each expert) for counts (ranks, experts)."""
    operator = "npu_moe_re_routing"
    refuse_given(operator, "what it means is not documented", tokens_dtype=tokens_dtype)
    if expert_token_num_type != 1 or idx_type != 0:
        refuse(operator, f"expert_token_num_type={expert_token_num_type}, idx_type={idx_type}", "1 and 0 are what the interface takes")
    counts = expert_token_num_per_rank
    bounds = counts.reshape(-1).cumsum(0)
    block = torch.searchsorted(bounds, torch.arange(tokens.shape[0], device=tokens.device), right=True)
    order = torch.argsort(block % counts.shape[1], stable=True)
    scales = tokens.new_zeros(tokens.shape[0], dtype=torch.float32) if per_token_scales is None else per_token_scales[order]
    return tokens[order], scales, order.to(torch.int32), counts.sum(0, dtype=counts.dtype)
