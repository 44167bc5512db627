"""GroupQueryAttention of com.microsoft: several query heads for each key head, and a cache of past keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from anycann.graph.reference.attention_parts import Maybe, attend, heads_first, heads_last
from anycann.graph.reference.base import MicrosoftOp
from anycann.graph.reference.rotary import rotate


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
        total = int(total_length.item())
        is_first = past_key is None or past_key.shape[2] == 0 or steps == total
        past = np.zeros(batch, np.int64) if is_first else seqlens_k.reshape(-1) + 1 - steps
        places = past[:, None] + np.arange(steps)
        if do_rotary and cosine is not None and sine is not None:
            q, k = (rotate(part, cosine, sine, np.minimum(places, len(cosine) - 1), bool(rotary_interleaved)) for part in (q, k))
        length = max(total, 0 if past_key is None else past_key.shape[2])
        keys, values = _filled(past_key, k, past, length), _filled(past_value, v, past, length)
        seen = _window(places, total, local_window_size)
        repeated = [np.repeat(part[:, :, :total], num_heads // kv_num_heads, axis=1) for part in (keys, values)]
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
