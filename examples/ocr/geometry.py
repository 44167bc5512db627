"""From a mask to turned rectangles, with numpy alone: connected components, convex hulls, rectangles of least area.

Points are (x, y) in pixels, y down; a rectangle is four corners clockwise from the top left, shape [4, 2].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]


@dataclass(frozen=True)
class Rectangle:
    """A turned rectangle: `corners` [4, 2] clockwise from the top left."""

    corners: Points

    @property
    def width(self) -> float:
        """Length of the upper edge in pixels."""
        return float(np.linalg.norm(self.corners[1] - self.corners[0]))

    @property
    def height(self) -> float:
        """Length of the left edge in pixels."""
        return float(np.linalg.norm(self.corners[3] - self.corners[0]))

    @property
    def centre(self) -> Points:
        """The middle, [2]."""
        return self.corners.mean(0)

    def grown(self, pixels: float) -> Rectangle:
        """The rectangle with every edge moved outwards."""
        across = (self.corners[1] - self.corners[0]) / max(self.width, 1e-9) * pixels
        down = (self.corners[3] - self.corners[0]) / max(self.height, 1e-9) * pixels
        return Rectangle(self.corners + np.array([-across - down, across - down, across + down, down - across]))

    def scaled(self, factor: float) -> Rectangle:
        """All coordinates times `factor`."""
        return Rectangle(self.corners * factor)


def runs(mask: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Horizontal runs of true pixels of a [height, width] mask: rows, first columns and columns after the last, in reading order."""
    height, width = mask.shape
    padded = np.zeros((height, width + 2), np.int8)
    padded[:, 1:-1] = mask
    steps = np.diff(padded, axis=1)
    rows, starts = np.nonzero(steps == 1)
    stops = np.nonzero(steps == -1)[1]
    return rows, starts, stops


def components(mask: NDArray[np.bool_]) -> list[Points]:
    """The corner points of the runs of each 8-connected component, as [n, 2] arrays.

    Runs of neighbouring rows that touch are joined with union-find; the ends of the runs are all that a convex hull needs.
    """
    rows, starts, stops = runs(mask)
    parent = list(range(len(rows)))

    def root(run: int) -> int:
        while parent[run] != run:
            parent[run] = parent[parent[run]]
            run = parent[run]
        return run

    for upper, lower in _touching(rows, starts, stops):
        parent[root(lower)] = root(upper)
    labels = np.array([root(run) for run in range(len(rows))], np.int64)
    return [_run_corners(rows[labels == label], starts[labels == label], stops[labels == label]) for label in np.unique(labels)]


def _touching(rows: NDArray[np.int64], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Pairs (upper, lower) of runs of neighbouring rows that touch, corners included."""
    pairs = []
    first_of_row = np.searchsorted(rows, np.arange(int(rows[-1]) + 3)) if len(rows) else np.zeros(2, np.int64)
    for lower in range(len(rows)):
        row = int(rows[lower])
        if row == 0:
            continue
        begin, end = int(first_of_row[row - 1]), int(first_of_row[row])
        touching = np.nonzero((starts[begin:end] <= stops[lower]) & (stops[begin:end] >= starts[lower]))[0]
        pairs += [(begin + int(upper), lower) for upper in touching]
    return pairs


def _run_corners(rows: NDArray[np.int64], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Points:
    left, right = np.stack([starts, rows], 1), np.stack([stops - 1, rows], 1)
    return np.concatenate([left, right]).astype(np.float64)


def convex_hull(points: Points) -> Points:
    """The corners of the convex hull (Andrew's monotone chain), [m, 2]."""
    ordered = [(float(x), float(y)) for x, y in np.unique(points, axis=0)]
    if len(ordered) < 3:
        return np.array(ordered)

    def chain(sequence: list[tuple[float, float]]) -> list[tuple[float, float]]:
        hull: list[tuple[float, float]] = []
        for point in sequence:
            while len(hull) > 1 and _turn(hull[-2], hull[-1], point) <= 0:
                hull.pop()
            hull.append(point)
        return hull[:-1]

    return np.array(chain(ordered) + chain(ordered[::-1]))


def _turn(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def smallest_rectangle(points: Points) -> Rectangle:
    """The turned rectangle of least area around the points: one of its edges lies on an edge of the convex hull."""
    hull = convex_hull(points)
    edges = np.roll(hull, -1, axis=0) - hull
    angles = np.unique(np.mod(np.arctan2(edges[:, 1], edges[:, 0]), np.pi / 2))
    along = np.stack([np.cos(angles), np.sin(angles)], 1)  # [angles, 2]
    across = np.stack([-np.sin(angles), np.cos(angles)], 1)
    u, v = hull @ along.T, hull @ across.T  # [points, angles]
    best = int(np.argmin((u.max(0) - u.min(0)) * (v.max(0) - v.min(0))))
    low_u, high_u, low_v, high_v = u[:, best].min(), u[:, best].max(), v[:, best].min(), v[:, best].max()
    square = np.array([[low_u, low_v], [high_u, low_v], [high_u, high_v], [low_u, high_v]])
    return Rectangle(_from_top_left(square @ np.stack([along[best], across[best]])))


def _from_top_left(corners: Points) -> Points:
    """The same corners, clockwise on the screen, the first one nearest to the top left of the picture."""
    return np.roll(corners, -int(np.argmin(corners.sum(1))), axis=0)


def mean_inside(values: NDArray[np.float32], rectangle: Rectangle) -> float:
    """Mean of a [height, width] map over the pixels whose centres lie in the rectangle; 0 where there is none."""
    corners = rectangle.corners
    height, width = values.shape
    x0, y0 = np.maximum(np.floor(corners.min(0)).astype(int), 0)
    x1, y1 = np.minimum(np.ceil(corners.max(0)).astype(int) + 1, [width, height])
    y, x = np.mgrid[y0 : max(y0, y1), x0 : max(x0, x1)]
    inside = np.ones(x.shape, bool)
    for (ax, ay), (bx, by) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        inside &= (bx - ax) * (y - ay) - (by - ay) * (x - ax) >= -1e-6
    return float(values[y, x][inside].mean()) if inside.any() else 0.0
