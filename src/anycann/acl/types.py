"""aclDataType and aclFormat: their numbers, and the dtypes of the engine behind them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from anycann.acl.codes import Code
from anycann.acl.errors import AclError

UNDEFINED = -1
DATA_TYPES: dict[int, str] = {
    0: "float32", 1: "float16", 2: "int8", 3: "int32", 4: "uint8", 6: "int16", 7: "uint16", 8: "uint32", 9: "int64", 10: "uint64",
    11: "float64", 12: "bool", 16: "complex64", 17: "complex128", 27: "bfloat16",
}  # fmt: skip
STRING, INT4, UINT1, COMPLEX32 = 13, 29, 30, 33
_NUMBERS = {name: number for number, name in DATA_TYPES.items()}

NCHW, NHWC, ND, NC1HWC0, FRACTAL_Z, HWCN, FRACTAL_NZ = 0, 1, 2, 3, 4, 16, 29
FORMATS: dict[int, str] = {
    -1: "UNDEFINED", 0: "NCHW", 1: "NHWC", 2: "ND", 3: "NC1HWC0", 4: "FRACTAL_Z", 12: "NC1HWC0_C04", 16: "HWCN", 27: "NDHWC",
    29: "FRACTAL_NZ", 30: "NCDHW", 32: "NDC1HWC0", 33: "FRACTAL_Z_3D", 35: "NC", 47: "NCL",
}  # fmt: skip
_FORMAT_NUMBERS = {name: number for number, name in FORMATS.items()}


def data_type_of(dtype: str) -> int:
    """The aclDataType of a dtype by its name; UNDEFINED for one that has none."""
    return _NUMBERS.get(dtype, UNDEFINED)


@cache
def numpy_dtype_of(data_type: int) -> np.dtype[Any]:
    """The dtype behind an aclDataType. Raises AclError for one that numpy does not hold."""
    name = DATA_TYPES.get(data_type)
    if name is None:
        raise AclError(
            Code.UNSUPPORTED_DATA_TYPE, f"data type {data_type}; accepted: {', '.join(f'{n} ({d})' for n, d in DATA_TYPES.items())}"
        )
    return np.dtype(getattr(ml_dtypes, name, name))


def itemsize(data_type: int) -> int:
    """Bytes of an element; 0 for one that has no size of its own (strings, parts of bytes, unknown)."""
    return numpy_dtype_of(data_type).itemsize if data_type in DATA_TYPES else 4 if data_type == COMPLEX32 else 0


def format_number(name: str) -> int:
    """The aclFormat of a name; ND for an unknown one."""
    return _FORMAT_NUMBERS.get(name, ND)


def check_format(number: int) -> int:
    """Raises AclError for a number that is no aclFormat."""
    if number not in FORMATS:
        raise AclError(Code.INVALID_PARAM, f"format {number}; accepted: {', '.join(f'{n} ({name})' for n, name in FORMATS.items())}")
    return number


# ---- tensors as the chip keeps them
_ROWS = 16  # of a block
_WIDE_TYPES = ("int8", "uint8")


def block_columns(data_type: int) -> int:
    """Elements of a row of a block: 32 of one byte, 16 of all others."""
    return 32 if DATA_TYPES.get(data_type) in _WIDE_TYPES else 16


def fractal_dims(dims: Sequence[int], data_type: int) -> list[int]:
    """FRACTAL_NZ of matrices [..., rows, columns]: [..., columns / n, rows / 16, 16, n], rounded up."""
    *outer, rows, columns = dims
    width = block_columns(data_type)
    return [*outer, -(-columns // width), -(-rows // _ROWS), _ROWS, width]


_IMAGES = {NCHW: "NCHW", NHWC: "NHWC", HWCN: "HWCN"}


def converted_dims(dims: Sequence[int], data_type: int, old: int, new: int) -> list[int]:
    """The sizes of a tensor in another format. Raises AclError where there is no such conversion."""
    if old == new:
        return list(dims)
    if new == FRACTAL_NZ and len(dims) > 1 and old in (ND, NCHW, NHWC):
        return fractal_dims(dims, data_type)
    if len(dims) != 4 or old not in _IMAGES:
        raise AclError(Code.GE_FORMAT_INVALID, f"{FORMATS[old]}{list(dims)} has no form in {FORMATS[new]}")
    sizes = dict(zip(_IMAGES[old], dims, strict=True))
    if new in _IMAGES:
        return [sizes[axis] for axis in _IMAGES[new]]
    width = block_columns(data_type)
    blocks = -(-sizes["C"] // width)
    if new == NC1HWC0:
        return [sizes["N"], blocks, sizes["H"], sizes["W"], width]
    if new == FRACTAL_Z:
        return [blocks * sizes["H"] * sizes["W"], -(-sizes["N"] // _ROWS), _ROWS, width]
    raise AclError(Code.GE_FORMAT_INVALID, f"{FORMATS[old]}{list(dims)} has no form in {FORMATS[new]}")
