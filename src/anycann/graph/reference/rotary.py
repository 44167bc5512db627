"""RotaryEmbedding of com.microsoft: pairs of elements turned by an angle that grows with their position."""

from __future__ import annotations

from typing import Any

import numpy as np

from anycann.graph.reference.attention_parts import heads_first, heads_last
from anycann.graph.reference.base import MicrosoftOp


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
