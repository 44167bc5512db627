"""Element types: how each is stored, and in which LLVM type it is computed."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from anycann.support.records import dataclass


@dataclass(frozen=True)
class DType:
    """One element type. `storage` is its LLVM type in memory, `register` the one arithmetic happens in."""

    name: str
    storage: str
    register: str
    kind: str  # "float", "int", "uint" or "bool"
    nbytes: int

    @property
    def numpy(self) -> np.dtype:
        """The numpy dtype of the same elements (bfloat16 comes from ml_dtypes)."""
        return np.dtype(getattr(ml_dtypes, self.name, None) or self.name)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_signed(self) -> bool:
        return self.kind in ("float", "int")

    def __str__(self) -> str:
        return self.name


float32 = DType("float32", "float", "float", "float", 4)
float64 = DType("float64", "double", "double", "float", 8)
float16 = DType("float16", "half", "float", "float", 2)
bfloat16 = DType("bfloat16", "i16", "float", "float", 2)
int8 = DType("int8", "i8", "i8", "int", 1)
int16 = DType("int16", "i16", "i16", "int", 2)
int32 = DType("int32", "i32", "i32", "int", 4)
int64 = DType("int64", "i64", "i64", "int", 8)
uint8 = DType("uint8", "i8", "i8", "uint", 1)
uint16 = DType("uint16", "i16", "i16", "uint", 2)
uint32 = DType("uint32", "i32", "i32", "uint", 4)
uint64 = DType("uint64", "i64", "i64", "uint", 8)
bool_ = DType("bool", "i8", "i1", "bool", 1)

ALL = (float32, float64, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool_)
BY_NAME = {dtype.name: dtype for dtype in ALL}


def of(name: str | np.dtype | DType) -> DType:
    """The DType called `name` (a numpy dtype or its name). Raises KeyError for one no kernel handles (strings, int4, float8)."""
    return name if isinstance(name, DType) else BY_NAME[str(np.dtype(name)) if not isinstance(name, str) else name]
