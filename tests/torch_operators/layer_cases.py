"""Whole attention layers, integer convolutions and caches of latent attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.torch_operators.normalisation_cases import _rms
from tests.torch_operators.product_cases import _convolved
from tests.torch_operators.quantising_cases import _int8
from tests.torch_operators.walk import case, rand, randn

Array = np.ndarray


def _softmax(x: Array) -> Array:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _score(q: Array, k: Array, v: Array, mask: Array, scale: float, keep: float) -> Any:
    p = _softmax(q @ k.transpose(0, 1, 3, 2) * scale + mask)
    return (p @ v).transpose(0, 2, 1, 3).reshape(q.shape[0] * q.shape[2], -1), p, np.ones(p.shape, np.uint8)


_L = (randn(2, 3, 4, 5), randn(2, 3, 4, 5), randn(2, 3, 4, 5), randn(2, 1, 4, 4), 0.3, 1.0)
case("npu_fused_attention_score_fwd", *_L, reference=_score, differentiable=True)
case("npu_fused_attention_score", *_L, reference=lambda *a: _score(*a)[0], differentiable=True)


def _layer(
    q: Array,
    k: Array,
    v: Array,
    wq: Array,
    wk: Array,
    wv: Array,
    mask: Array,
    wo: Array,
    bq: Any,
    bk: Any,
    bv: Any,
    bo: Any,
    drop: Any,
    n: int,
    d: int,
    s: int,
    t: int,
    p: float,
    f: bool,
) -> Any:
    def heads(x: Array, w: Array, b: Any) -> Array:
        return (x @ w.T + (0 if b is None else b)).reshape(q.shape[0] // t, -1, n, d).transpose(0, 2, 1, 3)

    hq, hk, hv = heads(q, wq, bq) / np.sqrt(d), heads(k, wk, bk), heads(v, wv, bv)
    scores = hq @ hk.transpose(0, 1, 3, 2) + mask
    kept = 1 if drop is None else np.unpackbits(drop, bitorder="little")[: scores.size].reshape(scores.shape) / (1 - p)
    context = (_softmax(scores) * kept @ hv).transpose(0, 2, 1, 3).reshape(q.shape[0], -1)
    return context @ wo.T + (0 if bo is None else bo), drop, hq, hk, hv, scores, _softmax(scores), context


_M = (randn(6, 8), randn(8, 8), randn(8, 8), randn(8, 8), randn(8, 8), randn(8, 8), randn(2, 1, 3, 4), randn(8, 8))
case("npu_multi_head_attention", *_M, randn(8), randn(8), randn(8), randn(8), None, 2, 4, 4, 3, 0.0, True, reference=_layer)
_DROP = torch.randint(0, 256, (16,), dtype=torch.uint8)
case("npu_multi_head_attention", *_M, None, None, None, None, _DROP, 2, 4, 4, 3, 0.25, False, reference=_layer)


def _conv(
    x: Array,
    w: Array,
    scale: Array,
    strides: Any = (1, 1),
    pads: Any = (0, 0),
    dilations: Any = (1, 1),
    groups: int = 1,
    offset_x: int = 0,
    mode: str = "rint",
    output_dtype: Any = None,
    bias: Any = None,
) -> Array:
    scale = (scale & 0xFFFFFFFF).astype(np.uint32).view(np.float32).astype(float) if scale.dtype == np.int64 else scale
    sums = _convolved(
        x.astype(float), w.astype(float), bias if bias is not None and bias.dtype.kind == "i" else None, strides, pads, dilations, groups
    )
    y = sums * scale[:, None, None] + (bias[:, None, None] if bias is not None and bias.dtype.kind == "f" else 0)
    return _int8(y) if output_dtype == torch.int8 else y


_C = (torch.randint(-128, 128, (2, 4, 6, 5), dtype=torch.int8), torch.randint(-128, 128, (6, 2, 3, 2), dtype=torch.int8))
_SCALE = torch.ops.npu.npu_trans_quant_param(rand(6) / 999)
case("npu_quant_conv2d", *_C, _SCALE, [2, 1], [1, 0], [1, 2], 2, options={}, reference=_conv, tolerance=5e-3)
case(
    "npu_quant_conv2d",
    *_C,
    rand(6) / 999,
    [1, 1],
    [0, 1],
    [1, 1],
    2,
    0,
    "rint",
    torch.bfloat16,
    torch.arange(6, dtype=torch.int32) * 99,
    reference=_conv,
    tolerance=3e-2,
)


def _rope_cache(
    kv: Array, gamma: Array, cos: Array, sin: Array, index: Array, k_cache: Array, v_cache: Array, cache_mode: str = "Norm"
) -> Any:
    width = gamma.size
    values = _rms(kv[..., :width], gamma, 1e-5)[0]
    rope = kv[..., width:]
    rope = np.concatenate((rope[..., ::2], rope[..., 1::2]), -1)
    half = rope.shape[-1] // 2
    keys = rope * cos + np.concatenate((-rope[..., half:], rope[..., :half]), -1) * sin
    for b, s in np.ndindex(kv.shape[0], kv.shape[2]):
        for cache, rows in ((k_cache, keys), (v_cache, values)):
            if cache_mode == "Norm":
                cache[b, 0, index[b, s]] = rows[b, 0, s]
            else:
                slot = index[b * kv.shape[2] + s]
                cache[slot // cache.shape[1], slot % cache.shape[1], 0] = rows[b, 0, s]
    return k_cache, v_cache, keys, values


_KV = (randn(2, 1, 3, 12), randn(8), randn(2, 1, 3, 4), randn(2, 1, 3, 4))
case("npu_kv_rmsnorm_rope_cache", *_KV, torch.tensor([[0, 4, 2], [1, 3, 0]]), randn(2, 1, 5, 4), randn(2, 1, 5, 8), reference=_rope_cache)
case(
    "npu_kv_rmsnorm_rope_cache",
    *_KV,
    torch.tensor([0, 4, 2, 7, 11, 9]),
    randn(3, 4, 1, 4),
    randn(3, 4, 1, 8),
    options={"cache_mode": "PA"},
    reference=_rope_cache,
)
