"""Quantisation by its formulas; integers exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.torch_operators.walk import case, rand, randn, random_bytes

Array = np.ndarray


def _int8(y: Array) -> Array:
    return np.clip(np.rint(y), -128, 127).astype(np.int8)


def _int4(y: Array) -> Array:
    nibbles = (np.clip(np.rint(y), -8, 7).astype(np.int64) & 15).reshape(*y.shape[:-1], -1, 8)
    return sum(nibbles[..., i] << (4 * i) for i in range(8)).astype(np.uint32).view(np.int32)


def _rows(x: Array, int4: bool = False) -> Any:
    scale = np.abs(x).max(-1) / (7 if int4 else 127)
    return (_int4 if int4 else _int8)(x / scale[..., None]), scale


def _dynamic(x: Array, smooth_scales: Array | None = None, group_index: Array | None = None, dst_type: Any = None) -> Any:
    if group_index is not None:
        flat, begin = x.reshape(-1, x.shape[-1]).copy(), 0
        for row, end in enumerate(group_index):
            flat[begin:end] *= smooth_scales[row]
            begin = end
        x = flat.reshape(x.shape)
    elif smooth_scales is not None:
        x = x * smooth_scales
    return _rows(x, dst_type == torch.quint4x2)


# numbers of few bits, so that no sum is rounded and no half is met by chance
def _coarse(*shape: int) -> torch.Tensor:
    return torch.randint(-1000, 1000, shape).float() / 64 + 0.003


case("npu_dynamic_quant", _coarse(3, 5, 8), reference=_dynamic)
case("npu_dynamic_quant", _coarse(3, 16), options={"dst_type": torch.quint4x2, "smooth_scales": rand(16) + 0.5}, reference=_dynamic)
case(
    "npu_dynamic_quant",
    _coarse(6, 8),
    options={"smooth_scales": rand(3, 8) + 0.5, "group_index": torch.tensor([1, 4, 6], dtype=torch.int32)},
    reference=_dynamic,
)


def _asymmetric(x: Array, dst_type: Any = None) -> Any:
    scale = (x.max(-1) - x.min(-1)) / (15 if dst_type else 255)
    offset = (7 if dst_type else 127) - x.max(-1) / scale
    return (_int4 if dst_type else _int8)(x / scale[..., None] + offset[..., None]), scale, offset


case("npu_dynamic_quant_asymmetric", _coarse(3, 8), reference=_asymmetric)
case("npu_dynamic_quant_asymmetric", _coarse(3, 8), options={"dst_type": torch.quint4x2}, reference=_asymmetric)


def _quantize(x: Array, scale: Array, zero: Array | None, dtype: Any, axis: int = 1, div_mode: bool = True) -> Array:
    shape = [1] * x.ndim
    shape[axis if div_mode else (-2 if axis == -2 else -1)] = -1
    scale, zero = scale.reshape(shape), 0 if zero is None else zero.reshape(shape)
    y = (x / scale if div_mode else x * scale) + zero
    if dtype == torch.quint4x2:
        return _int4(y)
    information = np.iinfo({torch.qint8: np.int8, torch.quint8: np.uint8, torch.qint32: np.int32}[dtype])
    return np.clip(np.rint(y), information.min, information.max).astype(information.dtype)


case("npu_quantize", _coarse(3, 4, 2), rand(4) + 0.5, torch.tensor([1, 2, -3, 4], dtype=torch.int32), torch.qint8, 1, reference=_quantize)
case("npu_quantize", _coarse(3, 4), rand(4) * 30, torch.tensor([100, 2, 3, 4], dtype=torch.uint8), torch.quint8, reference=_quantize)
case("npu_quantize", _coarse(3, 4), rand(1) + 0.5, None, torch.qint32, reference=_quantize)
case("npu_quantize", _coarse(3, 8), rand(8), None, torch.quint4x2, -1, False, reference=_quantize)
case("npu_quantize", _coarse(3, 8), rand(3) * 9, None, torch.qint8, -2, False, reference=_quantize)


def _unpack(x: Array) -> Array:
    nibbles = np.stack([(x.astype(np.int64) >> (4 * i)) & 15 for i in range(8)], -1).reshape(*x.shape[:-1], -1)
    return np.where(nibbles > 7, nibbles - 16, nibbles)


_PACKED = torch.randint(-(2**31), 2**31, (3, 2), dtype=torch.int64).to(torch.int32)
case(
    "npu_anti_quant",
    random_bytes(3, 4),
    rand(4),
    options={"offset": rand(4), "dst_dtype": torch.bfloat16},
    reference=lambda x, s, offset, dst_dtype: (x + offset) * s,
    tolerance=1e-2,
)
case("npu_anti_quant", _PACKED, rand(16), reference=lambda x, s: _unpack(x) * s, tolerance=1e-3)


def _grouped(x: Array, scale: Array, groups: Array, offset: Any = 0, dst_dtype: Any = None) -> Array:
    owner = np.searchsorted(groups, np.arange(len(x)), side="right")
    return (_int4 if dst_dtype == torch.quint4x2 else _int8)(x * scale[owner] + offset)


_G = torch.tensor([2, 2, 5])
case("npu_group_quant", _coarse(5, 8), rand(3, 8) * 9, _G, options={"offset": torch.tensor([0.25])}, reference=_grouped)
case("npu_group_quant", _coarse(5, 8), rand(3, 8), _G, options={"dst_dtype": torch.quint4x2}, reference=_grouped)


def _parameter(scale: Array, offset: Array | None = None, round_mode: int = 0) -> Array:
    bits = scale.astype(np.float32).view(np.uint32).astype(np.int64)
    if round_mode:
        low = bits & 0x1FFF
        bits = (
            bits - low + (0x2000 if low > 0x1000 or (low == 0x1000 and bits & 0x2000) else 0)
            if bits.ndim == 0
            else np.array([_parameter(np.float64(s), None, 1) & 0xFFFFFFFF for s in scale])
        )
    out = (bits & 0xFFFFE000) | (1 << 46)
    if offset is not None:
        out = (out & 0x4000FFFFFFFF) | ((np.clip(np.rint(offset), -256, 255).astype(np.int64) & 0x1FF) << 37)
    return out


case("npu_trans_quant_param", randn(5), reference=_parameter)
case("npu_trans_quant_param", rand(5), options={"round_mode": 1}, reference=_parameter)
case("npu_trans_quant_param", rand(4), torch.tensor([3.4, -700.0, 12.0, 300.0]), reference=_parameter)
case("npu_convert_weight_to_int4pack", torch.randint(-8, 8, (3, 16), dtype=torch.int32), reference=_int4)


def _scattered(x: Array, indices: Array, updates: Array, scale: Array, zero: Any = None, axis: int = -2, quant_axis: int = -1) -> Array:
    y = _int8(updates / scale.reshape(-1) + (0 if zero is None else zero.reshape(-1)))
    for b, first in enumerate(indices):
        x[b, :, first : first + y.shape[2]] = y[b]
    return x


_Q = (
    random_bytes(3, 2, 6, 4),
    torch.tensor([1, 4], dtype=torch.int32),
    _coarse(2, 2, 2, 4),
    rand(1, 1, 4) + 0.5,
    torch.tensor([1, 2, 3, 4], dtype=torch.int32),
)
case("npu_quant_scatter", *_Q, reference=_scattered)
case("npu_quant_scatter_", *_Q, reference=lambda *a: (_scattered(*a), a[0]), written=(0,))


# by blocks
def _by_blocks(x: Array, *, row_block_size: int = 1, col_block_size: int = 128, min_scale: float = 0.0, **_: Any) -> tuple[Array, Array]:
    rows, columns = (range(0, n, size) for n, size in zip(x.shape[-2:], (row_block_size, col_block_size), strict=True))
    y, scale = np.zeros(x.shape), np.zeros((*x.shape[:-2], len(rows), len(columns)))
    for i, r in enumerate(rows):
        for j, c in enumerate(columns):
            block = (..., slice(r, r + row_block_size), slice(c, c + col_block_size))
            scale[..., i, j] = np.minimum(np.abs(x[block]).max((-2, -1)) / 127, 1 / min_scale if min_scale else np.inf)
            y[block] = _int8(x[block] / np.where(scale[..., i, j] == 0, 1, scale[..., i, j])[..., None, None])
    return y, scale


_EXACT = torch.randint(-127, 128, (2, 5, 130)).float()  # of which no quotient lies between two integers: the largest of each block is 127
_EXACT[..., 0::2] = 127
case("npu_dynamic_block_quant", _EXACT, reference=_by_blocks)
case("npu_dynamic_block_quant", _EXACT[0], options={"row_block_size": 2, "col_block_size": 50}, reference=_by_blocks)
case("npu_dynamic_block_quant", torch.cat((_EXACT[0], torch.zeros(1, 130))), options={"min_scale": 0.0}, reference=_by_blocks)
for _least in (0.25, 2.0):  # a bound that no scale reaches, and one that all do
    case("npu_dynamic_block_quant", _EXACT[0], options={"min_scale": _least}, reference=_by_blocks)
