"""Ranges of bytes, and which bytes of an allocation were ever written."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from anycann.support.records import dataclass


@dataclass(frozen=True)
class Range:
    """`nbytes` bytes from `address` on."""

    address: int
    nbytes: int

    @property
    def end(self) -> int:
        return self.address + self.nbytes

    def overlaps(self, other: Range) -> bool:
        return self.address < other.end and other.address < self.end


class Covered:
    """A growing set of bytes, kept as sorted intervals that do not touch."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Put the bytes from `start` up to `end` in."""
        if start >= end:
            return
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def missing(self, start: int, end: int) -> int:
        """How many bytes from `start` up to `end` are not in."""
        inside = 0
        for at in range(bisect_right(self._ends, start), bisect_left(self._starts, end)):
            inside += min(end, self._ends[at]) - max(start, self._starts[at])
        return max(end - start, 0) - inside
