"""Reading and writing a tensor that lies in a buffer, in plain row-major order whatever its layout."""

from __future__ import annotations

import math

import numpy as np

from anycann.om.plan import Location
from anycann.runtime.memory import Bytes, numpy_dtype
from anycann.support.errors import InternalError

ND = "ND"
NC1HWC0 = "NC1HWC0"
NHWC = "NHWC"


def static_shape(location: Location) -> tuple[int, ...]:
    """The shape of a located value. Raises InternalError if it is open."""
    shape = tuple(size for size in location.spec.shape if isinstance(size, int))
    if len(shape) != len(location.spec.shape):
        raise InternalError(f"value {location.spec.name!r} has a place in memory but the open shape {location.spec.shape}")
    return shape


def read(location: Location, raw: Bytes, lanes: int) -> np.ndarray:
    """The tensor in the bytes `raw` of its buffer: a view of them for ND and NHWC, a copy for NC1HWC0 (`lanes` is C0)."""
    shape, dtype = static_shape(location), numpy_dtype(location.spec.dtype)
    if location.layout == ND:
        return _typed(raw, dtype, shape)
    if location.layout == NHWC:
        return _channels_last(raw, dtype, shape)
    blocks = _blocks(raw, dtype, shape, lanes)
    plain = np.moveaxis(blocks, -1, 2)  # [N, C1, C0, *spatial]
    batch, channels, *spatial = shape
    return np.ascontiguousarray(plain).reshape(batch, blocks.shape[1] * lanes, *spatial)[:, :channels]


def write(location: Location, raw: Bytes, lanes: int, value: np.ndarray) -> None:
    """Put `value` (plain order, the shape and dtype of the location) into the bytes of its buffer; the lanes beyond C become zero."""
    shape, dtype = static_shape(location), numpy_dtype(location.spec.dtype)
    if location.layout == ND:
        np.copyto(_typed(raw, dtype, shape), value, casting="no")
        return
    if location.layout == NHWC:
        np.copyto(_channels_last(raw, dtype, shape), value, casting="no")
        return
    blocks = _blocks(raw, dtype, shape, lanes)
    batch, channels, *spatial = shape
    padded = np.zeros((batch, blocks.shape[1] * lanes, *spatial), dtype)
    padded[:, :channels] = value
    blocks[...] = np.moveaxis(padded.reshape(batch, blocks.shape[1], lanes, *spatial), 2, -1)


def _typed(raw: Bytes, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    nbytes = math.prod(shape) * dtype.itemsize
    return raw[:nbytes].view(dtype).reshape(shape)


def _channels_last(raw: Bytes, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """[N, *spatial, C] in memory, seen as [N, C, *spatial]."""
    batch, channels, *spatial = shape
    return np.moveaxis(_typed(raw, dtype, (batch, *spatial, channels)), -1, 1)


def _blocks(raw: Bytes, dtype: np.dtype, shape: tuple[int, ...], lanes: int) -> np.ndarray:
    batch, channels, *spatial = shape
    return _typed(raw, dtype, (batch, -(-channels // lanes), *spatial, lanes))
