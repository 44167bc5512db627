"""Attention on chosen keys, attention with a state, and the step of a generation."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.torch_operators.walk import case, rand, randn

Array = np.ndarray


# ---- chosen keys
def _paged(cache: Array, table: Array, length: int) -> Array:
    return np.concatenate([cache[page] for page in table])[:length]


def _batches(query: Array, key: Array, o: dict[str, Any]) -> Any:
    """(rows of the flattened queries, the first key and the number of keys, or the table row) of each sequence."""
    of_q, of_k = o.get("actual_seq_lengths_query"), o.get("actual_seq_lengths_key", o.get("actual_seq_lengths_kv"))
    for b in range(len(of_q) if query.ndim == 3 else len(query)):
        if query.ndim == 3:
            rows = range(of_q[b - 1] if b else 0, of_q[b])
        else:
            rows = range(b * query.shape[1], b * query.shape[1] + (query.shape[1] if of_q is None else of_q[b]))
        yield b, rows, (lambda t, b=b: _keys(t, b, query, of_k, o))


def _keys(tensor: Array, b: int, query: Array, of_k: Any, o: dict[str, Any]) -> Array:
    if o.get("block_table") is not None:
        return _paged(tensor, o["block_table"][b], of_k[b])[:, 0]
    if query.ndim == 3:
        return tensor[of_k[b - 1] if b else 0 : of_k[b], 0]
    return tensor[b, : None if of_k is None else of_k[b], 0]


def _indexer(query: Array, key: Array, weights: Array, **o: Any) -> Any:
    count = o["sparse_count"]
    flat, w = query.reshape(-1, *query.shape[-2:]), weights.reshape(-1, weights.shape[-1])
    places, values = np.full((len(flat), count), -1), np.full((len(flat), count), -np.inf)
    for _, rows, keys in _batches(query, key, o):
        k = keys(key)
        for number, row in enumerate(rows):
            end = len(k) - len(rows) + number + 1 if o.get("sparse_mode", 3) == 3 else len(k)
            scores = (np.maximum(flat[row] @ k[:end].T, 0) * w[row][:, None]).sum(0)
            best = np.argsort(-scores, kind="stable")[:count]
            places[row, : len(best)], values[row, : len(best)] = best, scores[best]
    shape = (*query.shape[:-2], 1, count)
    return places.reshape(shape), values.reshape(shape) if o.get("return_value") else np.empty(0)


_INT = torch.int32
_BSND = {"sparse_count": 4, "return_value": True}
case("npu_lightning_indexer", randn(2, 3, 4, 8), randn(2, 6, 1, 8), randn(2, 3, 4), options=_BSND, reference=_indexer)
case("npu_lightning_indexer", randn(2, 3, 4, 8), randn(2, 3, 1, 8), randn(2, 3, 4), options={**_BSND, "sparse_mode": 0}, reference=_indexer)
_ENDS = {"actual_seq_lengths_query": torch.tensor([2, 5], dtype=_INT), "actual_seq_lengths_key": torch.tensor([4, 11], dtype=_INT)}
case(
    "npu_lightning_indexer", randn(5, 4, 8), randn(11, 1, 8), randn(5, 4),
    options={"sparse_count": 9, "layout_query": "TND", "layout_key": "TND", **_ENDS}, reference=_indexer,
)  # fmt: skip
_TABLE = torch.tensor([[3, 0], [1, 2]], dtype=_INT)
_PAGED = {"block_table": _TABLE, "layout_query": "TND", "actual_seq_lengths_query": torch.tensor([2, 5], dtype=_INT)}
case(
    "npu_lightning_indexer", randn(5, 4, 8), randn(4, 5, 1, 8), randn(5, 4),
    options={"sparse_count": 3, "layout_key": "PA_BSND", "actual_seq_lengths_key": torch.tensor([6, 9], dtype=_INT), **_PAGED},
    reference=_indexer,
)  # fmt: skip


def _sparse(query: Array, key: Array, value: Array, chosen: Array, scale: float, **o: Any) -> Any:
    block, heads = o.get("sparse_block_size", 1), query.shape[-2]
    flat, picked = query.reshape(-1, *query.shape[-2:]), chosen.reshape(-1, chosen.shape[-1])
    turned = None if o.get("query_rope") is None else o["query_rope"].reshape(len(flat), heads, -1)
    out, largest, sums = np.zeros((len(flat), heads, value.shape[-1])), np.full((len(flat), heads), 0.0), np.zeros((len(flat), heads))
    for _, rows, keys in _batches(query, key, o):
        k, v = keys(key), keys(value)
        for number, row in enumerate(rows):
            end = len(k) - len(rows) + number + 1 if o.get("sparse_mode", 3) == 3 else len(k)
            names = [int(n) for n in picked[row]]
            names = names[: names.index(-1)] if -1 in names else names
            read = [p for n in names for p in range(n * block, (n + 1) * block) if p < min(end, len(k))]
            scores = flat[row] @ k[read].T
            if turned is not None:
                scores = scores + turned[row] @ keys(o["key_rope"])[read].T
            scores = scores * scale
            if o.get("sinks") is not None:
                scores = np.concatenate((scores, o["sinks"][:, None]), 1)
            if not scores.shape[1]:
                largest[row] = -np.inf
                continue
            largest[row] = scores.max(1)
            weights = np.exp(scores - largest[row][:, None])
            sums[row] = weights.sum(1)
            out[row] = (weights[:, : len(read)] / sums[row][:, None]) @ v[read]
    whole = query.shape[:-1]
    if not o.get("return_softmax_lse"):
        return out.reshape(*whole, -1), np.empty(0), np.empty(0)
    return out.reshape(*whole, -1), *(np.expand_dims(x.reshape(whole), -3) for x in (largest, sums))


_KEYS = (randn(2, 3, 4, 8), randn(2, 7, 1, 8), randn(2, 7, 1, 5))
_CHOSEN = torch.tensor([[0, 3, -1], [2, 1, 0], [1, -1, -1]] * 2, dtype=_INT).reshape(2, 3, 1, 3)
case(
    "npu_sparse_flash_attention", *_KEYS, _CHOSEN, 0.3, options={"sparse_block_size": 2, "return_softmax_lse": True}, reference=_sparse,
    differentiable=True,
)  # fmt: skip
case(
    "npu_sparse_flash_attention", *_KEYS, _CHOSEN, 0.3, reference=_sparse,
    options={"query_rope": randn(2, 3, 4, 6), "key_rope": randn(2, 7, 1, 6), "sinks": randn(4), "sparse_mode": 0, "attention_mode": 2},
)  # fmt: skip
case(
    "npu_sparse_flash_attention", randn(5, 4, 8), randn(4, 5, 1, 8), randn(4, 5, 1, 8),
    torch.tensor([[0, 2], [5, 1], [-1, -1], [4, 6], [1, 0]], dtype=_INT).reshape(5, 1, 2), 0.5,
    options={**_PAGED, "layout_kv": "PA_BSND", "actual_seq_lengths_kv": torch.tensor([6, 9], dtype=_INT)}, reference=_sparse,
)  # fmt: skip
case(
    "npu_sparse_flash_attention", randn(1, 2, 4, 8), randn(1, 0, 1, 8), randn(1, 0, 1, 5), torch.zeros(1, 2, 1, 2, dtype=_INT), 0.5,
    options={"return_softmax_lse": True}, reference=_sparse,
)  # fmt: skip


def _compress(x: Array, weight: Array, block: int, stride: int, actual_seq_len: Any) -> Array:
    found, begin = [np.empty((0, *x.shape[1:]))], 0
    for end in actual_seq_len:
        for first in range(begin, end - block + 1, stride):
            found.append((x[first : first + block] * weight[..., None]).sum(0, keepdims=True))
        begin = end
    return np.concatenate(found)


case(
    "npu_nsa_compress",
    randn(19, 2, 5),
    randn(4, 2),
    4,
    2,
    options={"actual_seq_len": [3, 12, 19]},
    reference=_compress,
    differentiable=True,
)
case("npu_nsa_compress", randn(3, 2, 5), randn(4, 2), 4, 2, options={"actual_seq_len": [3]}, reference=_compress)


# ---- a state
def _rule(q: Array, k: Array, v: Array, state: Array, o: dict[str, Any], scale: float, t: int) -> tuple[Array, Array]:
    out, then = np.empty(v.shape[1:]), np.empty_like(state)
    for head in range(v.shape[1]):
        source = head // (v.shape[1] // q.shape[1])
        decay = np.exp(0.0 if o.get("g") is None else o["g"][t, head]) * np.exp(0.0 if o.get("gk") is None else o["gk"][t, head])
        kept = state[head] * decay
        beta = 1.0 if o.get("beta") is None else o["beta"][t, head]
        then[head] = kept + np.outer(beta * (v[t, head] - kept @ k[t, source]), k[t, source])
        out[head] = then[head] @ (q[t, source] * scale)
    return out, then


def _recurrent(q: Array, k: Array, v: Array, state: Array, scale: float | None = None, **o: Any) -> Any:
    states, found, begin = state.copy(), [], 0
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    for number, length in enumerate(o["actual_seq_lengths"]):
        accepted = 1 if o.get("num_accepted_tokens") is None else o["num_accepted_tokens"][number]
        now = states[o["ssm_state_indices"][begin + accepted - 1]] if length else None
        for t in range(begin, begin + length):
            out, now = _rule(q, k, v, now, o, factor, t)
            states[o["ssm_state_indices"][t]] = now
            found.append(out)
        begin += length
    return np.stack([*found, *np.zeros((len(v) - begin, *v.shape[1:]))]), states


_RULE = (randn(5, 2, 3), randn(5, 2, 3, scale=0.5), randn(5, 4, 6))
_STATES = {"actual_seq_lengths": torch.tensor([2, 3], dtype=_INT), "ssm_state_indices": torch.tensor([4, 0, 2, 1, 5], dtype=_INT)}
_GATED = {"beta": rand(5, 4), "g": -rand(5, 4), "gk": -rand(5, 4, 3), "scale": 0.7, "num_accepted_tokens": torch.tensor([2, 1], dtype=_INT)}
_PADDED = {**_STATES, "actual_seq_lengths": torch.tensor([3, 0, 1, 0], dtype=_INT)}  # sequences without tokens, a token without sequence
for _options in (_STATES, {**_STATES, **_GATED}, _PADDED):
    for _name in ("npu_recurrent_gated_delta_rule", "npu_recurrent_gated_delta_rule_functional"):
        case(_name, *_RULE, randn(6, 4, 6, 3), options=_options, reference=_recurrent, written=() if "functional" in _name else (3,))


def _chunked(q: Array, k: Array, v: Array, scale: float = 1.0, **o: Any) -> Any:
    found, last, begin = [], [], 0
    for now, length in zip(o["initial_state"], o["actual_seq_lengths"], strict=True):
        for t in range(begin, begin + length):
            out, now = _rule(q, k, v, now, o, scale, t)
            found.append(out)
        last.append(now)
        begin += length
    return np.stack([*found, *np.zeros((len(v) - begin, *v.shape[1:]))]), np.stack(last)


_CHUNKED = {"beta": rand(5, 4), "initial_state": randn(2, 4, 6, 3), "actual_seq_lengths": torch.tensor([4, 1], dtype=_INT)}
case("npu_chunk_gated_delta_rule", *_RULE, options=_CHUNKED, reference=_chunked)
case("npu_chunk_gated_delta_rule", *_RULE, options={**_CHUNKED, "actual_seq_lengths": torch.tensor([3, 0], dtype=_INT)}, reference=_chunked)
case("npu_chunk_gated_delta_rule", *_RULE, options={**_CHUNKED, "g": -rand(5, 4), "scale": 0.5}, reference=_chunked)


def _convolved(x: Array, weight: Array, mask: Array | None = None) -> Array:
    found = np.zeros_like(x)
    for t in range(len(x)):
        for j, row in enumerate(weight):
            if t - (len(weight) - 1) + j >= 0:
                found[t] += row * x[t - (len(weight) - 1) + j]
    return found if mask is None else found * mask.T[..., None]


case("npu_masked_causal_conv1d", randn(6, 2, 5), randn(3, 5), reference=_convolved, differentiable=True)
case("npu_masked_causal_conv1d", randn(6, 2, 5), randn(3, 5), options={"mask": torch.rand(2, 6) > 0.4}, reference=_convolved)


# ---- a step
def _step(
    tokens: Array, said: Array, positions: Array, lengths: Array, slots: Array, table: Array, seqs: int, queries: int, size: int
) -> Any:
    tokens, positions, lengths, slots = (x.copy() for x in (tokens, positions, lengths, slots))
    for row in range(seqs):
        if row >= queries:
            tokens[row], positions[row], slots[row] = 0, 0, -1
            continue
        tokens[row], positions[row] = said[row, 0], lengths[row]
        slots[row] = table[row, lengths[row] // size] * size + lengths[row] % size
        lengths[row] += 1
    return None, tokens, positions, lengths, slots


def _guessing(
    tokens: Array, said: Array, positions: Array, lengths: Array, slots: Array, table: Array, seqs: int, queries: int, size: int,
    spec_token: Array, accepted_num: Array,
) -> Any:  # fmt: skip
    each = 1 + spec_token.shape[1]
    new = [np.empty_like(x) for x in (tokens, positions, lengths, slots)]
    for row in range(seqs):
        last = [t for t in said[row] if t != -1][-1]
        for j in range(each):
            at = row * each + j
            place = positions[at] + 1 + accepted_num[row]
            new[0][at], new[1][at], new[2][at] = (last if j == 0 else spec_token[row, j - 1]), place, place + 1
            new[3][at] = table[row, place // size] * size + place % size
    return None, *new


def _ints(*shape: int, high: int = 20) -> torch.Tensor:
    return torch.randint(0, high, shape)


case(
    "npu_advance_step_flashattn", _ints(5), _ints(3, 1), _ints(5), _ints(5), _ints(5), _ints(5, 8), 5, 3, 4, reference=_step,
    written=(0, 2, 3, 4),
)  # fmt: skip
case(
    "npu_advance_step_flashattn", _ints(6), torch.tensor([[7, 3, -1], [4, -1, -1]]), _ints(6), _ints(6), _ints(6), _ints(2, 9), 2, 2, 4,
    options={"spec_token": _ints(2, 2), "accepted_num": torch.tensor([1, 0])}, reference=_guessing, written=(0, 2, 3, 4),
)  # fmt: skip
