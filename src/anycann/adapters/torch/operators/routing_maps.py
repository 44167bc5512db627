"""Mixtures of experts by maps of which token goes to which expert, and what the choice of experts has beside it."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import composed, require, sizes

_Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@composed(
    "npu_moe_gating_top_k_softmax_v2(Tensor x, *, int k=1, Tensor? finished=None, int? renorm=0, bool? output_softmax=False)"
    " -> (Tensor, Tensor, Tensor)"
)
def gating_top_k_softmax_v2(
    x: torch.Tensor, *, k: int = 1, finished: torch.Tensor | None = None, renorm: int | None = 0, output_softmax: bool | None = False
) -> _Triple:
    """(k largest of the softmax of each row, their experts, the whole softmax in float32 or nothing).

    renorm 1: the softmax is of the k largest alone. Experts of rows that are finished are the number of experts.
    """
    require(0 < k <= x.shape[-1], "npu_moe_gating_top_k_softmax_v2", f"k {k} of {sizes(x)}", "1 to the number of experts")
    scores = wide(x)
    probabilities = torch.softmax(scores, -1)
    experts = torch.sort(scores if renorm else probabilities, dim=-1, descending=True, stable=True).indices[..., :k]
    largest = torch.softmax(scores.gather(-1, experts), -1) if renorm else probabilities.gather(-1, experts)
    whole = probabilities.float() if output_softmax and not renorm else x.new_empty(0, dtype=torch.float32)
    if finished is not None:
        experts = torch.where(finished.reshape(*x.shape[:-1], 1), x.shape[-1], experts)
    return largest.to(x.dtype), experts.to(torch.int32), whole


@composed(
    "npu_moe_token_permute_with_routing_map(Tensor tokens, Tensor routing_map, *, Tensor? probs=None, int? num_out_tokens=None, "
    "bool drop_and_pad=False) -> (Tensor, Tensor, Tensor)"
)
def token_permute_with_routing_map(
    tokens: torch.Tensor,
    routing_map: torch.Tensor,
    *,
    probs: torch.Tensor | None = None,
    num_out_tokens: int | None = None,
    drop_and_pad: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """(tokens sorted by expert, their probabilities or None, int32 indices) of tokens (T, H) and a map (T, E) of who gets which.

    Every token goes to equally many experts; the indices tell where the copies of token after token are. With drop_and_pad each expert
    gets num_out_tokens // E places, filled with other tokens, and the indices are the tokens'.
    """
    operator, count = "npu_moe_token_permute_with_routing_map", tokens.shape[0] if num_out_tokens is None else num_out_tokens
    require(routing_map.dim() == 2 and routing_map.shape[0] == tokens.shape[0], operator, sizes(tokens, routing_map), "(T, H) and (T, E)")
    by_expert = routing_map.bool().T.contiguous()
    experts, rows = by_expert.shape
    order = torch.sort(by_expert.to(torch.int8), dim=1, descending=True, stable=True).indices
    if drop_and_pad:
        source = order[:, : count // experts].reshape(-1)
        expert = torch.arange(experts, device=tokens.device).repeat_interleave(count // experts)
    else:
        # the first count // T of each token's experts in the order of experts: all of them, for every token has as many
        place = torch.sort((~by_expert).reshape(-1).to(torch.int8), stable=True).indices[: count // max(rows, 1) * rows]
        source, expert = place % rows, place // rows
    chosen = None if probs is None else probs[source, expert]
    indices = source if drop_and_pad else torch.sort(source, stable=True).indices
    return tokens[source], chosen, indices.to(torch.int32)


@composed(
    "_npu_moe_token_unpermute_with_routing_map(Tensor permuted_tokens, Tensor sorted_indices, int[] restore_shape, *, "
    "Tensor? probs=None, Tensor? routing_map=None, bool drop_and_pad=False) -> (Tensor, Tensor, Tensor, Tensor)"
)
def token_unpermute_with_routing_map_parts(
    permuted_tokens: torch.Tensor,
    sorted_indices: torch.Tensor,
    restore_shape: list[int],
    *,
    probs: torch.Tensor | None = None,
    routing_map: torch.Tensor | None = None,
    drop_and_pad: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """(tokens (T, H): sums over their experts, times probabilities (T, E) if given; with drop_and_pad the order of the sources and the
    sources in order; the probability of each row or None)."""
    operator, indices = "npu_moe_token_unpermute_with_routing_map", sorted_indices.long()
    if drop_and_pad:
        ordered, order = torch.sort(indices, stable=True)
        chosen = None if probs is None else probs[indices, _experts(indices, probs.shape[1])]
        rows = wide(permuted_tokens) if chosen is None else wide(permuted_tokens) * wide(chosen)[:, None]
        total = rows.new_zeros(restore_shape).index_add(0, indices, rows)
        return total.to(permuted_tokens.dtype), order.to(torch.int32), ordered, chosen
    require(routing_map is not None, operator, "no routing_map", "a map (T, E), or drop_and_pad")
    assert routing_map is not None
    tokens = routing_map.shape[0]
    parts = wide(permuted_tokens)[indices].reshape(tokens, indices.shape[0] // max(tokens, 1), permuted_tokens.shape[1])
    chosen = None if probs is None else probs.masked_select(routing_map.bool())
    parts = parts if chosen is None else parts * wide(chosen).reshape(*parts.shape[:2], 1)
    nothing = torch.ones(1, dtype=torch.int32, device=indices.device)
    return parts.sum(1).to(permuted_tokens.dtype), nothing, nothing.clone(), chosen


def _experts(places: torch.Tensor, experts: int) -> torch.Tensor:
    """The expert of each place where all have as many."""
    return torch.arange(experts, device=places.device).repeat_interleave(places.shape[0] // experts)


@composed(
    "npu_moe_token_unpermute_with_routing_map(Tensor permuted_tokens, Tensor sorted_indices, int[] restore_shape, *, "
    "Tensor? probs=None, Tensor? routing_map=None, bool drop_and_pad=False) -> Tensor"
)
def token_unpermute_with_routing_map(
    permuted_tokens: torch.Tensor,
    sorted_indices: torch.Tensor,
    restore_shape: list[int],
    *,
    probs: torch.Tensor | None = None,
    routing_map: torch.Tensor | None = None,
    drop_and_pad: bool = False,
) -> torch.Tensor:
    """What `npu_moe_token_permute_with_routing_map` sorted, back as tokens (T, H): sums over experts, times probabilities if given."""
    return token_unpermute_with_routing_map_parts(
        permuted_tokens, sorted_indices, restore_shape, probs=probs, routing_map=routing_map, drop_and_pad=drop_and_pad
    )[0]
