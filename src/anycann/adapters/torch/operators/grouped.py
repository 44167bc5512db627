"""A matrix product for each group of rows (or of the depth)."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn import functional

from anycann.adapters.torch.operators import packing
from anycann.adapters.torch.operators.activations import fast_gelu
from anycann.adapters.torch.operators.float8_products import FLOAT8, float8_product, is_of_powers
from anycann.adapters.torch.operators.microscaling import GROUP
from anycann.adapters.torch.operators.precision import dtype_of, wide
from anycann.adapters.torch.operators.quantised_products import dequantised_weight, integer_product
from anycann.adapters.torch.operators.registry import bound, opaque, refuse, refuse_given, require

_NAME = "npu_grouped_matmul"
_BETWEEN = (
    "Tensor[]? bias=None, Tensor[]? scale=None, Tensor[]? offset=None, Tensor[]? antiquant_scale=None, Tensor[]? antiquant_offset=None, "
    "Tensor[]? per_token_scale=None, "
)
_BEHIND = (
    "Tensor[]? activation_input=None, Tensor[]? activation_quant_scale=None, Tensor[]? activation_quant_offset=None, int? split_item=0, "
)
_ACTIVATIONS = {
    0: lambda x: x,
    1: torch.relu,
    2: lambda x: functional.gelu(x, approximate="tanh"),
    4: fast_gelu,
    5: functional.silu,
}
_MISSING = "offset, activation gradients and quantised activations, float4 operands, int4 weights that scale inside the product"


def _ends(a: SimpleNamespace, groups: int) -> list[int]:
    """Where each group ends along the grouped axis."""
    listed = a.group_list
    if isinstance(listed, torch.Tensor):
        if a.group_list_type == 2:
            counts = [0] * groups
            for group, count in listed.tolist():
                counts[group] = count
        else:
            counts = listed.tolist()
        listed = counts if a.group_list_type == 0 else [sum(counts[: i + 1]) for i in range(len(counts))]
    accepted = f"{groups} ends that do not fall"
    require(len(listed) == groups and sorted(listed) == list(listed), _NAME, f"group_list {listed} for {groups} groups", accepted)
    return list(listed)


def _result_dtype(a: SimpleNamespace) -> torch.dtype:
    default = torch.bfloat16 if a.x[0].dtype in FLOAT8 else a.x[0].dtype
    return dtype_of(getattr(a, "output_dtype", None), _NAME, "output_dtype", default)


def _weights(a: SimpleNamespace) -> list[torch.Tensor]:
    """A weight for each group: the entries of the list, or of the first axis of its only one."""
    alone = len(a.weight) == 1 and a.weight[0].dim() == 3
    return list(a.weight[0]) if alone else list(a.weight)


def _of_group(values: Sequence[torch.Tensor] | None, group: int, groups: int) -> torch.Tensor | None:
    if not values:
        return None
    return (
        values[group]
        if len(values) == groups and groups > 1
        else (values[0][group] if values[0].shape[0] == groups and values[0].dim() > 1 else values[0])
    )


def _product(
    a: SimpleNamespace, x: torch.Tensor, weight: torch.Tensor, group: int, groups: int, tokens: torch.Tensor | None
) -> torch.Tensor:
    """One product with what belongs to its group, before it is cast."""
    bias, scale, antiquant, offset = (_of_group(v, group, groups) for v in (a.bias, a.scale, a.antiquant_scale, a.antiquant_offset))
    if antiquant is not None:
        size = -(-x.shape[-1] // antiquant.shape[0]) if antiquant.dim() == 2 else 0
        y = x.float() @ dequantised_weight(_NAME, weight, x.shape[-1], antiquant, offset, size)
    elif x.dtype == torch.int8 and weight.dtype == torch.int8:
        sums = integer_product(x, weight)
        sums = sums + bias if bias is not None and bias.dtype == torch.int32 else sums
        bias = None if bias is not None and bias.dtype == torch.int32 else bias
        if scale is None:
            return sums
        y = sums.float() * packing.scale_of(scale)
        y = y if tokens is None else y * tokens[:, None]
    elif x.dtype in FLOAT8:
        given = a.scale[group if len(a.scale) > 1 else 0] if a.scale else None
        if given is not None and is_of_powers(given):  # (depth / 64, columns, 2), which `_of_group` could take for one of each group
            scale = given[group] if given.dim() == weight.dim() + 2 else given
        y = float8_product(_NAME, x, weight, scale, tokens)
    elif x.is_floating_point() and weight.dtype == x.dtype:
        y = wide(x) @ wide(weight)
    else:
        refuse(
            _NAME, f"x of {x.dtype} with weights of {weight.dtype}", "equal floats, int8 pairs, and integer weights with antiquant_scale"
        )
    y = y if bias is None else y + wide(bias)
    activation = _ACTIVATIONS.get(getattr(a, "act_type", 0))
    if activation is None:
        refuse(_NAME, f"act_type={a.act_type}", "0, 1, 2, 4 and 5 are documented")
    return activation(y)


def _computed(a: SimpleNamespace) -> list[torch.Tensor]:
    refuse_given(
        _NAME,
        "the interface does not take it yet",
        offset=a.offset or None,
        activation_input=a.activation_input or None,
        activation_quant_scale=a.activation_quant_scale or None,
        activation_quant_offset=a.activation_quant_offset or None,
    )
    if a.x[0].dtype not in FLOAT8:
        refuse_given(
            _NAME,
            "it is for float8 and float4 operands",
            **{n: getattr(a, n, None) for n in ("x_dtype", "weight_dtype", "scale_dtype", "per_token_scale_dtype")},
        )
    weights, dtype = _weights(a), _result_dtype(a)
    if getattr(a, "group_type", None) == 2:
        return [_by_depth(a, dtype)]
    groups = len(weights)
    parts = list(a.x)
    tokens = [None] * groups if not a.per_token_scale else list(a.per_token_scale)
    rows = a.x[0].shape[0]
    if len(parts) == 1 and groups > 1:
        ends = _ends(a, groups)
        begins = [0, *ends[:-1]]
        tokens = [None] * groups if tokens[0] is None else [tokens[0][b:e] for b, e in zip(begins, ends, strict=True)]
        parts = [a.x[0][b:e] for b, e in zip(begins, ends, strict=True)]
        rows -= ends[-1]
    else:
        require(len(parts) == groups, _NAME, f"{len(parts)} x for {groups} weights", "one x, or one for each weight")
        rows = 0
    results = [_cast(_product(a, x, w, i, groups, t), dtype) for i, (x, w, t) in enumerate(zip(parts, weights, tokens, strict=True))]
    if a.split_item in (0, 1):
        return results
    return [torch.cat((*results, results[0].new_zeros(rows, results[0].shape[-1])))]


def _by_depth(a: SimpleNamespace, dtype: torch.dtype) -> torch.Tensor:
    """(groups, M, N): products of the parts of the depth."""
    x, weight = a.x[0], a.weight[0]
    ends = _ends(a, a.group_list.shape[0])
    begins = [0, *ends[:-1]]
    if x.dtype not in FLOAT8:
        return torch.stack([wide(x[:, b:e]) @ wide(weight[b:e]) for b, e in zip(begins, ends, strict=True)]).to(dtype)
    of_powers = bool(a.scale and a.per_token_scale) and is_of_powers(a.scale[0]) and is_of_powers(a.per_token_scale[0])
    require(of_powers, _NAME, "float8 in groups of the depth", "scale and per_token_scale of float8_e8m0fnu")
    scale, by_row = a.scale[0], a.per_token_scale[0]
    products = []
    for group, (b, e) in enumerate(zip(begins, ends, strict=True)):  # as `npu_grouped_dynamic_mx_quant` lays scales
        first = b // (2 * GROUP) + group
        own = slice(first, first + -(-(e - b) // (2 * GROUP)))
        products.append(float8_product(_NAME, x[:, b:e], weight[b:e], scale[own], by_row[:, own]))
    return torch.stack(products).to(dtype)


def _cast(y: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return y.to(dtype) if dtype.is_floating_point or not y.is_floating_point() else packing.rounded(y, dtype)


def _columns(a: SimpleNamespace, weight: torch.Tensor, depth: int) -> int:
    packed = weight.dtype == torch.int32 and weight.shape[-2] == depth
    return int(weight.shape[-1] * (8 if packed else 1))


def _shapes(a: SimpleNamespace) -> list[torch.Tensor]:
    dtype, x = _result_dtype(a), a.x[0]
    if getattr(a, "group_type", None) == 2:
        return [x.new_empty((a.group_list.shape[0], x.shape[0], a.weight[0].shape[1]), dtype=dtype)]
    weights = _weights(a)
    if a.split_item in (0, 1):
        parts = list(a.x)
        lengths = [tuple(p.shape[:-1]) for p in parts] if len(parts) > 1 or len(weights) == 1 else None
        if lengths is None:
            ends = _ends(a, len(weights))
            lengths = [(e - b,) for b, e in zip([0, *ends[:-1]], ends, strict=True)]
        return [x.new_empty((*n, _columns(a, w, x.shape[-1])), dtype=dtype) for n, w in zip(lengths, weights, strict=True)]
    rows = sum(part.shape[0] for part in a.x)
    return [x.new_empty((rows, _columns(a, weights[0], x.shape[-1])), dtype=dtype)]


def _register(name: str, schema: str) -> None:
    def body(*given: Any, **options: Any) -> list[torch.Tensor]:
        """A product for each group of rows, or of the depth, with its weight: several results, or one behind another."""
        return _computed(bound(name, given, options))

    def shapes(*given: Any, **options: Any) -> list[torch.Tensor]:
        return _shapes(bound(name, given, options))

    opaque(schema, shape=shapes, missing=_MISSING)(body)


_register(
    _NAME,
    f"{_NAME}(Tensor[] x, Tensor[] weight, *, {_BETWEEN}Tensor? group_list=None, {_BEHIND}int? group_type=None, int? group_list_type=0, "
    "int? act_type=0, int[]? tuning_config=None, int? output_dtype=None, int? x_dtype=None, int? weight_dtype=None, "
    "int? scale_dtype=None, int? per_token_scale_dtype=None) -> Tensor[]",
)
_register(
    f"{_NAME}.List",
    f"{_NAME}.List(Tensor[] x, Tensor[] weight, *, {_BETWEEN}int[]? group_list=None, {_BEHIND}int? group_type=None, "
    "int? output_dtype=None) -> Tensor[]",
)
