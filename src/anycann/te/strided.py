"""Tensors that lie inside another tensor's memory: where an element is, as an offset and a distance for each step along an axis.

What transposes, reshapes, slices and broadcasts make of a tensor is such a view, as long as every axis is made of whole steps; a kernel
that reads through a view needs no copy. An axis may be made of several factors: heads that share their keys are [groups, repeats] with
the distances (d, 0).

The text of a view is its offset and its axes, each "extent*distance", factors joined by "/":  "64 2*3648 4*16 19*192 16*1".
"""

from __future__ import annotations

from collections.abc import Sequence
import math

from anycann.support.records import dataclass


@dataclass(frozen=True)
class Factor:
    """`extent` places, `step` elements apart."""

    extent: int
    step: int


@dataclass(frozen=True)
class Axis:
    """One axis as its factors, the slowest first; none of extent 1, and no two neighbours that are one."""

    factors: tuple[Factor, ...]

    @property
    def extent(self) -> int:
        return math.prod(f.extent for f in self.factors)

    @property
    def step(self) -> int | None:
        """The distance of neighbours if it is the same everywhere; 0 for an axis of one element."""
        return 0 if not self.factors else self.factors[0].step if len(self.factors) == 1 else None


@dataclass(frozen=True)
class Strided:
    """Element [i, j, ...] lies `offset` plus the steps of all axes into the buffer."""

    offset: int
    axes: tuple[Axis, ...]

    @classmethod
    def contiguous(cls, shape: Sequence[int]) -> Strided:
        """A row-major tensor."""
        steps = [math.prod(shape[n + 1 :]) for n in range(len(shape))]
        return cls(0, tuple(_axis([Factor(extent, step)]) for extent, step in zip(shape, steps, strict=True)))

    @classmethod
    def parse(cls, text: str) -> Strided:
        """The view that `str` wrote."""
        offset, *axes = text.split()
        pairs = [[part.split("*") for part in axis.split("/")] for axis in axes]
        return cls(int(offset), tuple(_axis([Factor(int(extent), int(step)) for extent, step in axis]) for axis in pairs))

    def __str__(self) -> str:
        parts = ["/".join(f"{f.extent}*{f.step}" for f in axis.factors) or "1*0" for axis in self.axes]
        return " ".join([str(self.offset), *parts])

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.extent for axis in self.axes)

    def transposed(self, order: Sequence[int]) -> Strided:
        """Axis n of the result is axis order[n]."""
        return Strided(self.offset, tuple(self.axes[n] for n in order))

    def reshaped(self, shape: Sequence[int]) -> Strided | None:
        """The same elements in the same order; None if an axis would be no whole number of steps. The sizes agree."""
        rest = [f for axis in self.axes for f in axis.factors]
        axes: list[Axis] = []
        for extent in shape:
            taken = _take(rest, extent)
            if taken is None:
                return None
            axes.append(_axis(taken))
        return Strided(self.offset, tuple(axes))

    def sliced(self, axis: int, start: int, extent: int, step: int = 1) -> Strided | None:
        """`extent` elements of one axis from `start` on, `step` apart; None for an axis of several factors."""
        distance = self.axes[axis].step
        if distance is None:
            return None
        part = _axis([Factor(extent, distance * step)])
        return Strided(self.offset + start * distance, (*self.axes[:axis], part, *self.axes[axis + 1 :]))

    def broadcast(self, shape: Sequence[int]) -> Strided:
        """Axes of one element repeated, and axes put in front, until it has `shape`."""
        axes = (*[Axis(())] * (len(shape) - len(self.axes)), *self.axes)
        repeated = [a if a.extent == extent else _axis([Factor(extent, 0)]) for a, extent in zip(axes, shape, strict=True)]
        return Strided(self.offset, tuple(repeated))


def _axis(factors: Sequence[Factor]) -> Axis:
    """Factors of one element left out, neighbours that are one run joined."""
    kept: list[Factor] = []
    for factor in factors:
        if factor.extent == 1:
            continue
        if kept and kept[-1].step == factor.step * factor.extent:
            factor = Factor(kept.pop().extent * factor.extent, factor.step)
        kept.append(factor)
    return Axis(tuple(kept))


def _take(rest: list[Factor], extent: int) -> list[Factor] | None:
    """Factors from the front of `rest` that make up `extent`, the last one cut if need be; they leave `rest`."""
    taken: list[Factor] = []
    while extent > 1:
        if not rest:
            return None
        first = rest.pop(0)
        if extent % first.extent == 0:
            taken.append(first)
            extent //= first.extent
        elif first.extent % extent == 0:
            inner = first.extent // extent
            taken.append(Factor(extent, first.step * inner))
            rest.insert(0, Factor(inner, first.step))
            extent = 1
        else:
            return None
    return taken
