"""Products and convolutions of integers, by their formulas; integers exactly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tests.torch_operators.quantising_cases import _PACKED, _coarse, _int8, _unpack
from tests.torch_operators.walk import case, rand, randn, random_bytes

Array = np.ndarray


# products of integers


def _scale(s: Array) -> Array:
    return (s & 0xFFFFFFFF).astype(np.uint32).view(np.float32).astype(float) if s.dtype == np.int64 else s


def _offset(s: Array) -> Array:
    bits = (s >> 37) & 0x1FF
    return np.where(bits > 255, bits - 512, bits)


def _matmul(
    x1: Array, x2: Array, scale: Array, offset: Any = None, pertoken_scale: Any = None, bias: Any = None, output_dtype: Any = None
) -> Array:
    if x1.dtype == np.int32:
        x1 = _unpack(x1)
        x2 = _unpack(x2) if x2.shape[-2] == x1.shape[-1] else np.swapaxes(_unpack(np.swapaxes(x2, -1, -2)), -1, -2)
    y = x1.astype(np.int64) @ x2.astype(np.int64)
    whole = bias is not None and bias.dtype.kind == "i"
    y = y + bias if whole else y
    if output_dtype == torch.int32:
        return y
    y = y * _scale(scale)
    y = y if pertoken_scale is None else y * pertoken_scale[:, None]
    y = y if bias is None or whole else y + bias
    y = y + offset if offset is not None else y
    if output_dtype is not None:
        return y
    return _int8(y if offset is not None or scale.dtype != np.int64 else y + _offset(scale))


_X, _W = random_bytes(3, 40), random_bytes(40, 8)
_SMALL = rand(8) / 20000
case("npu_quant_matmul", _X, _W, _SMALL, reference=_matmul)
case("npu_quant_matmul", _X, _W, torch.ops.npu.npu_trans_quant_param(_SMALL, torch.tensor([5.0])), reference=_matmul)
case("npu_quant_matmul", _X, _W, _SMALL, options={"offset": rand(8) * 9}, reference=_matmul)
case(
    "npu_quant_matmul",
    random_bytes(2, 3, 2100),
    random_bytes(2100, 8),
    _SMALL,
    options={"output_dtype": torch.int32, "bias": torch.arange(8, dtype=torch.int32)},
    reference=_matmul,
)
case(
    "npu_quant_matmul",
    torch.full((2, 3000), -128, dtype=torch.int8),
    torch.full((3000, 3), -128, dtype=torch.int8),
    rand(1),
    options={"output_dtype": torch.int32},
    reference=_matmul,
)
case(
    "npu_quant_matmul",
    _X,
    _W,
    rand(8) / 10,
    options={"output_dtype": torch.float16, "bias": torch.arange(8, dtype=torch.int32) * 100},
    reference=_matmul,
    tolerance=1e-2,
)
case(
    "npu_quant_matmul",
    _X,
    _W,
    rand(8),
    options={"output_dtype": torch.bfloat16, "pertoken_scale": rand(3), "bias": randn(8)},
    reference=_matmul,
    tolerance=2e-2,
)
_FOUR = torch.randint(-(2**31), 2**31, (16, 2), dtype=torch.int64).to(torch.int32)
for _right in (_FOUR, _FOUR.repeat(2, 1)[:24].contiguous().T):
    case("npu_quant_matmul", _PACKED, _right, rand(1), options={"output_dtype": torch.float16}, reference=_matmul, tolerance=1e-2)


def _by_groups(x1: Array, x2: Array, scale: Array, offset: Array, pertoken_scale: Array, output_dtype: Any, group_sizes: Any) -> Array:
    x, w = _unpack(x1), _unpack(x2)
    parts = [(x[:, g * 8 : g * 8 + 8] @ (w[g * 8 : g * 8 + 8] - offset[g])) * scale[g] for g in range(2)]
    return sum(parts) * pertoken_scale.reshape(-1, 1)


case(
    "npu_quant_matmul",
    _PACKED,
    _FOUR,
    rand(2, 16),
    options={
        "offset": torch.randint(-3, 4, (2, 16)).half(),
        "pertoken_scale": rand(3, 1),
        "output_dtype": torch.float16,
        "group_sizes": [1, 1, 8],
    },
    reference=_by_groups,
    tolerance=1e-2,
)


def _bytes_by_groups(x: Array, w: Array, scale: Array, offset: Array, pertoken_scale: Array, output_dtype: Any, group_sizes: Any) -> Array:
    right, group, total = _unpack(w), group_sizes[2], offset.astype(float)[None]
    for number, begin in enumerate(range(0, x.shape[1], group)):
        total = total + ((x[:, begin : begin + group].astype(int) - 8) @ right[begin : begin + group].astype(int)) * _scale(scale)[number]
    return total * pertoken_scale


case(
    "npu_quant_matmul",
    random_bytes(3, 16),
    _FOUR,
    torch.ops.npu.npu_trans_quant_param(rand(32)).reshape(2, 16),
    options={"offset": randn(16), "pertoken_scale": rand(3, 1), "output_dtype": torch.float16, "group_sizes": [0, 0, 8]},
    reference=_bytes_by_groups,
    tolerance=1e-2,
)


def _weights(
    x: Array,
    w: Array,
    scale: Array,
    offset: Any = None,
    quant_scale: Any = None,
    quant_offset: Any = None,
    bias: Any = None,
    antiquant_group_size: int = 0,
) -> Array:
    w = _unpack(w) if w.dtype == np.int32 else w.astype(float)
    if antiquant_group_size:
        scale = np.repeat(scale, antiquant_group_size, 0)[: w.shape[0]]
        offset = None if offset is None else np.repeat(offset, antiquant_group_size, 0)[: w.shape[0]]
    y = x @ ((w + (0 if offset is None else offset)) * scale) + (0 if bias is None else bias)
    return y if quant_scale is None else _int8(y * quant_scale + (0 if quant_offset is None else quant_offset))


_O = {"reference": _weights, "tolerance": 1e-3}
case("npu_weight_quant_batchmatmul", randn(3, 10), random_bytes(10, 8), rand(8) / 99, rand(8), options={"bias": randn(8)}, **_O)
case(
    "npu_weight_quant_batchmatmul",
    randn(3, 10),
    random_bytes(10, 8),
    rand(3, 8) / 99,
    rand(3, 8),
    options={"antiquant_group_size": 4},
    **_O,
)
case("npu_weight_quant_batchmatmul", randn(3, 16), _FOUR, rand(1, 16), **_O)
case(
    "npu_weight_quant_batchmatmul",
    _coarse(3, 10),
    random_bytes(10, 8),
    rand(1) / 99,
    options={"quant_scale": rand(8), "quant_offset": rand(8)},
    **_O,
)


# quantised units


def _biased(x: Array, scale: Array, rows: Array | None, bias: Array | None, output_dtype: Any = None) -> Array:
    whole = bias is not None and bias.dtype == np.int32
    y = (x + bias if whole else x) * scale * (1 if rows is None else rows[:, None])
    return y if bias is None or whole else y + bias


_SUMS = torch.randint(-9999, 9999, (3, 8), dtype=torch.int32)
_BIASES = (torch.randint(-999, 999, (8,), dtype=torch.int32), randn(8), None)
for _bias in _BIASES:
    case("npu_dequant_bias", _SUMS, rand(8) / 999, rand(3), _bias, reference=_biased, tolerance=2e-2)


def _gelu(x1: Array, x2: Array, rows: Array, columns: Array, bias: Any = None, approximate: str = "gelu_erf") -> Array:
    left, right = (_unpack(x) if x.dtype == np.int32 else x for x in (x1, x2))
    y = _biased(left.astype(int) @ right.astype(int), columns, rows, bias)
    if approximate == "gelu_tanh":
        return 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
    return 0.5 * y * (1 + np.vectorize(math.erf)(y / np.sqrt(2)))


for _bias, _form in zip(_BIASES, ("gelu_erf", "gelu_tanh", "gelu_erf"), strict=True):
    _options = {"bias": _bias, "approximate": _form}
    case("npu_quant_matmul_gelu", _X, _W, rand(3) / 999, rand(8) / 9, options=_options, reference=_gelu, tolerance=1e-2)
case("npu_quant_matmul_gelu", _PACKED, _FOUR, rand(3) / 9, rand(16), reference=_gelu, tolerance=1e-2)
case(
    "npu_quant_matmul_reduce_sum",
    random_bytes(2, 3, 5),
    random_bytes(2, 5, 4),
    options={"x1_scale": rand(2, 3) / 999, "x2_scale": rand(4).bfloat16()},
    reference=lambda x, w, x1_scale, x2_scale: ((x.astype(int) @ w.astype(int)) * x1_scale[..., None] * x2_scale).sum(0),
    tolerance=1e-2,
)
