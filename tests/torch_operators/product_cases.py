"""Products, convolutions and quantisation, by their formulas; integers exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.torch_operators.activation_cases import _swiglu
from tests.torch_operators.normalisation_cases import _rms
from tests.torch_operators.walk import case, rand, randn

Array = np.ndarray


def _bytes(*shape: int) -> torch.Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8)


case("npu_linear", randn(3, 4), randn(5, 4), randn(5), reference=lambda x, w, b: x @ w.T + b, differentiable=True)
case("npu_linear_backward", randn(3, 5), randn(3, 4), randn(5, 4), reference=lambda g, x, w: (g @ w, g.T @ x), differentiable=True)
case("npu_bmmV2", randn(2, 3, 4), randn(2, 4, 5), [], reference=lambda a, b, s: a @ b, differentiable=True)
case("npu_bmmV2", randn(2, 3, 4), randn(2, 4, 5), [3, 5], reference=lambda a, b, s: (a @ b).sum(0), differentiable=True)


def _transposed(x: Array, w: Array, perm_x1: Any = (0, 1, 2), perm_x2: Any = (0, 1, 2), batch_split_factor: int = 1) -> Array:
    y = (x.transpose(perm_x1) @ w.transpose(perm_x2)).transpose(1, 0, 2)
    if batch_split_factor == 1:
        return y
    flat = y.reshape(y.shape[0], -1)
    return np.stack(np.split(flat, batch_split_factor, 1))


case("npu_transpose_batchmatmul", randn(2, 3, 4), randn(2, 4, 6), reference=_transposed, differentiable=True)
case(
    "npu_transpose_batchmatmul",
    randn(3, 2, 4),
    randn(2, 4, 6),
    options={"perm_x1": [1, 0, 2], "batch_split_factor": 4},
    reference=_transposed,
)


def _convolved(x: Array, w: Array, b: Array | None, stride: Any, padding: Any, dilation: Any, groups: int, **_: Any) -> Array:
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    kernel = w.shape[2:]
    size = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)]
    out = np.zeros((x.shape[0], w.shape[0], *size))
    share_in, share_out = w.shape[1], w.shape[0] // groups
    for place in np.ndindex(*size):
        for tap in np.ndindex(*kernel):
            at = tuple(p * s + t * d for p, s, t, d in zip(place, stride, tap, dilation, strict=True))
            for o in range(w.shape[0]):
                g = o // share_out
                out[(slice(None), o, *place)] += x[(slice(None), slice(g * share_in, (g + 1) * share_in), *at)] @ w[(o, slice(None), *tap)]
    return out if b is None else out + b.reshape(1, -1, *(1 for _ in kernel))


_2D = (randn(2, 4, 5, 6), randn(6, 2, 3, 2), randn(6), [2, 1], [1, 0], [1, 2], 2)
_3D = (randn(1, 2, 4, 4, 3), randn(3, 2, 2, 3, 1), None, [1, 2, 1], [0, 1, 0], [1, 1, 1], 1)
for _name, _call in (("npu_conv2d", _2D), ("npu_conv3d", _3D), ("npu_convolution", _2D), ("npu_convolution", _3D)):
    case(_name, *_call, reference=_convolved, differentiable=True)
    if _name != "npu_convolution":
        case(f"{_name}.out", *_call, options={"out": torch.empty(0)}, reference=_convolved)


def _spread(x: Array, w: Array, b: Array | None, padding: Any, output_padding: Any, stride: Any, dilation: Any, groups: int) -> Array:
    kernel = w.shape[2:]
    full = [(n - 1) * s + d * (k - 1) + 1 + o for n, k, s, d, o in zip(x.shape[2:], kernel, stride, dilation, output_padding, strict=True)]
    out = np.zeros((x.shape[0], w.shape[1] * groups, *full))
    share_in, share_out = x.shape[1] // groups, w.shape[1]
    for place in np.ndindex(*x.shape[2:]):
        for tap in np.ndindex(*kernel):
            at = tuple(p * s + t * d for p, s, t, d in zip(place, stride, tap, dilation, strict=True))
            for i in range(x.shape[1]):
                g = i // share_in
                out[(slice(None), slice(g * share_out, (g + 1) * share_out), *at)] += np.outer(
                    x[(slice(None), i, *place)], w[(i, slice(None), *tap)]
                )
    cut = tuple(slice(p, n - p) for p, n in zip(padding, full, strict=True))
    out = out[(slice(None), slice(None), *cut)]
    return out if b is None else out + b.reshape(1, -1, *(1 for _ in kernel))


_T2 = (randn(2, 4, 3, 4), randn(4, 3, 3, 2), randn(6), [1, 0], [1, 0], [2, 1], [1, 2], 2)
case("npu_conv_transpose2d", *_T2, reference=_spread, differentiable=True)
case("npu_convolution_transpose", *_T2, reference=_spread, differentiable=True)
case(
    "npu_convolution_transpose",
    randn(1, 2, 3, 2, 2),
    randn(2, 3, 2, 1, 2),
    None,
    [0, 0, 1],
    [0, 0, 0],
    [2, 1, 1],
    [1, 1, 1],
    1,
    reference=_spread,
)


# quantisation


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
    _bytes(3, 4),
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
    _bytes(3, 2, 6, 4),
    torch.tensor([1, 4], dtype=torch.int32),
    _coarse(2, 2, 2, 4),
    rand(1, 1, 4) + 0.5,
    torch.tensor([1, 2, 3, 4], dtype=torch.int32),
)
case("npu_quant_scatter", *_Q, reference=_scattered)
case("npu_quant_scatter_", *_Q, reference=lambda *a: (_scattered(*a), a[0]), written=(0,))


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


_X, _W = _bytes(3, 40), _bytes(40, 8)
_SMALL = rand(8) / 20000
case("npu_quant_matmul", _X, _W, _SMALL, reference=_matmul)
case("npu_quant_matmul", _X, _W, torch.ops.npu.npu_trans_quant_param(_SMALL, torch.tensor([5.0])), reference=_matmul)
case("npu_quant_matmul", _X, _W, _SMALL, options={"offset": rand(8) * 9}, reference=_matmul)
case(
    "npu_quant_matmul",
    _bytes(2, 3, 2100),
    _bytes(2100, 8),
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
case("npu_weight_quant_batchmatmul", randn(3, 10), _bytes(10, 8), rand(8) / 99, rand(8), options={"bias": randn(8)}, **_O)
case("npu_weight_quant_batchmatmul", randn(3, 10), _bytes(10, 8), rand(3, 8) / 99, rand(3, 8), options={"antiquant_group_size": 4}, **_O)
case("npu_weight_quant_batchmatmul", randn(3, 16), _FOUR, rand(1, 16), **_O)
case(
    "npu_weight_quant_batchmatmul",
    _coarse(3, 10),
    _bytes(10, 8),
    rand(1) / 99,
    options={"quant_scale": rand(8), "quant_offset": rand(8)},
    **_O,
)


# quantised units


def _norm_quant(x: Array, gamma: Array, beta: Array, scale: Array, offset: Array, epsilon: float = 1e-6, dst_dtype: Any = None) -> Array:
    return (_int4 if dst_dtype else _int8)((_rms(x, gamma, epsilon)[0] + beta) * scale + offset)


case(
    "npu_rms_norm_quant", randn(3, 8), randn(8), randn(8), torch.tensor([20.0]), torch.tensor([3], dtype=torch.int8), reference=_norm_quant
)
case(
    "npu_rms_norm_quant",
    randn(3, 8),
    randn(8),
    randn(8),
    torch.tensor([2.0]),
    torch.tensor([1], dtype=torch.int8),
    options={"dst_dtype": torch.quint4x2},
    reference=_norm_quant,
)


def _add_quant(
    a: Array, b: Array, g: Array, s1: Array, z1: Any, beta: Any = None, s2: Any = None, z2: Any = None, div_mode: bool = True
) -> Any:
    y = _rms(a + b, g)[0] + (0 if beta is None else beta)
    parts = [
        np.zeros(y.shape, np.int8) if s is None else _int8((y / s if div_mode else y * s) + (0 if z is None else z))
        for s, z in ((s1, z1), (s2, z2))
    ]
    return (*parts, a + b)


_N = (randn(3, 8), randn(3, 8), randn(8))
case("npu_add_rms_norm_quant", *_N, rand(8) + 0.1, torch.arange(8, dtype=torch.int32), reference=_add_quant)
case(
    "npu_add_rms_norm_quant",
    *_N,
    rand(8) * 9,
    None,
    randn(8),
    rand(8) * 5,
    torch.arange(8, dtype=torch.int32),
    options={"div_mode": False},
    reference=_add_quant,
)


def _add_dynamic(
    a: Array, b: Array, g: Array, smooth_scale1: Any = None, smooth_scale2: Any = None, beta: Any = None, output_mask: Any = None
) -> Any:
    y = _rms(a + b, g)[0] + (0 if beta is None else beta)
    wanted = output_mask or [True, smooth_scale1 is not None and smooth_scale2 is not None]
    pairs = [
        _rows(y if s is None else y * s) if w else (np.zeros(y.shape, np.int8), np.zeros(y.shape[:-1]))
        for s, w in zip((smooth_scale1, smooth_scale2), wanted, strict=True)
    ]
    return pairs[0][0], pairs[1][0], a + b, pairs[0][1], pairs[1][1]


case("npu_add_rms_norm_dynamic_quant", *_N, reference=_add_dynamic)
case(
    "npu_add_rms_norm_dynamic_quant",
    *_N,
    options={"smooth_scale1": rand(8), "smooth_scale2": rand(8), "beta": randn(8)},
    reference=_add_dynamic,
)
case("npu_add_rms_norm_dynamic_quant", *_N, options={"smooth_scale2": rand(8), "output_mask": [False, True]}, reference=_add_dynamic)


def _glu_quant(
    x: Array, smooth_scales: Any = None, group_index: Any = None, activate_left: bool = False, quant_mode: int = 1, group_list_type: int = 0
) -> Any:
    y = _swiglu(x if activate_left else np.roll(x, x.shape[-1] // 2, -1))
    ends = None if group_index is None else (np.cumsum(group_index) if group_list_type else group_index)
    return _dynamic(y, smooth_scales, ends)


case("npu_swiglu_quant", randn(4, 16), options={"quant_mode": 1}, reference=_glu_quant)
case(
    "npu_swiglu_quant",
    randn(6, 16),
    options={
        "quant_mode": 1,
        "smooth_scales": rand(2, 8),
        "group_index": torch.tensor([2, 4], dtype=torch.int32),
        "group_list_type": 1,
        "activate_left": True,
    },
    reference=_glu_quant,
)


def _dequant_glu(
    x: Array,
    weight_scale: Array,
    activation_scale: Array,
    quant_scale: Any = None,
    group_index: Any = None,
    activate_left: bool = False,
    quant_mode: int = 1,
    swiglu_mode: int = 0,
) -> Any:
    owner = np.zeros(len(x), int) if group_index is None else np.repeat(np.arange(len(group_index)), group_index)
    y = x * weight_scale.reshape(-1, x.shape[1])[owner] * activation_scale.reshape(-1, 1)
    if swiglu_mode == 0:
        y = _swiglu(y if activate_left else np.roll(y, y.shape[1] // 2, -1))
    else:
        glu, linear = (
            (y[:, ::2], y[:, 1::2]) if swiglu_mode == 1 else np.split(y if activate_left else np.roll(y, y.shape[1] // 2, -1), 2, -1)
        )
        glu, linear = np.minimum(glu, 7.0), np.clip(linear, -7.0, 7.0)
        y = glu / (1 + np.exp(-1.702 * glu)) * (linear + 1)
    return _rows(y if quant_scale is None else y * quant_scale.reshape(-1, y.shape[1])[owner])


_S = torch.randint(-30000, 30000, (5, 16), dtype=torch.int32)
case(
    "npu_dequant_swiglu_quant",
    _S,
    options={"weight_scale": rand(1, 16) / 9999, "activation_scale": rand(5), "quant_mode": 1},
    reference=_dequant_glu,
)
for _mode in (1, 2):
    case(
        "npu_dequant_swiglu_quant",
        _S,
        options={
            "weight_scale": rand(2, 16) / 999,
            "activation_scale": rand(5, 1),
            "quant_scale": rand(2, 8),
            "group_index": torch.tensor([2, 3]),
            "quant_mode": 1,
            "swiglu_mode": _mode,
        },
        reference=_dequant_glu,
    )
