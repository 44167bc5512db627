"""Types of host values: between numpy arrays, lists and None on one side, and ONNX types on the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper

from anycann.support.errors import UnsupportedError

STRING_KINDS = "OUST"  # numpy's kinds that ONNX calls string


def elem_type_of(dtype: np.dtype) -> int:
    """The ONNX element type of `dtype` (ml_dtypes included, text is STRING). Raises UnsupportedError for dates and structures."""
    if dtype.kind in STRING_KINDS:
        return int(onnx.TensorProto.STRING)
    try:
        return int(helper.np_dtype_to_tensor_dtype(dtype))
    except (KeyError, ValueError) as error:
        raise UnsupportedError(f"numpy dtype {dtype} has no ONNX element type") from error


def numpy_dtype(elem_type: int) -> np.dtype:
    """The numpy dtype of an ONNX element type (bfloat16, float8 and 4-bit types come from ml_dtypes; strings are objects).

    Raises UnsupportedError for a number that is no ONNX element type.
    """
    try:
        return helper.tensor_dtype_to_np_dtype(elem_type)
    except (KeyError, ValueError) as error:
        raise UnsupportedError(f"{elem_type} is no ONNX element type") from error


def type_proto_of(value: object) -> onnx.TypeProto:
    """The ONNX type of a host value: an array's element type and shape, a list's first element (empty: float), None as an optional.

    Raises UnsupportedError for any other Python object.
    """
    if value is None:
        return helper.make_optional_type_proto(helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None))
    if isinstance(value, (list, tuple)):
        return helper.make_sequence_type_proto(_element_type(value))
    if isinstance(value, (np.ndarray, np.generic)):
        return helper.make_tensor_type_proto(elem_type_of(value.dtype), value.shape)
    raise UnsupportedError(f"a {type(value).__name__} has no ONNX type; arrays, lists of arrays and None have")


def _element_type(values: Sequence[object]) -> onnx.TypeProto:
    if not values:
        return helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
    return type_proto_of(values[0])
