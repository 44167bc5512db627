"""Attention, score by score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tests.torch_operators.walk import array, case, rand, randn

Array = np.ndarray
HUGE = 2147483647


def naive(
    q: Array,
    k: Array,
    v: Array,
    scale: float,
    hidden: Callable[[int, int], bool],
    bias: Callable[[int, int, int], float],
    sink: Array | None,
) -> Any:
    """q (N, S, D), k and v (Nk, T, D): results (N, S, D), largest scores and sums (N, S)."""
    share = q.shape[0] // k.shape[0]
    out, largest, total = np.zeros((*q.shape[:2], v.shape[-1])), np.full(q.shape[:2], np.finfo(np.float32).min), np.zeros(q.shape[:2])
    for n in range(q.shape[0]):
        for i in range(q.shape[1]):
            seen = [j for j in range(k.shape[1]) if not hidden(i, j)]
            scores = [q[n, i] @ k[n // share, j] * scale + bias(n, i, j) for j in seen]
            candidates = scores + ([] if sink is None else [float(sink[n])])
            if candidates:
                largest[n, i] = max(candidates)
                total[n, i] = sum(np.exp(s - largest[n, i]) for s in candidates)
            for j, s in zip(seen, scores, strict=True):
                out[n, i] += np.exp(s - largest[n, i]) / total[n, i] * v[n // share, j]
    return out, largest, total


def _to_bnsd(x: Array, layout: str, heads: int) -> Array:
    if layout == "BSH":
        return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)
    if layout == "SBH":
        return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2, 0, 3)
    return x.transpose(0, 2, 1, 3) if layout == "BSND" else x


def _from_bnsd(x: Array, layout: str) -> Array:
    if layout == "BSH":
        return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)
    if layout == "SBH":
        return x.transpose(2, 0, 1, 3).reshape(x.shape[2], x.shape[0], -1)
    if layout == "NBSD":
        return x.transpose(1, 0, 2, 3)
    return x.transpose(0, 2, 1, 3) if layout == "BSND" else x


def _hidden(
    mode: int, mask: Array | None, b: int, n: int, rows: int, columns: int, before: int, after: int, prefix: Any, entries: int
) -> Callable[[int, int], bool]:
    if mode == 7:
        mode = 4 if b == entries - 1 else 3
    elif mode == 8:
        mode = 4 if b == 0 else 2

    def answer(i: int, j: int) -> bool:
        if mask is None:
            return False
        if mode in (0, 1, 5):
            full = mask.reshape((1,) * (4 - mask.ndim) + mask.shape) if mask.ndim != 3 else mask[:, None]
            given = bool(full[b % full.shape[0], n % full.shape[1], i, j])
            return given or (mode == 0 and (j > i + after or j < i - before))
        corner = columns - rows
        if mode == 2:
            return j > i
        if mode == 3:
            return j > i + corner
        if mode == 4:
            return j > i + corner + after or j < i + corner - before
        return j > i + corner and j >= prefix[b]

    return answer


def fusion(
    query: Array,
    key: Array,
    value: Array,
    heads: int,
    layout: str,
    *,
    pse: Array | None = None,
    atten_mask: Array | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = HUGE,
    next_tockens: int = HUGE,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    softmax_layout: str = "",
    sink: Array | None = None,
    pse_type: int = 1,
    **_: Any,
) -> Any:
    packed = layout == "TND"
    if packed:
        ends_q, ends_k = list(actual_seq_qlen), list(actual_seq_kvlen)
        parts = [
            (query[a:b].transpose(1, 0, 2), key[c:d].transpose(1, 0, 2), value[c:d].transpose(1, 0, 2))
            for a, b, c, d in zip([0, *ends_q], ends_q, [0, *ends_k], ends_k, strict=False)
        ]
    else:
        groups = heads if layout in ("BSH", "SBH") and key.shape[2] == query.shape[2] else None
        groups = key.shape[2] * heads // query.shape[2] if layout in ("BSH", "SBH") else key.shape[1 if layout == "BNSD" else 2]
        q, k, v = _to_bnsd(query, layout, heads), _to_bnsd(key, layout, groups), _to_bnsd(value, layout, groups)
        parts = [(q[b], k[b], v[b]) for b in range(q.shape[0])]
    results, scores = [], 0
    for b, (q, k, v) in enumerate(parts):
        rows, columns = q.shape[1], k.shape[1]
        scores += heads * rows * columns

        def bias(n: int, i: int, j: int, b: int = b) -> float:
            if pse is None:
                return 0.0
            row = pse[b % pse.shape[0], n]
            found = row[i % row.shape[0] if row.shape[0] == 1 else i, j] if row.shape[0] != 1024 else row[-1, row.shape[1] - 1 - (i - j)]
            return float(found) * (scale if pse_type == 1 else 1.0)

        one = [
            naive(
                q[n : n + 1],
                k[n * k.shape[0] // heads : n * k.shape[0] // heads + 1],
                v[n * k.shape[0] // heads : n * k.shape[0] // heads + 1],
                scale,
                _hidden(sparse_mode, atten_mask, b, n, rows, columns, pre_tockens, next_tockens, prefix, len(parts)),
                lambda _, i, j, n=n, bias=bias: bias(n, i, j),
                None if sink is None else sink[n : n + 1],
            )
            for n in range(heads)
        ]
        results.append([np.concatenate([head[r] for head in one]) for r in range(3)])
    if packed:
        out = np.concatenate([r[0].transpose(1, 0, 2) for r in results])
        order = (1, 0) if softmax_layout == "TND" else (0, 1)
        statistics = [np.concatenate([r[i].transpose(order).reshape(-1) for r in results]).reshape(-1, heads) for i in (1, 2)]
    else:
        out = _from_bnsd(np.stack([r[0] for r in results]), layout)
        statistics = [np.stack([r[i] for r in results]) for i in (1, 2)]
    return (out, *(np.repeat(s[..., None], 8, -1) for s in statistics), np.zeros(0), 0, 0, scores)


def _qkv(layout: str, b: int = 2, n: int = 4, groups: int = 2, s: int = 5, t: int = 6, d: int = 8, dv: int = 8) -> tuple[torch.Tensor, ...]:
    return tuple(
        torch.from_numpy(np.ascontiguousarray(_from_bnsd(array(randn(b, h, length, w)), layout))).float()
        for h, length, w in ((n, s, d), (groups, t, d), (groups, t, dv))
    )


_CAUSAL = torch.ones(2048, 2048).triu(1).bool()


def _case(layout: str, *tensors: torch.Tensor, heads: int = 4, differentiable: bool = False, **options: Any) -> None:
    case("npu_fusion_attention", *tensors, heads, layout, options=options, reference=fusion, differentiable=differentiable)


for _layout in ("BNSD", "BSND", "BSH", "SBH"):
    _case(_layout, *_qkv(_layout), scale=0.3, differentiable=True)
_case("BNSD", *_qkv("BNSD", dv=6), scale=0.3, atten_mask=rand(2, 4, 5, 6) > 0.6, differentiable=True)
_case("BSND", *_qkv("BSND"), scale=0.3, atten_mask=rand(2, 1, 5, 6) > 0.6, sparse_mode=1)
_case("BNSD", *_qkv("BNSD"), scale=0.3, atten_mask=(rand(5, 6) > 0.7).to(torch.uint8))
_case("BNSD", *_qkv("BNSD", s=7, t=7), scale=0.3, atten_mask=torch.zeros(7, 7).bool(), pre_tockens=2, next_tockens=1)
for _mode in (2, 3):
    for _s, _t in ((5, 6), (7, 4)):
        _case(
            "BNSD",
            *_qkv("BNSD", s=_s, t=_t),
            scale=0.3,
            atten_mask=_CAUSAL,
            sparse_mode=_mode,
            pre_tockens=0,
            next_tockens=0,
            differentiable=True,
        )
_case("BSH", *_qkv("BSH"), scale=0.3, atten_mask=_CAUSAL, sparse_mode=4, pre_tockens=2, next_tockens=1)
_case("BNSD", *_qkv("BNSD", s=5, t=5), scale=0.3, atten_mask=rand(2, 1, 5, 5) > 0.5, sparse_mode=5, prefix=[2, 3])
_case(
    "BNSD", *_qkv("BNSD", s=5, t=5), scale=0.3, atten_mask=torch.ones(3072, 2048).bool(), sparse_mode=6, prefix=[2, 4], differentiable=True
)
_case("BNSD", *_qkv("BNSD"), scale=0.3, pse=randn(2, 4, 5, 6), differentiable=True)
_case("BNSD", *_qkv("BNSD"), scale=0.3, pse=randn(1, 4, 5, 6), differentiable=True)
_case("BNSD", *_qkv("BNSD"), scale=0.3, pse=randn(2, 4, 1, 6), differentiable=True)
_case("BNSD", *_qkv("BNSD"), scale=0.3, sink=randn(4), differentiable=True)
_case("BNSD", *_qkv("BNSD"), scale=0.3, sink=randn(4), atten_mask=torch.ones(5, 6).bool(), sparse_mode=1)
_PACKED = (randn(9, 4, 8), randn(11, 2, 8), randn(11, 2, 8))
_SUMS = {"actual_seq_qlen": [3, 5, 5, 9], "actual_seq_kvlen": [4, 6, 7, 11]}
_case("TND", *_PACKED, scale=0.3, **_SUMS, differentiable=True)
_case("TND", *_PACKED, scale=0.3, **_SUMS, softmax_layout="TND", differentiable=True)
for _mode in (2, 3):
    _case("TND", *_PACKED, scale=0.3, **_SUMS, atten_mask=_CAUSAL, sparse_mode=_mode)
for _mode in (4, 7, 8):
    _case("TND", *_PACKED, scale=0.3, **_SUMS, atten_mask=_CAUSAL, sparse_mode=_mode, pre_tockens=6, next_tockens=1)
# the two cards of the documented example of sparse mode 7 compute the rows that one card would
_case(
    "TND",
    randn(5, 2, 8),
    randn(9, 2, 8),
    randn(9, 2, 8),
    heads=2,
    scale=0.3,
    atten_mask=_CAUSAL,
    sparse_mode=7,
    pre_tockens=6,
    next_tockens=-2,
    actual_seq_qlen=[3, 5],
    actual_seq_kvlen=[3, 9],
)
_case("TND", randn(4, 2, 8), randn(4, 2, 8), randn(4, 2, 8), heads=2, scale=0.3, **{name: [1, 4, 0, 0][:2] for name in _SUMS})
_case(
    "TND",
    randn(7, 2, 8),
    randn(7, 2, 8),
    randn(7, 2, 8),
    heads=2,
    scale=0.3,
    **{name: [3, 7] for name in _SUMS},
    pse=randn(2, 2, 1024, 9),
    atten_mask=_CAUSAL,
    sparse_mode=3,
)


def _second(
    *given: Any,
    query_rope: Array | None = None,
    key_rope: Array | None = None,
    pre_tokens: int = HUGE,
    next_tokens: int = HUGE,
    **options: Any,
) -> Any:
    q, k, *rest = given
    if query_rope is not None:
        q, k = np.concatenate((q, query_rope), -1), np.concatenate((k, key_rope), -1)
    return fusion(q, k, *rest, pre_tockens=pre_tokens, next_tockens=next_tokens, **options)


case(
    "npu_fusion_attention_v2",
    *_qkv("BNSD"),
    4,
    "BNSD",
    options={"scale": 0.3, "pse": randn(1, 4, 5, 6), "pse_type": 0},
    reference=_second,
    differentiable=True,
)
case(
    "npu_fusion_attention_v2",
    *_qkv("BNSD"),
    4,
    "BNSD",
    options={"scale": 0.3, "query_rope": randn(2, 4, 5, 4), "key_rope": randn(2, 2, 6, 4)},
    reference=_second,
    differentiable=True,
)
case(
    "npu_fusion_attention_v3",
    *_qkv("BSND"),
    4,
    "BSND",
    options={"scale": 0.3, "atten_mask": _CAUSAL, "sparse_mode": 3},
    reference=lambda *a, **o: (*fusion(*a, **o)[:4], np.zeros(1), np.zeros(1)),
    differentiable=True,
)
case(
    "npu_fusion_attention_v3",
    *_PACKED,
    4,
    "TND",
    options={"scale": 0.3, **{name: torch.tensor(value) for name, value in _SUMS.items()}},
    reference=lambda *a, **o: (*fusion(*a, **o)[:4], np.zeros(1), np.zeros(1)),
)


def _gradient(names: Sequence[str]) -> Callable[..., Any]:
    """Gradients by central differences of the naive attention."""

    def reference(query: Array, key: Array, value: Array, dy: Array, heads: int, layout: str, **options: Any) -> Any:
        options = {name.replace("scale_value", "scale"): v for name, v in options.items()}
        values = {"query": query, "key": key, "value": value, **{name: options[name] for name in names if name in options}}

        def result() -> float:
            rest = {name: v for name, v in options.items() if not name.startswith(("softmax_", "attention_in"))}
            return float((_second(query, key, value, heads, layout, **rest)[0] * dy).sum())

        results = []
        for name in ("query", "key", "value", *names):
            if name not in values:
                results.append(np.zeros(0))
                continue
            x, by = values[name], np.zeros_like(values[name])
            for place in np.ndindex(x.shape):
                kept = x[place]
                x[place] = kept + 1e-4
                above = result()
                x[place] = kept - 1e-4
                by[place] = (above - result()) / 2e-4
                x[place] = kept
            results.append(by)
        return results

    return reference


def _gradient_case(operator: str, names: Sequence[str], **options: Any) -> None:
    q, k, v = _qkv("BNSD", b=1, n=2, groups=1, s=3, t=4, d=4, dv=4)
    q_full, k_full = (torch.cat((x, options[r]), -1) if r in options else x for x, r in ((q, "query_rope"), (k, "key_rope")))
    forward = {name: value for name, value in options.items() if not name.endswith("_rope")}
    out, largest, total = torch.ops.npu.npu_fusion_attention(q_full, k_full, v, 2, "BNSD", scale=0.4, **forward)[:3]
    known = {"softmax_max": largest, "softmax_sum": total, "attention_in": out, "scale_value": 0.4}
    case(operator, q, k, v, randn(1, 2, 3, 4), 2, "BNSD", options={**known, **options}, reference=_gradient(names), tolerance=1e-3)


_gradient_case("npu_fusion_attention_grad", ("pse", "sink"))
_gradient_case("npu_fusion_attention_grad", ("pse", "sink"), pse=randn(1, 2, 3, 4), sink=randn(2), atten_mask=_CAUSAL, sparse_mode=3)
_gradient_case(
    "npu_fusion_attention_grad_v2", ("pse", "query_rope", "key_rope", "sink"), query_rope=randn(1, 2, 3, 2), key_rope=randn(1, 1, 4, 2)
)
_gradient_case("npu_fusion_attention_grad_v3", ("pse", "sink"))


def _kernel(
    query: Array,
    key: Array,
    value: Array,
    pse: Any,
    mask: Any,
    sink: Any,
    dropout: Any,
    seed: Any,
    heads: int,
    layout: str,
    scale: float,
    *rest: Any,
) -> Any:
    return fusion(query, key, value, heads, layout, scale=scale)[:3]


_NUMBERS = (2, "BNSD", 0.4, 1.0, HUGE, HUGE, 0, None, None, None, 1, "")
_SMALL = _qkv("BNSD", b=1, n=2, groups=1, s=3, t=4, d=4, dv=4)
case("_fusion_attention", *_SMALL, None, None, None, None, None, *_NUMBERS, reference=_kernel)
case(
    "_fusion_attention_backward",
    randn(1, 2, 3, 4),
    *torch.ops.npu.npu_fusion_attention(*_SMALL, 2, "BNSD", scale=0.4)[:3],
    *_SMALL,
    None,
    None,
    None,
    None,
    None,
    *_NUMBERS,
    reference=lambda dy, out, largest, total, q, k, v, *rest: _gradient(("pse", "sink"))(q, k, v, dy, 2, "BNSD", scale_value=0.4),
    tolerance=1e-3,
)
