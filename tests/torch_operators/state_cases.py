"""Recurrent layers, steps of optimizers, formats and merges."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.torch_operators.walk import case, rand, randn

Array = np.ndarray


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _cell(gates: Array, c: Array) -> tuple[Array, ...]:
    i, f, j, o = np.split(gates, 4, -1)
    i, f, j, o = _sigmoid(i), _sigmoid(f), np.tanh(j), _sigmoid(o)
    c = f * c + i * j
    return o * np.tanh(c), o * np.tanh(c), c, i, j, f, o, np.tanh(c)


def _lstm(x: Array, w: Array, b: Array, mask: Array, h: Array, c: Array, biased: bool, *rest: Any) -> Any:
    steps: dict[int, tuple[Array, ...]] = {}
    h, c = h[0], c[0]
    for t in reversed(range(len(x))) if rest[-1] else range(len(x)):
        steps[t] = _cell(np.concatenate((x[t], h), -1) @ w + (b if biased else 0), c)
        h, c = steps[t][1], steps[t][2]
    return [np.stack([steps[t][i] for t in range(len(x))]) for i in range(8)]


_L = (randn(3, 2, 4), randn(9, 20), randn(20), torch.empty(0), randn(1, 2, 5), randn(1, 2, 5))
for _backwards in (False, True):
    case("npu_lstm", *_L, True, 1, 0.0, True, False, False, False, _backwards, reference=_lstm, differentiable=not _backwards)
case("npu_lstm", *_L, False, 1, 0.0, False, False, False, False, False, reference=_lstm)
case(
    "npu_lstm_cell",
    randn(2, 4),
    randn(4, 20),
    randn(5, 20),
    randn(2, 5),
    randn(2, 5),
    randn(20),
    randn(20),
    reference=lambda x, wi, wh, h, c, bi, bh: _cell(x @ wi + bi + h @ wh + bh, c),
    differentiable=True,
)


def _gru(x: Array, h: Array, w: Array, u: Array, b: Array, d: Array, lengths: Array, biased: bool, *rest: Any) -> Any:
    h, steps = h[0], []
    for step in x:
        (r, z, n), (rh, zh, nh) = np.split(step @ w + (b if biased else 0), 3, -1), np.split(h @ u + (d if biased else 0), 3, -1)
        r, z = _sigmoid(r + rh), _sigmoid(z + zh)
        n = np.tanh(n + r * nh)
        h = (1 - z) * n + z * h
        steps.append((h, h, z, r, n, nh))
    return [np.stack(parts) for parts in zip(*steps, strict=True)]


_G = (randn(3, 2, 4), randn(1, 2, 5), randn(4, 15), randn(5, 15), randn(15), randn(15), torch.tensor([3, 3], dtype=torch.int32))
case("npu_gru", *_G, True, 1, 0.0, True, False, False, reference=_gru, differentiable=True)
case("npu_gru", *_G, False, 1, 0.0, True, False, False, reference=_gru)


def _adam(
    b1p: float, b2p: float, lr: float, b1: float, b2: float, eps: float, g: Array, lock: Any, nesterov: Any, var: Array, m: Array, v: Array
) -> Any:
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    step = b1 * m + (1 - b1) * g if nesterov else m
    return var - lr * np.sqrt(1 - b2p) / (1 - b1p) * step / (np.sqrt(v) + eps), m, v


_S = {"var": randn(3, 4), "m": randn(3, 4), "v": rand(3, 4)}
for _nesterov in (False, True):
    case("npu_apply_adam.out", 0.81, 0.9, 0.2, 0.9, 0.99, 1e-3, randn(3, 4), False, _nesterov, options=_S, reference=_adam)


def _adam_w(
    b1p: float,
    b2p: float,
    lr: float,
    wd: float,
    b1: float,
    b2: float,
    eps: float,
    g: Array,
    n: Any,
    a: Any,
    maximize: Any,
    var: Array,
    m: Array,
    v: Array,
) -> Any:
    g = -g if maximize else g
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    return var * (1 - lr * wd) - lr * (m / (1 - b1p * b1)) / (np.sqrt(v / (1 - b2p * b2)) + eps), m, v


case("npu_apply_adam_w.out", 0.81, 0.9, 0.2, 0.1, 0.9, 0.99, 1e-3, randn(3, 4), None, False, True, options=_S, reference=_adam_w)


def _bert(*given: Any, var: Array, m: Array, v: Array) -> Any:
    lr, b1, b2, eps, g, limit, norm, wd, size, mode = *given, *(None, 0)[len(given) - 8 :]
    g = g / norm if mode == 0 and limit > 0 and norm > 1 else g
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    return var - (size if mode else lr) * m / (np.sqrt(v) + eps) - lr * wd * var, m, v


for _limits in ((-1.0, 0.0), (1.0, 2.5), (1.0, 0.5)):
    case("npu_bert_apply_adam.out", 0.2, 0.9, 0.99, 1e-3, randn(3, 4), *_limits, 0.1, options=_S, reference=_bert)
case("npu_bert_apply_adam.out", 0.2, 0.9, 0.99, 1e-3, randn(3, 4), 1.0, 2.5, 0.1, 0.3, 1, options=_S, reference=_bert)
case("npu_alloc_float_status", randn(3), reference=lambda x: np.zeros(8))
case("npu_get_float_status", randn(8), reference=lambda x: np.zeros(8, np.int32))
case("npu_clear_float_status", randn(8), reference=lambda x: np.zeros(8))
case("_npu_format_cast", randn(3, 4), 29, reference=lambda x, f: x, differentiable=True)
case("npu_format_cast", randn(3, 4), 29, reference=lambda x, f: x, differentiable=True)
case("npu_dtype_cast", torch.tensor([1.7, -2.2]), torch.int32, reference=lambda x, d: np.array([1, -2]))
case("npu_dtype_cast", randn(3), torch.float16, reference=lambda x, d: x, tolerance=1e-3, differentiable=False)
case("_npu_dtype_cast", randn(3), torch.bfloat16, reference=lambda x, d: x, tolerance=2e-2)


def _merged(lse: list[Array], out: list[Array], kind: int) -> Any:
    total = sum(np.exp(x) for x in lse)
    return sum(o * (np.exp(x) / total)[:, None] for o, x in zip(out, lse, strict=True)), np.log(total) if kind else np.zeros(len(total))


for _kind in (0, 1):
    case("npu_attention_update", [randn(6), randn(6), randn(6)], [randn(6, 4), randn(6, 4), randn(6, 4)], _kind, reference=_merged)
