"""What is known about one task while it is tuned: points, and how their times compare with that of the default."""

from __future__ import annotations

from collections.abc import Iterator
import math
from typing import Any

from anycann.codegen.space import Point, Space, usable
from anycann.tuning.task import TuningTask

Key = tuple[int, ...]  # a point's values in the order of the parameters


class Study:
    """Results of one task. A ratio is time / time of the default, measured in the same job; infinite for a kernel that was lost."""

    def __init__(self, task: TuningTask):
        self.task = task
        self.parameters = task.space.parameters()
        self.names = [parameter.name for parameter in self.parameters]
        self.default = self.key(task.default)
        self.ratios: dict[Key, float] = {self.default: 1.0}
        self.seconds = math.nan  # of the default
        self._estimates: dict[Key, float | None] = {}

    @property
    def space(self) -> Space[Any]:
        return self.task.space

    def key(self, point: Point) -> Key:
        return tuple(point[name] for name in self.names)

    def point(self, key: Key) -> Point:
        return dict(zip(self.names, key, strict=True))

    def estimate(self, key: Key) -> float | None:
        """Cycles by the generator's own estimate; None for a point that is not in the space."""
        if key not in self._estimates:
            tile = usable(self.space, self.point(key))
            self._estimates[key] = None if tile is None else max(self.space.estimate(tile), 1.0)
        return self._estimates[key]

    def best(self) -> tuple[Key, float]:
        """The fastest point so far and its ratio."""
        return min(self.ratios.items(), key=lambda item: item[1])

    def measured(self) -> Iterator[tuple[Key, float]]:
        """Points with a finite ratio."""
        return ((key, ratio) for key, ratio in self.ratios.items() if math.isfinite(ratio))

    def add(self, key: Key, ratio: float) -> None:
        """Take down a result; a point measured twice keeps the mean of both."""
        known = self.ratios.get(key)
        again = known is not None and math.isfinite(known) and math.isfinite(ratio) and key != self.default
        self.ratios[key] = ratio if not again or known is None else (known + ratio) / 2
