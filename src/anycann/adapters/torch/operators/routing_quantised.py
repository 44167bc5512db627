"""Tokens sorted by expert and quantised at once: the form of `npu_moe_init_routing_v2` that came before it."""

from __future__ import annotations

from typing import Any

import torch

from anycann.adapters.torch.operators.registry import bound, opaque, refuse, require
from anycann.adapters.torch.operators.routing import routed

_NAME = "npu_moe_init_routing_quant"
_CUMULATED, _SINGLE = 1, 2  # expert_tokens_num_mode; 0: no counts


def _shapes(*given: Any, **options: Any) -> tuple[torch.Tensor, ...]:
    a = bound(_NAME, given, options)
    total = a.expert_idx.numel()
    shape = (a.expert_num, a.expert_capacity) if a.drop_pad_mode else (total if a.active_num <= 0 else min(a.active_num, total),)
    counts = a.x.new_empty(a.expert_num, dtype=torch.int32)
    scales = a.x.new_empty(torch.Size(shape).numel() if a.quant_mode else 0, dtype=torch.float32)
    tokens = a.x.new_empty((*shape, a.x.shape[1]), dtype=torch.int8)
    return tokens, a.x.new_empty(total, dtype=torch.int32), counts, torch.empty_like(counts), scales


@opaque(
    f"{_NAME}(Tensor x, Tensor expert_idx, *, Tensor? scale=None, Tensor? offset=None, int active_num=1024, int expert_capacity=0, "
    "int expert_num=256, int drop_pad_mode=0, int expert_tokens_num_mode=0, bool expert_tokens_before_capacity_flag=False, "
    "int quant_mode=1) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    shape=_shapes,
)
def init_routing_quant(*given: Any, **options: Any) -> tuple[torch.Tensor, ...]:
    """(int8 tokens sorted by expert, where each source went, tokens of each expert, the same before any were dropped, scales).

    quant_mode 0: rows times scale[0] plus offset[0]; 1: rows times their expert's scale, by their largest value. drop_pad_mode 1: a place
    for each of expert_capacity tokens of an expert. Counts by expert_tokens_num_mode: cumulated (1), single (2), zeros (0).
    """
    a = bound(_NAME, given, options)
    if a.quant_mode not in (0, 1) or a.expert_tokens_num_mode not in (0, _CUMULATED, _SINGLE):
        refuse(_NAME, f"quant_mode={a.quant_mode}, expert_tokens_num_mode={a.expert_tokens_num_mode}", "0, 1 and 0, 1, 2 are computed")
    require(a.quant_mode == 1 or a.scale is not None, _NAME, "static quantisation without scale", "scale (1,)")
    a.active_expert_range, a.row_idx_type = (0, a.expert_num), 0
    a.expert_tokens_num_flag, a.expert_tokens_num_type = a.expert_tokens_num_mode != 0, int(a.expert_tokens_num_mode == _SINGLE)
    tokens, places, counts, scales = routed(a)
    before = torch.bincount(a.expert_idx.reshape(-1), minlength=a.expert_num)[: a.expert_num]
    before = before if a.expert_tokens_before_capacity_flag else torch.zeros_like(before)
    return tokens, places, counts.to(torch.int32), before.to(torch.int32), scales if a.quant_mode else scales[:0]
