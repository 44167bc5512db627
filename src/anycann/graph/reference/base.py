"""The base class of the operators here, and the arithmetic several of them share."""

from __future__ import annotations

import math

import numpy as np
from onnx.reference.op_run import OpRun


class MicrosoftOp(OpRun):
    """An operator of ONNX Runtime's domain. `_run(*inputs, **attributes)` gets the attributes the node states and no defaults.

    Source of every meaning: ONNX Runtime, docs/ContribOperators.md.
    """

    op_domain = "com.microsoft"
    op_schema = None  # or onnx.reference would take the schema of a standard operator of the same name


def erf(x: np.ndarray) -> np.ndarray:
    """The error function of each element, computed in float64, in the dtype of `x`."""
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64)), x.dtype)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) without overflow, in the dtype of `x`."""
    return np.asarray(0.5 * (1 + np.tanh(x / 2)), x.dtype)


def softmax(x: np.ndarray) -> np.ndarray:
    """Softmax over the last axis."""
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True), x.dtype)
