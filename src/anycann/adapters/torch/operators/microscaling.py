"""Floats of eight or four bits in groups that share a power of two (OCP Microscaling Formats)."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from anycann.adapters.torch.operators.precision import dtype_of, wide
from anycann.adapters.torch.operators.registry import composed, opaque, refuse, require, sizes
from anycann.support.records import dataclass

GROUP = 32
_FLOAT4_E2M1 = (45, 296)  # torch's number, which a torch.dtype becomes, and torch_npu's
_EXPONENT_BIAS = 127
_NOT_A_NUMBER = 255
_OCP, _CUBLAS = 0, 1  # how scales are chosen (scale_alg)
# the magnitudes of float4_e2m1 by their codes
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Format:
    """A type of few bits: its exponent of the largest number, that number, and torch's dtype (None: pairs of four bits in bytes)."""

    largest_exponent: int
    largest: float
    dtype: torch.dtype | None


_FORMATS = {torch.float8_e4m3fn: Format(8, 448.0, torch.float8_e4m3fn), torch.float8_e5m2: Format(15, 57344.0, torch.float8_e5m2)}
_FLOAT4 = Format(2, 6.0, None)
_MISSING = "float4_e1m2 results, round_mode other than 'rint', scale_alg 2, dst_type_max"


def _format(operator: str, number: int, argument: str = "dst_type") -> Format:
    if number in _FLOAT4_E2M1:
        return _FLOAT4
    found = None if number > max(_FLOAT4_E2M1) else _FORMATS.get(dtype_of(number, operator, argument, torch.float8_e4m3fn))
    if found is None:
        refuse(operator, f"{argument}={number}", "torch.float8_e4m3fn, torch.float8_e5m2 and torch_npu.float4_e2m1fn_x2 are computed")
    return found


def _checked(operator: str, x: torch.Tensor, number: int, round_mode: str, scale_alg: int | None, dst_type_max: float | None) -> Format:
    kind = _format(operator, number)
    if round_mode != "rint" or dst_type_max not in (None, 0.0):
        refuse(operator, f"round_mode={round_mode!r} with dst_type_max={dst_type_max}", "'rint' with 0.0 is computed")
    if scale_alg not in ((None, _OCP) if kind is _FLOAT4 else (None, _OCP, _CUBLAS)):
        refuse(operator, f"scale_alg={scale_alg}", "0, and for float8 1 are computed")
    require(x.dtype.is_floating_point and x.dim() >= 1, operator, sizes(x), "a tensor of floats")
    require(kind is not _FLOAT4 or x.shape[-1] % 2 == 0, operator, f"float4 of {sizes(x)}", "a last axis of even size")
    return kind


def _exponents(largest: torch.Tensor, kind: Format, scale_alg: int | None) -> torch.Tensor:
    """The shared exponents, biased, as `float8_e8m0fnu` has them."""
    if scale_alg == _CUBLAS:  # the least power of two that divides all into the type's range
        fraction, exponent = torch.frexp(largest / kind.largest)
        exponent = torch.where(fraction == 0.5, exponent - 1, exponent)
    else:  # frexp: a fraction from 0.5 to 1, so one more than floor(log2)
        exponent = torch.frexp(largest).exponent - 1 - kind.largest_exponent
    code = torch.where(largest == 0, 0, (exponent + _EXPONENT_BIAS).clamp(0, _NOT_A_NUMBER - 1))
    return torch.where(torch.isfinite(largest), code, _NOT_A_NUMBER)


def _powers(code: torch.Tensor) -> torch.Tensor:
    """The powers of two that biased exponents stand for."""
    power = torch.ldexp(torch.ones(code.shape, device=code.device), code.int() - _EXPONENT_BIAS)
    return torch.where(code == _NOT_A_NUMBER, torch.nan, power)


def _narrow(values: torch.Tensor, kind: Format) -> torch.Tensor:
    """Values in the format; of float4 the codes, one in a byte. The nearest, of two the one with the even code."""
    values = values.clamp(-kind.largest, kind.largest)
    if kind.dtype is not None:
        return values.to(kind.dtype)
    steps = values.new_tensor(_MAGNITUDES)
    between, size = (steps[1:] + steps[:-1]) / 2, values.abs()
    below, above = (torch.bucketize(size, between, right=right) for right in (False, True))
    return (torch.where(below % 2 == 0, below, above) + 8 * torch.signbit(values)).to(torch.uint8)


def _paired(y: torch.Tensor, kind: Format) -> torch.Tensor:
    """What programs get: codes of four bits two in a byte, the first in the lower bits."""
    return (y[..., ::2] | (y[..., 1::2] << 4)).contiguous() if kind is _FLOAT4 else y.contiguous()


