"""What chooses elements by their places, in numpy, for shapes that only running can tell: the reference loops over them in Python.

What they cannot take raises; `graph/prepared.py` then asks `onnx.reference`, which knows more cases and says what is wrong.
"""

from __future__ import annotations

import numpy as np


def gathered(data: np.ndarray, indices: np.ndarray, axis: int | None = 0) -> tuple[np.ndarray]:
    """Gather: `onnx.reference` has another shape for what no index chooses."""
    return (np.take(data, indices, axis=axis),)


def gathered_elements(data: np.ndarray, indices: np.ndarray, axis: int | None = 0) -> tuple[np.ndarray]:
    """GatherElements, whose indices may be fewer than the data along the other axes."""
    along = (axis or 0) % data.ndim
    if any(size > there for n, (size, there) in enumerate(zip(indices.shape, data.shape, strict=True)) if n != along):
        raise ValueError("more indices than data")
    part = data[tuple(slice(None) if n == along else slice(size) for n, size in enumerate(indices.shape))]
    return (np.take_along_axis(part, indices, along),)


def gathered_points(data: np.ndarray, indices: np.ndarray, batch_dims: int | None = 0) -> tuple[np.ndarray]:
    """GatherND without axes that the operands share."""
    if batch_dims or indices.shape[-1] == 0:
        raise ValueError("axes that the operands share, or no axis that is chosen from")
    return (np.asarray(data[tuple(np.moveaxis(indices, -1, 0))], order="C"),)


def best(
    data: np.ndarray, k: np.ndarray, axis: int | None = -1, largest: int | None = 1, sorted: int | None = 1
) -> tuple[np.ndarray, np.ndarray]:
    """TopK, of equal elements the first ones; in order even where that is not asked for."""
    number = -1 if axis is None else axis
    along, count = np.moveaxis(data, number, -1), int(k.item())
    size = along.shape[-1]
    if not 0 <= count <= size or (data.dtype.kind == "f" and np.isnan(data).any()):
        raise ValueError("fewer elements than are asked for, or some without an order")
    if largest == 0:
        places = np.argsort(along, axis=-1, kind="stable")[..., :count]
    else:
        places = size - 1 - np.argsort(along[..., ::-1], axis=-1, kind="stable")[..., ::-1][..., :count]
    values = np.take_along_axis(along, places, -1)
    return np.ascontiguousarray(np.moveaxis(values, -1, number)), np.ascontiguousarray(np.moveaxis(places, -1, number))
