"""Float32 functions in numpy, for shapes that only running can tell: the reference is a loop of Python, or many nodes.

They agree with the reference to a few units in the last place, as kernels do. Other types raise TypeError: the reference computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
import math

import numpy as np

from anycann.support.errors import ModelError

# erf(x) = x P(x^2) / Q(x^2) for |x| <= 4, beyond which it is 1 in float32: the approximation that Eigen has, highest power first.
_P = (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04)
_MORE_P = (-2.95459980854025e-03, -1.60960333262415e-02)
_Q = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02)


def error_function(x: np.ndarray) -> tuple[np.ndarray]:
    """Erf."""
    _require_floats(x)
    return (_erf(x),)


def gelu(x: np.ndarray, approximate: str | None = "none") -> tuple[np.ndarray]:
    """Gelu: x times the normal distribution's share below x, exact or by tanh."""
    _require_floats(x)
    share: np.ndarray
    if approximate == "tanh":
        inner = (x * x * np.float32(0.044715) + np.float32(1)) * x * np.float32(math.sqrt(2 / math.pi))
        share = np.tanh(inner)
    else:
        share = _erf(x * np.float32(math.sqrt(0.5)))
    share += np.float32(1)
    share *= x * np.float32(0.5)
    return (share,)


def layer_normalization(
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray | None = None,
    axis: int | None = -1,
    epsilon: float | None = 1e-5,
    stash_type: int | None = 1,
) -> tuple[np.ndarray]:
    """LayerNormalization's first output: mean 0 and variance 1 over the axes from `axis` on, then scale and bias.

    Raises ModelError for a scale or a bias that is larger than `x`, which the reference would stretch.
    """
    _require_floats(x, scale, *([] if bias is None else [bias]))
    if x.size == 0:
        return (x.copy(),)
    axes = tuple(range((-1 if axis is None else axis) % x.ndim, x.ndim))
    centred: np.ndarray = x - x.mean(axis=axes, keepdims=True)
    variance = np.square(centred).mean(axis=axes, keepdims=True)
    centred *= 1 / np.sqrt(variance + np.float32(1e-5 if epsilon is None else epsilon))
    try:
        centred *= scale
        if bias is not None:
            centred += bias
    except ValueError as error:
        raise ModelError(f"LayerNormalization of operands that do not fit: {error}") from error
    return (centred,)


def _require_floats(*operands: np.ndarray) -> None:
    if any(operand.dtype != np.float32 for operand in operands):
        raise TypeError("not all operands are float32")


def _polynomial(x: np.ndarray, coefficients: Sequence[float]) -> np.ndarray:
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total *= x
        total += np.float32(coefficient)
    return total


def _erf(x: np.ndarray) -> np.ndarray:
    near: np.ndarray = np.clip(x, np.float32(-4), np.float32(4))
    square = near * near
    near *= _polynomial(square, _P + _MORE_P)
    near /= _polynomial(square, _Q)
    return near
