"""Cases of feed-forward layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.torch_operators.activation_cases import _gelu
from tests.torch_operators.quantising_cases import _int8
from tests.torch_operators.walk import case, rand, randn

Array = np.ndarray


def _ffn(
    x: Array,
    w1: Array,
    w2: Array,
    activation: str,
    expert_tokens: Any = None,
    expert_tokens_index: Any = None,
    output_dtype: Any = None,
    **o: Any,
) -> Array:
    acts = {
        "fastgelu": lambda y: y / (1 + np.exp(-1.702 * y)),
        "gelu": lambda y: _gelu(y, "none"),
        "relu": lambda y: np.maximum(y, 0),
        "silu": lambda y: y / (1 + np.exp(-y)),
    }
    gates = {"geglu": lambda y: _gelu(y, "tanh"), "swiglu": acts["silu"], "reglu": acts["relu"]}
    acts |= {name: lambda y, gate=gate: y[..., : y.shape[-1] // 2] * gate(y[..., y.shape[-1] // 2 :]) for name, gate in gates.items()}
    rows = x.reshape(-1, x.shape[-1])
    ends = expert_tokens_index or (list(np.cumsum(expert_tokens)) if expert_tokens else [len(rows)])
    out = []
    for e, (a, b) in enumerate(zip([0, *ends], ends, strict=False)):
        own = {name: value if w1.ndim == 2 else value[e] for name, value in o.items()}
        u1, u2 = (w1, w2) if w1.ndim == 2 else (w1[e], w2[e])
        if "antiquant_scale1" in own:
            u1, u2 = ((u + own.get(f"antiquant_offset{i}", 0)) * own[f"antiquant_scale{i}"] for i, u in ((1, u1), (2, u2)))
        if x.dtype == np.int8:
            hidden = acts[activation]((rows[a:b].astype(int) @ u1.astype(int) + own.get("bias1", 0)) * own["deq_scale1"])
            hidden = _int8(hidden * own["scale"] + own["offset"])
            out.append((hidden.astype(int) @ u2.astype(int) + own.get("bias2", 0)) * own["deq_scale2"])
        else:
            out.append(acts[activation](rows[a:b] @ u1 + own.get("bias1", 0)) @ u2 + own.get("bias2", 0))
    return np.concatenate(out).reshape(*x.shape[:-1], -1)


case("npu_ffn", randn(2, 3, 4), randn(4, 6), randn(6, 4), "gelu", options={"bias1": randn(6), "bias2": randn(4)}, reference=_ffn)
case(
    "npu_ffn", randn(5, 4), randn(2, 4, 6), randn(2, 6, 4), "silu", options={"expert_tokens": [2, 3], "bias1": randn(2, 6)}, reference=_ffn
)
case("npu_ffn", randn(5, 4), randn(2, 4, 6), randn(2, 6, 4), "relu", options={"expert_tokens_index": [2, 5]}, reference=_ffn)
for _gate in ("geglu", "swiglu", "reglu"):
    case(
        "npu_ffn",
        randn(2, 3, 4),
        randn(4, 6),
        randn(3, 4),
        _gate,
        options={"bias1": randn(6), "bias2": randn(4)},
        reference=_ffn,
        differentiable=_gate != "reglu",
    )
_BYTES = (
    torch.randint(-9, 9, (5, 4), dtype=torch.int8),
    torch.randint(-9, 9, (4, 6), dtype=torch.int8),
    torch.randint(-9, 9, (6, 4), dtype=torch.int8),
)
case(
    "npu_ffn",
    *_BYTES,
    "fastgelu",
    options={
        "scale": rand(1),
        "offset": rand(1),
        "deq_scale1": rand(6) / 9,
        "deq_scale2": rand(4),
        "bias1": torch.arange(6, dtype=torch.int32),
    },
    reference=_ffn,
    tolerance=1e-2,
)
case(
    "npu_ffn",
    randn(5, 4),
    *_BYTES[1:],
    "gelu",
    options={"antiquant_scale1": rand(6) / 9, "antiquant_scale2": rand(4) / 9, "antiquant_offset1": rand(6)},
    reference=_ffn,
    tolerance=1e-4,
)
