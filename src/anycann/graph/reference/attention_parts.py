"""What the attention operators share: heads, the softmax of the scores, and what masks add to these."""

from __future__ import annotations

import math

import numpy as np

from anycann.graph.reference.base import softmax

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
