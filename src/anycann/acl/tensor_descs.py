"""acl: tensor descriptions: data type, shape and format of a tensor of a single operator or of a run with open shapes."""

from __future__ import annotations

import ctypes
from dataclasses import field
import math
from typing import ClassVar

from anycann.acl import types
from anycann.acl.codes import Code
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.process import PROCESS
from anycann.acl.util import check_readable
from anycann.support.records import dataclass

UNKNOWN_RANK = -2


@dataclass
class TensorDesc:
    """What pyACL keeps of a tensor. `constant` is a value known beforehand."""

    acl_word: ClassVar[str] = "tensor description"
    data_type: int
    dims: list[int]
    format: int
    name: str = ""
    origin_dims: list[int] | None = None
    origin_format: int | None = None
    storage_dims: list[int] | None = None
    storage_format: int | None = None
    ranges: list[list[int]] = field(default_factory=list)
    value_ranges: list[list[int]] = field(default_factory=list)
    dynamic_input: str = ""
    memory_type: int = 0
    constant: bytes | None = None

    @property
    def elements(self) -> int:
        """Number of elements; 0 while a size is open."""
        return 0 if any(size < 0 for size in self.dims) else math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements; 0 while a size is open."""
        return self.elements * types.itemsize(self.data_type)


@value("acl.create_tensor_desc", returns="desc")
def create_tensor_desc(data_type: int, dims: list[int], format_: int) -> int:
    """A tensor of that type, shape (sizes of -1 are open) and format."""
    if data_type not in types.DATA_TYPES and data_type not in (types.UNDEFINED, types.STRING, types.INT4, types.UINT1, types.COMPLEX32):
        raise AclError(Code.INVALID_PARAM, f"data type {data_type} is unknown; accepted: {', '.join(map(str, types.DATA_TYPES))}")
    return PROCESS.handles.add(TensorDesc(data_type, _checked_dims(dims), types.check_format(format_)))


@value("acl.destroy_tensor_desc", failed=None, returns="None")
def destroy_tensor_desc(desc: int) -> None:
    """Forget a description."""
    PROCESS.handles.remove(desc, TensorDesc)


def get(desc: int) -> TensorDesc:
    """The description behind a handle. Raises AclError."""
    return PROCESS.handles.get(desc, TensorDesc)


# ---- what it says
@value("acl.get_tensor_desc_type", failed=types.UNDEFINED, returns="dtype")
def get_tensor_desc_type(desc: int) -> int:
    """aclDataType."""
    return get(desc).data_type


@value("acl.get_tensor_desc_format", failed=types.UNDEFINED, returns="format")
def get_tensor_desc_format(desc: int) -> int:
    """aclFormat."""
    return get(desc).format


@value("acl.get_tensor_desc_size", returns="bytes")
def get_tensor_desc_size(desc: int) -> int:
    """Bytes of the tensor; 0 while a size is open."""
    return get(desc).nbytes


@value("acl.get_tensor_desc_element_count", returns="count")
def get_tensor_desc_element_count(desc: int) -> int:
    """Number of elements; 0 while a size is open."""
    return get(desc).elements


@value("acl.get_tensor_desc_num_dims", returns="count")
def get_tensor_desc_num_dims(desc: int) -> int:
    """Rank."""
    return len(get(desc).dims)


@value("acl.get_tensor_desc_dim", failed=-1, returns="size")
def get_tensor_desc_dim(desc: int, index: int) -> int:
    """Size number `index`; -1 if there is none or it is open."""
    return _size(get(desc).dims, index)


@value_and_status("acl.get_tensor_desc_dim_v2", failed=(-1,), returns="(size, ret)")
def get_tensor_desc_dim_v2(desc: int, index: int) -> int:
    """Size number `index`."""
    return _size(get(desc).dims, index)


@value_and_status("acl.get_tensor_desc_dim_range", failed=(None,), returns="([least, most], ret)")
def get_tensor_desc_dim_range(desc: int, index: int, count: int) -> list[int]:
    """The range that size number `index` may have: its own size unless set_tensor_shape_range says else."""
    found = get(desc)
    if 0 <= index < len(found.ranges):
        return list(found.ranges[index])
    size = _size(found.dims, index)
    return [size, size]


@value("acl.get_tensor_desc_name", failed="", returns="str")
def get_tensor_desc_name(desc: int) -> str:
    """Its name."""
    return get(desc).name


@value("acl.get_tensor_desc_address", returns="ptr")
def get_tensor_desc_address(desc: int) -> int:
    """Where the copy of the constant of set_tensor_const lies; null if there is none."""
    constant = get(desc).constant
    return 0 if constant is None else ctypes.cast(ctypes.c_char_p(constant), ctypes.c_void_p).value or 0


@value("acl.get_tensor_desc_by_index", returns="desc")
def get_tensor_desc_by_index(desc: int, index: int) -> int:
    """The description itself for index 0: a handle describes one tensor here."""
    get(desc)
    if index:
        raise AclError(Code.INVALID_PARAM, f"tensor {index} is not there; accepted: 0")
    return desc


# ---- what may be set
@value("acl.set_tensor_desc_name", failed=None, returns="None")
def set_tensor_desc_name(desc: int, name: str) -> None:
    """Give it a name."""
    get(desc).name = name


@status("acl.set_tensor_shape")
def set_tensor_shape(desc: int, dims: list[int]) -> None:
    """Another shape."""
    get(desc).dims = _checked_dims(dims)


@status("acl.set_tensor_format")
def set_tensor_format(desc: int, format_: int) -> None:
    """Another format."""
    get(desc).format = types.check_format(format_)


@status("acl.set_tensor_origin_shape")
def set_tensor_origin_shape(desc: int, dims: list[int]) -> None:
    """The shape before a change of format."""
    get(desc).origin_dims = _checked_dims(dims)


@status("acl.set_tensor_origin_format")
def set_tensor_origin_format(desc: int, format_: int) -> None:
    """The format before a change of format."""
    get(desc).origin_format = types.check_format(format_)


@status("acl.set_tensor_storage_shape")
def set_tensor_storage_shape(desc: int, dims: list[int]) -> None:
    """The shape in memory."""
    get(desc).storage_dims = _checked_dims(dims)


@status("acl.set_tensor_storage_format")
def set_tensor_storage_format(desc: int, format_: int) -> None:
    """The format in memory."""
    get(desc).storage_format = types.check_format(format_)


@status("acl.set_tensor_shape_range")
def set_tensor_shape_range(desc: int, ranges: list) -> None:  # type: ignore[type-arg]
    """The range that each size may have."""
    get(desc).ranges = _pairs(ranges)


@status("acl.set_tensor_value_range")
def set_tensor_value_range(desc: int, ranges: list) -> None:  # type: ignore[type-arg]
    """The range that each value may have."""
    get(desc).value_ranges = _pairs(ranges)


@status("acl.set_tensor_dynamic_input")
def set_tensor_dynamic_input(desc: int, name: str) -> None:
    """The input of variable number that this tensor is part of."""
    get(desc).dynamic_input = name


@status("acl.set_tensor_place_ment")
def set_tensor_place_ment(desc: int, memory_type: int) -> None:
    """Where it lies: 0 device, 1 host, 2 host and not known when compiling."""
    if memory_type not in (0, 1, 2):
        raise AclError(Code.INVALID_PARAM, f"memory type is {memory_type}; accepted: 0, 1, 2")
    get(desc).memory_type = memory_type


@status("acl.set_tensor_const")
def set_tensor_const(desc: int, ptr: int, size: int) -> None:
    """The tensor is known beforehand: `size` bytes at `ptr`, which are copied."""
    if not ptr or size <= 0:
        raise AclError(Code.INVALID_PARAM, f"constant of {size} bytes at {ptr:#x}; accepted: an address that is not null, at least 1 byte")
    check_readable(ptr, size, "constant")
    get(desc).constant = ctypes.string_at(ptr, size)


@value_and_status("acl.trans_tensor_desc_format", returns="(desc, ret)")
def trans_tensor_desc_format(desc: int, format_: int) -> int:
    """A new description of the same tensor in another format: an image in NCHW, NHWC, HWCN, NC1HWC0, FRACTAL_Z, matrices in FRACTAL_NZ."""
    found = get(desc)
    dims = types.converted_dims(found.dims, found.data_type, found.format, types.check_format(format_))
    return PROCESS.handles.add(TensorDesc(found.data_type, dims, format_))


@value("acl.data_type_size", returns="bytes")
def data_type_size(data_type: int) -> int:
    """Bytes of an element; 0 for an unknown type."""
    return types.itemsize(data_type)


def _checked_dims(dims: list[int]) -> list[int]:
    if any(size < UNKNOWN_RANK for size in dims):
        raise AclError(Code.INVALID_PARAM, f"dims are {dims}; accepted: sizes, -1 for an open one, [-2] for an unknown rank")
    return list(dims)


def _size(dims: list[int], index: int) -> int:
    if not 0 <= index < len(dims):
        raise AclError(Code.INVALID_PARAM, f"size {index} is not there; the tensor has {len(dims)} sizes")
    return dims[index]


def _pairs(ranges: list) -> list[list[int]]:  # type: ignore[type-arg]
    if any(not isinstance(pair, list | tuple) or len(pair) != 2 for pair in ranges):
        raise AclError(Code.INVALID_PARAM, f"ranges are {ranges!r:.80}; accepted: a list of [least, most]")
    return [[int(least), int(most)] for least, most in ranges]
