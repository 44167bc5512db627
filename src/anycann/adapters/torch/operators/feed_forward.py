"""Two products with an activation between them: feed-forward layers, of experts or of all rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch.nn import functional

from anycann.adapters.torch.operators import packing
from anycann.adapters.torch.operators.activations import fast_gelu
from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.quantised_products import dequantised_weight, integer_product
from anycann.adapters.torch.operators.registry import Body, bound, composed, refuse, refuse_given, require, sizes

_FFN = "npu_ffn"
_GATES = {"geglu": lambda x: functional.gelu(x, approximate="tanh"), "swiglu": functional.silu, "reglu": torch.relu}


def _gated(gate: Body) -> Body:
    def activation(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return first * gate(second)

    return activation


_FFN_ACTIVATIONS = {"fastgelu": fast_gelu, "gelu": functional.gelu, "relu": torch.relu, "silu": functional.silu}
_FFN_ACTIVATIONS |= {name: _gated(gate) for name, gate in _GATES.items()}


@composed(
    "npu_ffn(Tensor x, Tensor weight1, Tensor weight2, str activation, *, int[]? expert_tokens=None, int[]? expert_tokens_index=None, "
    "Tensor? bias1=None, Tensor? bias2=None, Tensor? scale=None, Tensor? offset=None, Tensor? deq_scale1=None, Tensor? deq_scale2=None, "
    "Tensor? antiquant_scale1=None, Tensor? antiquant_scale2=None, Tensor? antiquant_offset1=None, Tensor? antiquant_offset2=None, "
    "int? inner_precise=None, ScalarType? output_dtype=None) -> Tensor",
    missing="geglu, swiglu and reglu of experts and of integers (Ascend has none)",
)
def ffn(*given: Any, **options: Any) -> torch.Tensor:
    """activation(x w1 + b1) w2 + b2 of all rows, or of the rows of each expert with its weights; also of int8, and with integer weights.
    geglu, swiglu and reglu: the first half of the columns times the activated second half."""
    a = bound(_FFN, given, options)
    if a.activation not in _FFN_ACTIVATIONS:
        refuse(_FFN, f"activation={a.activation!r}", ", ".join(_FFN_ACTIVATIONS) + " are computed")
    of_experts = a.expert_tokens is not None or a.expert_tokens_index is not None
    plain = a.x.is_floating_point() and a.weight1.is_floating_point() and not of_experts
    if a.activation in _GATES and not plain:
        refuse(_FFN, f"activation={a.activation!r} of {a.x.dtype} or with experts", "it is for floats without experts")
    if a.x.is_floating_point():
        refuse_given(_FFN, "it is for int8", scale=a.scale, offset=a.offset, deq_scale1=a.deq_scale1, deq_scale2=a.deq_scale2)
    fits = a.weight1.dim() == a.weight2.dim() == (3 if of_experts else 2)
    require(fits, _FFN, f"weights of {sizes(a.weight1, a.weight2)}", "(k, n), or (experts, k, n) with expert_tokens or their index")
    rows = a.x.reshape(-1, a.x.shape[-1])
    if not of_experts:
        y = _expert(a, rows, None)
    else:
        ends = a.expert_tokens_index or [sum(a.expert_tokens[: i + 1]) for i in range(len(a.expert_tokens))]
        whole = ends[-1] == rows.shape[0] and len(ends) == a.weight1.shape[0]
        require(whole, _FFN, f"experts' rows end at {ends} of {rows.shape[0]} rows", "an end for each expert, the last at the last row")
        y = torch.cat([_expert(a, rows[b:e], i) for i, (b, e) in enumerate(zip([0, *ends[:-1]], ends, strict=True))])
    return y.reshape(*a.x.shape[:-1], -1)


def _expert(a: SimpleNamespace, rows: torch.Tensor, expert: int | None) -> torch.Tensor:
    def own(value: torch.Tensor | None) -> torch.Tensor | None:
        return value if value is None or expert is None else value[expert]

    activation = _FFN_ACTIVATIONS[a.activation]
    if rows.dtype == torch.int8:
        hidden = activation(_scaled(integer_product(rows, _given(own(a.weight1))), own(a.bias1), _given(own(a.deq_scale1))))
        offset = own(a.offset)
        narrow = packing.rounded(hidden * _given(own(a.scale)) + (0 if offset is None else offset), torch.int8)
        y = _scaled(integer_product(narrow, _given(own(a.weight2))), own(a.bias2), _given(own(a.deq_scale2)))
        return y.to(a.output_dtype or torch.float16)
    w1, w2 = _given(own(a.weight1)), _given(own(a.weight2))
    if a.antiquant_scale1 is not None:
        w1 = dequantised_weight(_FFN, w1, rows.shape[-1], _given(own(a.antiquant_scale1)), own(a.antiquant_offset1))
        w2 = dequantised_weight(_FFN, w2, w1.shape[-1], _given(own(a.antiquant_scale2)), own(a.antiquant_offset2))
    hidden = activation(_biased(wide(rows) @ wide(w1), own(a.bias1)))
    return _biased(hidden @ wide(w2), own(a.bias2)).to(rows.dtype)


def _given(value: torch.Tensor | None) -> torch.Tensor:
    if value is None:
        refuse(_FFN, "a quantised call", "scale, deq_scale1 and deq_scale2 (int8), or both antiquant scales are needed")
    return value


def _biased(y: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return y if bias is None else y + wide(bias)


def _scaled(sums: torch.Tensor, bias: torch.Tensor | None, scale: torch.Tensor) -> torch.Tensor:
    return (sums if bias is None else sums + bias).float() * packing.scale_of(scale)
