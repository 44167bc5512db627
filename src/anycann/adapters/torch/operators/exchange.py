"""Tokens of a mixture of experts that is split over the ranks of a group: sent to their experts' ranks and back, and products with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from anycann.adapters.torch.operators.parallel import group_backend
from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.quantisation import quantise_rows
from anycann.adapters.torch.operators.registry import bound, opaque, refuse, refuse_given, require, sizes

_DISPATCH, _COMBINE = "npu_moe_distribute_dispatch_v2", "npu_moe_distribute_combine_v2"
_ASSIST = 128  # numbers for each token that may come, in the second version
_GROUP = "str group_ep, int ep_world_size, int ep_rank_id, int moe_expert_num, *, "
_SHARED = (
    "str group_tp='', int tp_world_size=0, int tp_rank_id=0, int expert_shard_type=0, int shared_expert_num=1, "
    "int shared_expert_rank_num=0, "
)
_SPECIAL = "str comm_alg='', int zero_expert_num=0, int copy_expert_num=0, int const_expert_num=0"
_MISSING = "ranks for shared experts, a second group (group_tp), elastic_info, performance_info"
_Seven = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def exchanged(backend: Any, rows: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
    """The rows that other ranks send here, rank after rank, for `sent` rows of ours for each rank."""
    width = rows.element_size() * rows.shape[1:].numel()
    taken = rows.contiguous().view(torch.uint8).view(rows.shape[0], width)
    arrived = taken.new_empty(sum(received), width)
    backend.alltoall_base(arrived, taken, received, sent).wait()
    return arrived.view(rows.dtype).view(-1, *rows.shape[1:])


def by_expert(counts: torch.Tensor) -> torch.Tensor:
    """Places of rows that lie rank after rank, in the order of experts: counts (ranks, experts)."""
    ranks, experts = counts.shape
    return torch.arange(experts).repeat(ranks).repeat_interleave(counts.flatten()).sort(stable=True).indices


def _checked(operator: str, a: SimpleNamespace, second: str) -> SimpleNamespace:
    """The arguments with those that only the second version has at their defaults, after what both refuse."""
    a = bound(second, (), vars(a))
    refuse_given(operator, "it is not documented what it holds", elastic_info=a.elastic_info, performance_info=a.performance_info)
    for name, accepted in (("shared_expert_rank_num", (0,)), ("tp_world_size", (0, 1)), ("expert_shard_type", (0,))):
        if getattr(a, name) not in accepted:
            refuse(operator, f"{name}={getattr(a, name)}", f"{accepted[-1]} is computed")
    fits = a.moe_expert_num > 0 and a.moe_expert_num % a.ep_world_size == 0
    require(fits, operator, f"{a.moe_expert_num} experts on {a.ep_world_size} ranks", "a multiple of ep_world_size")
    require(a.expert_ids.dim() == 2, operator, f"expert_ids of {sizes(a.expert_ids)}", "(tokens, experts of each)")
    return a


def _group(operator: str, a: SimpleNamespace) -> Any:
    backend = group_backend(operator, a.group_ep)
    own, told = (backend.rank(), backend.size()), (a.ep_rank_id, a.ep_world_size)
    require(own == told, operator, f"(ep_rank_id, ep_world_size) of {told}", f"{own}, those of the group {a.group_ep!r}")
    return backend


def _active(a: SimpleNamespace) -> torch.Tensor:
    """Which of the (tokens, experts of each) take part."""
    if a.x_active_mask is None:
        return torch.ones_like(a.expert_ids, dtype=torch.bool)
    return a.x_active_mask.reshape(a.expert_ids.shape[0], -1).expand_as(a.expert_ids)


def _routes(a: SimpleNamespace) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(places in expert_ids, flat, of what is sent, by expert; their experts; how many for each (rank, expert of the rank))."""
    experts = a.expert_ids.long().flatten()
    places = torch.nonzero((experts < a.moe_expert_num) & _active(a).flatten()).flatten()
    places = places[experts[places].sort(stable=True).indices]
    counts = torch.bincount(experts[places], minlength=a.moe_expert_num)
    return places, experts[places], counts.view(a.ep_world_size, -1)


