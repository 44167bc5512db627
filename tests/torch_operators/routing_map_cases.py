"""Experts by maps of which token goes to which, token by token."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.torch_operators.walk import case, rand, randn

Array = np.ndarray


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _gated(x: Array, k: int = 1, finished: Any = None, renorm: int = 0, output_softmax: bool = False) -> Any:
    best = np.argsort(-x, -1, kind="stable")[..., :k]
    whole = _softmax(x)
    kept = _softmax(np.take_along_axis(x, best, -1)) if renorm else np.take_along_axis(whole, best, -1)
    experts = best if finished is None else np.where(finished[..., None], x.shape[-1], best)
    return kept, experts, whole if output_softmax and not renorm else np.empty(0)


case("npu_moe_gating_top_k_softmax_v2", randn(4, 9), options={"k": 3, "output_softmax": True}, reference=_gated)
case(
    "npu_moe_gating_top_k_softmax_v2",
    randn(2, 3, 9),
    options={"k": 2, "renorm": 1, "finished": torch.tensor([[True, False, False], [False, True, False]])},
    reference=_gated,
)


def _map(rows: int, experts: int, each: int) -> torch.Tensor:
    return torch.zeros(rows, experts, dtype=torch.bool).scatter_(1, torch.rand(rows, experts).topk(each).indices, value=True)


def _permuted(tokens: Array, routing: Array, probs: Any = None, num_out_tokens: int = 0, drop_and_pad: bool = False) -> Any:
    rows, experts = routing.shape
    capacity = num_out_tokens // experts
    pairs = []  # (token, expert)
    for expert in range(experts):
        own = [token for token in range(rows) if routing[token, expert]]
        others = [token for token in range(rows) if not routing[token, expert]]
        pairs += [(token, expert) for token in ((own + others)[:capacity] if drop_and_pad else own)]
    source = [token for token, _ in pairs]
    indices = source if drop_and_pad else sorted(range(len(source)), key=lambda place: (source[place], place))
    return tokens[source], None if probs is None else np.array([probs[pair] for pair in pairs]), np.array(indices)


_MAP = _map(5, 4, 2)
_TOKENS, _SHARES = randn(5, 3), rand(5, 4)
for _padded, _count in ((False, 10), (True, 12)):
    _options = {"num_out_tokens": _count, "drop_and_pad": _padded, "probs": _SHARES}
    case("npu_moe_token_permute_with_routing_map", _TOKENS, _MAP, options=_options, reference=_permuted, differentiable=True)


def _restored(rows: Array, indices: Array, shape: Any, probs: Any = None, routing_map: Any = None, drop_and_pad: bool = False) -> Array:
    out = np.zeros(shape)
    if drop_and_pad:
        for place, token in enumerate(indices):
            share = 1 if probs is None else probs[token, place * probs.shape[1] // len(indices)]
            out[token] += share * rows[place]
        return out
    each = len(indices) // shape[0]
    for number, place in enumerate(indices):
        token = number // each
        expert = np.nonzero(routing_map[token])[0][number % each]
        out[token] += rows[place] * (1 if probs is None else probs[token, expert])
    return out


def _parts(*given: Any, **options: Any) -> Any:
    return _restored(*given, **options), None, None, None


_PLACES = torch.randperm(10).to(torch.int32)
for _operator, _reference in (
    ("npu_moe_token_unpermute_with_routing_map", _restored),
    ("_npu_moe_token_unpermute_with_routing_map", _parts),
):
    case(
        _operator, randn(10, 3), _PLACES, [5, 3], options={"probs": _SHARES, "routing_map": _MAP}, reference=_reference, differentiable=True
    )
    case(
        _operator,
        randn(12, 3),
        torch.randint(0, 5, (12,), dtype=torch.int32),
        [5, 3],
        options={"probs": _SHARES, "drop_and_pad": True},
        reference=_reference,
    )


def _best_groups(x: Array, k: int, groups: int, n: int) -> Any:
    out = np.zeros_like(x)
    for row in range(len(x)):
        parts = x[row].reshape(groups, -1)
        worth = np.sort(parts, 1)[:, -n:].sum(1)
        for group in np.argsort(-worth, kind="stable")[:k]:
            out.reshape(len(x), groups, -1)[row, group] = parts[group]
    return None, out


case("_npu_group_topk", randn(4, 12), 2, 4, 2, reference=_best_groups, written=(0,))


def _weighted(
    x: Array, more: Array, group_num: int, group_topk: int, n: int, k: int, is_norm: bool = True, scale: float = 1, **mapping: Any
) -> Any:
    shares = 1 / (1 + np.exp(-x))
    merit = _best_groups(shares + more, group_topk, group_num, n)[1]
    experts = np.argsort(-merit, -1, kind="stable")[:, :k]
    weights = np.take_along_axis(shares, experts, -1)
    if mapping.get("enable_expert_mapping"):
        counts, table = mapping["mapping_num"], mapping["mapping_table"]
        experts = np.array([[table[e, row % max(1, counts[e])] for e in chosen] for row, chosen in enumerate(experts)])
    return (weights / weights.sum(-1, keepdims=True) * scale if is_norm else weights), experts


_GROUPS = {"group_num": 4, "group_topk": 2, "n": 2, "k": 3}
case("npu_fused_add_topk_div", randn(5, 12), rand(12), options={**_GROUPS, "scale": 2.5}, reference=_weighted)
case("npu_fused_add_topk_div", randn(5, 12), rand(12), options={**_GROUPS, "is_norm": False}, reference=_weighted)
_MAPPING = {"mapping_num": torch.randint(0, 4, (12,)), "mapping_table": torch.randint(0, 99, (12, 3)), "enable_expert_mapping": True}
case("npu_fused_add_topk_div", randn(5, 12), rand(12), options={**_GROUPS, **_MAPPING}, reference=_weighted)
case(
    "npu_fused_add_topk_div.out",
    randn(5, 12),
    rand(12),
    options={**_GROUPS, "y": torch.empty(5, 3), "indices": torch.empty(5, 3, dtype=torch.int32)},
    reference=lambda x, more, y, indices, **options: _weighted(x, more, **options),
)

_NO_TOKENS = torch.zeros(0, 4, dtype=torch.bool)
case(
    "npu_moe_token_permute_with_routing_map", randn(0, 3), _NO_TOKENS, options={"num_out_tokens": 0, "probs": rand(0, 4)},
    reference=lambda *_, **__: (np.zeros((0, 3)), np.zeros(0), np.zeros(0, np.int32)),
)  # fmt: skip
case(
    "npu_moe_token_unpermute_with_routing_map", randn(0, 3), torch.zeros(0, dtype=torch.int32), [0, 3],
    options={"probs": rand(0, 4), "routing_map": _NO_TOKENS}, reference=lambda *_, **__: np.zeros((0, 3)),
)  # fmt: skip
