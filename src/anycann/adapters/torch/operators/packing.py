"""How small integers lie in larger ones: four-bit integers in int32, scales in int64."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators.registry import require, sizes

INT4 = 16  # torch's number of quint4x2, by which interfaces name four-bit integers
_INT4_OF_ACL = 285  # torch_npu.int4
_IN_AN_INT32 = 8
_OFFSET_BIT, _OFFSET_BITS = 37, 9


def is_int4(number: int | None) -> bool:
    """Whether an `int? dtype` argument names four-bit integers."""
    return number in (INT4, _INT4_OF_ACL)


def pack_int4(values: torch.Tensor, operator: str) -> torch.Tensor:
    """int32 (..., n / 8) of values from -8 to 7, the first in the lowest bits."""
    require(values.shape[-1] % _IN_AN_INT32 == 0, operator, f"the last axis of {sizes(values)} as int4", "a multiple of 8")
    nibbles = (values.long() & 0xF).reshape(*values.shape[:-1], -1, _IN_AN_INT32)
    packed = (nibbles << torch.arange(0, 32, 4, device=values.device)).sum(-1)
    return torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)


def pair_int4(values: torch.Tensor) -> torch.Tensor:
    """int8 (..., n / 2) of values from -8 to 7, the first in the lower bits: the bytes of `pack_int4`."""
    nibbles = values.to(torch.int8)
    return (nibbles[..., ::2] & 0xF) | (nibbles[..., 1::2] << 4)


def unpack_int4(packed: torch.Tensor) -> torch.Tensor:
    """int8 (..., n * 8) of int32 (..., n)."""
    places = torch.arange(0, 32, 4, device=packed.device)
    nibbles = (packed.long().unsqueeze(-1) >> places) & 0xF
    return torch.where(nibbles >= 8, nibbles - 16, nibbles).to(torch.int8).flatten(-2)


def weight_of_int4(packed: torch.Tensor, rows: int) -> torch.Tensor:
    """int8 (..., rows, columns) of a weight packed along its columns, or along its rows (the transpose of one packed along columns)."""
    if packed.shape[-2] == rows:
        return unpack_int4(packed)
    return unpack_int4(packed.transpose(-1, -2)).transpose(-1, -2)


def scale_of(scale: torch.Tensor) -> torch.Tensor:
    """A scale as float32: of int64 as `npu_trans_quant_param` writes it, the low 32 bits are one."""
    if scale.dtype not in (torch.int64, torch.uint64):
        return scale.float()
    return scale.view(torch.int64).contiguous().view(torch.float32)[..., ::2] if scale.dim() else scale.view(torch.float32)


def offset_of(scale: torch.Tensor) -> torch.Tensor:
    """The offset, 9 bits with sign, that an int64 scale carries beside it."""
    bits = (scale.view(torch.int64) >> _OFFSET_BIT) & (2**_OFFSET_BITS - 1)
    return torch.where(bits >= 2 ** (_OFFSET_BITS - 1), bits - 2**_OFFSET_BITS, bits).float()


def rounded(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Rounded to the nearest, halves to even, and cut to the integer dtype's range. Not a number becomes 0."""
    information = torch.iinfo(dtype)
    return torch.nan_to_num(torch.round(values), nan=0.0).clamp(information.min, information.max).to(dtype)


def quantised(values: torch.Tensor, int4: bool, operator: str) -> torch.Tensor:
    """Values rounded to int8, or to four bits and packed."""
    if int4:
        return pack_int4(torch.round(values).clamp(-8, 7), operator)
    return rounded(values, torch.int8)
