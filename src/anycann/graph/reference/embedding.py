"""EmbedLayerNormalization of com.microsoft: the first layers of a text encoder as one operator."""

from __future__ import annotations

from typing import Any

import numpy as np

from anycann.graph.reference.base import MicrosoftOp

Maybe = np.ndarray | None


class EmbedLayerNormalization(MicrosoftOp):
    """EmbedLayerNormalization(input_ids, segment_ids, word, position, segment, gamma, beta, mask, position_ids).

    Gives the normalised sum of the embeddings [batch, steps, size], the number of valid tokens of each row, and the sum itself.
    """

    def _run(
        self,
        ids: np.ndarray,
        segment_ids: Maybe,
        word: np.ndarray,
        position: np.ndarray,
        segment: Maybe,
        gamma: np.ndarray,
        beta: np.ndarray,
        mask: Maybe = None,
        position_ids: Maybe = None,
        epsilon: float = 1e-12,
        **_: Any,
    ) -> tuple[np.ndarray, ...]:
        total = word[ids] + position[np.arange(ids.shape[1]) if position_ids is None else position_ids]
        if segment is not None and segment_ids is not None:
            total = total + segment[segment_ids]
        wide = total.astype(np.float32)
        centred = wide - wide.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(epsilon))
        normal = (centred / deviation * gamma + beta).astype(total.dtype)
        valid = np.zeros(len(ids), np.int32) if mask is None else mask.sum(axis=1, dtype=np.int32)
        return (normal, valid, total)[: max(len(self.onnx_node.output), 1)]
