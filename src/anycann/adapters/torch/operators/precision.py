"""Precision and dtypes: what operators compute in, and the numbers by which schemas name dtypes."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators.registry import refuse

_HALVES = (torch.float16, torch.bfloat16)

# torch's own numbers (c10::ScalarType), which `int? dtype` arguments receive when a program passes a torch.dtype
_SCALAR_TYPES: dict[int, torch.dtype] = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    11: torch.bool,
    12: torch.int8,  # qint8: its values
    13: torch.uint8,  # quint8
    14: torch.int32,  # qint32
    15: torch.bfloat16,
    23: torch.float8_e5m2,
    24: torch.float8_e4m3fn,
    44: torch.float8_e8m0fnu,
}
_ACL_OFFSET = 256  # torch_npu's own dtypes are 256 + aclDataType
_ACL_TYPES: dict[int, torch.dtype] = {35: torch.float8_e5m2, 36: torch.float8_e4m3fn, 37: torch.float8_e8m0fnu}


def wide(x: torch.Tensor) -> torch.Tensor:
    """The tensor in the precision that operators compute in: float32 for 16-bit floats, its own otherwise."""
    return x.float() if x.dtype in _HALVES else x


def dtype_of(number: int | None, operator: str, argument: str, default: torch.dtype) -> torch.dtype:
    """The dtype that an `int?` argument names."""
    if number is None:
        return default
    dtype = _ACL_TYPES.get(number - _ACL_OFFSET) if number >= _ACL_OFFSET else _SCALAR_TYPES.get(number)
    if dtype is None:
        refuse(operator, argument, f"no tensor of torch has the dtype number {number}")
    return dtype
