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
_FAR = 1e9
Places = tuple[NDArray[np.float64], NDArray[np.float64]]  # x and y in a source, [rows, columns] of a target each


def affine_of(sources: Sequence[Point], targets: Sequence[Point]) -> Affine:
    """The transformation that moves three points. Raises UsageError for points on a line."""
    corners = np.array([[x, y, 1.0] for x, y in sources])
    if len(sources) != 3 or len(targets) != 3 or abs(np.linalg.det(corners)) < 1e-9:
        raise UsageError(f"the points {list(sources)} and {list(targets)} make no transformation; accepted: three of each, not on a line")
    return np.linalg.solve(corners, np.array(targets, np.float64)).T


def perspective_of(sources: Sequence[Point], targets: Sequence[Point]) -> NDArray[np.float64]:
    """[3, 3]: the transformation that moves four points. Raises UsageError where three of them are on a line."""
    rows: list[list[float]] = []
    for (x, y), (u, v) in zip(sources, targets, strict=False):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    if len(sources) != 4 or len(targets) != 4 or np.linalg.matrix_rank(np.array(rows)) < 8:
        raise UsageError(f"the points {list(sources)} and {list(targets)} make no transformation; accepted: four, no three on a line")
    found = np.linalg.solve(np.array(rows), np.array(targets, np.float64).reshape(-1))
    return np.append(found, 1.0).reshape(3, 3)


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
    remap(source, target, origins(np.vstack([matrix, [0.0, 0.0, 1.0]]), (target.width, target.height)), nearest, outside)


def remap(source: View, target: View, places: Places, nearest: bool, outside: Outside) -> None:
    """Write to each pixel of `target` what is at its place in `source`, as `warp`."""
    if source.format != target.format:
        raise UsageError(f"the input is {source.format.name}, the output {target.format.name}; accepted: the same")
    if source.format.across != 1 or source.format.down != 1:
        raise UnsupportedError(f"{source.format.name} is not transformed; accepted: formats without shared samples")
    x, y = (_finite(each) for each in places)
    first = 0
    for plane, other in zip(source.planes, target.planes, strict=True):
        values = np.array(outside.values[first : first + plane.shape[2]])
        other[:] = _picked(plane, x, y, nearest, None if outside.kind == "replicate" else values)
        first += plane.shape[2]


def origins(matrix: NDArray[np.float64], size: tuple[int, int]) -> Places:
    """Where in the source each pixel of a target of `size` (width, height) comes from. matrix: [3, 3], from source to target.

    Raises UsageError for a matrix that cannot be turned back.
    """
    if abs(np.linalg.det(matrix)) < 1e-12:
        raise UsageError(f"the matrix {matrix.tolist()} cannot be turned back; accepted: one with a determinant that is not 0")
    back = np.linalg.inv(matrix)
    rows, columns = np.mgrid[0 : size[1], 0 : size[0]]
    x, y, depth = (line[0] * columns + line[1] * rows + line[2] for line in back)
    depth = np.where(depth == 0.0, np.finfo(np.float64).tiny, depth)
    return _finite(x / depth), _finite(y / depth)


def _finite(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Places that are no number, or further away than any picture reaches, far outside."""
    return np.clip(np.nan_to_num(places, nan=-_FAR, posinf=_FAR, neginf=-_FAR), -_FAR, _FAR)


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
