"""Experts: routing row by row, products group by group."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.torch_operators.activation_cases import _gelu
from tests.torch_operators.quantising_cases import _unpack
from tests.torch_operators.walk import case, rand, randn

Array = np.ndarray


def _softmax(x: Array) -> Array:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _top(x: Array, finished: Array | None = None, k: int = 1) -> Any:
    p = _softmax(x)
    experts = np.argsort(-p, -1, kind="stable")[..., :k]
    best = np.take_along_axis(p, experts, -1)
    if finished is not None:
        experts = np.where(finished[..., None], x.shape[-1], experts)
    n = int(np.prod(x.shape[:-1]))
    return best, experts.astype(np.int32), np.arange(n * k).reshape(k, n).T.reshape(experts.shape).astype(np.int32)


case("npu_moe_gating_top_k_softmax", randn(5, 8), None, 3, reference=_top, differentiable=True)
case("npu_moe_gating_top_k_softmax", randn(2, 3, 8), rand(2, 3) > 0.5, 2, reference=_top)


def _gate(
    x: Array,
    k: int,
    bias: Any = None,
    k_group: int = 1,
    group_count: int = 1,
    group_select_mode: int = 0,
    norm_type: int = 0,
    routed_scaling_factor: float = 1.0,
) -> Any:
    p = _softmax(x) if norm_type == 0 else 1 / (1 + np.exp(-x))
    merit = p + (0 if bias is None else bias)
    weights, experts = np.zeros((len(x), k)), np.zeros((len(x), k), np.int32)
    for row in range(len(x)):
        groups = merit[row].reshape(group_count, -1)
        worth = groups.max(-1) if group_select_mode == 0 else np.sort(groups, -1)[:, -2:].sum(-1)
        chosen = np.argsort(-worth, kind="stable")[:k_group]
        allowed = [e for e in range(x.shape[1]) if e // groups.shape[1] in chosen]
        experts[row] = sorted(allowed, key=lambda e: -merit[row, e])[:k]
        weights[row] = p[row, experts[row]]
    if norm_type == 1:
        weights /= weights.sum(-1, keepdims=True) + 1e-20
    return weights * routed_scaling_factor, experts, p


case("npu_moe_gating_top_k", randn(4, 8), 3, reference=_gate, differentiable=True)
for _select in (0, 1):
    case(
        "npu_moe_gating_top_k",
        randn(4, 12),
        3,
        options={
            "bias": randn(12) / 3,
            "k_group": 2,
            "group_count": 4,
            "group_select_mode": _select,
            "norm_type": 1,
            "routed_scaling_factor": 2.5,
        },
        reference=_gate,
    )
case(
    "npu_moe_compute_expert_tokens",
    torch.tensor([0, 0, 1, 3, 3, 3, 5], dtype=torch.int32),
    7,
    reference=lambda rows, n: np.array([(rows <= e).sum() for e in range(n)]),
)


def _routing(x: Array, rows: Array, experts: Array, active: int) -> Any:
    n, k = experts.shape
    order = sorted(range(n * k), key=lambda i: experts.reshape(-1)[i])
    sources = rows.reshape(-1)[order]
    places = np.zeros(n * k, np.int32)
    places[sources] = np.arange(n * k)
    return x[sources[: min(active, n) * k] % n], places, experts.reshape(-1)[order]


_ROWS = torch.arange(10, dtype=torch.int32).reshape(2, 5).T.contiguous()
for _active in (5, 3):
    case("npu_moe_init_routing", randn(5, 4), _ROWS, torch.randint(0, 6, (5, 2), dtype=torch.int32), _active, reference=_routing)


def _second(
    x: Array,
    expert_idx: Array,
    scale: Any = None,
    active_num: int = -1,
    expert_capacity: int = -1,
    expert_num: int = -1,
    drop_pad_mode: int = 0,
    expert_tokens_num_type: int = 0,
    expert_tokens_num_flag: bool = False,
    quant_mode: int = -1,
    active_expert_range: Any = None,
    row_idx_type: int = 0,
) -> Any:
    first, last = active_expert_range or (0, expert_num)
    k, flat = expert_idx.shape[1], expert_idx.reshape(-1)
    order = sorted((i for i in range(flat.size) if first <= flat[i] < last), key=lambda i: flat[i])
    rest = sorted((i for i in range(flat.size) if not first <= flat[i] < last), key=lambda i: (flat[i] < first, max(flat[i], first)))
    size = expert_num * expert_capacity if drop_pad_mode else (flat.size if active_num <= 0 else min(active_num, flat.size))
    out, scales, where = np.zeros((size, x.shape[1])), np.zeros(size), np.full(flat.size, -1, np.int32)
    used: dict[int, int] = {}
    for place, i in enumerate(order):
        expert = int(flat[i])
        if drop_pad_mode:
            if used.get(expert, 0) == expert_capacity:
                continue
            place = expert * expert_capacity + used.get(expert, 0)
            used[expert] = used.get(expert, 0) + 1
        where[i] = place
        if place >= size:
            continue
        row = x[i // k]
        if quant_mode == 1:
            row = row * (1 if scale is None else scale[0 if len(scale) == 1 else expert - first])
            scales[place] = np.abs(row).max() / 127
            row = np.rint(row / scales[place])
        elif scale is not None:
            scales[place] = scale[i // k]
        out[place] = row
    counts = np.array([(flat == e).sum() for e in range(first, last)])
    if expert_tokens_num_type == 2:
        pairs = [(e, c) for e, c in zip(range(first, last), counts, strict=True) if c]
        counts = np.array(pairs + [(0, 0)] * (expert_num - len(pairs)))
    elif expert_tokens_num_type == 0 and not drop_pad_mode:
        counts = np.cumsum(counts)
    if not expert_tokens_num_flag:
        counts = np.zeros_like(counts)
    if row_idx_type == 1:
        where = np.array(order + rest, np.int32)
    shape = (expert_num, expert_capacity, x.shape[1]) if drop_pad_mode else out.shape
    return out.reshape(shape).astype(np.int8) if quant_mode == 1 else out.reshape(shape), where, counts, scales


_CHOSEN = torch.randint(0, 6, (7, 2), dtype=torch.int32)
for _options in (
    {"expert_tokens_num_flag": True, "expert_tokens_num_type": 1},
    {"row_idx_type": 1, "active_expert_range": [1, 4], "expert_tokens_num_flag": True},
    {"active_num": 5, "scale": rand(7), "expert_tokens_num_flag": True, "expert_tokens_num_type": 2},
    {"quant_mode": 1},
    {"quant_mode": 1, "scale": rand(3, 4), "active_expert_range": [1, 4]},
    {"drop_pad_mode": 1, "expert_capacity": 2, "expert_tokens_num_flag": True},
):
    case("npu_moe_init_routing_v2", randn(7, 4), _CHOSEN, options={"expert_num": 6, **_options}, reference=_second)


def _second_quantised(x: Array, expert_idx: Array, scale: Any = None, offset: Any = None, quant_mode: int = 1, **options: Any) -> Any:
    mode = options.pop("expert_tokens_num_mode")
    flag = options.pop("expert_tokens_before_capacity_flag", False)
    before = np.bincount(expert_idx.reshape(-1), minlength=options["expert_num"]) * flag
    rest = {"expert_tokens_num_flag": mode > 0, "expert_tokens_num_type": mode - 1, **options}
    if quant_mode:
        tokens, where, counts, scales = _second(x, expert_idx, scale, quant_mode=1, **rest)
        return tokens, where, counts, before, scales
    tokens, where, counts, _ = _second(x * scale[0] + (0 if offset is None else offset[0]), expert_idx, None, **rest)
    return np.clip(np.rint(tokens), -128, 127).astype(np.int8), where, counts, before, np.zeros(0)


for _options in (
    {"expert_tokens_num_mode": 2, "active_num": 0},
    {"expert_tokens_num_mode": 1, "scale": rand(6, 4)},
    {"expert_tokens_num_mode": 2, "drop_pad_mode": 1, "expert_capacity": 2, "expert_tokens_before_capacity_flag": True},
    {"expert_tokens_num_mode": 1, "quant_mode": 0, "scale": torch.tensor([90.0]), "offset": torch.tensor([3.2]), "active_num": 9},
):
    case("npu_moe_init_routing_quant", randn(7, 4), _CHOSEN, options={"expert_num": 6, **_options}, reference=_second_quantised)

case(
    "npu_moe_init_routing_v2", randn(0, 4), torch.zeros(0, 2, dtype=torch.int32),
    reference=lambda *_, **__: (np.zeros((0, 4)), None, None, None),
    options={"expert_num": 6, "quant_mode": 1, "scale": rand(0), "expert_tokens_num_flag": True},
)  # fmt: skip


def _final(rows: Array, skip1: Any, skip2: Any, bias: Any, scales: Any, places: Array, experts: Any, mode: int = 0, k: int = 1) -> Array:
    count = scales.shape[1] if scales is not None else k
    n = places.size // count
    rows = rows.reshape(-1, rows.shape[-1])
    out = np.zeros((n, rows.shape[1])) + (0 if skip1 is None else skip1) + (0 if skip2 is None else skip2)
    for i in range(n):
        for j in range(count):
            place = places[j * n + i] if mode < 2 else places[i * count + j]
            value = (0 if place == -1 else rows[place]) + (0 if bias is None else bias[experts[i, j]])
            out[i] += value * (1 if scales is None else scales[i, j])
    return out


_PLACES = torch.randperm(8).to(torch.int32)
_OF_ROW = torch.randint(0, 5, (4, 2), dtype=torch.int32)
case(
    "npu_moe_finalize_routing",
    randn(8, 3),
    randn(4, 3),
    randn(4, 3),
    randn(5, 3),
    rand(4, 2),
    _PLACES,
    _OF_ROW,
    reference=_final,
    differentiable=True,
)
case(
    "npu_moe_finalize_routing", randn(8, 3), None, None, None, rand(4, 2), torch.where(_PLACES == 3, -1, _PLACES), None, 2, reference=_final
)
case("npu_moe_finalize_routing", randn(2, 4, 3), randn(8, 3), None, randn(5, 3), None, _PLACES, _OF_ROW.reshape(8, 1), 1, reference=_final)


def _permuted(tokens: Array, indices: Array, kept: Any = None) -> Any:
    k, flat = (1 if indices.ndim == 1 else indices.shape[1]), indices.reshape(-1)
    order = sorted(range(flat.size), key=lambda i: flat[i])
    where = np.zeros(flat.size, np.int32)
    where[order] = np.arange(flat.size)
    return tokens[[i // k for i in order][: kept or None]], where


case("npu_moe_token_permute", randn(5, 3), torch.randint(0, 4, (5, 2)), reference=_permuted, differentiable=True)
case("npu_moe_token_permute", randn(5, 3), torch.randint(0, 4, (5,)), 3, reference=_permuted)


def _restored(rows: Array, where: Array, probs: Any = None) -> Array:
    k = 1 if probs is None else probs.shape[1]
    out = np.zeros((where.size // k, rows.shape[1]))
    for i, place in enumerate(where):
        if place < len(rows):
            out[i // k] += rows[place] * (1 if probs is None else probs[i // k, i % k])
    return out


case("npu_moe_token_unpermute", randn(8, 3), _PLACES, rand(4, 2), reference=_restored, differentiable=True)
case("npu_moe_token_unpermute", randn(6, 3), _PLACES, reference=_restored)


def _resorted(tokens: Array, counts: Array, per_token_scales: Any = None) -> Any:
    owner = [e for rank in counts for e, c in enumerate(rank) for _ in range(c)]
    order = sorted(range(len(owner)), key=lambda i: owner[i])
    scales = np.zeros(len(tokens)) if per_token_scales is None else per_token_scales[order]
    return tokens[order], scales, np.array(order, np.int32), counts.sum(0)


_COUNTS = torch.tensor([[2, 1, 1], [1, 3, 1]], dtype=torch.int32)
case("npu_moe_re_routing", randn(9, 4), _COUNTS, options={"per_token_scales": rand(9)}, reference=_resorted)
case("npu_moe_re_routing", randn(9, 4), _COUNTS, reference=_resorted)


# products by group


def _one(x: Array, w: Array, g: int, n: int, o: dict[str, Any]) -> Array:
    def own(name: str) -> Any:
        values = o.get(name)
        return None if not values else (values[g] if len(values) == n and n > 1 else (values[0][g] if values[0].ndim > 1 else values[0]))

    bias, scale, antiquant, offset = (own(name) for name in ("bias", "scale", "antiquant_scale", "antiquant_offset"))
    if antiquant is not None:
        w = _unpack(w) if w.dtype == np.int32 else w
        antiquant, offset = (a if a is None or a.ndim == 1 else np.repeat(a, w.shape[0] // a.shape[0], 0) for a in (antiquant, offset))
        return x @ ((w + (0 if offset is None else offset)) * antiquant)
    y = x.astype(np.int64) @ w.astype(np.int64) if x.dtype == np.int8 else x @ w
    if scale is None:
        return y + (0 if bias is None else bias)
    if bias is not None and bias.dtype.kind == "i":
        y, bias = y + bias, None
    return y * scale + (0 if bias is None else bias)


def _groups(
    x: list[Array],
    weight: list[Array],
    split_item: int = 0,
    group_list: Any = None,
    group_list_type: int = 0,
    group_type: Any = None,
    act_type: int = 0,
    per_token_scale: Any = None,
    output_dtype: Any = None,
    **o: Any,
) -> list[Array]:
    ws = list(weight[0]) if len(weight) == 1 and weight[0].ndim == 3 else weight
    if group_list is not None:
        listed = np.asarray(group_list)
        ends = list(
            listed
            if group_list_type == 0
            else np.cumsum(listed if group_list_type == 1 else [dict(listed).get(g, 0) for g in range(len(ws))])
        )
    if group_type == 2:
        return [np.stack([x[0][:, a:b] @ weight[0][a:b] for a, b in zip([0, *ends], ends, strict=False)])]
    parts = x if len(x) > 1 or len(ws) == 1 else [x[0][a:b] for a, b in zip([0, *ends], ends, strict=False)]
    ys = [_one(p, w, g, len(ws), o) for g, (p, w) in enumerate(zip(parts, ws, strict=True))]
    if per_token_scale is not None:
        ys = [y * s[:, None] for y, s in zip(ys, np.split(per_token_scale[0], ends[:-1]), strict=True)]
    acts = {
        0: lambda y: y,
        1: lambda y: np.maximum(y, 0),
        2: lambda y: _gelu(y, "tanh"),
        4: lambda y: y / (1 + np.exp(-1.702 * y)),
        5: lambda y: y / (1 + np.exp(-y)),
    }
    ys = [acts[act_type](y) for y in ys]
    return ys if split_item < 2 else [np.concatenate([*ys, np.zeros((sum(map(len, x)) - sum(map(len, ys)), ys[0].shape[-1]))])]


def _grouped(x: Any, weight: Any, overload: str = "", tolerance: float = 2e-5, **options: Any) -> None:
    case(f"npu_grouped_matmul{overload}", x, weight, options=options, reference=_groups, tolerance=tolerance)


_X, _W = [randn(9, 4)], [randn(3, 4, 5)]
_E = torch.tensor([2, 6, 9])
_grouped([randn(2, 3, 4), randn(1, 5, 6)], [randn(4, 5), randn(6, 3)], bias=[randn(5), randn(3)])
_grouped(_X, _W, group_list=_E, split_item=3, group_type=0)
_grouped(_X, _W, group_list=torch.tensor([2, 0, 6]), split_item=2, group_type=0, group_list_type=1, act_type=5, bias=[randn(3, 5)])
_grouped(_X, _W, group_list=torch.tensor([[2, 3], [0, 4]]), split_item=2, group_type=0, group_list_type=2, act_type=2)
_grouped(_X, [randn(4, 5) for _ in range(3)], group_list=_E, split_item=2, group_type=0, act_type=4)
_grouped(_X, [randn(4, 5) for _ in range(3)], ".List", group_list=[2, 6, 9], split_item=0)
_grouped([randn(3, 4), randn(2, 4)], [randn(4, 5), randn(4, 5)], split_item=2, act_type=1)
_grouped([randn(5, 9)], [randn(9, 4)], group_list=_E, split_item=3, group_type=2)
_B = torch.randint(-128, 128, (9, 40), dtype=torch.int8), torch.randint(-128, 128, (3, 40, 5), dtype=torch.int8)
_grouped([_B[0]], [_B[1]], group_list=_E, split_item=3, group_type=0, output_dtype=torch.int32)
_grouped(
    [_B[0]],
    [_B[1]],
    group_list=_E,
    split_item=3,
    group_type=0,
    output_dtype=torch.bfloat16,
    scale=[rand(3, 5) / 99],
    per_token_scale=[rand(9)],
    tolerance=2e-2,
)
_grouped(
    [randn(9, 40)],
    [_B[1]],
    group_list=_E,
    split_item=3,
    group_type=0,
    antiquant_scale=[rand(3, 5)],
    antiquant_offset=[rand(3, 5)],
    tolerance=1e-3,
)
_grouped([randn(9, 40)], [_B[1]], group_list=_E, split_item=3, group_type=0, antiquant_scale=[rand(3, 4, 5)], tolerance=1e-3)
