"""Gradients that programs call by name, by differences of the operators in float64; statistics of batches; tokens by their logits."""

from __future__ import annotations

from collections.abc import Callable
import math
from typing import Any

import numpy as np
import torch

from tests.torch_operators.walk import case, rand, randn

Array = np.ndarray


def _differences(forward: Callable[[Array], Array], x: Array, above: Array, step: float = 1e-6) -> Array:
    result = np.zeros_like(x)
    for place in np.ndindex(*x.shape):
        moved = np.zeros_like(x)
        moved[place] = step
        result[place] = ((forward(x + moved) - forward(x - moved)) * above).sum() / (2 * step)
    return result


def _gelu(x: Array, approximate: str) -> Array:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))


for _form in ("none", "tanh"):
    case(
        "npu_gelu_backward",
        randn(3, 5),
        randn(3, 5),
        options={"approximate": _form},
        reference=lambda g, x, approximate: _differences(lambda v: _gelu(v, approximate), x, g),
    )


def _renorm(x: Array, p: float, dim: int, maxnorm: float) -> Array:
    out = x.copy()
    for entry in range(x.shape[dim]):
        part = np.take(x, entry, dim)
        norm = np.abs(part).max() if p == np.inf else (np.abs(part) ** p).sum() ** (1 / p)
        if norm > maxnorm:
            out[(slice(None),) * dim + (entry,)] = part * maxnorm / (norm + 1e-7)
    return out


for _p, _dim in ((2.0, 0), (1.0, 1), (3.0, 0), (float("inf"), 1)):
    case(
        "npu_renorm_backward",
        randn(3, 4, 2),
        randn(3, 4, 2),
        _p,
        _dim,
        1.5,
        reference=lambda g, x, p, dim, m: _differences(lambda v: _renorm(v, p, dim, m), x, g),
        tolerance=2e-4,
    )

case(
    "repeat_interleave_backward_int",
    randn(2, 12),
    randn(2, 4),
    3,
    1,
    reference=lambda g, x, n, dim: _differences(lambda v: np.repeat(v, n, dim), x, g),
)
case(
    "repeat_interleave_backward_int",
    randn(24),
    randn(2, 4),
    3,
    reference=lambda g, x, n: _differences(lambda v: np.repeat(v.reshape(-1), n), x, g),
)
for _times, _axis, _shape in ((torch.tensor([2, 0, 3]), 1, (2, 5)), (torch.tensor([2]), 0, (4, 3)), (torch.arange(6), None, (15,))):
    case(
        "repeat_interleave_backward_tensor",
        randn(*_shape),
        randn(2, 3),
        _times,
        _axis,
        reference=lambda g, x, n, dim: _differences(lambda v: np.repeat(v, n if n.size > 1 else int(n[0]), dim), x, g),
    )


def _convolved(x: Array, w: Array) -> Array:
    """Stride 2 and 1, padding 1 and 0, two groups."""
    x = np.pad(x, [(0, 0), (0, 0), (1, 1), (0, 0)])
    rows, columns = (x.shape[2] - w.shape[2]) // 2 + 1, x.shape[3] - w.shape[3] + 1
    out = np.zeros((x.shape[0], w.shape[0], rows, columns))
    for o, i, j in np.ndindex(w.shape[0], rows, columns):
        group = slice(w.shape[1] * (o * 2 // w.shape[0]), w.shape[1] * (o * 2 // w.shape[0] + 1))
        out[:, o, i, j] = (x[:, group, 2 * i : 2 * i + w.shape[2], j : j + w.shape[3]] * w[o]).sum((1, 2, 3))
    return out


def _convolution_gradients(x: Array, g: Array, w: Array, *settings: Any) -> tuple[Array, Array, Array]:
    return _differences(lambda v: _convolved(v, w), x, g), _differences(lambda v: _convolved(x, v), w, g), g.sum((0, 2, 3))


case(
    "npu_conv2d_backward",
    randn(1, 2, 5, 4), randn(1, 4, 3, 3), randn(4, 1, 3, 2), [2, 1], [1, 0], [1, 1], 2, [True, True, True],
    reference=_convolution_gradients,
)  # fmt: skip


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


_PROBABILITIES = torch.softmax(randn(2, 3, 5), -1)
case("npu_attn_softmax_", randn(2, 3, 5), reference=lambda x: (_softmax(x), _softmax(x)), written=(0,))
case(
    "npu_attn_softmax_backward_",
    _PROBABILITIES,
    randn(2, 3, 4),
    randn(2, 5, 4),
    reference=lambda y, g, v: (_differences(lambda x: _softmax(x) @ v, np.log(y), g),) * 2,
    written=(0,),
)
case(
    "npu_masked_softmax_with_rel_pos_bias",
    randn(2, 3, 2, 4, 4),
    randn(1, 3, 1, 4, 4),
    randn(1, 1, 2, 4, 4),
    0.5,
    reference=lambda x, mask, bias, scale: _softmax(x * scale + mask + bias),
    differentiable=True,
)

case("batch_norm_reduce", randn(3, 4, 5, 2), 1e-5, reference=lambda x, eps: (x.sum((0, 2, 3)), (x * x).sum((0, 2, 3))), differentiable=True)


def _gathered(x: Array, sums: Array, squares: Array, mean: Array, var: Array, momentum: float, eps: float, counts: Array) -> Any:
    m = sums.sum(0) / counts.sum()
    v = squares.sum(0) / counts.sum() - m**2
    return m, 1 / np.sqrt(v + eps), momentum * m + (1 - momentum) * mean, momentum * v + (1 - momentum) * var


case(
    "batch_norm_gather_stats_update",
    randn(2, 3, 4), randn(4, 3), rand(4, 3, low=20, high=30), randn(3), rand(3), 0.2, 1e-4, torch.tensor([3.0, 4.0, 5.0, 2.0]),
    reference=_gathered, written=(3, 4),
)  # fmt: skip


def _kept(x: Array, p: Array | None = None, k: Array | None = None) -> Array:
    out = np.full_like(x, -np.inf)
    for row in range(x.shape[0]):
        order = sorted(range(x.shape[1]), key=lambda i: (-x[row, i], -i))
        if k is not None:
            order = [i for i in order if x[row, i] >= x[row, order[k[row] - 1]]]
        probabilities, before = _softmax(x[row, order]), 0.0
        for place, share in zip(order, probabilities, strict=True):
            if p is not None and before >= p[row] and before > 0:
                break
            out[row, place] = x[row, place]
            before += share
    return out


_LOGITS, _SHARES, _COUNTS = randn(4, 9, scale=2.0), torch.tensor([0.3, 0.7, 0.95, 0.01]), torch.tensor([1, 4, 9, 5], dtype=torch.int32)
case("npu_top_k_top_p", _LOGITS, _SHARES, _COUNTS, reference=_kept)
case("npu_top_k_top_p", _LOGITS, None, _COUNTS, reference=_kept)
case("npu_top_k_top_p", _LOGITS, _SHARES, None, reference=_kept)
case("npu_top_k_top_p", torch.tensor([[1.0, 3.0, 3.0, 2.0]]), None, torch.tensor([1]), reference=_kept)

case("npu_sim_exponential_", torch.empty(0), 2.0, reference=lambda x, rate: x)
