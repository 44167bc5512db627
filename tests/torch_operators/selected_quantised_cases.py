"""Cases of attention on chosen keys that are bytes, and on blocks of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.torch_operators.selected_cases import _CHOSEN, _INT, _PAGED, _indexer, _sparse
from tests.torch_operators.walk import case, rand, randn, random_bytes

Array = np.ndarray


def _of_bytes(query: Array, key: Array, weights: Array, of_query: Array, of_key: Array, *_modes: int, **o: Any) -> Array:
    return _indexer(query * of_query[..., None], key * of_key[..., None], weights, **o)[0]


_SCALED = (random_bytes(2, 3, 4, 8), random_bytes(2, 6, 1, 8), randn(2, 3, 4), rand(2, 3, 4) / 99, rand(2, 6, 1) / 99)
case("npu_quant_lightning_indexer", *_SCALED, 0, 0, options={"sparse_count": 4}, reference=_of_bytes)
_FLOATS = tuple(x.to(torch.float8_e4m3fn) for x in (randn(5, 4, 8), randn(4, 5, 1, 8)))
case(
    "npu_quant_lightning_indexer", *_FLOATS, randn(5, 4), rand(5, 4), rand(4, 5, 1), 0, 0,
    options={"sparse_count": 3, "layout_key": "PA_BSND", "actual_seq_lengths_key": torch.tensor([6, 9], dtype=_INT), **_PAGED},
    reference=_of_bytes,
)  # fmt: skip


def _packed(*shape: int, narrow: int, rope: int, tile: int, dtype: torch.dtype) -> torch.Tensor:
    parts = random_bytes(*shape, narrow), randn(*shape, rope, dtype=dtype), rand(*shape, -(-narrow // tile)) / 99
    return torch.cat([part.view(torch.int8) for part in parts], -1)


def _of_latent_bytes(query: Array, key: Array, value: Array, chosen: Array, scale: float, *_modes: int, **o: Any) -> Array:
    tile, rope = o["tile_size"], o["rope_head_dim"]
    narrow = query.shape[-1] - rope
    floats = np.ascontiguousarray(key[..., narrow : narrow + 4 * rope]).view(np.float32)
    scales = np.ascontiguousarray(key[..., narrow + 4 * rope :]).view(np.float32)
    values = key[..., :narrow].astype(float) * np.repeat(scales, tile, -1)[..., :narrow]
    return _sparse(query, np.concatenate((values, floats), -1), values, chosen, scale, **o)[0]


_LATENT = {"tile_size": 4, "rope_head_dim": 2, "attention_mode": 2}
_KEYS = _packed(2, 7, 1, narrow=6, rope=2, tile=4, dtype=torch.float32)
for _more in ({}, {"sparse_mode": 0, "sinks": randn(4)}):
    case(
        "npu_kv_quant_sparse_flash_attention", randn(2, 3, 4, 8), _KEYS, _KEYS, _CHOSEN, 0.3, 2, 2,
        options=_LATENT | {"sparse_block_size": 2} | _more, reference=_of_latent_bytes,
    )  # fmt: skip


def _by_blocks(query: Array, key: Array, value: Array, mask: Array, block: Any, **o: Any) -> Any:
    if o["q_input_layout"] == "BNSD":
        sequences = [(query[b], key[b], value[b]) for b in range(len(query))]
    else:
        ends = [np.cumsum([0, *o[name]]) for name in ("actual_seq_lengths", "actual_seq_lengths_kv")]
        cut = lambda x, e, b: x[e[b] : e[b + 1]].swapaxes(0, 1)  # noqa: E731
        sequences = [(cut(query, ends[0], b), cut(key, ends[1], b), cut(value, ends[1], b)) for b in range(len(ends[0]) - 1)]
    outs, logs = [], []
    for b, (q, k, v) in enumerate(sequences):
        out, log = np.zeros((*q.shape[:2], v.shape[-1])), np.full((*q.shape[:2], 1), -np.inf)
        for n, i in np.ndindex(*q.shape[:2]):
            read = [j for j in range(k.shape[1]) if mask[b, n, i // block[0], j // block[1]]]
            if read:
                weights = np.exp(k[n * len(k) // len(q)][read] @ q[n, i] * o["scale_value"])
                out[n, i], log[n, i] = weights @ v[n * len(k) // len(q)][read] / weights.sum(), np.log(weights.sum())
        outs.append(out), logs.append(log)
    if o["q_input_layout"] == "BNSD":
        return np.stack(outs), np.stack(logs)
    return tuple(np.concatenate(found, 1).swapaxes(0, 1) for found in (outs, logs))


_MASK = torch.tensor([[[1, 0], [0, 1], [0, 0]], [[0, 1], [1, 1], [1, 0]]], dtype=torch.int8).expand(2, 2, 3, 2).contiguous()
case(
    "npu_block_sparse_attention", randn(2, 2, 5, 4), randn(2, 1, 7, 4), randn(2, 1, 7, 3), _MASK, [2, 4],
    options={"q_input_layout": "BNSD", "kv_input_layout": "BNSD", "scale_value": 0.5}, reference=_by_blocks, differentiable=True,
)  # fmt: skip
case(
    "npu_block_sparse_attention", randn(7, 4, 8), randn(9, 2, 8), randn(9, 2, 8),
    torch.ones(2, 4, 2, 2, dtype=torch.int8).triu(), [3, 5],
    options={"q_input_layout": "TND", "scale_value": 0.3, "actual_seq_lengths": [3, 4], "actual_seq_lengths_kv": [6, 3]},
    reference=_by_blocks,
)  # fmt: skip
