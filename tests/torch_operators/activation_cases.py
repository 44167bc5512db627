"""Activations, gated units and softmax forms, by their formulas."""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np
import torch

from tests.torch_operators.walk import case, rand, randn

Array = np.ndarray


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _gelu(x: Array, approximate: str) -> Array:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))


def _halves(x: Array, dim: int) -> Any:
    return np.split(x, 2, axis=dim)


def _softmax(x: Array) -> Array:
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


for _name in ("fast_gelu", "npu_fast_gelu"):
    case(_name, randn(3, 7), reference=lambda x: x / (1 + np.exp(-1.702 * x)), differentiable=True)
# numbers of the public test of the operator
case("npu_fast_gelu", torch.tensor([1.0, 2, 3, 4]), reference=lambda x: np.array([0.8458, 1.9357, 2.9819, 3.9956]), tolerance=1e-4)
case("npu_fast_gelu", randn(2, 3, dtype=torch.float16), reference=lambda x: x / (1 + np.exp(-1.702 * x)), tolerance=1e-3)
for _form in ("none", "tanh"):
    case(
        "npu_gelu", randn(3, 5), options={"approximate": _form}, reference=lambda x, approximate: _gelu(x, approximate), differentiable=True
    )
    case(
        "npu_gelu_mul",
        randn(3, 8),
        options={"approximate": _form},
        reference=lambda x, approximate: _gelu(_halves(x, -1)[0], approximate) * _halves(x, -1)[1],
        differentiable=True,
    )
case("npu_mish", randn(3, 5), reference=lambda x: x * np.tanh(np.log1p(np.exp(x))), differentiable=True)
case("npu_silu", randn(3, 5), reference=lambda x: x * _sigmoid(x), differentiable=True)
case("npu_silu_", randn(3, 5), reference=lambda x: (x * _sigmoid(x), x * _sigmoid(x)), written=(0,))


def _swiglu(x: Array, dim: int = -1) -> Array:
    left, right = _halves(x, dim)
    return left * _sigmoid(left) * right


def _swiglu_backward(above: Array, x: Array, dim: int = -1) -> Array:
    left, right = _halves(x, dim)
    slope = _sigmoid(left) + left * _sigmoid(left) * (1 - _sigmoid(left))
    return np.concatenate([above * right * slope, above * left * _sigmoid(left)], dim)


case("npu_swiglu", randn(3, 8), reference=_swiglu, differentiable=True)
case("npu_swiglu", randn(4, 3, 5), 0, reference=_swiglu, differentiable=True)
case("npu_swiglu", randn(2, 6, dtype=torch.bfloat16), reference=_swiglu, tolerance=2e-2)
case("npu_swiglu", randn(0, 6), reference=_swiglu)
case("npu_swiglu_backward", randn(3, 4), randn(3, 8), reference=_swiglu_backward, differentiable=True)
case("npu_swiglu_backward", randn(2, 5), randn(4, 5), 0, reference=_swiglu_backward)


def _geglu(x: Array, dim: int = -1, approximate: int = 1, activate_left: bool = False) -> tuple[Array, Array]:
    left, right = _halves(x, dim)
    active, other = (left, right) if activate_left else (right, left)
    gelu = _gelu(active, "tanh" if approximate else "none")
    return gelu * other, gelu


case("npu_geglu", randn(3, 8), reference=_geglu, differentiable=True)
case("npu_geglu", randn(4, 3), 0, 0, True, reference=_geglu, differentiable=True)


def _clipped_swiglu(
    x: Array,
    group_index: Array | None = None,
    dim: int = -1,
    alpha: float = 1.702,
    limit: float = 7.0,
    bias: float = 1.0,
    interleaved: bool = True,
) -> Array:
    axis = dim % x.ndim
    rows = x.reshape(int(np.prod(x.shape[:axis])), -1)
    out = np.zeros((rows.shape[0], rows.shape[1] // 2))
    count = rows.shape[0] if group_index is None else int(group_index.sum())
    for i in range(count):
        for j in range(out.shape[1]):
            a, b = (rows[i, 2 * j], rows[i, 2 * j + 1]) if interleaved else (rows[i, j], rows[i, j + out.shape[1]])
            a, b = min(a, limit), max(-limit, min(b, limit))
            out[i, j] = a / (1 + np.exp(-alpha * a)) * (b + bias)
    return out.reshape(*x.shape[:axis], x.shape[axis] // 2, *x.shape[axis + 1 :])


case("npu_clipped_swiglu", randn(5, 8), reference=_clipped_swiglu, differentiable=True)
case("npu_clipped_swiglu", randn(5, 4, 3, scale=5.0), options={"dim": 1, "limit": 2.0, "interleaved": False}, reference=_clipped_swiglu)
case("npu_clipped_swiglu", randn(6, 4), options={"group_index": torch.tensor([1, 3])}, reference=_clipped_swiglu)


def _masked_softmax(x: Array, mask: Array, scale: float = 1, fixed_triu_mask: bool = False) -> Array:
    return _softmax(np.where(np.broadcast_to(mask, x.shape), -10000.0, x * scale))


def _masked_softmax_backward(above: Array, y: Array, mask: Array, scale: float, fixed_triu_mask: bool) -> Array:
    out = np.zeros_like(y)
    for place in np.ndindex(y.shape[:-1]):
        jacobian = np.diag(y[place]) - np.outer(y[place], y[place])
        out[place] = jacobian @ above[place] * scale
    return np.where(np.broadcast_to(mask, y.shape), 0.0, out)


case("npu_scaled_masked_softmax", randn(2, 3, 4, 5), rand(2, 1, 4, 5) > 0.6, 0.5, reference=_masked_softmax, differentiable=True)
case("npu_scaled_masked_softmax", randn(1, 1, 2, 3), torch.ones(1, 1, 2, 3) > 0, reference=_masked_softmax)
case(
    "npu_scaled_masked_softmax_backward",
    randn(2, 3, 5),
    torch.softmax(randn(2, 3, 5), -1),
    rand(2, 3, 5) > 0.5,
    0.3,
    False,
    reference=_masked_softmax_backward,
)
case(
    "npu_softmax_cross_entropy_with_logits",
    randn(4, 6),
    torch.softmax(randn(4, 6), -1),
    reference=lambda x, labels: -(labels * np.log(_softmax(x))).sum(-1),
    differentiable=True,
)
