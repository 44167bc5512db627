"""Quantisation: static, by scales that are given, and dynamic, by the largest value of each row."""

from __future__ import annotations

from typing import Any

import torch

from anycann.adapters.torch.operators import packing
from anycann.adapters.torch.operators.precision import dtype_of, wide
from anycann.adapters.torch.operators.registry import bound, composed, refuse, require, sizes
from anycann.adapters.torch.operators.scattering import scatter_update

_INT8_LARGEST, _INT4_LARGEST = 127, 7
_INT8 = 1
_Pair = tuple[torch.Tensor, torch.Tensor]


def is_int4(operator: str, argument: str, number: int | None) -> bool:
    """Whether results are four-bit integers; refuses what is neither they nor int8."""
    if packing.is_int4(number):
        return True
    if dtype_of(number, operator, argument, torch.int8) != torch.int8:
        refuse(operator, f"{argument}={number}", "int8 and quint4x2 are computed")
    return False


def quantise_rows(x: torch.Tensor, int4: bool, operator: str) -> _Pair:
    """(integers, float32 scale of each row): symmetric, by the largest magnitude of the row."""
    scale = x.abs().amax(-1) / (_INT4_LARGEST if int4 else _INT8_LARGEST)
    return packing.quantised(x / scale.unsqueeze(-1), int4, operator), scale


def smoothed(operator: str, x: torch.Tensor, scales: torch.Tensor | None, group_index: torch.Tensor | None) -> torch.Tensor:
    """x times smooth scales; with groups, rows group_index[i - 1] to group_index[i] take row i of the scales."""
    if scales is None:
        return x
    if group_index is None:
        return x * wide(scales)
    require(scales.dim() == 2, operator, f"smooth scales of {sizes(scales)} with group_index", "(groups, columns)")
    return x * wide(scales)[_group_of_rows(x, scales, group_index)].reshape(x.shape)


def by_group(operator: str, x: torch.Tensor, values: torch.Tensor | None, ends: torch.Tensor | None) -> torch.Tensor | None:
    """What of values (G, columns), (G,) or (columns,) each row of x takes, by the ends of the groups; without groups the first or all."""
    if values is None:
        return None
    if ends is not None:
        taken = wide(values)[_group_of_rows(x, values, ends)]
        return taken.reshape(*x.shape[:-1], -1)
    fits = values.dim() == 1 or values.shape[0] == 1
    require(fits, operator, f"scales of {sizes(values)} without group_index", "(columns,), (1,) or (1, columns)")
    return wide(values).reshape(-1)


