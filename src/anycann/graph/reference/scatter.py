"""Scatters: `onnx.reference` loops over every element in Python, and has no product of updates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx.reference.op_run import OpRun

_UFUNCS: dict[str, Callable[..., object]] = {"add": np.add.at, "mul": np.multiply.at, "max": np.maximum.at, "min": np.minimum.at}


def scatter(data: np.ndarray, places: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str) -> np.ndarray:
    """A copy of `data` with `updates` at `places` (numpy indexing), put there or combined with what is there."""
    result = data.copy()
    if reduction == "none":
        result[places] = updates
    else:
        _UFUNCS[reduction](result, places, updates)
    return result


class ScatterElements(OpRun):
    """ScatterElements(data, indices, updates) along one axis."""

    def _run(
        self, data: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int | None = None, reduction: str | None = None
    ) -> tuple[np.ndarray]:
        places: list[np.ndarray] = list(np.indices(indices.shape, sparse=True))
        places[axis or 0] = indices % data.shape[axis or 0] if data.size else indices
        return (scatter(data, tuple(np.broadcast_arrays(*places)), updates, reduction or "none"),)


class ScatterND(OpRun):
    """ScatterND(data, indices, updates): the last axis of the indices is a place in the leading axes of the data."""

    def _run(self, data: np.ndarray, indices: np.ndarray, updates: np.ndarray, reduction: str | None = None) -> tuple[np.ndarray]:
        return (scatter(data, tuple(np.moveaxis(indices, -1, 0)), updates, reduction or "none"),)
