"""Normalisations that ONNX Runtime adds."""

from __future__ import annotations

import numpy as np
from onnx.reference.op_run import OpRun

from anycann.graph.reference.base import MicrosoftOp


def normalise(x: np.ndarray, axes: tuple[int, ...], epsilon: float, centred: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(normalised, mean, inverse deviation) over `axes`; without `centred` the mean is left out of everything."""
    mean = x.mean(axis=axes, keepdims=True) if centred else np.zeros_like(x[..., :1])
    inverse = 1 / np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + epsilon)
    return (x - mean) * inverse, mean, inverse


class SkipLayerNormalization(MicrosoftOp):
    """SkipLayerNormalization(X, skip, gamma, beta?, bias?): the normalised sum, its mean, its inverse deviation, the sum."""

    def _run(
        self,
        x: np.ndarray,
        skip: np.ndarray,
        gamma: np.ndarray,
        beta: np.ndarray | None = None,
        bias: np.ndarray | None = None,
        epsilon: float = 1e-5,
    ) -> tuple[np.ndarray, ...]:
        total = x + skip if bias is None else x + skip + bias
        y, mean, inverse = normalise(total, (-1,), epsilon, centred=True)
        y = y * gamma if beta is None else y * gamma + beta
        return y.astype(x.dtype), mean.astype(np.float32), inverse.astype(np.float32), total.astype(x.dtype)


class SkipSimplifiedLayerNormalization(MicrosoftOp):
    """SkipSimplifiedLayerNormalization(X, skip, gamma, bias?): as SkipLayerNormalization, by the root mean square."""

    def _run(
        self, x: np.ndarray, skip: np.ndarray, gamma: np.ndarray, bias: np.ndarray | None = None, epsilon: float = 1e-5
    ) -> tuple[np.ndarray, ...]:
        total = x + skip if bias is None else x + skip + bias
        y, mean, inverse = normalise(total, (-1,), epsilon, centred=False)
        return (y * gamma).astype(x.dtype), mean.astype(np.float32), inverse.astype(np.float32), total.astype(x.dtype)


class SimplifiedLayerNormalization(OpRun):
    """SimplifiedLayerNormalization(X, scale), which ONNX Runtime puts in ONNX's domain: rows divided by their root mean square."""

    op_schema = None

    def _run(
        self, x: np.ndarray, scale: np.ndarray, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        y, _, inverse = normalise(x, tuple(range(axis % x.ndim, x.ndim)), epsilon, centred=False)
        return (y * scale).astype(x.dtype), inverse.astype(np.float32)
