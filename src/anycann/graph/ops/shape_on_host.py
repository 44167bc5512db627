"""What moves elements, in numpy, for shapes that only running can tell: a few microseconds each, for a loop takes them in every turn.

What they cannot take raises; `graph/prepared.py` then asks `onnx.reference`, which knows more cases and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def cut(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, axes: np.ndarray | None = None, steps: np.ndarray | None = None
) -> tuple[np.ndarray]:
    """Slice: Python's slices of some axes, but that backwards from before the first element is from it."""
    begins = starts.tolist()
    places = [slice(None)] * data.ndim
    listed = range(len(begins)) if axes is None else axes.tolist()
    strides = [None] * len(begins) if steps is None else steps.tolist()
    for begin, end, axis, stride in zip(begins, ends.tolist(), listed, strides, strict=True):
        places[axis] = slice(begin_of(begin, stride, data.shape[axis]), end, stride)
    return (data[tuple(places)],)


def begin_of(begin: int, stride: int | None, size: int) -> int:
    """Where Python's slice of an axis has to begin for ONNX's."""
    return max(begin, -size) if stride is not None and stride < 0 else begin


def reshaped(data: np.ndarray, shape: np.ndarray, allowzero: int | None = 0) -> tuple[np.ndarray]:
    """Reshape: a size 0 stands for that of the operand, unless `allowzero`."""
    sizes = shape.tolist()
    if not allowzero and 0 in sizes:
        sizes = [size or data.shape[axis] for axis, size in enumerate(sizes)]
    return (data.reshape(sizes),)


def expanded(data: np.ndarray, shape: np.ndarray) -> tuple[np.ndarray]:
    """Expand, where the shape has every axis that the operand has, and is as large along it."""
    result = np.empty(shape.tolist(), data.dtype)
    if data.ndim > result.ndim:
        raise ValueError("the operand has more axes")
    result[...] = data
    return (result,)


def transposed(data: np.ndarray, perm: Sequence[int] | None = None) -> tuple[np.ndarray]:
    """Transpose: axes in another order, by default the opposite one."""
    return (data.transpose(perm) if perm else data.T,)


def joined(*operands: np.ndarray, axis: int) -> tuple[np.ndarray]:
    """Concat."""
    return (np.concatenate(operands, axis),)


def with_axes(data: np.ndarray, axes: np.ndarray) -> tuple[np.ndarray]:
    """Unsqueeze: axes of one element at these places of the result."""
    rank, shape = data.ndim + axes.size, list(data.shape)
    places = sorted(axis + rank if axis < 0 else axis for axis in axes.tolist())
    if len(set(places)) < len(places) or any(not 0 <= place < rank for place in places):
        raise ValueError("places that are none")
    for place in places:
        shape.insert(place, 1)
    return (data.reshape(shape),)
