"""aclruntime: tensors on the host or a device, what inputs and outputs are, and how long copies took."""

from __future__ import annotations

from collections.abc import Callable
import ctypes
from dataclasses import field
from enum import Enum
from functools import wraps
import math
import time
from typing import Any, ClassVar, ParamSpec, TypeVar

import numpy as np

from anycann.acl.process import PROCESS
from anycann.acl.types import DATA_TYPES
from anycann.runtime import memory
from anycann.support.errors import AnyCANNError, UsageError, describe
from anycann.support.records import dataclass

HOST = -1
_Taken = ParamSpec("_Taken")
_Given = TypeVar("_Given")
_NUMBERS = {name: number for number, name in DATA_TYPES.items()}


class CallError(UsageError, RuntimeError):
    """A call of aclruntime or of ais_bench is wrong. They raise RuntimeError, so programs catch it."""


def raises_call_error(function: Callable[_Taken, _Given]) -> Callable[_Taken, _Given]:
    """The function with whatever AnyCANN raises in it as a CallError."""

    @wraps(function)
    def call(*arguments: _Taken.args, **named: _Taken.kwargs) -> _Given:
        try:
            return function(*arguments, **named)
        except CallError:
            raise
        except AnyCANNError as error:
            raise CallError(describe(error)) from error

    return call


class DataType(Enum):
    """Element types by aclruntime's names. As a number each is its aclDataType."""

    float32 = "float32"
    float16 = "float16"
    int8 = "int8"
    int32 = "int32"
    uint8 = "uint8"
    int16 = "int16"
    uint16 = "uint16"
    uint32 = "uint32"
    int64 = "int64"
    uint64 = "uint64"
    float64 = "float64"
    double = "float64"  # noqa: PIE796 - its names in older versions
    double64 = "float64"  # noqa: PIE796
    bool = "bool"
    bfloat16 = "bfloat16"

    def __str__(self) -> str:
        return f"dtype.{self.name}"

    def __index__(self) -> int:
        return _NUMBERS[self.value]

    __int__ = __index__


@dataclass
class TensorDescription:
    """An input or output. `size`: elements, `realsize`: bytes; both 0 while a size is open."""

    name: str
    datatype: DataType
    format: int
    shape: list[int]
    size: int
    realsize: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type as numpy knows it."""
        return memory.numpy_dtype(self.datatype.value)


def description(name: str, dtype: str, format_: int, shape: list[int]) -> TensorDescription:
    """A description with its sizes."""
    count = 0 if any(size < 0 for size in shape) else math.prod(shape)
    return TensorDescription(name, DataType(dtype), format_, shape, count, count * memory.numpy_dtype(dtype).itemsize)


@dataclass
class CopyTimes:
    """Milliseconds that each copy to a device and back took, for the whole process."""

    to_device_ms: list[float] = field(default_factory=list)
    to_host_ms: list[float] = field(default_factory=list)


COPIES = CopyTimes()


class MemorySummary:
    """How long copies took, in milliseconds, since `reset`."""

    @property
    def H2D_time_list(self) -> list[float]:  # noqa: N802 - aclruntime's name
        return COPIES.to_device_ms

    @property
    def D2H_time_list(self) -> list[float]:  # noqa: N802 - aclruntime's name
        return COPIES.to_host_ms

    def reset(self) -> None:
        """Forget them."""
        COPIES.to_device_ms, COPIES.to_host_ms = [], []


@dataclass(frozen=True)
class BaseTensor:
    """`size` bytes of host memory at `address`, which must be kept until the run."""

    address: int
    size: int

    def copy(self) -> np.ndarray:
        """Its bytes."""
        place = memory.empty((self.size,), np.dtype(np.uint8))
        ctypes.memmove(place.ctypes.data, self.address, self.size)
        return place


class Tensor:
    """An array on the host or, after `to_device`, on a device. `np.array(tensor)` gives the array of one that is on the host."""

    __array_priority__: ClassVar[int] = 1

    def __init__(self, array: np.ndarray, device: int = HOST):
        self._array, self.device = np.asarray(array), device

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, self.shape))
        return f"<Tensor>\nshape:\t({sizes})\ndtype:\t{self._array.dtype.name}\ndevice:\t{self.device}"

    @property
    def shape(self) -> list[int]:
        return list(self._array.shape)

    @property
    def size(self) -> int:
        return self._array.size

    @property
    def dtype(self) -> DataType:
        return DataType(self._array.dtype.name)

    @property
    def data(self) -> np.ndarray:
        """The array, wherever it is."""
        return self._array

    @raises_call_error
    def to_device(self, device: int) -> None:
        """Copy the array to a device. Raises CallError where there is none of that number."""
        PROCESS.device(device)
        begin = time.perf_counter()
        self._array, self.device = np.array(self._array, order="C"), device
        COPIES.to_device_ms.append((time.perf_counter() - begin) * 1e3)

    def to_host(self) -> None:
        """Copy the array to the host, if it is not there."""
        if self.device == HOST:
            return
        begin = time.perf_counter()
        self._array, self.device = np.array(self._array), HOST
        COPIES.to_host_ms.append((time.perf_counter() - begin) * 1e3)

    def __array__(self, dtype: np.dtype[Any] | None = None, copy: bool | None = None) -> np.ndarray:
        if self.device != HOST:
            raise CallError(f"the tensor is on device {self.device}; call to_host() before it becomes an array")
        return np.array(self._array, dtype=dtype) if copy or dtype is not None else self._array