def _room(a: SimpleNamespace) -> int:
    """Rows that may come at most."""
    tokens = a.global_bs or a.x.shape[0] * a.ep_world_size
    return int(tokens * min(a.moe_expert_num // a.ep_world_size, a.expert_ids.shape[1]))


def _dispatched_shapes(a: SimpleNamespace, assist: int) -> _Seven:
    a, room = _checked(_DISPATCH, a, _DISPATCH), _room(a)
    own, new = a.moe_expert_num // a.ep_world_size, a.x.new_empty
    dtype = torch.int8 if a.quant_mode == 2 else a.x.dtype
    return (
        new(room, a.x.shape[1], dtype=dtype),
        new(room, dtype=torch.float32),
        new(assist or a.expert_ids.numel(), dtype=torch.int32),
        new(own, dtype=torch.int64),
        new(a.ep_world_size * own, dtype=torch.int32),
        new(a.tp_world_size, dtype=torch.int32),
        new(0 if a.expert_scales is None else room, dtype=torch.float32),
    )


def _prepared(operator: str, a: SimpleNamespace, tokens: torch.Tensor, experts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(the rows to send, the scale of each or nothing)."""
    if a.quant_mode == 2:
        values = wide(a.x[tokens])
        return quantise_rows(values if a.scales is None else values * wide(a.scales)[experts], int4=False, operator=operator)
    if a.x.dtype == torch.int32:
        require(a.scales is not None and a.scales.dim() == 1, operator, "x of int32 without scales", "scales (tokens,) that go with them")
        return a.x[tokens], a.scales.float()[tokens]
    return a.x[tokens], None


def _dispatch(operator: str, a: SimpleNamespace, results: _Seven) -> _Seven:
    if a.quant_mode not in (0, 2):
        refuse(operator, f"quant_mode={a.quant_mode}", "0 (as they are) and 2 (int8, a scale for each token) are computed")
    if a.quant_mode == 0 and a.x.is_floating_point():
        refuse_given(operator, "quant_mode 0 sends floats as they are", scales=a.scales)
    backend = _group(operator, a)
    places, experts, sent = _routes(a)
    received = torch.empty_like(sent)
    backend.alltoall_base(received, sent, [], []).wait()
    order, outgoing, incoming = by_expert(received), sent.sum(1).tolist(), received.sum(1).tolist()
    told = f"{len(order)} rows come with global_bs={a.global_bs}, which has room for {len(results[0])}"
    require(len(order) <= len(results[0]), operator, told, "0, or the most tokens of a rank times ep_world_size")
    rows, scales = _prepared(operator, a, places // a.expert_ids.shape[1], experts)
    weights = None if a.expert_scales is None else a.expert_scales.float().flatten()[places]
    for result, given in ((results[0], rows), (results[1], scales), (results[6], weights)):
        result.zero_()
        if given is not None:
            result[: len(order)] = exchanged(backend, given, outgoing, incoming)[order]
    ends = sent.flatten().cumsum(0)
    results[2].zero_()[places] = (torch.arange(len(places)) - (ends - sent.flatten())[experts]).int()
    of_experts = received.sum(0)
    results[3].copy_(of_experts if a.expert_token_nums_type == 1 else of_experts.cumsum(0))
    results[4].copy_(received.T.flatten().cumsum(0))
    results[5].zero_()
    return results


def _combine(operator: str, a: SimpleNamespace) -> torch.Tensor:
    if a.comm_quant_mode != 0:
        refuse(operator, f"comm_quant_mode={a.comm_quant_mode}", "how rows are rounded on their way is not documented")
    backend = _group(operator, a)
    places, _, sent = _routes(a)
    counts = torch.diff(a.ep_send_counts[: a.moe_expert_num].long(), prepend=a.ep_send_counts.new_zeros(1).long())
    received = counts.view(-1, a.ep_world_size).T
    order = by_expert(received)
    rows = a.expand_x.new_empty(len(order), a.expand_x.shape[1])
    rows[order] = a.expand_x[: len(order)]
    rows = exchanged(backend, rows, received.sum(1).tolist(), sent.sum(1).tolist())
    weights = a.expert_scales.float()
    y = wide(a.expand_x).new_zeros(a.expert_ids.shape[0], a.expand_x.shape[1])
    y.index_add_(0, places // a.expert_ids.shape[1], wide(rows) * weights.flatten()[places, None])
    y = y + _without_ranks(operator, a, weights)
    return (y if a.shared_expert_x is None else y + wide(a.shared_expert_x).reshape(y.shape)).to(a.expand_x.dtype)


def _without_ranks(operator: str, a: SimpleNamespace, weights: torch.Tensor) -> torch.Tensor | float:
    """What experts that are no networks give: zeros, the token itself, and alpha_1 token + alpha_2 v."""
    if not a.copy_expert_num and not a.const_expert_num:
        return 0.0
    require(a.ori_x is not None, operator, "copy_expert_num or const_expert_num without ori_x", "the tokens as they were")
    weights, token = torch.where(_active(a), weights, 0.0), wide(a.ori_x)
    first = a.moe_expert_num + a.zero_expert_num
    kinds = a.expert_ids.long() - first
    y = token * (weights * ((kinds >= 0) & (kinds < a.copy_expert_num))).sum(1, keepdim=True)
    for number in range(a.const_expert_num):
        of_token, of_value, value = (wide(t)[number] for t in (a.const_expert_alpha_1, a.const_expert_alpha_2, a.const_expert_v))
        share = (weights * (kinds == a.copy_expert_num + number)).sum(1, keepdim=True)
        y = y + share * (of_token * token + of_value * value)
    return y


_FIRST_OF_DISPATCH = (
    "Tensor x, Tensor expert_ids, " + _GROUP + "Tensor? scales=None, Tensor? x_active_mask=None, Tensor? expert_scales=None, "
)
_REST_OF_DISPATCH = "int quant_mode=0, int global_bs=0, int expert_token_nums_type=1"
_SEVEN = "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"


def _shapes_of_second(*given: Any, **options: Any) -> _Seven:
    a = bound(_DISPATCH, given, options)
    return _dispatched_shapes(a, max(a.expert_ids.numel(), _room(a) * _ASSIST))


@opaque(
    f"{_DISPATCH}({_FIRST_OF_DISPATCH}Tensor? elastic_info=None, Tensor? performance_info=None, {_SHARED}{_REST_OF_DISPATCH}, {_SPECIAL}, "
    f"int? y_dtype=None, int? x_dtype=None, int? scales_dtype=None) {_SEVEN}",
    shape=_shapes_of_second,
    missing=f"{_MISSING}, float8",
)
def dispatch_v2(*given: Any, **options: Any) -> _Seven:
    """(rows of all ranks for this rank's experts, by expert and rank, zeros behind them; scales; places; tokens of each expert; counts
    that `npu_moe_distribute_combine_v2` takes; nothing; weights) of x (tokens, H) and expert_ids (tokens, K). quant_mode 2: int8 rows with
    a scale each. Experts from moe_expert_num on are no networks: they get nothing."""
    a = bound(_DISPATCH, given, options)
    refuse_given(_DISPATCH, "it is for float8", y_dtype=a.y_dtype, x_dtype=a.x_dtype, scales_dtype=a.scales_dtype)
    return _dispatch(_DISPATCH, a, _shapes_of_second(*given, **options))


def _shapes_of_first(*given: Any, **options: Any) -> _Seven:
    return _dispatched_shapes(bound("npu_moe_distribute_dispatch", given, options), assist=0)


@opaque(f"npu_moe_distribute_dispatch({_FIRST_OF_DISPATCH}{_SHARED}{_REST_OF_DISPATCH}) {_SEVEN}", shape=_shapes_of_first, missing=_MISSING)
def dispatch(*given: Any, **options: Any) -> _Seven:
    """The first version of `npu_moe_distribute_dispatch_v2`, for `npu_moe_distribute_combine`."""
    operator = "npu_moe_distribute_dispatch"
    return _dispatch(operator, bound(operator, given, options), _shapes_of_first(*given, **options))


_FIRST_OF_COMBINE = "Tensor ep_send_counts, Tensor expert_scales, " + _GROUP + "Tensor? tp_send_counts=None, Tensor? x_active_mask=None, "
_COMBINED = _MISSING + ", a quantised exchange (comm_quant_mode)"


def _combined_shape(name: str) -> Any:
    def shape(*given: Any, **options: Any) -> torch.Tensor:
        a = bound(name, given, options)
        return a.expand_x.new_empty(a.expert_ids.shape[0], a.expand_x.shape[1])

    return shape


@opaque(
    f"{_COMBINE}(Tensor expand_x, Tensor expert_ids, Tensor assist_info_for_combine, {_FIRST_OF_COMBINE}Tensor? expand_scales=None, "
    "Tensor? shared_expert_x=None, Tensor? elastic_info=None, Tensor? ori_x=None, Tensor? const_expert_alpha_1=None, "
    "Tensor? const_expert_alpha_2=None, Tensor? const_expert_v=None, Tensor? performance_info=None, "
    f"{_SHARED}int global_bs=0, int comm_quant_mode=0, {_SPECIAL}) -> Tensor",
    shape=_combined_shape(_COMBINE),
    missing=_COMBINED,
)
def combine_v2(*given: Any, **options: Any) -> torch.Tensor:
    """(tokens, H): for each token the sum over its experts of expert_scales times what comes back from them, plus shared_expert_x; of
    experts that are no networks zeros, the token (copies), or alpha_1 token + alpha_2 v (constants)."""
    return _combine(_COMBINE, _checked(_COMBINE, bound(_COMBINE, given, options), _COMBINE))


@opaque(
    f"npu_moe_distribute_combine(Tensor expand_x, Tensor expert_ids, Tensor expand_idx, {_FIRST_OF_COMBINE}Tensor? activation_scale=None, "
    "Tensor? weight_scale=None, Tensor? group_list=None, Tensor? expand_scales=None, Tensor? shared_expert_x=None, "
    f"{_SHARED}int global_bs=0, int out_dtype=0, int comm_quant_mode=0, int group_list_type=0) -> Tensor",
    shape=_combined_shape("npu_moe_distribute_combine"),
    missing=_COMBINED + ", int32 rows (activation_scale, weight_scale, group_list)",
)
def combine(*given: Any, **options: Any) -> torch.Tensor:
    """The first version of `npu_moe_distribute_combine_v2`, after `npu_moe_distribute_dispatch`."""
    operator = "npu_moe_distribute_combine"
    a = bound(operator, given, options)
    reserved = {name: getattr(a, name) for name in ("activation_scale", "weight_scale", "group_list")}
    refuse_given(operator, "it is reserved", **reserved)
    return _combine(operator, _checked(operator, a, _COMBINE))
