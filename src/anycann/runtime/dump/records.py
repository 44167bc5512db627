"""A dump file: eight bytes that say how long the head is, the head (a DumpData message), then the tensors as they are.

Outputs come first, then inputs. Source: dump_data.proto of Ascend's oam-tools (package toolkit.dumpdata).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cache
import math
import os
import struct
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from anycann.support.errors import ModelError
from anycann.support.files import write_whole
from anycann.support.protobuf import message_classes
from anycann.support.records import dataclass

if TYPE_CHECKING:
    from typing import TypeGuard

VERSION = "2.0"
_LENGTH = struct.Struct("<Q")
_MESSAGES = {
    "OriginalOp": ("1 name string", "2 output_index uint32", "3 data_type int32", "4 format int32"),
    "Shape": ("1 dim uint64*",),
    "OpOutput": (
        "1 data_type int32", "2 format int32", "3 shape Shape", "4 original_op OriginalOp", "5 data bytes", "6 size uint64",
        "7 original_shape Shape", "8 sub_format int32", "9 address uint64",
    ),
    "OpInput": (
        "1 data_type int32", "2 format int32", "3 shape Shape", "4 data bytes", "5 size uint64", "6 original_shape Shape",
        "7 sub_format int32", "8 address uint64",
    ),
    "OpBuffer": ("1 buffer_type int32", "2 data bytes", "3 size uint64"),
    "OpAttr": ("1 name string", "2 value string"),
    "DumpData": (
        "1 version string", "2 dump_time uint64", "3 output OpOutput*", "4 input OpInput*", "5 buffer OpBuffer*", "6 op_name string",
        "7 attr OpAttr*", "9 dfx_message string",
    ),
}  # fmt: skip
_DATA_TYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float32), 2: np.dtype(np.float16), 3: np.dtype(np.int8), 4: np.dtype(np.uint8), 5: np.dtype(np.int16),
    6: np.dtype(np.uint16), 7: np.dtype(np.int32), 8: np.dtype(np.int64), 9: np.dtype(np.uint32), 10: np.dtype(np.uint64),
    11: np.dtype(bool), 12: np.dtype(np.float64), 16: np.dtype(np.complex64), 17: np.dtype(np.complex128),
    27: np.dtype(ml_dtypes.bfloat16), 34: np.dtype(ml_dtypes.float8_e5m2), 35: np.dtype(ml_dtypes.float8_e4m3fn),
}  # fmt: skip
_NUMBERS = {dtype: number for number, dtype in _DATA_TYPES.items()}
NCHW, ND = 0, 2  # formats


@dataclass(frozen=True)
class DumpedTensor:
    """A tensor of an operator. value: its name in the model, which Ascend's own files do not have. operator, index: who gives it there."""

    array: np.ndarray
    value: str = ""
    operator: str = ""
    index: int = 0

    @property
    def format(self) -> int:
        """Number of the format: four sizes are taken for a picture."""
        return NCHW if self.array.ndim == 4 else ND


@dataclass(frozen=True)
class Record:
    """What one run of an operator took and gave. time_us: since 1970."""

    operator: str
    time_us: int
    outputs: tuple[DumpedTensor, ...] = ()
    inputs: tuple[DumpedTensor, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)


def can_be_dumped(array: object) -> TypeGuard[np.ndarray]:
    """Whether it is a tensor of numbers that the format has a type for."""
    return isinstance(array, np.ndarray) and array.dtype in _NUMBERS


def data_type_number(dtype: np.dtype[Any]) -> int:
    """The number that the format has for a dtype."""
    return _NUMBERS[dtype]


def write_record(path: str | os.PathLike[str], record: Record) -> None:
    """Write a dump file. Raises DeviceError or UsageError where that cannot be."""
    write_whole(os.fspath(path), record_bytes(record))


def record_bytes(record: Record) -> bytes:
    """What is in a dump file."""
    head = _classes()["DumpData"](version=VERSION, dump_time=record.time_us, op_name=record.operator)
    for tensor in record.outputs:
        row = head.output.add(**_facts(tensor))
        row.original_op.name, row.original_op.output_index = tensor.operator, tensor.index
        row.original_op.data_type, row.original_op.format = row.data_type, row.format
    for tensor in record.inputs:
        head.input.add(**_facts(tensor))
    names = {f"{role}_{n}": tensor.value for role in ("output", "input") for n, tensor in enumerate(getattr(record, f"{role}s"))}
    for name, value in {**names, **record.notes}.items():
        head.attr.add(name=name, value=value)
    text = head.SerializeToString()
    tensors = [np.ascontiguousarray(tensor.array).tobytes() for tensor in (*record.outputs, *record.inputs)]
    return b"".join([_LENGTH.pack(len(text)), text, *tensors])


def _facts(tensor: DumpedTensor) -> dict[str, Any]:
    shape = _classes()["Shape"](dim=tensor.array.shape)
    return {
        "data_type": data_type_number(tensor.array.dtype),
        "format": tensor.format,
        "shape": shape,
        "original_shape": shape,
        "size": tensor.array.nbytes,
    }


def read_record(path: str | os.PathLike[str]) -> Record:
    """Read a dump file, of Ascend's or of ours. Raises ModelError for one that is damaged."""
    with open(path, "rb") as file:
        content = memoryview(file.read())
    if len(content) < _LENGTH.size or _LENGTH.size + _LENGTH.unpack(content[: _LENGTH.size])[0] > len(content):
        raise ModelError(f"{os.fspath(path)} is no dump file: its head is longer than the file of {len(content)} bytes")
    end = _LENGTH.size + _LENGTH.unpack(content[: _LENGTH.size])[0]
    try:
        head = _classes()["DumpData"].FromString(bytes(content[_LENGTH.size : end]))
    except Exception as error:  # protobuf's own class differs between its versions
        raise ModelError(f"{os.fspath(path)} is no dump file: {error}") from error
    names = {row.name: row.value for row in head.attr}
    tensors = {}
    for role, rows in (("output", head.output), ("input", head.input)):
        made = []
        for number, row in enumerate(rows):
            array, end = _array(row, content, end, path)
            original = getattr(row, "original_op", None)
            source = ("", 0) if original is None else (original.name, original.output_index)
            made.append(DumpedTensor(array, names.pop(f"{role}_{number}", ""), *source))
        tensors[role] = tuple(made)
    return Record(head.op_name, head.dump_time, tensors["output"], tensors["input"], names)


def _array(row: Any, content: memoryview, begin: int, path: str | os.PathLike[str]) -> tuple[np.ndarray, int]:
    """The tensor of a row, and where the next one begins. Its bytes may also be in the head."""
    if row.data_type not in _DATA_TYPES:
        raise ModelError(f"{os.fspath(path)}: element type {row.data_type} is not known")
    dtype, shape = _DATA_TYPES[row.data_type], tuple(row.shape.dim)
    nbytes = math.prod(shape) * dtype.itemsize
    source, end = (memoryview(row.data), begin) if row.data else (content[begin : begin + row.size], begin + row.size)
    if len(source) < nbytes:
        raise ModelError(f"{os.fspath(path)}: a tensor of {list(shape)} {dtype} has {len(source)} bytes; {nbytes} expected")
    return np.frombuffer(source[:nbytes], dtype).reshape(shape), end


@cache
def _classes() -> dict[str, Any]:
    return message_classes("toolkit.dumpdata", _MESSAGES)
