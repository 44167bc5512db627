"""Caches in pages, written and read token by token, and attention of the transformer library."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch

from tests.torch_operators.inference_cases import _infer, _page_tokens
from tests.torch_operators.walk import case, randn

Array = np.ndarray


# caches


def _written(tokens: Array, cache: Array, slots: Array) -> Array:
    for token, slot in zip(tokens, slots, strict=True):
        if slot >= 0:
            cache[slot // cache.shape[1], slot % cache.shape[1]] = token
    return cache


def _written_nz(tokens: Array, cache: Array, slots: Array) -> Array:
    for token, slot in zip(tokens, slots, strict=True):
        cache[slot // cache.shape[2], :, slot % cache.shape[2]] = token.reshape(cache.shape[1], cache.shape[3])
    return cache


_TOKENS = (randn(5, 2, 8), randn(5, 2, 8))
_SLOTS = torch.tensor([3, 9, 0, -1, 6])
_PAGES = (randn(3, 4, 2, 8), randn(3, 4, 2, 8))


def _both(write: Any) -> Any:
    return lambda k, v, kc, vc, slots, cache_mode="": (None, write(k, kc, slots), write(v, vc, slots))


case("_npu_reshape_and_cache", *_TOKENS, *_PAGES, _SLOTS, reference=_both(_written), written=(2, 3))
case("npu_scatter_pa_kv_cache", *_TOKENS, *_PAGES, _SLOTS, options={"cache_mode": "Norm"}, reference=_both(_written), written=(2, 3))
_NZ = (randn(3, 4, 4, 4), randn(3, 4, 4, 4))
case("npu_scatter_pa_kv_cache", *_TOKENS, *_NZ, torch.tensor([3, 9, 0, 11, 6]), reference=_both(_written_nz), written=(2, 3))


def _gathered(
    kc: Array, vc: Array, table: Array, lengths: Array, k: Array, v: Array, seq_offset: Any = None, is_seq_lens_cumsum: bool = False
) -> Any:
    lengths = np.diff(lengths) if is_seq_lens_cumsum else lengths
    for cache, out in ((kc, k), (vc, v)):
        pages = (
            cache
            if cache.shape[2:] == out.shape[1:]
            else cache.transpose(0, 2, 1, 3).reshape(cache.shape[0], cache.shape[2], *out.shape[1:])
        )
        place = 0
        for b, length in enumerate(lengths):
            first = 0 if seq_offset is None else seq_offset[b] // pages.shape[1]
            for j in range(length):
                number = first + j // pages.shape[1]
                known = number < table.shape[1] and 0 <= table[b, number] < len(pages)
                out[place] = pages[table[b, number], j % pages.shape[1]] if known else 0
                place += 1
    return None, k, v


_PLACES = torch.tensor([[2, 0], [1, 2]], dtype=torch.int32)
for _caches in (_PAGES, _NZ):
    case(
        "npu_gather_pa_kv_cache",
        *_caches,
        _PLACES,
        torch.tensor([5, 3]),
        torch.empty(8, 2, 8),
        torch.empty(8, 2, 8),
        reference=_gathered,
        written=(4, 5),
    )
case(
    "npu_gather_pa_kv_cache",
    *_PAGES,
    _PLACES,
    torch.tensor([0, 2, 8]),
    torch.empty(8, 2, 8),
    torch.empty(8, 2, 8),
    options={"seq_offset": torch.tensor([4, 4]), "is_seq_lens_cumsum": True},
    reference=_gathered,
    written=(4, 5),
)


def _paged(q: Array, kc: Array, vc: Array, groups: int, heads: int, scale: float, table: Array, lengths: Array, out: Array) -> Any:
    ks, vs = ([_page_tokens(x.reshape(*x.shape[:2], -1), table[b], n) for b, n in enumerate(lengths)] for x in (kc, vc))
    return None, np.stack([o[:, 0] for o in _infer([x[:, None] for x in q], ks, vs, scale)[0]])


_PAGED = (randn(2, 4, 8), *_PAGES, 2, 4, 0.3, _PLACES, torch.tensor([7, 3], dtype=torch.int32), torch.empty(2, 4, 8))
case("_npu_paged_attention", *_PAGED, reference=_paged, written=(8,))
case(
    "_npu_paged_attention_v2",
    _PAGED[0], _PAGES[0], _PLACES, [7, 3],
    options={"value_cache": _PAGES[1], "num_kv_heads": 2, "num_heads": 4, "scale_value": 0.3, "out": torch.empty(2, 4, 8)},
    reference=lambda q, kc, table, lengths, value_cache, num_kv_heads, num_heads, scale_value, out: _paged(
        q, kc, value_cache, num_kv_heads, num_heads, scale_value, table, np.array(lengths), out
    )[1],
)  # fmt: skip
case("_npu_paged_attention_get_workspace", *_PAGED, reference=lambda *a: np.zeros(0))


def _unpadded(
    q: Array, k: Array, v: Array, lengths: Array, scale: float, heads: int, groups: int, out: Array, mask: Array | None = None
) -> Any:
    cuts = np.cumsum([0, *lengths])
    parts = [
        [x[a:b].reshape(b - a, n, -1).transpose(1, 0, 2) for a, b in itertools.pairwise(cuts)]
        for x, n in ((q, heads), (k, groups), (v, groups))
    ]
    outs = _infer(*parts, scale, pse=None if mask is None else np.broadcast_to(mask, (1, heads, *mask.shape)))[0]
    return None, np.concatenate([o.transpose(1, 0, 2) for o in outs]).reshape(out.shape)


_FLAT = (randn(7, 4, 8), randn(7, 2, 8), randn(7, 2, 8))
case("_npu_flash_attention_unpad", *_FLAT, torch.tensor([3, 4]), 0.3, 4, 2, torch.empty(7, 4, 8), reference=_unpadded, written=(7,))
case(
    "_npu_flash_attention_unpad",
    *_FLAT, torch.tensor([0, 3, 0, 4]), 0.3, 4, 2, torch.empty(7, 4, 8),
    reference=lambda q, k, v, lengths, *rest: _unpadded(q, k, v, lengths[lengths > 0], *rest), written=(7,),
)  # fmt: skip
case(
    "_npu_flash_attention",
    *_FLAT,
    randn(4, 4),
    torch.tensor([3, 4]),
    0.3,
    4,
    2,
    torch.empty(7, 4, 8),
    reference=lambda q, k, v, mask, *rest: _unpadded(q, k, v, *rest, mask=mask),
    written=(8,),
)


case(
    "_npu_flash_attention_unpad_v2",
    *_FLAT, torch.tensor([3, 4]), 0.3, 4, 2, options={"out": torch.empty(7, 4, 8)}, reference=lambda *a, out: _unpadded(*a, out)[0],
)  # fmt: skip
case("_npu_reshape_and_cache_siso", _TOKENS[0], _PAGES[0], _SLOTS, reference=lambda k, kc, s: (None, _written(k, kc, s)), written=(1,))


def _latent(q: Array, kc: Array, groups: int, heads: int, scale: float, table: Array, lengths: Array, size: int, out: Array) -> Any:
    return _paged(q, kc, kc[..., :size], groups, heads, scale, table, lengths, out)


_LENGTHS = torch.tensor([7, 3], dtype=torch.int32)
case(
    "_npu_paged_attention_mla",
    randn(2, 4, 8), _PAGES[0], 2, 4, 0.3, _PLACES, _LENGTHS, 6, torch.empty(2, 4, 6),
    reference=_latent, written=(8,),
)  # fmt: skip


def _prefixed(q: Array, kc: Array, vc: Array, table: Array, lengths: Array, mask: Array, counts: Array, *rest: Any) -> Any:
    groups, heads, scale, out = rest
    results, begin = np.empty_like(out), 0
    for b, (count, length) in enumerate(zip(counts, lengths, strict=True)):
        for row in range(begin, begin + count):
            seen = length - count + row - begin + 1 if mask.shape == (128, 128) else length
            for head in range(heads):
                pages = [[cache[table[b, t // 4], t % 4, head * groups // heads] for t in range(seen)] for cache in (kc, vc)]
                scores = np.array(pages[0]) @ q[row, head] * scale + (0 if mask.shape == (128, 128) else mask[row, :seen])
                weights = np.exp(scores - scores.max())
                results[row, head] = weights @ np.array(pages[1]) / weights.sum()
        begin += count
    return None, results


_LAST = torch.tensor([3, 1], dtype=torch.int32)
_DIAGONAL = torch.ones(128, 128).triu(1)
for _mask, _counts in ((randn(4, 8), _LAST), (_DIAGONAL, _LAST), (_DIAGONAL, torch.tensor([4, 0]))):
    case(
        "_npu_paged_attention_splitfuse",
        randn(4, 4, 8), *_PAGES, _PLACES, _LENGTHS, _mask, _counts, 2, 4, 0.3, torch.empty(4, 4, 8),
        reference=_prefixed, written=(10,),
    )  # fmt: skip
case(
    "_npu_flash_attention_qlens",
    randn(4, 4, 8), *_PAGES, _PLACES, _DIAGONAL, _LAST, _LENGTHS, 2, 4, 0.3, torch.empty(4, 4, 8),
    reference=lambda q, k, v, table, mask, counts, lengths, *rest: _prefixed(q, k, v, table, lengths, mask, counts, *rest),
    written=(10,),
)  # fmt: skip
