"""TensorFlow's element types, tensors and attribute values, as numpy and Python have them."""

from __future__ import annotations

from collections.abc import Callable
import math
from typing import Any

import ml_dtypes
import numpy as np

from anycann.support.errors import ModelError, UnsupportedError

Shape = tuple["int | None", ...]

DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float32), 2: np.dtype(np.float64), 3: np.dtype(np.int32), 4: np.dtype(np.uint8), 5: np.dtype(np.int16),
    6: np.dtype(np.int8), 7: np.dtype(object), 9: np.dtype(np.int64), 10: np.dtype(bool), 14: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(np.uint16), 19: np.dtype(np.float16), 22: np.dtype(np.uint32), 23: np.dtype(np.uint64),
}  # fmt: skip
_NAMES = {8: "complex64", 11: "qint8", 12: "quint8", 13: "qint32", 15: "qint16", 16: "quint16", 18: "complex128", 20: "resource"}
_FIELDS = {
    1: "float_val", 2: "double_val", 3: "int_val", 4: "int_val", 5: "int_val", 6: "int_val", 7: "string_val", 9: "int64_val",
    10: "bool_val", 14: "half_val", 17: "int_val", 19: "half_val", 22: "uint32_val", 23: "uint64_val",
}  # fmt: skip
MOST_ELEMENTS = 1 << 26  # of a tensor that is written as one value
_BITS = (14, 19)  # types whose values are kept as 16 bits in an integer


def numpy_dtype(number: int) -> np.dtype[Any]:
    """numpy's dtype of a DataType. Raises UnsupportedError for those that graphs here cannot have."""
    if number not in DTYPES:
        raise UnsupportedError(f"element type {_NAMES.get(number, number)} of TensorFlow is not there yet")
    return DTYPES[number]


def tensor_array(proto: Any) -> np.ndarray:
    """The array that a TensorProto holds; a short list of values goes on with its last one. Raises ModelError, UnsupportedError."""
    dtype = numpy_dtype(proto.dtype)
    shape = known_shape(proto.tensor_shape)
    count = math.prod(shape)
    if proto.tensor_content:
        if len(proto.tensor_content) != count * dtype.itemsize:
            raise ModelError(f"a tensor of {list(shape)} {dtype} has {len(proto.tensor_content)} bytes; {count * dtype.itemsize} expected")
        return np.frombuffer(proto.tensor_content, dtype).reshape(shape)
    if count > MOST_ELEMENTS:
        raise ModelError(f"a tensor of {list(shape)} whose values are not in the file")
    listed = list(getattr(proto, _FIELDS[proto.dtype]))
    if len(listed) > count:
        raise ModelError(f"a tensor of {list(shape)} has {len(listed)} values; at most {count} expected")
    values = np.array(listed, np.uint16).view(dtype) if proto.dtype in _BITS else np.array(listed, dtype)
    if len(listed) == count:
        return values.reshape(shape)
    fill = values[-1] if len(listed) else np.zeros((), dtype)
    return np.concatenate([values, np.full(count - len(listed), fill, dtype)]).reshape(shape)


def known_shape(proto: Any) -> tuple[int, ...]:
    """The sizes of a tensor's own shape. Raises ModelError where one is open."""
    shape = shape_of(proto)
    if shape is None or any(size is None for size in shape):
        raise ModelError(f"a tensor with values has the shape {shape}; its sizes must be known")
    return tuple(int(size or 0) for size in shape)


def shape_of(proto: Any) -> Shape | None:
    """The sizes of a TensorShapeProto, None for one that is open; None for an unknown rank."""
    if proto.unknown_rank:
        return None
    return tuple(None if dim.size < 0 else int(dim.size) for dim in proto.dim)


_READERS: dict[str, Callable[[Any], object]] = {
    "s": bytes, "i": int, "f": float, "b": bool, "type": int, "shape": shape_of, "tensor": tensor_array, "placeholder": str,
    "func": lambda value: value.name, "list": lambda value: _list_value(value),
}  # fmt: skip


def attribute_value(proto: Any) -> object:
    """What an AttrValue holds: bytes, int, float, bool, a type's number, a shape, an array, a function's name, or a list of one kind."""
    kind = proto.WhichOneof("value")
    return None if kind is None else _READERS[kind](getattr(proto, kind))


def _list_value(proto: Any) -> list[object]:
    for field, items in proto.ListFields():
        return [_READERS[field.name](item) for item in items]
    return []
