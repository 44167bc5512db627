"""Winograd's algorithms for neighbouring results of a row: which products they take, and the three small matrices around these.

Y = A [(G g) * (B d)] in one dimension (Lavin and Gray, "Fast algorithms for convolutional neural networks"), in two with each matrix from
both sides. A, G and B follow from the points that polynomials are evaluated at: infinity, and as many of 0, 1, -1, 2, -2, 1/2 and -1/2 as
are needed, or 0, 5/8, -5/8, 3/2 and -3/2. A stride s cuts the taps into s kernels of every s-th tap, each with stride 1 over every s-th
input, whose results are added up.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from math import prod

import numpy as np

from anycann.support.records import dataclass

_FINITE = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)  # after the first, neighbours are equal but for their sign
# Of all multiples of 1/8, those with the least error: 0.4 of that with 1 and 2 for 4x4 results of 3x3 taps, for 2x2 of 5x5 0.46. With two
# more points, nothing is clearly better than powers of two. Products are taken times these powers of their points, which leaves a one in
# each row of A: as many instructions as with 1 and 2.
_FIVE = (0.0, 0.625, -0.625, 1.5, -1.5)
_POWERS = (0, 2, 2, 1, 1)


@dataclass(frozen=True)
class Phase:
    """Every `stride`-th tap from the `first` one on: a kernel of `taps` with stride 1, computed at `points` points."""

    first: int
    taps: int
    results: int

    @property
    def points(self) -> int:
        return self.results + self.taps - 1

    @property
    def inputs(self) -> np.ndarray:
        """B [points, inputs]: coefficients of the product of (x - q) over the other points q."""
        if self.taps == 1:
            return np.eye(self.results)
        rows = np.zeros((self.points, self.points))
        for row, point in enumerate((*self._finite, None)):
            factors = np.poly([q for q in self._finite if q != point])  # of the highest power first
            rows[row, : len(factors)] = factors[::-1]
        return rows

    @property
    def weights(self) -> np.ndarray:
        """G [points, taps]: powers of the point, divided by the differences from all others, times the scale of its product."""
        if self.taps == 1:
            return np.ones((self.results, 1))
        factors = [scale / prod(p - q for q in self._finite if q != p) for p, scale in zip(self._finite, self._scales, strict=True)]
        rows = [[p**k * factor for k in range(self.taps)] for p, factor in zip(self._finite, factors, strict=True)]
        return np.array([*rows, [0.0] * (self.taps - 1) + [1.0]])

    @property
    def outputs(self) -> np.ndarray:
        """A [results, points]: powers of the point, divided by the scale of its product."""
        if self.taps == 1:
            return np.eye(self.results)
        columns = [[p**k / scale for k in range(self.results)] for p, scale in zip(self._finite, self._scales, strict=True)]
        return np.array([*columns, [0.0] * (self.results - 1) + [1.0]]).T

    @property
    def pairs(self) -> tuple[int, ...]:
        """Numbers of the points whose successor is the same with the other sign."""
        if self.taps == 1:
            return ()
        return tuple(i for i in range(1, len(self._finite) - 1, 2) if self._finite[i] == -self._finite[i + 1])

    @property
    def _finite(self) -> tuple[float, ...]:
        return _FIVE if self.points - 1 == len(_FIVE) else _FINITE[: self.points - 1]

    @property
    def _scales(self) -> list[float]:
        """What the product of each finite point is multiplied by."""
        return [abs(p) ** power for p, power in zip(_FIVE, _POWERS, strict=True)] if self._finite == _FIVE else [1.0] * len(self._finite)


@dataclass(frozen=True)
class LineAlgorithm:
    """`results` neighbouring results of a kernel of `taps` that goes on by `stride` inputs."""

    results: int
    taps: int
    stride: int = 1

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        return tuple(Phase(i, -(-(self.taps - i) // self.stride), self.results) for i in range(min(self.stride, self.taps)))

    @property
    def step(self) -> int:
        """Inputs from the patch of a tile to that of the next."""
        return self.results * self.stride

    @property
    def patch(self) -> int:
        """Inputs that the results are computed from."""
        return (self.results - 1) * self.stride + self.taps

    @property
    def points(self) -> int:
        """Products; phase by phase."""
        return sum(phase.points for phase in self.phases)

    @property
    def weights(self) -> np.ndarray:
        """G [points, taps] of all phases."""
        rows = np.zeros((self.points, self.taps))
        start = 0
        for phase in self.phases:
            rows[start : start + phase.points, phase.first :: self.stride] = phase.weights
            start += phase.points
        return rows


@dataclass(frozen=True)
class WinogradAlgorithm:
    """Tiles of `rows.results` x `columns.results` results."""

    rows: LineAlgorithm
    columns: LineAlgorithm

    @cached_property
    def points(self) -> int:
        """Products of a tile, for each input and output channel."""
        return self.rows.points * self.columns.points


@lru_cache(maxsize=64)
def winograd_tiles_of(height: int, width: int, taps_down: int, taps_across: int, down: int, across: int) -> WinogradAlgorithm:
    """Tiles of `height` x `width` results of a kernel that goes on by `down` rows and `across` columns."""
    return WinogradAlgorithm(LineAlgorithm(height, taps_down, down), LineAlgorithm(width, taps_across, across))
