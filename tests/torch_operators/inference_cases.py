"""Attention of inference and its caches, score by score."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch

from tests.torch_operators.attention_cases import HUGE, Array, _from_bnsd, _hidden, _to_bnsd, naive
from tests.torch_operators.walk import case, rand, randn, random_bytes


def _infer(
    q: list[Array],
    k: list[Array],
    v: list[Array],
    scale: float,
    mode: int = 0,
    mask: Array | None = None,
    pse: Array | None = None,
    before: int = HUGE,
    after: int = HUGE,
    sink: Array | None = None,
) -> Any:
    """Sequences (N, S, D) with keys (Nk, T, D): results, and logs of sums (N, S)."""
    outs, logs = [], []
    for b, (one, keys, values) in enumerate(zip(q, k, v, strict=True)):
        mask_b = mask[b : b + 1] if mask is not None and mask.ndim > 2 and mask.shape[0] == len(q) else mask
        hidden = _hidden(mode, mask_b, 0, 0, one.shape[1], keys.shape[1], before, after, None, 1)

        def bias(n: int, i: int, j: int, b: int = b) -> float:
            return 0.0 if pse is None else float(pse[b % pse.shape[0], n, i, j])

        out, largest, total = naive(one, keys, values, scale, hidden, bias, sink)
        outs.append(out)
        with np.errstate(divide="ignore"):
            logs.append(np.where(total > 0, largest + np.log(total), np.inf))
    return outs, logs


def _dense(
    query: Array,
    key: Array,
    value: Array,
    *,
    num_heads: int,
    scale: float,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    actual_seq_lengths: Any = None,
    actual_seq_lengths_kv: Any = None,
    sparse_mode: int = 0,
    atten_mask: Array | None = None,
    pse_shift: Array | None = None,
    softmax_lse_flag: bool = False,
    query_rope: Array | None = None,
    key_rope: Array | None = None,
    key_shared_prefix: Array | None = None,
    value_shared_prefix: Array | None = None,
    pre_tokens: int = HUGE,
    next_tokens: int = HUGE,
    learnable_sink: Array | None = None,
) -> Any:
    given, _, wanted = input_layout.partition("_")
    groups = num_key_value_heads or num_heads
    q, k, v = _to_bnsd(query, given, num_heads), _to_bnsd(key, given, groups), _to_bnsd(value, given, groups)
    if query_rope is not None:
        q, k = np.concatenate((q, _to_bnsd(query_rope, given, num_heads)), -1), np.concatenate((k, _to_bnsd(key_rope, given, groups)), -1)
    rows = [q.shape[2]] * len(q) if actual_seq_lengths is None else list(actual_seq_lengths)
    columns = [k.shape[2]] * len(q) if actual_seq_lengths_kv is None else list(actual_seq_lengths_kv)
    ks, vs = ([x[b, :, : columns[b]] for b in range(len(q))] for x in (k, v))
    if key_shared_prefix is not None:
        first_k, first_v = (_to_bnsd(x, given, groups)[0] for x in (key_shared_prefix, value_shared_prefix))
        ks, vs = [np.concatenate((first_k, x), 1) for x in ks], [np.concatenate((first_v, x), 1) for x in vs]
    outs, logs = _infer(
        [q[b, :, : rows[b]] for b in range(len(q))],
        ks,
        vs,
        scale,
        sparse_mode,
        atten_mask,
        pse_shift,
        pre_tokens,
        next_tokens,
        learnable_sink,
    )
    out, log = np.zeros((*q.shape[:3], v.shape[-1])), np.zeros((*q.shape[:3], 1))
    for b in range(len(q)):
        out[b, :, : rows[b]], log[b, :, : rows[b], 0] = outs[b], logs[b]
    return _from_bnsd(out, wanted or given), log if softmax_lse_flag else np.zeros(1)


_CAUSAL = torch.ones(2048, 2048).triu(1).bool()
_NAME = "npu_fused_infer_attention_score"


def _score(*tensors: torch.Tensor, reference: Any = _dense, **options: Any) -> None:
    case(_NAME, *tensors, options={"scale": 0.3, **options}, reference=reference)


_Q, _K, _V = randn(2, 3, 32), randn(2, 7, 16), randn(2, 7, 16)
_score(_Q, _K, _V, num_heads=4, num_key_value_heads=2, softmax_lse_flag=True)
_score(_Q, _K, _V, num_heads=4, num_key_value_heads=2, input_layout="BSH_NBSD")
_score(randn(2, 3, 4, 8), randn(2, 7, 2, 8), randn(2, 7, 2, 8), num_heads=4, num_key_value_heads=2, input_layout="BSND_BNSD")
_B = (randn(2, 4, 3, 8), randn(2, 4, 7, 8), randn(2, 4, 7, 6))
_score(*_B, num_heads=4, input_layout="BNSD_BSND", actual_seq_lengths=[3, 2], actual_seq_lengths_kv=[5, 7], softmax_lse_flag=True)
_score(*_B, num_heads=4, input_layout="BNSD", atten_mask=_CAUSAL, sparse_mode=3)
_score(*_B, num_heads=4, input_layout="BNSD", atten_mask=_CAUSAL, sparse_mode=2)
_score(*_B, num_heads=4, input_layout="BNSD", atten_mask=_CAUSAL, sparse_mode=4, pre_tokens=3, next_tokens=1)
_score(*_B, num_heads=4, input_layout="BNSD", atten_mask=rand(2, 1, 3, 7) > 0.6, pse_shift=randn(1, 4, 3, 7))
_score(*_B, num_heads=4, input_layout="BNSD", query_rope=randn(2, 4, 3, 4), key_rope=randn(2, 4, 7, 4))
_score(*_B, num_heads=4, input_layout="BNSD", key_shared_prefix=randn(1, 4, 2, 8), value_shared_prefix=randn(1, 4, 2, 6))


def _packed(
    query: Array,
    key: Array,
    value: Array,
    *,
    actual_seq_lengths: Any,
    actual_seq_lengths_kv: Any,
    scale: float,
    sparse_mode: int = 0,
    atten_mask: Any = None,
    block_table: Array | None = None,
    **_: Any,
) -> Any:
    cuts = [0, *actual_seq_lengths]
    qs = [query[a:b].transpose(1, 0, 2) for a, b in itertools.pairwise(cuts)]
    if block_table is None:
        ends = [0, *actual_seq_lengths_kv]
        ks, vs = ([x[a:b].transpose(1, 0, 2) for a, b in itertools.pairwise(ends)] for x in (key, value))
    else:
        ks, vs = ([_page_tokens(x, block_table[b], length) for b, length in enumerate(actual_seq_lengths_kv)] for x in (key, value))
    outs, logs = _infer(qs, ks, vs, scale, sparse_mode, atten_mask)
    return np.concatenate([o.transpose(1, 0, 2) for o in outs]), np.concatenate([x.T for x in logs])[..., None]


def _page_tokens(cache: Array, table: Array, length: int, heads: int = 2) -> Array:
    """(N, length, D) from pages (pages, tokens, N * D)."""
    size = cache.shape[1]
    rows = [cache[table[j // size], j % size].reshape(heads, -1) for j in range(length)]
    return np.stack(rows, 1) if rows else np.zeros((heads, 0, cache.shape[2] // heads))


_T = {"num_heads": 4, "num_key_value_heads": 2, "input_layout": "TND", "softmax_lse_flag": True}
_score(randn(6, 4, 8), randn(9, 2, 8), randn(9, 2, 8), reference=_packed, actual_seq_lengths=[2, 6], actual_seq_lengths_kv=[4, 9], **_T)
_CACHE = (randn(6, 4, 16), randn(6, 4, 16))
_TABLE = torch.tensor([[5, 0, 2], [3, 1, 4]], dtype=torch.int32)
_score(
    randn(6, 4, 8),
    *_CACHE,
    reference=_packed,
    actual_seq_lengths=[2, 6],
    actual_seq_lengths_kv=[7, 9],
    block_table=_TABLE,
    block_size=4,
    atten_mask=_CAUSAL,
    sparse_mode=3,
    **_T,
)


def _paged_dense(query: Array, key: Array, value: Array, *, block_table: Array, actual_seq_lengths_kv: Any, scale: float, **_: Any) -> Any:
    q = _to_bnsd(query, "BSH", 4)
    ks, vs = (
        [_page_tokens(x.transpose(0, 2, 1, 3).reshape(6, 4, -1), block_table[b], n) for b, n in enumerate(actual_seq_lengths_kv)]
        for x in (key, value)
    )
    return _from_bnsd(np.stack(_infer(list(q), ks, vs, scale)[0]), "BSH"), np.zeros(1)


_score(
    randn(2, 1, 32),
    randn(6, 2, 4, 8),
    randn(6, 2, 4, 8),
    reference=_paged_dense,
    num_heads=4,
    num_key_value_heads=2,
    block_table=_TABLE,
    block_size=4,
    actual_seq_lengths_kv=[0, 9],
)


def _dequantised(query: Array, key: Array, value: Array, **options: Any) -> Any:
    parts = {n: options.pop(n) for n in list(options) if "antiquant" in n}
    mode = parts.get("key_antiquant_mode", parts.get("antiquant_mode", 0))

    def floats(x: Array, name: str, place: int) -> Array:
        scale, offset = parts.get(f"{name}_antiquant_scale"), parts.get(f"{name}_antiquant_offset", 0.0)
        if scale is None:
            scale, offset = parts["antiquant_scale"][place], parts["antiquant_offset"][place]
        if mode == 3:
            return (x + np.asarray(offset)[..., None]) * scale[..., None]
        if mode == 1:
            return (x + np.asarray(offset)[:, None, :, None]) * scale[:, None, :, None]
        shape = (1, x.shape[1], 1, x.shape[3]) if np.size(scale) > 1 else ()
        return (x + (np.reshape(offset, shape) if np.size(offset) == np.size(scale) else offset)) * np.reshape(scale, shape)

    return _dense(query, floats(key.astype(float), "key", 0), floats(value.astype(float), "value", 1), **options)


_I = {"num_heads": 4, "input_layout": "BNSD"}
_score(
    randn(2, 4, 1, 8),
    random_bytes(2, 4, 7, 8),
    random_bytes(2, 4, 7, 8),
    reference=_dequantised,
    antiquant_scale=rand(2, 4, 8) / 50,
    antiquant_offset=rand(2, 4, 8),
    **_I,
)
_score(
    randn(2, 4, 1, 8),
    random_bytes(2, 4, 7, 8),
    random_bytes(2, 4, 7, 8),
    reference=_dequantised,
    key_antiquant_scale=rand(1, 4, 1, 8) / 50,
    value_antiquant_scale=rand(1, 4, 1, 8) / 50,
    **_I,
)
for _mode, _rows in ((1, (2, 7)), (3, (2, 4, 7))):
    _score(
        randn(2, 4, 1, 8),
        random_bytes(2, 4, 7, 8),
        random_bytes(2, 4, 7, 8),
        reference=_dequantised,
        **{f"{name}_antiquant_{part}": rand(*_rows) / 50 for name in ("key", "value") for part in ("scale", "offset")},
        key_antiquant_mode=_mode,
        value_antiquant_mode=_mode,
        **_I,
    )


def _quantised_pages(query: Array, key: Array, value: Array, *, key_antiquant_mode: int, actual_seq_lengths_kv: Any, **o: Any) -> Any:
    def floats(x: Array, scale: Array) -> Array:
        if key_antiquant_mode == 1:  # by token of a sequence: put where its pages are
            by_page = np.zeros((len(x), x.shape[2]))
            for row, table in zip(scale, o["block_table"], strict=True):
                by_page[table] = row.reshape(len(table), -1)
            scale = by_page
        return x * (scale if key_antiquant_mode == 5 else scale[:, None])[..., None]

    keys, values = (floats(x.astype(float), o[f"{n}_antiquant_scale"]) for x, n in ((key, "key"), (value, "value")))
    return _paged_dense(query, keys, values, block_table=o["block_table"], actual_seq_lengths_kv=actual_seq_lengths_kv, scale=o["scale"])


for _mode, _rows in ((1, (2, 12)), (4, (6, 4)), (5, (6, 2, 4))):
    _score(
        randn(2, 1, 32),
        random_bytes(6, 2, 4, 8),
        random_bytes(6, 2, 4, 8),
        reference=_quantised_pages,
        num_heads=4,
        num_key_value_heads=2,
        block_table=_TABLE,
        block_size=4,
        actual_seq_lengths_kv=[5, 11],
        **{f"{name}_antiquant_scale": rand(*_rows) / 50 for name in ("key", "value")},
        key_antiquant_mode=_mode,
        value_antiquant_mode=_mode,
    )


def _rounded(*tensors: Array, quant_scale2: Array, quant_offset2: Any = 0.0, **options: Any) -> Any:
    out, log = _dense(*tensors, **options)
    scale = np.reshape(quant_scale2, (1, 4, 1, 6)) if np.size(quant_scale2) > 1 else quant_scale2
    return np.clip(np.round(out * scale + quant_offset2), -128, 127).astype(np.int8), log


_score(*_B, reference=_rounded, quant_scale2=torch.tensor([40.0]), quant_offset2=torch.tensor([3.0]), **_I)
_score(*_B, reference=_rounded, quant_scale2=rand(4, 6) * 40, **_I)


def _second(
    *tensors: Array,
    num_query_heads: int,
    softmax_scale: float,
    return_softmax_lse: bool = False,
    actual_seq_qlen: Any = None,
    actual_seq_kvlen: Any = None,
    **options: Any,
) -> Any:
    return _dense(
        *tensors,
        num_heads=num_query_heads,
        scale=softmax_scale,
        softmax_lse_flag=return_softmax_lse,
        actual_seq_lengths=actual_seq_qlen,
        actual_seq_lengths_kv=actual_seq_kvlen,
        **options,
    )


_O = {"num_query_heads": 4, "softmax_scale": 0.3, "input_layout": "BNSD", "return_softmax_lse": True}
case(f"{_NAME}_v2", *_B, options={**_O, "learnable_sink": randn(4), "actual_seq_kvlen": [5, 7]}, reference=_second)
for _version, _options, _reference in ((_NAME, {"num_heads": 4, "scale": 0.3, **_I}, _dense), (f"{_NAME}_v2", _O, _second)):
    case(f"_{_version}_get_max_workspace", *_B, options=_options, reference=lambda *a, **o: np.zeros(0))

    def _into(*tensors: Array, attention_out: Array, softmax_lse: Array, reference: Any = _reference, **options: Any) -> Any:
        return reference(*tensors, **options)

    _log = torch.empty(2, 4, 3, 1) if "softmax_scale" in _options else torch.empty(1)
    case(f"{_version}.out", *_B, options={**_options, "attention_out": torch.empty(2, 4, 3, 6), "softmax_lse": _log}, reference=_into)


def _old(*tensors: Array, scale_value: float, **options: Any) -> Any:
    options = {n.replace("actual_seq_lengths", "actual_seq_lengths_kv") if tensors[0].shape[2] == 1 else n: v for n, v in options.items()}
    return _dense(*tensors, scale=scale_value, **options)[0]


case("npu_prompt_flash_attention", *_B, options={"scale_value": 0.3, **_I, "actual_seq_lengths": [3, 2]}, reference=_old)
case("npu_prompt_flash_attention", *_B, options={"scale_value": 0.3, **_I, "atten_mask": _CAUSAL, "sparse_mode": 2}, reference=_old)
case(
    "npu_incre_flash_attention",
    randn(2, 4, 1, 8),
    *_B[1:],
    options={"scale_value": 0.3, **_I, "actual_seq_lengths": [5, 7]},
    reference=_old,
)
