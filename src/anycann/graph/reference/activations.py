"""Activation functions of com.microsoft: Gelu and its relatives."""

from __future__ import annotations

import math

import numpy as np

from anycann.graph.reference.base import MicrosoftOp, erf, sigmoid


def gelu(x: np.ndarray) -> np.ndarray:
    """x * P(X <= x) for a standard normal X, in the dtype of `x`."""
    return np.asarray(x * (1 + erf(x / math.sqrt(2))) / 2, x.dtype)


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """The tanh approximation of `gelu`."""
    return np.asarray(x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2, x.dtype)


class Gelu(MicrosoftOp):
    """Gelu(X): the exact form."""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (gelu(x),)


class BiasGelu(MicrosoftOp):
    """BiasGelu(A, B): gelu(A + B), B of the last axis."""

    def _run(self, x: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray]:
        return (gelu(x + bias),)


class FastGelu(MicrosoftOp):
    """FastGelu(X, bias?): the tanh approximation of X + bias."""

    def _run(self, x: np.ndarray, bias: np.ndarray | None = None) -> tuple[np.ndarray]:
        return (gelu_tanh(x if bias is None else x + bias),)


class QuickGelu(MicrosoftOp):
    """QuickGelu(X): X * sigmoid(alpha * X)."""

    def _run(self, x: np.ndarray, alpha: float = 1.702) -> tuple[np.ndarray]:
        return ((x * sigmoid((alpha * x).astype(x.dtype))).astype(x.dtype),)


class BiasSplitGelu(MicrosoftOp):
    """BiasSplitGelu(X, bias): the first half of X + bias along the last axis, times gelu of the second half."""

    def _run(self, x: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray]:
        value, gate = np.split(x + bias, 2, axis=-1)
        return ((value * gelu(gate)).astype(x.dtype),)


class BiasAdd(MicrosoftOp):
    """BiasAdd(X, bias, skip): their sum."""

    def _run(self, x: np.ndarray, bias: np.ndarray, skip: np.ndarray) -> tuple[np.ndarray]:
        return (x + bias + skip,)
