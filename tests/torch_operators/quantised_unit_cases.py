"""Normalisations and gated units that quantise their results, by their formulas; integers exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.torch_operators.activation_cases import _swiglu
from tests.torch_operators.normalisation_cases import _rms
from tests.torch_operators.quantising_cases import _dynamic, _int4, _int8, _rows
from tests.torch_operators.walk import case, rand, randn, random_bytes

Array = np.ndarray


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
    left_out = (np.zeros(1 if output_mask else y.shape, np.int8), np.zeros(1 if output_mask else y.shape[:-1]))
    pairs = [_rows(y if s is None else y * s) if w else left_out for s, w in zip((smooth_scale1, smooth_scale2), wanted, strict=True)]
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
    integers, scales = _dynamic(y, smooth_scales, ends)
    return integers, 1 / scales


def _pairs(x: Array, dst_type: Any, quant_mode: int) -> Any:
    y = _swiglu(np.roll(x, x.shape[-1] // 2, -1))
    scale = 7 / np.abs(y).max(-1) if quant_mode else np.zeros(len(x))
    whole = np.clip(np.rint(y * scale[:, None] if quant_mode else y), -8, 7).astype(np.int64)
    return ((whole[:, ::2] % 16) + (whole[:, 1::2] % 16) * 16).astype(np.uint8).view(np.int8), scale


for _mode in (0, 1):
    case("npu_swiglu_quant", randn(4, 12) * 4, options={"quant_mode": _mode, "dst_type": torch.quint4x2}, reference=_pairs)


def _static_glu(x: Array, smooth_scales: Array, offsets: Any = None, group_index: Any = None, quant_mode: int = 0) -> Any:
    y = _swiglu(np.roll(x, x.shape[-1] // 2, -1))
    owner = np.zeros(len(x), int) if group_index is None else np.searchsorted(group_index, np.arange(len(x)), side="right")
    by_row = [None if s is None else s.reshape(len(s), -1)[owner] for s in (smooth_scales, offsets)]
    return _int8(y * by_row[0] + (0 if by_row[1] is None else by_row[1])), np.zeros(len(x))


case("npu_swiglu_quant", randn(4, 16), options={"smooth_scales": rand(1, 8) * 40}, reference=_static_glu)
case(
    "npu_swiglu_quant",
    randn(5, 16),
    options={
        "smooth_scales": rand(2, 8) * 40, "offsets": randn(2, 8), "group_index": torch.tensor([2, 5], dtype=torch.int32), "quant_mode": 0,
    },
    reference=_static_glu,
)  # fmt: skip
case(
    "npu_swiglu_quant",
    randn(5, 16),
    options={"smooth_scales": rand(2) * 40, "group_index": torch.tensor([2, 5], dtype=torch.int32)},
    reference=_static_glu,
)


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


def _library_norm(x: Array, gamma: Array, beta: Array, scale: Array, offset: Array, out: Array, eps: float = 1e-5) -> Any:
    return None, _int8((_rms(x, gamma.reshape(-1), eps)[0] + beta.reshape(-1)) / scale + offset)


_INTO = torch.zeros(3, 8, dtype=torch.int8)
_BY = (torch.tensor([0.3]), torch.tensor([2], dtype=torch.int8))
case("_npu_quant_rms_norm", randn(3, 8), randn(1, 8), randn(1, 8), *_BY, _INTO, reference=_library_norm, written=(5,))
case(
    "_npu_quantize_per_tensor",
    randn(3, 8, scale=9.0),
    rand(8, low=0.1),
    torch.tensor([3], dtype=torch.int8),
    _INTO,
    reference=lambda x, s, z, y: (None, _int8(np.round(x / s) + z)),
    written=(3,),
)


def _gated_groups(x: Array, w: Array, ends: Array, scale: Array, rows: Array) -> Any:
    out, scales, begin = np.zeros((len(x), w.shape[2] // 2)), np.zeros(len(x)), 0
    for group, end in enumerate(ends):
        for row in range(begin, end):
            y = (x[row].astype(int) @ w[group].astype(int)) * scale[group] * rows[row]
            gate, value = np.split(y, 2)
            unit = gate / (1 + np.exp(-gate)) * value
            scales[row] = np.abs(unit).max() / 127
            out[row] = np.rint(unit / scales[row])
        begin = end
    return out.astype(np.int8), scales, 0.0


case(
    "npu_grouped_matmul_swiglu_quant",
    random_bytes(5, 8), random_bytes(3, 8, 12), torch.tensor([2, 2, 4]), rand(3, 12) / 9999, rand(5, low=0.5),
    reference=_gated_groups,
)  # fmt: skip


def _gated_second(
    x: Array, w: Array, scale: Array, rows: Array, groups: Array, smooth_scale: Any = None, group_list_type: int = 0, **_: Any
) -> Any:
    ends = np.cumsum(groups) if group_list_type else groups
    out, scales, _unused = _gated_groups(x, w[0], ends, scale[0], rows)
    if smooth_scale is None:
        return out, scales
    units = np.zeros(out.shape)
    for group, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        y = (x[begin:end].astype(int) @ w[0][group].astype(int)) * scale[0][group] * rows[begin:end, None]
        gate, value = np.split(y, 2, 1)
        units[begin:end] = gate / (1 + np.exp(-gate)) * value * smooth_scale[group]
    scales = np.abs(units).max(1) / 127
    return np.rint(units / np.where(scales == 0, 1, scales)[:, None]).astype(np.int8), scales


_SECOND_OPERANDS = (random_bytes(5, 8), [random_bytes(3, 8, 12)], [rand(3, 12) / 9999], rand(5, low=0.5))
case(
    "npu_grouped_matmul_swiglu_quant_v2", *_SECOND_OPERANDS, torch.tensor([2, 2, 4]), options={"dequant_dtype": 6},
    reference=_gated_second,
)  # fmt: skip
case(
    "npu_grouped_matmul_swiglu_quant_v2", *_SECOND_OPERANDS, torch.tensor([2, 0, 3]),
    options={"smooth_scale": rand(3, 6, low=0.5), "group_list_type": 1}, reference=_gated_second,
)  # fmt: skip
_IN_BLOCKS = random_bytes(2, 32, 64)
case(
    "npu_grouped_matmul_swiglu_quant_v2",
    random_bytes(3, 32), [_IN_BLOCKS.reshape(2, 2, 16, 2, 32).permute(0, 3, 1, 2, 4).contiguous()], [rand(2, 64) / 9999], rand(3, low=0.5),
    torch.tensor([1, 3]),
    reference=lambda x, w, *rest: _gated_second(x, [_IN_BLOCKS.numpy()], *rest),
)  # fmt: skip


def _packed(values: torch.Tensor) -> torch.Tensor:
    """int32 of eight four-bit integers each, the first in the lowest bits."""
    nibbles = (values.numpy().astype(np.int64) & 15).reshape(*values.shape[:-1], -1, 8)
    return torch.from_numpy((nibbles << np.arange(0, 32, 4)).sum(-1).astype(np.uint32).view(np.int32))


_NIBBLES = torch.randint(-8, 8, (3, 16), dtype=torch.int8), torch.randint(-8, 8, (2, 16, 32), dtype=torch.int8)
case(
    "npu_grouped_matmul_swiglu_quant_v2",
    _packed(_NIBBLES[0]), [_packed(_NIBBLES[1])], [rand(2, 32)], rand(3, low=0.5), torch.tensor([1, 3]),
    reference=lambda x, w, *rest: _gated_second(_NIBBLES[0].numpy(), [_NIBBLES[1].numpy()], *rest),
)  # fmt: skip
