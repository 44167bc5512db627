"""Normalisations by their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.torch_operators.walk import case, randn

Array = np.ndarray


def _rms(x: Array, gamma: Array, epsilon: float = 1e-6) -> tuple[Array, Array]:
    axes = tuple(range(x.ndim - gamma.ndim, x.ndim))
    reciprocal = 1 / np.sqrt((x * x).mean(axes, keepdims=True) + epsilon)
    return x * reciprocal * gamma, reciprocal


def _rms_backward(above: Array, x: Array, gamma: Array, reciprocal: Array) -> tuple[Array, Array]:
    by_x, by_gamma = np.zeros_like(x), np.zeros_like(gamma)
    for row in range(x.shape[0]):
        r, n = float(reciprocal[row].item()), x.shape[1]
        jacobian = r * np.eye(n) - r**3 / n * np.outer(x[row], x[row])
        by_x[row] = jacobian @ (above[row] * gamma)
        by_gamma += above[row] * x[row] * r
    return by_x, by_gamma


def _layer(x: Array, gamma: Array, beta: Array, epsilon: float) -> tuple[Array, Array, Array]:
    axes = tuple(range(x.ndim - gamma.ndim, x.ndim))
    mean = x.mean(axes, keepdims=True)
    reciprocal = 1 / np.sqrt(x.var(axes, keepdims=True) + epsilon)
    return (x - mean) * reciprocal * gamma + beta, mean, reciprocal


def _group(x: Array, weight: Array | None, bias: Array | None, groups: int, eps: float) -> tuple[Array, Array, Array]:
    out, means, reciprocals = np.empty_like(x), np.empty((x.shape[0], groups)), np.empty((x.shape[0], groups))
    size = x.shape[1] // groups
    for n in range(x.shape[0]):
        for g in range(groups):
            part = x[n, g * size : (g + 1) * size]
            means[n, g], reciprocals[n, g] = part.mean(), 1 / np.sqrt(part.var() + eps)
            for c in range(g * size, (g + 1) * size):
                out[n, c] = (x[n, c] - means[n, g]) * reciprocals[n, g]
                out[n, c] = out[n, c] * (1 if weight is None else weight[c]) + (0 if bias is None else bias[c])
    return out, means, reciprocals


def _swish(results: tuple[Array, Array, Array], slope: float = 1.0) -> tuple[Array, Array, Array]:
    y, mean, reciprocal = results
    return y / (1 + np.exp(-slope * y)), mean, reciprocal


case("npu_rms_norm", randn(3, 8), randn(8), reference=_rms, differentiable=True)
case("npu_rms_norm", randn(2, 3, 4, 5), randn(4, 5), 1e-3, reference=_rms, differentiable=True)
case("npu_rms_norm", randn(2, 9, dtype=torch.float16), randn(9, dtype=torch.float16), reference=_rms, tolerance=4e-3)
case("npu_rms_norm", randn(0, 9), randn(9), reference=_rms)
case("npu_gemma_rms_norm", randn(3, 8), randn(8), reference=lambda x, gamma: _rms(x, gamma + 1), differentiable=True)
_X = randn(4, 6)
case(
    "npu_rms_norm_backward",
    randn(4, 6),
    _X,
    randn(6),
    torch.rsqrt(_X.square().mean(-1, keepdim=True) + 1e-6),
    reference=_rms_backward,
    differentiable=True,
)
case("npu_add_rms_norm", randn(3, 8), randn(3, 8), randn(8), reference=lambda a, b, g: (*_rms(a + b, g), a + b), differentiable=True)
case("npu_add_rms_norm", randn(2, 3, 4), randn(2, 3, 4), randn(3, 4), reference=lambda a, b, g: (*_rms(a + b, g), a + b))
case("npu_add_rms_norm_cast", randn(3, 8), randn(3, 8), randn(8), reference=lambda a, b, g: (_rms(a + b, g)[0], *_rms(a + b, g), a + b))
case(
    "npu_layer_norm_eval",
    randn(3, 4, 5),
    [4, 5],
    randn(4, 5),
    randn(4, 5),
    reference=lambda x, shape, w, b: _layer(x, w, b, 1e-5)[0],
    differentiable=True,
)
case("npu_layer_norm_eval", randn(3, 5), [5], reference=lambda x, shape: _layer(x, np.ones(5), np.zeros(5), 1e-5)[0])
case(
    "npu_add_layer_norm",
    randn(3, 6),
    randn(3, 6),
    randn(6),
    randn(6),
    reference=lambda a, b, g, h: (*_layer(a + b, g, h, 1e-5), a + b),
    differentiable=True,
)


def _deep(x: Array, gx: Array, beta: Array, gamma: Array, alpha: float = 0.3) -> tuple[Array, Array, Array]:
    y, mean, reciprocal = _layer(alpha * x + gx, gamma, beta, 1e-6)
    return mean, reciprocal, y


case("npu_deep_norm", randn(3, 2, 4), randn(3, 2, 4), randn(2, 4), randn(2, 4), reference=_deep, differentiable=True)
case("npu_deep_norm", randn(3, 4), randn(3, 4), randn(4), randn(4), 0.7, reference=_deep)
case(
    "npu_group_norm_silu",
    randn(2, 6, 3),
    randn(6),
    randn(6),
    2,
    reference=lambda x, w, b, g: _swish(_group(x, w, b, g, 1e-5)),
    differentiable=True,
)
case("npu_group_norm_silu", randn(2, 4), None, None, 2, 1e-3, reference=lambda x, w, b, g, e: _swish(_group(x, w, b, g, e)))
case(
    "npu_group_norm_swish",
    randn(2, 4, 2, 3),
    2,
    randn(4),
    randn(4),
    options={"swish_scale": 0.5},
    reference=lambda x, g, w, b, swish_scale: _swish(_group(x, w, b, g, 1e-5), swish_scale),
    differentiable=True,
)


def _normalize_batch(x: Array, lengths: Array, kind: int = 0) -> Any:
    out = np.empty_like(x)
    for b in range(x.shape[0]):
        part = x[b, :, : lengths[b]]
        mean = part.mean(1, keepdims=True) if kind == 0 else part.mean()
        deviation = part.std(1, ddof=1, keepdims=True) if kind == 0 else part.std(ddof=1)
        out[b] = (x[b] - mean) / (deviation + 1e-5)
    return out


for _kind in (0, 1):
    case("npu_normalize_batch", randn(3, 4, 6), torch.tensor([3, 6, 5]), _kind, reference=_normalize_batch, differentiable=True)

case(
    "npu_add_rms_norm_v2_functional",
    randn(3, 5),
    randn(3, 5),
    randn(5),
    reference=lambda a, b, gamma: (_rms(a + b, gamma)[1], _rms(a + b, gamma)[0], a + b),
    differentiable=True,
)
case(
    "npu_add_rms_norm_v2",
    randn(3, 5),
    randn(3, 5),
    randn(5),
    reference=lambda a, b, gamma: (_rms(a + b, gamma)[1], _rms(a + b, gamma)[0], a + b),
    written=(0, 1),
)
case(
    "npu_add_layer_norm",
    randn(3, 5, dtype=torch.float16),
    randn(3, 5),
    randn(5),
    randn(5),
    reference=lambda a, b, gamma, beta: (*_layer(a + b, gamma, beta, 1e-5), a + b),
)
