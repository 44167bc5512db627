"""Attention of the transformer library with masks, on latent keys, and the loading of caches; by loops over sequences, heads and keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.torch_operators.walk import case, randn

Array = np.ndarray

_TABLE = torch.tensor([[2, 0, 1], [1, 3, 0]], dtype=torch.int32)
_KEYS, _VALUES, _QUERY = randn(4, 3, 2, 8), randn(4, 3, 2, 6), randn(2, 4, 8)


def _one(q: Array, keys: Array, values: Array, scale: float, bias: Any) -> tuple[Array, float]:
    """One query (D,) on keys (K, D) and values (K, E): what it attends, and the logarithm of the sum."""
    scores = keys @ q * scale + bias
    weights = np.exp(scores - scores.max())
    return weights @ values / weights.sum(), float(scores.max() + np.log(weights.sum()))


def _tokens(cache: Array, table: Array, length: int, first: int = 0) -> Array:
    size = cache.shape[1]
    return np.array([cache[table[first + i // size], i % size] for i in range(length)]).reshape(length, *cache.shape[2:])


def _masked_pages(
    q: Array, kc: Array, table: Array, lengths: Any, *, value_cache: Array, mask: Any, num_kv_heads: int, scale_value: float, **options: Any
) -> Array:
    mask = mask if options["mask_type"] else None
    result = np.zeros(options["out"].shape)
    for b, length in enumerate(lengths):
        for head in range(q.shape[1]):
            group = head * num_kv_heads // q.shape[1]
            keys, values = (_tokens(cache, table[b], length)[:, group] for cache in (kc, value_cache))
            bias = 0 if mask is None else (mask[b] if mask.ndim == 4 else mask)[head, 0, :length]
            result[b, head] = _one(q[b, head], keys, values, scale_value, bias)[0]
    return result


for _mask, _type in ((None, 2), (randn(2, 4, 1, 7), 2), (randn(4, 1, 7), 2), (randn(4, 1, 7), 0)):
    case(
        "_npu_paged_attention_v2", _QUERY, _KEYS, _TABLE, [7, 4], reference=_masked_pages,
        options={
            "value_cache": _VALUES, "mask": _mask, "num_kv_heads": 2, "num_heads": 4, "scale_value": 0.3, "mask_type": _type,
            "out": torch.empty(2, 4, 6),
        },
    )  # fmt: skip
case(
    "_npu_paged_attention_v2_get_workspace", _QUERY, _KEYS, _TABLE, [7, 4], options={"value_cache": _VALUES, "out": torch.empty(2, 4, 6)},
    reference=lambda *_, **__: np.zeros(0),
)  # fmt: skip


def _masked_sequences(
    q: Array, k: Array, v: Array, lengths: Any, *, mask: Any, mask_type: int, scale_value: float, num_heads: int, num_kv_heads: int,
    out: Array, **_: Any,
) -> Array:  # fmt: skip
    mask = mask[:, None] if mask_type == 1 and mask.ndim == 3 else mask
    result, begin = np.zeros((len(q), num_heads, v.shape[1] // num_kv_heads)), 0
    for b, length in enumerate(lengths):
        rows = slice(begin, begin + length)
        bias = np.zeros((num_heads, length, length)) if mask is None else mask[b] if mask.ndim == 4 else mask
        bias = np.broadcast_to(bias, (num_heads, *bias.shape[-2:]))
        queries, keys, values = (x[rows].reshape(length, n, -1) for x, n in ((q, num_heads), (k, num_kv_heads), (v, num_kv_heads)))
        for row in range(length):
            for head in range(num_heads):
                group = head * num_kv_heads // num_heads
                attended = _one(queries[row, head], keys[:, group], values[:, group], scale_value, bias[head, row, :length])
                result[begin + row, head] = attended[0]
        begin += length
    return result.reshape(out.shape)


for _mask, _type in (
    (None, 2), (randn(4, 4), 2), (randn(4, 4, 4), 2), (randn(2, 1, 4, 4), 2), (randn(2, 4, 4), 1), (randn(4, 4), 1), (randn(2, 4, 4, 4), 1)
):  # fmt: skip
    case(
        "_npu_flash_attention_v2.out", randn(7, 32), randn(7, 16), randn(7, 12), [3, 4], reference=_masked_sequences,
        options={
            "mask": _mask, "mask_type": _type, "scale_value": 0.3, "num_heads": 4, "num_kv_heads": 2, "out": torch.empty(7, 24),
        },
    )  # fmt: skip


def _latent(
    q: Array, rotated: Array, ctkv: Array, k_rope: Array, table: Array, lengths: Any, heads: int, scale: float, groups: int,
    return_lse: bool = True, mask: Any = None, qseqlen: Any = None, **_: Any,
) -> Any:  # fmt: skip
    out, logarithms, row = np.zeros(q.shape), np.zeros((*q.shape[:2], 1)), 0
    for b, length in enumerate(lengths):
        values = _tokens(ctkv, table[b], length)[:, 0]
        keys = np.concatenate((values, _tokens(k_rope, table[b], length)[:, 0]), -1)
        for _step in range(1 if qseqlen is None else qseqlen[b]):
            for head in range(heads):
                query, bias = np.concatenate((q[row, head], rotated[row, head])), 0 if mask is None else mask[row, :length]
                out[row, head], logarithms[row, head] = _one(query, keys, values, scale, bias)
            row += 1
    return (out, logarithms) if return_lse else (out, np.zeros(0))


_CACHES = (randn(4, 3, 1, 8), randn(4, 3, 1, 4), _TABLE, [7, 4], 4, 0.3, 1)
_NAME = "npu_multi_head_latent_attention"
_ONE, _SEVERAL = (randn(2, 4, 8), randn(2, 4, 4)), (randn(5, 4, 8), randn(5, 4, 4))
case(_NAME, *_ONE, *_CACHES, reference=lambda *a: _latent(*a)[0])
case(f"{_NAME}.out", *_ONE, *_CACHES, options={"output": torch.empty(2, 4, 8)}, reference=lambda *a, output: _latent(*a)[0])
case(f"{_NAME}.lse", *_ONE, *_CACHES, True, options={"calc_type": "calc_type_ring"}, reference=_latent)
case(f"{_NAME}.lse", *_ONE, *_CACHES, False, reference=_latent)
case(_NAME, *_ONE, *_CACHES, options={"mask": randn(2, 7)}, reference=lambda *a, mask: _latent(*a)[0])  # no mask without its type
case(
    f"{_NAME}.lse_out", *_SEVERAL, *_CACHES, True, reference=_latent,
    options={
        "mask": randn(5, 7), "qseqlen": [2, 3], "mask_type": "mask_type_spec", "output": torch.empty(5, 4, 8), "lse": torch.empty(5, 4, 1),
    },
)  # fmt: skip
case(f"_{_NAME}_get_workspace.lse", *_ONE, *_CACHES, True, reference=lambda *_: np.zeros(0))


def _loaded(kc: Array, vc: Array, table: Array, lengths: Array, *, seq_starts: Any = None, cumsum: bool = False, **_: Any) -> Any:
    counts = np.diff(lengths) if cumsum else lengths
    starts = np.zeros(len(counts), int) if seq_starts is None else seq_starts // kc.shape[1]
    return tuple(np.concatenate([_tokens(c, table[b], n, starts[b]) for b, n in enumerate(counts)]) for c in (kc, vc))


_BOTH = (_KEYS, _VALUES, _TABLE)
case("npu_paged_cache_load", *_BOTH, torch.tensor([5, 3], dtype=torch.int32), reference=_loaded)
case(
    "npu_paged_cache_load", *_BOTH, torch.tensor([0, 5, 8], dtype=torch.int32),
    options={"cumsum": True, "seq_starts": torch.tensor([4, 0], dtype=torch.int32)}, reference=_loaded,
)  # fmt: skip
case(
    "npu_paged_cache_load.out", *_BOTH, torch.tensor([5, 3], dtype=torch.int32), reference=_loaded,
    options={"key": torch.empty(8, 2, 8), "value": torch.empty(8, 2, 6)},
)  # fmt: skip
