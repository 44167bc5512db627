"""Operators of com.microsoft from before ONNX had them, and a few it does not have."""

from __future__ import annotations

import numpy as np

from anycann.graph.reference.base import MicrosoftOp

Maybe = np.ndarray | None


class Inverse(MicrosoftOp):
    """Inverse(X): the inverse of each matrix in the last two axes."""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (np.linalg.inv(x.astype(np.float64)).astype(x.dtype),)


class ExpandDims(MicrosoftOp):
    """ExpandDims(X, axis): an axis of size 1."""

    def _run(self, x: np.ndarray, axis: np.ndarray) -> tuple[np.ndarray]:
        return (np.expand_dims(x, int(axis.item())),)


class Trilu(MicrosoftOp):
    """Trilu(X, k): the upper or lower triangle of each matrix."""

    def _run(self, x: np.ndarray, k: Maybe = None, upper: int = 1) -> tuple[np.ndarray]:
        diagonal = 0 if k is None else int(k.item())
        return (np.triu(x, diagonal) if upper else np.tril(x, diagonal),)


class CDist(MicrosoftOp):
    """CDist(A, B): distances between the rows of A and those of B."""

    def _run(self, a: np.ndarray, b: np.ndarray, metric: str = "sqeuclidean") -> tuple[np.ndarray]:
        squares = ((a[:, None] - b[None]) ** 2).sum(axis=-1)
        return ((np.sqrt(squares) if metric == "euclidean" else squares).astype(a.dtype),)


class GatherND(MicrosoftOp):
    """GatherND(data, indices): the slices of `data` at the coordinates in the last axis of `indices`."""

    def _run(self, x: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray]:
        return (x[tuple(np.moveaxis(indices, -1, 0))],)


class Pad(MicrosoftOp):
    """Pad(data, pads, value): as ONNX's, pads as a vector or one row."""

    def _run(self, x: np.ndarray, pads: np.ndarray, value: Maybe = None, mode: str = "constant") -> tuple[np.ndarray]:
        widths = list(zip(*pads.reshape(2, -1).tolist(), strict=True))
        if mode != "constant":
            return (np.pad(x, widths, mode=mode),)  # type: ignore[call-overload]
        return (np.pad(x, widths, constant_values=0 if value is None else value.item()),)


class Range(MicrosoftOp):
    """Range(start, limit, delta)."""

    def _run(self, start: np.ndarray, limit: np.ndarray, delta: Maybe = None) -> tuple[np.ndarray]:
        return (np.arange(start.item(), limit.item(), 1 if delta is None else delta.item(), dtype=start.dtype),)


class Unique(MicrosoftOp):
    """Unique(x): distinct elements in order of first sight, for each element its place among them, and how often each occurs."""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return values[order], rank[inverse].astype(np.int64), counts[order].astype(np.int64)
