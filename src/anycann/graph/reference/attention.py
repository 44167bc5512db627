"""Attention of com.microsoft whose heads are alike: Attention, its quantised form, and MultiHeadAttention."""

from __future__ import annotations

from typing import Any

import numpy as np

from anycann.graph.reference.attention_parts import Maybe, attend, causal_mask, heads_first, heads_last, key_mask
from anycann.graph.reference.base import MicrosoftOp
from anycann.graph.reference.quantization import dequantize


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