def _group_of_rows(x: torch.Tensor, values: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """The row of `values` for each row of x; rows behind the last group take the last."""
    rows = torch.arange(x.shape[:-1].numel(), device=x.device)
    return torch.searchsorted(ends.long(), rows, right=True).clamp(max=values.shape[0] - 1)


_DYNAMIC = (
    "Tensor input, *, Tensor? smooth_scales=None, Tensor? group_index=None, int? dst_type=None, str quant_mode='pertoken', "
    "float dst_type_max=0.0"
)
_REFUSED = "quant_mode other than 'pertoken', dst_type_max, float8 results"


@composed(f"npu_dynamic_quant({_DYNAMIC}) -> (Tensor, Tensor)", missing=_REFUSED, differentiable=False)
def dynamic_quant(*given: Any, **options: Any) -> _Pair:
    """(integers, float32 scale of each row of the last axis), symmetric."""
    x, int4 = _rows(operator := "npu_dynamic_quant", given, options)
    return quantise_rows(x, int4, operator)


@composed(f"npu_dynamic_quant_asymmetric({_DYNAMIC}) -> (Tensor, Tensor, Tensor)", missing=_REFUSED, differentiable=False)
def dynamic_quant_asymmetric(*given: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(integers, float32 scale, float32 offset of each row): x / scale + offset, from least to largest of the row."""
    x, int4 = _rows(operator := "npu_dynamic_quant_asymmetric", given, options)
    largest, steps = (_INT4_LARGEST, 15) if int4 else (_INT8_LARGEST, 255)
    scale = (x.amax(-1) - x.amin(-1)) / steps
    offset = largest - x.amax(-1) / scale
    return packing.quantised(x / scale.unsqueeze(-1) + offset.unsqueeze(-1), int4, operator), scale, offset


def _rows(operator: str, given: tuple[Any, ...], options: dict[str, Any]) -> tuple[torch.Tensor, bool]:
    """The smoothed input of a call, and whether it becomes four-bit integers."""
    a = bound(operator, given, options)
    require(a.input.is_floating_point(), operator, sizes(a.input), "floats")
    if a.quant_mode != "pertoken":
        refuse(operator, f"quant_mode={a.quant_mode!r}", "'pertoken' is documented")
    if a.dst_type_max != 0.0:
        refuse(operator, f"dst_type_max={a.dst_type_max}", "it is not documented")
    return smoothed(operator, wide(a.input), a.smooth_scales, a.group_index), is_int4(operator, "dst_type", a.dst_type)


@composed(
    "npu_quantize(Tensor self, Tensor scales, Tensor? zero_points, int dtype, int axis=1, bool div_mode=True) -> Tensor",
    differentiable=False,
)
def quantize(
    self: torch.Tensor, scales: torch.Tensor, zero_points: torch.Tensor | None, dtype: int, axis: int = 1, div_mode: bool = True
) -> torch.Tensor:
    """round(self / scales + zero_points), or times scales: along an axis. dtype: qint8, quint8, qint32, or quint4x2 (packed in int32).

    Without div_mode the axis is the last unless it is -2, as documented.
    """
    operator = "npu_quantize"
    axis = axis if div_mode else (-2 if axis == -2 else -1)
    x, scale = wide(self), _along("scales", operator, self, wide(scales).to(wide(self).dtype), axis)
    y = x / scale if div_mode else x * scale
    y = y if zero_points is None else y + _along("zero_points", operator, self, wide(zero_points).to(x.dtype), axis)
    if packing.is_int4(dtype):
        return packing.quantised(y, int4=True, operator=operator)
    kind = dtype_of(dtype, operator, "dtype", torch.int8)
    if kind.is_floating_point:
        refuse(operator, f"dtype={dtype}", "integer results are computed")
    return packing.rounded(y, kind)


def _along(name: str, operator: str, x: torch.Tensor, values: torch.Tensor, axis: int) -> torch.Tensor:
    if values.dim() != 1 or values.numel() == 1:
        return values
    fits = values.shape[0] == x.shape[axis]
    require(fits, operator, f"{name} of {sizes(values)} along axis {axis} of {sizes(x)}", "as many as the axis is long, or one")
    shape = [1] * x.dim()
    shape[axis] = -1
    return values.reshape(shape)


@composed("npu_anti_quant(Tensor x, Tensor scale, *, Tensor? offset=None, int? dst_dtype=None, int? src_dtype=None) -> Tensor")
def anti_quant(
    x: torch.Tensor, scale: torch.Tensor, *, offset: torch.Tensor | None = None, dst_dtype: int | None = None, src_dtype: int | None = None
) -> torch.Tensor:
    """(x + offset) * scale of int8, or of four-bit integers in int32; as float16 unless dst_dtype says otherwise."""
    values = packing.unpack_int4(x) if x.dtype == torch.int32 else x
    shifted = values.float() if offset is None else values.float() + offset.float()
    return (shifted * scale.float()).to(dtype_of(dst_dtype, "npu_anti_quant", "dst_dtype", torch.float16))


@composed(
    "npu_group_quant(Tensor x, Tensor scale, Tensor group_index, *, Tensor? offset=None, ScalarType? dst_dtype=None) -> Tensor",
    differentiable=False,
)
def group_quant(
    x: torch.Tensor,
    scale: torch.Tensor,
    group_index: torch.Tensor,
    *,
    offset: torch.Tensor | None = None,
    dst_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """round(x * scale + offset): rows group_index[i - 1] to group_index[i] by row i of the scales."""
    if dst_dtype not in (None, torch.int8, torch.qint8, torch.quint4x2):
        refuse("npu_group_quant", f"dst_dtype={dst_dtype}", "int8 and quint4x2 are computed")
    y = smoothed("npu_group_quant", wide(x), scale, group_index)
    y = y if offset is None else y + wide(offset)
    return packing.quantised(y, dst_dtype == torch.quint4x2, "npu_group_quant")


@composed("npu_trans_quant_param(Tensor scale, Tensor? offset=None, int? round_mode=0) -> Tensor", differentiable=False)
def trans_quant_param(scale: torch.Tensor, offset: torch.Tensor | None = None, round_mode: int | None = 0) -> torch.Tensor:
    """int64 with the high 19 bits of the float32 scale, bit 46, and the offset as nine bits from bit 37 on."""
    bits = scale.contiguous().view(torch.int32).long()
    if round_mode == 1:
        bits = bits + 0x0FFF + ((bits >> 13) & 1)  # to the nearest of those that have 19 bits, halves to even
    packed = (bits & 0xFFFFE000) | (1 << 46)
    if offset is None:
        return packed
    whole = torch.round(offset).clamp(-256, 255).long() & 0x1FF
    packed, whole = torch.broadcast_tensors(packed, whole)
    return (packed & 0x4000FFFFFFFF) | (whole << 37)


@composed(
    "npu_convert_weight_to_int4pack(Tensor weight, int inner_k_tiles=0) -> Tensor", missing="float32 weights (float4)", differentiable=False
)
def convert_weight_to_int4pack(weight: torch.Tensor, inner_k_tiles: int = 0) -> torch.Tensor:
    """int32 (..., n / 8) of an int32 weight of values from -8 to 7, the first in the lowest bits."""
    if weight.dtype != torch.int32:
        refuse("npu_convert_weight_to_int4pack", f"a weight of {weight.dtype}", "int32 is packed")
    return packing.pack_int4(weight, "npu_convert_weight_to_int4pack")


_SCATTER = "Tensor indices, Tensor updates, Tensor quant_scales, Tensor? quant_zero_points=None, int axis=-2, int quant_axis=-1, "
_SCATTER += "str reduce='update', int? dst_type=None, str? round_mode='rint'"


@composed(f"npu_quant_scatter(Tensor self, {_SCATTER}) -> Tensor", differentiable=False)
def quant_scatter(
    self: torch.Tensor,
    indices: torch.Tensor,
    updates: torch.Tensor,
    quant_scales: torch.Tensor,
    quant_zero_points: torch.Tensor | None = None,
    axis: int = -2,
    quant_axis: int = -1,
    reduce: str = "update",
    dst_type: int | None = None,
    round_mode: str | None = "rint",
) -> torch.Tensor:
    """A copy of an int8 cache with updates, quantised by round(updates / scales + zero points), where `scatter_update` writes them."""
    operator = "npu_quant_scatter"
    if reduce != "update" or self.dtype != torch.int8 or round_mode not in (None, "rint"):
        refuse(operator, f"reduce={reduce!r}, round_mode={round_mode!r} on {self.dtype}", "'update' and 'rint' of int8 are computed")
    points = None if quant_zero_points is None else quant_zero_points.reshape(-1)
    return scatter_update(self, indices, quantize(updates, quant_scales.reshape(-1), points, _INT8, quant_axis), axis)


@composed(f"npu_quant_scatter_(Tensor(a!) self, {_SCATTER}) -> Tensor(a!)", differentiable=False)
def quant_scatter_(
    self: torch.Tensor,
    indices: torch.Tensor,
    updates: torch.Tensor,
    quant_scales: torch.Tensor,
    quant_zero_points: torch.Tensor | None = None,
    axis: int = -2,
    quant_axis: int = -1,
    reduce: str = "update",
    dst_type: int | None = None,
    round_mode: str | None = "rint",
) -> torch.Tensor:
    """`npu_quant_scatter` into the cache itself."""
    return self.copy_(
        quant_scatter(self, indices, updates, quant_scales, quant_zero_points, axis, quant_axis, reduce, dst_type, round_mode)
    )