def _by_groups(x: torch.Tensor, axis: int, kind: Format, size: int, scale_alg: int | None, least: float = 0.0) -> _Pair:
    """(values in the format, uint8 exponents: pairs of groups in a last dimension of 2, an odd last one beside zero)."""
    lines = wide(x.detach()).movedim(axis, -1)
    length = lines.shape[-1]
    pairs = -(-length // (2 * size))
    groups = functional.pad(lines, (0, pairs * 2 * size - length)).unflatten(-1, (pairs * 2, size))
    code = _exponents(groups.abs().amax(-1).clamp(min=least), kind, scale_alg)
    y = _narrow(groups / _powers(code)[..., None], kind).flatten(-2)[..., :length].movedim(-1, axis)
    return y, code.to(torch.uint8).unflatten(-1, (pairs, 2)).movedim(-2, axis if axis >= 0 else axis - 1).contiguous()


def _shown(y: torch.Tensor, exponents: torch.Tensor, kind: Format) -> _Pair:
    return _paired(y, kind), exponents.view(torch.float8_e8m0fnu)


_CHOICES = "str round_mode='rint', int dst_type=296, "


@composed(
    f"npu_dynamic_mx_quant(Tensor input, *, int axis=-1, {_CHOICES}int block_size=32, int? scale_alg=0, "
    "float dst_type_max=0.0, float max_low_bound=0.0) -> (Tensor, Tensor)",
    missing=_MISSING,
    differentiable=False,
)
def dynamic_mx_quant(
    input: torch.Tensor,
    *,
    axis: int = -1,
    round_mode: str = "rint",
    dst_type: int = 296,
    block_size: int = 32,
    scale_alg: int | None = 0,
    dst_type_max: float = 0.0,
    max_low_bound: float = 0.0,
) -> _Pair:
    """(input divided by the scale of its group, as float8_e4m3fn, float8_e5m2 or pairs of float4_e2m1 in uint8; float8_e8m0fnu scales).

    A group is block_size neighbours along `axis`; its scale is 2 ** (floor(log2(largest magnitude)) - the largest exponent of the type),
    or (scale_alg 1) the least power of two that divides it into the type's range, of at least max_low_bound. Scales have pairs of groups
    in a last dimension of 2, an odd last one beside zero: axis becomes ceil(groups / 2).
    """
    operator = "npu_dynamic_mx_quant"
    kind = _checked(operator, input, dst_type, round_mode, scale_alg, dst_type_max)
    if max_low_bound and scale_alg != _CUBLAS:
        refuse(operator, f"max_low_bound={max_low_bound}", "it belongs to scale_alg 1")
    require(
        block_size % GROUP == 0 and 0 < block_size <= 1024, operator, f"block_size={block_size}", f"a multiple of {GROUP}, at most 1024"
    )
    return _shown(*_by_groups(input, axis, kind, block_size, scale_alg, max_low_bound), kind)


@composed(
    f"npu_dynamic_mx_quant_with_dual_axis(Tensor input, *, {_CHOICES}int scale_alg=0, float? dst_type_max=0.0) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    missing=_MISSING,
    differentiable=False,
)
def dynamic_mx_quant_with_dual_axis(
    input: torch.Tensor, *, round_mode: str = "rint", dst_type: int = 296, scale_alg: int = 0, dst_type_max: float | None = 0.0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """`npu_dynamic_mx_quant` in groups of 32 along the last axis and along the one before: (values, scales, values, scales)."""
    operator = "npu_dynamic_mx_quant_with_dual_axis"
    require(input.dim() >= 2, operator, sizes(input), "at least two axes")
    kind = _checked(operator, input, dst_type, round_mode, scale_alg, dst_type_max)
    last, before = (_shown(*_by_groups(input, axis, kind, GROUP, scale_alg), kind) for axis in (-1, -2))
    return *last, *before


@composed(
    f"npu_dynamic_block_mx_quant(Tensor input, *, {_CHOICES}int scale_alg=0, float dst_type_max=0.0) -> (Tensor, Tensor, Tensor)",
    missing=_MISSING,
    differentiable=False,
)
def dynamic_block_mx_quant(
    input: torch.Tensor, *, round_mode: str = "rint", dst_type: int = 296, scale_alg: int = 0, dst_type_max: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(values, scales as for groups along the last axis, and along the one before) with a scale for each block of 32 x 32."""
    operator = "npu_dynamic_block_mx_quant"
    require(input.dim() >= 2, operator, sizes(input), "at least two axes")
    kind = _checked(operator, input, dst_type, round_mode, scale_alg, dst_type_max)
    if scale_alg != _OCP:
        refuse(operator, f"scale_alg={scale_alg}", "0 is computed")
    rows, columns = input.shape[-2:]
    across, down = (-(-n // (2 * GROUP)) for n in (columns, rows))
    padded = functional.pad(wide(input.detach()), (0, 2 * GROUP * across - columns, 0, 2 * GROUP * down - rows))
    blocks = padded.unflatten(-1, (2 * across, GROUP)).unflatten(-3, (2 * down, GROUP))
    code = _exponents(blocks.abs().amax((-3, -1)), kind, scale_alg)  # (..., 2 down, 2 across)
    y = _narrow(blocks / _powers(code)[..., :, None, :, None], kind).flatten(-2).flatten(-3, -2)[..., :rows, :columns]
    bytes_of = code.to(torch.uint8)
    along_last = bytes_of.repeat_interleave(GROUP, -2)[..., :rows, :].unflatten(-1, (across, 2)).contiguous()
    along_rows = bytes_of.repeat_interleave(GROUP, -1)[..., :columns].unflatten(-2, (down, 2)).movedim(-2, -1).contiguous()
    return _paired(y, kind), *(scales.view(torch.float8_e8m0fnu) for scales in (along_last, along_rows))


def _grouped_shape(x: torch.Tensor, group_index: torch.Tensor, dst_type: int = 23, **_: Any) -> _Pair:
    dtype = _format("npu_grouped_dynamic_mx_quant", dst_type).dtype
    rows, columns = x.shape
    y = x.new_empty(rows, columns, dtype=dtype) if dtype else x.new_empty(rows, columns // 2, dtype=torch.uint8)
    return y, x.new_empty(rows // (2 * GROUP) + group_index.shape[0], columns, 2, dtype=torch.float8_e8m0fnu)


@opaque(
    "npu_grouped_dynamic_mx_quant(Tensor x, Tensor group_index, *, str round_mode='rint', int dst_type=23, int blocksize=32, "
    "int? scale_alg=0, float? dst_type_max=0.0) -> (Tensor, Tensor)",
    shape=_grouped_shape,
    missing=_MISSING,
)
def grouped_dynamic_mx_quant(
    x: torch.Tensor,
    group_index: torch.Tensor,
    *,
    round_mode: str = "rint",
    dst_type: int = 23,
    blocksize: int = 32,
    scale_alg: int | None = 0,
    dst_type_max: float | None = 0.0,
) -> _Pair:
    """`npu_dynamic_mx_quant` of x (rows, n) along the rows, anew for each of the experts whose rows end at group_index (G,):
    (values, float8_e8m0fnu scales (rows // 64 + G, n, 2), in which those of expert g begin at row begin // 64 + g; what lies between is 0).
    """
    operator = "npu_grouped_dynamic_mx_quant"
    kind = _checked(operator, x, dst_type, round_mode, scale_alg, dst_type_max)
    require(
        x.dim() == 2 and group_index.dim() == 1 and blocksize == GROUP, operator, sizes(x, group_index), "(rows, n), (G,), blocksize 32"
    )
    y = torch.zeros(x.shape, dtype=kind.dtype or torch.uint8, device=x.device)
    scales = torch.zeros(x.shape[0] // (2 * GROUP) + len(group_index), x.shape[1], 2, dtype=torch.uint8, device=x.device)
    begin = 0
    for number, end in enumerate(group_index.tolist()):
        require(begin <= end <= x.shape[0], operator, f"group_index {group_index.tolist()} of {x.shape[0]} rows", "ends that do not fall")
        y[begin:end], codes = _by_groups(x[begin:end], 0, kind, GROUP, scale_alg)
        first = begin // (2 * GROUP) + number
        scales[first : first + len(codes)] = codes
        begin = end
    return _shown(y, scales, kind)


def mx_values(x: torch.Tensor, scales: torch.Tensor, axis: int) -> torch.Tensor:
    """float32 values of what was quantised in groups of 32 along an axis (negative), of float8, or of float4 as bytes of two."""
    if x.dtype == torch.uint8:
        codes = torch.stack((x & 15, x >> 4), -1).flatten(-2).long()
        x = torch.tensor(_MAGNITUDES, device=x.device)[codes & 7] * torch.where(codes >= 8, -1.0, 1.0)
    powers = _powers(scales.view(torch.uint8)).movedim(-1, axis).flatten(axis - 1, axis)
    return x.float() * powers.repeat_interleave(GROUP, axis).narrow(axis, 0, x.shape[axis])


@composed(
    "npu_anti_mx_quant(Tensor x, Tensor mxscale, *, int? axis=-1, int? dst_type=15, int? src_type=292) -> Tensor",
    differentiable=False,
)
def anti_mx_quant(
    x: torch.Tensor, mxscale: torch.Tensor, *, axis: int | None = -1, dst_type: int | None = 15, src_type: int | None = 292
) -> torch.Tensor:
    """The values of what `npu_dynamic_mx_quant` made in groups of 32, as bfloat16 unless dst_type says otherwise; src_type says what
    bytes are: float8, or pairs of float4_e2m1."""
    operator = "npu_anti_mx_quant"
    kind = _format(operator, _FLOAT4_E2M1[1] if src_type is None else src_type, "src_type")
    x = x.view(kind.dtype) if x.dtype == torch.uint8 and kind.dtype is not None else x
    axis = -1 if axis is None else axis
    values = mx_values(x, mxscale, axis if axis < 0 else axis - x.dim())
    return values.to(dtype_of(dst_type, operator, "dst_type", torch.bfloat16))
