"""Pictures moved by an affine transformation, and the matrices of such."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anycann.media.neighbourhoods import Outside
from anycann.media.picture import Bytes, View
from anycann.support.errors import UnsupportedError, UsageError

Affine = NDArray[np.float64]  # [2, 3]: where a point (x, y, 1) of the source goes
Point = tuple[float, float]


def affine_of(sources: Sequence[Point], targets: Sequence[Point]) -> Affine:
    """The transformation that moves three points. Raises UsageError for points on a line."""
    corners = np.array([[x, y, 1.0] for x, y in sources])
    if len(sources) != 3 or len(targets) != 3 or abs(np.linalg.det(corners)) < 1e-9:
        raise UsageError(f"the points {list(sources)} and {list(targets)} make no transformation; accepted: three of each, not on a line")
    return np.linalg.solve(corners, np.array(targets, np.float64)).T


def rotation(centre: Point, degrees: float, scale: float) -> Affine:
    """Counter-clockwise around `centre`, and larger by `scale`."""
    angle = np.deg2rad(degrees)
    a, b = scale * np.cos(angle), scale * np.sin(angle)
    x, y = centre
    return np.array([[a, b, (1 - a) * x - b * y], [-b, a, b * x + (1 - a) * y]])


def warp(source: View, target: View, matrix: Affine, nearest: bool, outside: Outside) -> None:
    """Write to each pixel of `target` what the transformation brings there: the nearest sample, or four of them by their distance.

    Raises UnsupportedError for formats whose pixels share samples, UsageError for a matrix that cannot be turned back.
    """
    if source.format != target.format:
        raise UsageError(f"the input is {source.format.name}, the output {target.format.name}; accepted: the same")
    if source.format.across != 1 or source.format.down != 1:
        raise UnsupportedError(f"{source.format.name} is not transformed; accepted: formats without shared samples")
    if abs(np.linalg.det(matrix[:, :2])) < 1e-12:
        raise UsageError(f"the matrix {matrix.tolist()} cannot be turned back; accepted: one with a determinant that is not 0")
    x, y = _origins(target, matrix)
    first = 0
    for plane, other in zip(source.planes, target.planes, strict=True):
        values = np.array(outside.values[first : first + plane.shape[2]])
        other[:] = _picked(plane, x, y, nearest, None if outside.kind == "replicate" else values)
        first += plane.shape[2]


def _origins(target: View, matrix: Affine) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where in the source each pixel of the target comes from."""
    back = np.linalg.inv(matrix[:, :2])
    rows, columns = np.mgrid[0 : target.height, 0 : target.width]
    moved_x, moved_y = columns - matrix[0, 2], rows - matrix[1, 2]
    return back[0, 0] * moved_x + back[0, 1] * moved_y, back[1, 0] * moved_x + back[1, 1] * moved_y


def _picked(plane: Bytes, x: NDArray[np.float64], y: NDArray[np.float64], nearest: bool, values: NDArray[np.int64] | None) -> Bytes:
    if nearest:
        return _at(plane, np.floor(x + 0.5), np.floor(y + 0.5), values).astype(np.uint8)
    left, top = np.floor(x), np.floor(y)
    wide, high = (x - left)[..., None], (y - top)[..., None]
    upper = _at(plane, left, top, values) * (1 - wide) + _at(plane, left + 1, top, values) * wide
    lower = _at(plane, left, top + 1, values) * (1 - wide) + _at(plane, left + 1, top + 1, values) * wide
    rounded: Bytes = np.rint(upper * (1 - high) + lower * high).astype(np.uint8)
    return rounded


def _at(plane: Bytes, x: NDArray[np.float64], y: NDArray[np.float64], values: NDArray[np.int64] | None) -> NDArray[np.float64]:
    """Samples at whole places; outside the last one, or `values`."""
    rows, columns = plane.shape[:2]
    found = plane[np.clip(y, 0, rows - 1).astype(np.int64), np.clip(x, 0, columns - 1).astype(np.int64)].astype(np.float64)
    if values is not None:
        found[(x < 0) | (x >= columns) | (y < 0) | (y >= rows)] = values
    return found
