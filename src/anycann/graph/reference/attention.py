"""Attention operators of com.microsoft: projections, masks, caches of past keys and values, rotary positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from anycann.graph.reference.base import MicrosoftOp, softmax
from anycann.graph.reference.quantization import dequantize

Maybe = np.ndarray | None


def heads_first(x: np.ndarray, heads: int) -> np.ndarray:
    """[batch, steps, heads * size] -> [batch, heads, steps, size]; rank 4 is in that order already."""
    if x.ndim == 4:
        return x
    return np.swapaxes(x.reshape(*x.shape[:2], heads, -1), 1, 2)


def heads_last(x: np.ndarray) -> np.ndarray:
    """[batch, heads, steps, size] -> [batch, steps, heads * size]."""
    return np.swapaxes(x, 1, 2).reshape(x.shape[0], x.shape[2], -1)


def attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, added: list[np.ndarray], scale: float | None, softcap: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """softmax(q k^T * scale + the sum of `added`) v in float32, and the scores; all [batch, heads, steps, size]."""
    scores = np.einsum("bnsh,bnth->bnst", q.astype(np.float32), k.astype(np.float32)) * (scale or 1 / math.sqrt(q.shape[-1]))
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    for term in added:
        scores = scores + term
    return np.asarray(np.einsum("bnst,bnth->bnsh", softmax(scores), v.astype(np.float32)), q.dtype), scores


def key_mask(mask: Maybe, batch: int, steps: int, total: int, value: float) -> list[np.ndarray]:
    """What a mask adds to the scores [batch, 1, steps, total]: `value` at keys that are not to be seen.

    [batch] gives the number of valid keys, [2 batch] their end and begin, [3 batch + 2] lengths first; of higher rank it is 0 or 1 a key.
    """
    if mask is None:
        return []
    if mask.ndim == 1:
        end = mask[:batch, None]
        begin = mask[batch : 2 * batch, None] if mask.size == 2 * batch else np.zeros_like(end)
        keys = np.arange(total)
        mask = ((keys < end) & (keys >= begin)).astype(np.int32)
    if mask.ndim == 2:
        mask = mask[:, None, None, :]
    elif mask.ndim == 3:
        mask = mask[:, None]
    else:
        mask = mask[:, :, total - steps : total, :total]
    return [np.where(mask != 0, np.float32(0), np.float32(value))]


def causal_mask(steps: int, total: int) -> np.ndarray:
    """What hides the keys after each of the last `steps` of `total` positions."""
    allowed = np.arange(total)[None, :] <= np.arange(total - steps, total)[:, None]
    return np.where(allowed, np.float32(0), np.finfo(np.float32).min)


class Attention(MicrosoftOp):
    """Attention(input, weights, bias, mask_index, past, attention_bias): one product gives query, key and value.

    input [batch, steps, in], weights [in, q + k + v]; past and present [2, batch, heads, steps, size].
    """

    def _run(
        self,
        x: np.ndarray,
        weights: np.ndarray,
        bias: Maybe = None,
        mask: Maybe = None,
        past: Maybe = None,
        added: Maybe = None,
        past_length: Maybe = None,
        num_heads: int = 1,
        unidirectional: int = 0,
        qkv_hidden_sizes: list[int] | None = None,
        mask_filter_value: float = -10000.0,
        scale: float | None = None,
        **_: Any,
    ) -> tuple[np.ndarray, ...]:
        projected = x @ weights + (0 if bias is None else bias)
        sizes = qkv_hidden_sizes or [weights.shape[1] // 3] * 3
        q, k, v = (heads_first(part, num_heads) for part in np.split(projected, np.cumsum(sizes)[:2], axis=-1))
        if past is not None:
            k, v = np.concatenate([past[0], k], axis=2), np.concatenate([past[1], v], axis=2)
        steps, total = q.shape[2], k.shape[2]
        terms = key_mask(mask, len(x), steps, total, mask_filter_value) + ([causal_mask(steps, total)] if unidirectional else [])
        y, _scores = attend(q, k, v, terms + ([] if added is None else [added]), scale)
        results = (heads_last(y), np.stack([k, v]) if k.shape == v.shape else k)
        return results[: len(self.onnx_node.output)]


class QAttention(MicrosoftOp):
    """QAttention: Attention whose input and weights are 8-bit integers with scales and zero points."""

    def _run(
        self,
        x: np.ndarray,
        weights: np.ndarray,
        bias: np.ndarray,
        x_scale: np.ndarray,
        w_scale: np.ndarray,
        mask: Maybe = None,
        x_zero: Maybe = None,
        w_zero: Maybe = None,
        past: Maybe = None,
        **attributes: Any,
    ) -> tuple[np.ndarray, ...]:
        real, real_weights = dequantize(x, x_scale, x_zero), dequantize(weights, w_scale, w_zero)
        return Attention._run(self, real, real_weights, bias, mask, past, **attributes)  # type: ignore[arg-type]


class MultiHeadAttention(MicrosoftOp):
    """MultiHeadAttention(query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value).

    query [batch, steps, heads * size], or packed [batch, steps, heads, 3, size]; key and value the same, or packed as
    [batch, steps, heads, 2, size], or, for cross attention, [batch, heads, steps, size] each.
    """

    def _run(
        self,
        query: np.ndarray,
        key: Maybe = None,
        value: Maybe = None,
        bias: Maybe = None,
        mask: Maybe = None,
        added: Maybe = None,
        past_key: Maybe = None,
        past_value: Maybe = None,
        *_: Any,
        num_heads: int = 1,
        mask_filter_value: float = -10000.0,
        scale: float | None = None,
        unidirectional: int = 0,
    ) -> tuple[np.ndarray, ...]:
        q, k, v = _unpacked(query, key, value, bias, num_heads)
        if past_key is not None and past_value is not None:
            k, v = np.concatenate([past_key, k], axis=2), np.concatenate([past_value, v], axis=2)
        steps, total = q.shape[2], k.shape[2]
        terms = key_mask(mask, len(q), steps, total, mask_filter_value) + ([causal_mask(steps, total)] if unidirectional else [])
        y, scores = attend(q, k, v, terms + ([] if added is None else [added]), scale)
        return (heads_last(y), k, v, scores.astype(q.dtype))[: len(self.onnx_node.output)]


def _unpacked(query: np.ndarray, key: Maybe, value: Maybe, bias: Maybe, heads: int) -> list[np.ndarray]:
    """Query, key and value as [batch, heads, steps, size], with their parts of `bias` added."""
    if query.ndim == 5:
        parts = [query[:, :, :, n].reshape(*query.shape[:2], -1) for n in range(3)]
    elif key is not None and key.ndim == 5:
        parts = [query, *(key[:, :, :, n].reshape(*key.shape[:2], -1) for n in range(2))]
    else:
        assert key is not None
        assert value is not None
        parts = [query, key, value]
    if bias is not None:
        width = query.shape[-1] if query.ndim == 3 else parts[0].shape[-1]
        biases = [bias[:width], bias[width : 2 * width], bias[2 * width :]]
        parts = [part + piece if part.ndim == 3 else part for part, piece in zip(parts, biases, strict=True)]
    return [heads_first(part, heads) for part in parts]


def rotate(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, positions: np.ndarray, interleaved: bool, scale: float = 1.0) -> np.ndarray:
    """Rotary embedding of x [batch, heads, steps, size] at `positions` [batch, steps]; the caches are [length, rotated size / 2]."""
    half = cosine.shape[-1]
    turned, rest = x[..., : 2 * half], x[..., 2 * half :]
    c, s = cosine[positions][:, None], sine[positions][:, None]
    a, b = (turned[..., ::2], turned[..., 1::2]) if interleaved else (turned[..., :half], turned[..., half:])
    pair = (a * c - b * s, b * c + a * s)
    joined = np.stack(pair, axis=-1).reshape(turned.shape) if interleaved else np.concatenate(pair, axis=-1)
    return np.concatenate([joined * scale, rest], axis=-1).astype(x.dtype)


class RotaryEmbedding(MicrosoftOp):
    """RotaryEmbedding(input, position_ids, cos_cache, sin_cache): input [batch, steps, width] or [batch, heads, steps, size]."""

    def _run(
        self,
        x: np.ndarray,
        positions: np.ndarray,
        cosine: np.ndarray,
        sine: np.ndarray,
        interleaved: int = 0,
        num_heads: int = 0,
        rotary_embedding_dim: int = 0,
        scale: float = 1.0,
        **_: Any,
    ) -> tuple[np.ndarray]:
        heads = num_heads or (1 if x.ndim == 4 else x.shape[-1] // (rotary_embedding_dim or 2 * cosine.shape[-1]))
        split = heads_first(x, heads)
        steps = split.shape[2]
        places = np.arange(steps) + positions.reshape(-1, 1) if positions.size == 1 else positions
        places = np.broadcast_to(places, (len(x), steps))
        y = rotate(split, cosine, sine, places, bool(interleaved), scale)
        return (y if x.ndim == 4 else heads_last(y),)


class GroupQueryAttention(MicrosoftOp):
    """GroupQueryAttention(query, key, value, past_key, past_value, seqlens_k, total_sequence_length, cos_cache, sin_cache).

    Fewer key heads than query heads; the cache [batch, key heads, length, size] is filled up to seqlens_k + 1 of each sequence.
    """

    def _run(
        self,
        query: np.ndarray,
        key: Maybe,
        value: Maybe,
        past_key: Maybe,
        past_value: Maybe,
        seqlens_k: np.ndarray,
        total_length: np.ndarray,
        cosine: Maybe = None,
        sine: Maybe = None,
        positions: Maybe = None,
        added: Maybe = None,
        *_: Any,
        num_heads: int = 1,
        kv_num_heads: int = 1,
        do_rotary: int = 0,
        rotary_interleaved: int = 0,
        scale: float | None = None,
        local_window_size: int = -1,
        softcap: float = 0.0,
        **__: Any,
    ) -> tuple[np.ndarray, ...]:
        if key is None or value is None:
            size = query.shape[-1] // (num_heads + 2 * kv_num_heads)
            query, key, value = np.split(query, [num_heads * size, (num_heads + kv_num_heads) * size], axis=-1)
        q, k, v = heads_first(query, num_heads), heads_first(key, kv_num_heads), heads_first(value, kv_num_heads)
        batch, steps = len(q), q.shape[2]
        ends = seqlens_k.reshape(-1) + 1
        past = (
            np.zeros(batch, np.int64) if past_key is None or past_key.shape[2] == 0 or steps == int(total_length.item()) else ends - steps
        )
        places = past[:, None] + np.arange(steps)
        if do_rotary and cosine is not None and sine is not None:
            q, k = (rotate(part, cosine, sine, np.minimum(places, len(cosine) - 1), bool(rotary_interleaved)) for part in (q, k))
        length = max(int(total_length.item()), 0 if past_key is None else past_key.shape[2])
        keys, values = _filled(past_key, k, past, length), _filled(past_value, v, past, length)
        seen = _window(places, int(total_length.item()), local_window_size)
        repeated = [np.repeat(part[:, :, : int(total_length.item())], num_heads // kv_num_heads, axis=1) for part in (keys, values)]
        y, _scores = attend(q, repeated[0], repeated[1], [seen, *([] if added is None else [added])], scale, softcap)
        return heads_last(y), keys, values


def _filled(cache: Maybe, new: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """A copy of `cache`, `length` long, with `new` [batch, heads, steps, size] from `starts` on."""
    result = np.zeros((*new.shape[:2], length, new.shape[3]), new.dtype)
    for row, start in enumerate(starts):
        if cache is not None:
            result[row, :, : cache.shape[2]] = cache[row]
        stop = min(int(start) + new.shape[2], length)
        result[row, :, start:stop] = new[row, :, : stop - start]
    return result


def _window(places: np.ndarray, total: int, local: int) -> np.ndarray:
    """[batch, 1, steps, total]: each place sees itself and what is before, with `local` >= 0 only so many of them."""
    keys = np.arange(total)
    allowed = keys <= places[..., None]
    if local >= 0:
        allowed &= keys > places[..., None] - local
    return np.where(allowed, np.float32(0), np.finfo(np.float32).min)[:, None]
