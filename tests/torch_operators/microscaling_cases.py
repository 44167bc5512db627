"""Cases of floats that share a power of two: the types of few bits as lists of all their values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tests.torch_operators.walk import case, rand, randn

Array = np.ndarray


def _values(mantissa: int, bias: int, end: float) -> Array:
    """All finite numbers of a type with that many bits of mantissa, by their definition."""
    steps = range(1 << mantissa)
    small = [step * 2.0 ** (1 - bias - mantissa) for step in steps]
    exponents = range(1 - bias, math.frexp(end)[1])
    return np.array([x for x in small + [(1 + step / (1 << mantissa)) * 2.0**e for e in exponents for step in steps] if x <= end])


_TYPES = {torch.float8_e4m3fn: (_values(3, 7, 448), 8, 448.0), torch.float8_e5m2: (_values(2, 15, 57344), 15, 57344.0)}


def _nearest(x: float, values: Array) -> float:
    distances = np.abs(values - abs(x))
    best = np.flatnonzero(distances == distances.min())
    # of two equally near the one with the even code, and codes count the values
    return math.copysign(values[best[0] if best[0] % 2 == 0 or len(best) == 1 else best[1]], x)


_TYPES_BY_NUMBER = {296: (_values(1, 1, 6), 2, 6.0), **_TYPES}


def _exponent(largest: float, top: int, end: float, scale_alg: int) -> int:
    if largest == 0:
        return -127
    return math.ceil(math.log2(largest / end)) if scale_alg else math.floor(math.log2(largest)) - top


def _quantised(
    x: Array, *, axis: int = -1, dst_type: Any = 296, block_size: int = 32, scale_alg: int = 0, max_low_bound: float = 0.0
) -> tuple[Array, Array]:
    values, top, end = _TYPES_BY_NUMBER[dst_type]
    lines = np.moveaxis(x, axis, -1)
    pairs = math.ceil(math.ceil(lines.shape[-1] / block_size) / 2)
    y, scales = np.zeros(lines.shape), np.full((*lines.shape[:-1], pairs, 2), 2.0**-127)
    for place in np.ndindex(*lines.shape[:-1]):
        for begin in range(0, lines.shape[-1], block_size):
            group = lines[place][begin : begin + block_size]
            exponent = _exponent(max(float(np.abs(group).max()), max_low_bound), top, end, scale_alg)
            scales[place][begin // block_size // 2, begin // block_size % 2] = 2.0**exponent
            for i, value in enumerate(group):
                y[place][begin + i] = _nearest(max(min(value / 2.0**exponent, end), -end), values)
    return _stored(np.moveaxis(y, -1, axis), dst_type), np.moveaxis(scales, -2, axis if axis >= 0 else axis - 1)


def _stored(y: Array, dst_type: Any) -> Array:
    """What the operator returns: float4 as codes, two in a byte."""
    if dst_type != 296:
        return y
    values = _TYPES_BY_NUMBER[296][0]
    codes = np.vectorize(lambda v: int(np.flatnonzero(values == abs(v))[0]) + 8 * bool(np.signbit(v)), otypes=[int])(y)
    return codes[..., ::2] + 16 * codes[..., 1::2]


for _dtype in _TYPES:
    case("npu_dynamic_mx_quant", randn(3, 70), options={"dst_type": _dtype}, reference=_quantised)
    case("npu_dynamic_mx_quant", randn(2, 3, 128).to(torch.bfloat16), options={"dst_type": _dtype, "block_size": 64}, reference=_quantised)
    case("npu_dynamic_mx_quant", randn(96, 5).half() * 1e-3, options={"dst_type": _dtype, "axis": 0}, reference=_quantised)
    case("npu_dynamic_mx_quant", randn(2, 40, 3) * 1e3, options={"dst_type": _dtype, "axis": -2}, reference=_quantised)
    case("npu_dynamic_mx_quant", torch.zeros(2, 32), options={"dst_type": _dtype}, reference=_quantised)
case("npu_dynamic_mx_quant", randn(3, 70), reference=_quantised)
case("npu_dynamic_mx_quant", randn(40, 4), options={"axis": 0}, reference=_quantised)
case(
    "npu_dynamic_mx_quant",
    torch.cat((randn(2, 64), torch.full((2, 32), 1.75), torch.zeros(2, 32)), 1),
    options={"dst_type": torch.float8_e4m3fn, "scale_alg": 1},
    reference=_quantised,
)
_BOUNDED = {"dst_type": torch.float8_e5m2, "scale_alg": 1, "max_low_bound": 2.0}
case("npu_dynamic_mx_quant", randn(3, 33) * 0.1, options=_BOUNDED, reference=_quantised)


def _along_both(x: Array, dst_type: Any) -> tuple[Array, ...]:
    return *_quantised(x, dst_type=dst_type), *_quantised(x, dst_type=dst_type, axis=-2)


for _dtype in (296, torch.float8_e5m2):
    case("npu_dynamic_mx_quant_with_dual_axis", randn(2, 40, 6), options={"dst_type": _dtype}, reference=_along_both)


def _by_blocks(x: Array, dst_type: Any) -> tuple[Array, Array, Array]:
    values, top, end = _TYPES_BY_NUMBER[dst_type]
    rows, columns = x.shape
    y = np.zeros(x.shape)
    last, before = (np.full((a, b, 2), 2.0**-127) for a, b in ((rows, -(-columns // 64)), (-(-rows // 64), columns)))
    for r in range(0, rows, 32):
        for c in range(0, columns, 32):
            block = (slice(r, r + 32), slice(c, c + 32))
            power = 2.0 ** _exponent(float(np.abs(x[block]).max()), top, end, 0)
            y[block] = np.vectorize(lambda v, p=power: _nearest(max(min(v / p, end), -end), values))(x[block])
            last[block[0], c // 64, c // 32 % 2] = before[r // 64, block[1], r // 32 % 2] = power
    return _stored(y, dst_type), last, before


for _dtype in (296, torch.float8_e4m3fn):
    case("npu_dynamic_block_mx_quant", randn(70, 40), options={"dst_type": _dtype}, reference=_by_blocks)


def _by_experts(x: Array, ends: Array, dst_type: Any) -> tuple[Array, Array]:
    y = np.zeros((len(x), x.shape[1] // (2 if dst_type == 296 else 1)))  # pairs of float4
    scales = np.full((len(x) // 64 + len(ends), x.shape[1], 2), 2.0**-127)
    for group, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if end > begin:
            y[begin:end], own = _quantised(x[begin:end], axis=0, dst_type=dst_type)
            scales[begin // 64 + group :][: len(own)] = own
    return y, scales


_ENDS = torch.tensor([5, 5, 75, 140], dtype=torch.int32)
for _dtype in (torch.float8_e5m2, 296):
    case("npu_grouped_dynamic_mx_quant", randn(150, 4), _ENDS, options={"dst_type": _dtype}, reference=_by_experts)


# products, and back to floats: what a test multiplies is made by the operator, which the cases above compare


def _made(x: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ops.npu.npu_dynamic_mx_quant(x, axis=axis, dst_type=torch.float8_e4m3fn)


def _values_of(x: Array, scales: Array, axis: int) -> Array:
    along = np.moveaxis(scales, axis - 1, -2)
    powers = np.repeat(along.reshape(*along.shape[:-2], -1), 32, -1)[..., : x.shape[axis]]
    return x * np.moveaxis(powers, -1, axis)


_X, _BY_ROW = _made(randn(5, 70), -1)
_W, _BY_COLUMN = _made(randn(70, 6), -2)
case("npu_anti_mx_quant", _W, _BY_COLUMN, options={"axis": 0, "dst_type": torch.float32}, reference=lambda x, s, **_: _values_of(x, s, -2))
_FOURS = torch.ops.npu.npu_dynamic_mx_quant(randn(3, 40))


def _values_of_fours(x: Array, scales: Array, **_: Any) -> Array:
    codes = np.stack((x & 15, x >> 4), -1).reshape(*x.shape[:-1], -1)
    return _values_of(_TYPES_BY_NUMBER[296][0][codes & 7] * np.where(codes > 7, -1, 1), scales, -1)


_BYTES = _X.view(torch.uint8)
case(
    "npu_anti_mx_quant",
    _BYTES,
    _BY_ROW,
    options={"dst_type": 6},
    reference=lambda x, s, **_: _values_of(_X.double().numpy(), s, -1),
)
case("npu_anti_mx_quant", *_FOURS, options={"src_type": 296, "dst_type": torch.float16}, reference=_values_of_fours)


def _product(x: Array, w: Array, scale: Array, *, pertoken_scale: Array, bias: Any = 0, **_: Any) -> Array:
    return _values_of(x, pertoken_scale, -1) @ _values_of(w, scale, -2) + bias


_OPTIONS = {"pertoken_scale": _BY_ROW, "group_sizes": [1, 1, 32], "output_dtype": torch.float32}
case("npu_quant_matmul", _X, _W, _BY_COLUMN, options=_OPTIONS | {"bias": randn(6)}, reference=_product, tolerance=1e-4)


def _scaled_product(x: Array, w: Array, scale: Array, *, pertoken_scale: Array, **_: Any) -> Array:
    return x @ w * scale * pertoken_scale[:, None]


case("npu_quant_matmul", _X, _W, rand(6), options={"pertoken_scale": rand(5), "output_dtype": 6}, reference=_scaled_product, tolerance=1e-3)
_SCALE = rand(6)
case(
    "npu_quant_matmul",
    _X,
    _W,
    torch.ops.npu.npu_trans_quant_param(_SCALE),
    options={"output_dtype": 6},
    reference=lambda x, w, scale, **_: x @ w * _SCALE.double().numpy(),
    tolerance=1e-3,
)
_EXPERTS, _BY_EXPERT = _made(randn(2, 70, 6), -2)


def _expert_products(x: Any, w: Any, *, scale: Any, per_token_scale: Any, group_list: Array, **_: Any) -> list[Array]:
    left, right = _values_of(x[0], per_token_scale[0], -1), _values_of(w[0], scale[0], -2)
    return [np.concatenate([left[b:e] @ right[i] for i, (b, e) in enumerate(zip([0, *group_list], group_list, strict=False))])]


_GROUPED = {"split_item": 3, "group_type": 0, "output_dtype": torch.float32, "scale_dtype": torch.float8_e8m0fnu}
case(
    "npu_grouped_matmul",
    [_X],
    [_EXPERTS],
    options={"scale": [_BY_EXPERT], "per_token_scale": [_BY_ROW], "group_list": torch.tensor([2, 5]), **_GROUPED},
    reference=_expert_products,
    tolerance=1e-4,
)


def _scaled_experts(x: Any, w: Any, *, scale: Any, per_token_scale: Any, group_list: Array, **_: Any) -> list[Array]:
    ends = list(zip([0, *group_list], group_list, strict=False))
    return [np.concatenate([x[0][b:e] @ w[0][i] * scale[0][i] * per_token_scale[0][b:e, None] for i, (b, e) in enumerate(ends)])]


_BY_CHANNEL = {"scale": [rand(2, 6)], "per_token_scale": [rand(5)], "group_list": torch.tensor([2, 5])}
case(
    "npu_grouped_matmul",
    [_X],
    [_EXPERTS],
    options=_BY_CHANNEL | {"split_item": 3, "group_type": 0, "output_dtype": torch.float32},
    reference=_scaled_experts,
    tolerance=1e-3,
)


def _by_depth(x: Any, w: Any, *, scale: Any, per_token_scale: Any, group_list: Array, **_: Any) -> list[Array]:
    parts = []
    for group, (b, e) in enumerate(zip([0, *group_list], group_list, strict=False)):
        own = slice(b // 64 + group, b // 64 + group + -(-(e - b) // 64))
        parts.append(_values_of(x[0][:, b:e], per_token_scale[0][:, own], -1) @ _values_of(w[0][b:e], scale[0][own], -2))
    return [np.stack(parts)]


_DEPTH = torch.tensor([5, 75, 140], dtype=torch.int32)
_LEFT, _RIGHT = (torch.ops.npu.npu_grouped_dynamic_mx_quant(randn(140, n), _DEPTH, dst_type=torch.float8_e4m3fn) for n in (4, 3))
case(
    "npu_grouped_matmul",
    [_LEFT[0].t()],
    [_RIGHT[0]],
    options={"scale": [_RIGHT[1]], "per_token_scale": [_LEFT[1].transpose(0, 1)], "group_list": _DEPTH.long(), **_GROUPED, "group_type": 2},
    reference=_by_depth,
    tolerance=1e-4,
)
