"""The memory plan: which bytes of one arena each value has, so that values alive at the same time never share any."""

from __future__ import annotations

from collections.abc import Sequence

from anycann.support.records import dataclass

ALIGNMENT = 64
SLACK = 64  # bytes a kernel may read beyond a buffer's end


@dataclass(frozen=True)
class Interval:
    """A buffer of `nbytes`, written at step `first` and last read at step `last`."""

    name: str
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryPlan:
    """Offset in bytes of each buffer, and the size of the arena."""

    offsets: dict[str, int]
    arena_bytes: int


def plan_memory(intervals: Sequence[Interval], alignment: int = ALIGNMENT, slack: int = SLACK) -> MemoryPlan:
    """Largest buffers first, each into the lowest gap between those it lives beside."""
    placed: list[tuple[Interval, int, int]] = []
    for interval in sorted(intervals, key=lambda i: (-i.nbytes, i.first, i.name)):
        size = _round_up(interval.nbytes + slack, alignment)
        beside = sorted((start, end) for other, start, end in placed if other.first <= interval.last and interval.first <= other.last)
        offset = 0
        for start, end in beside:
            if offset + size <= start:
                break
            offset = max(offset, end)
        placed.append((interval, offset, offset + size))
    offsets = {interval.name: start for interval, start, _ in placed}
    return MemoryPlan(offsets, max((end for _, _, end in placed), default=0))


def check_plan(intervals: Sequence[Interval], plan: MemoryPlan) -> list[str]:
    """Every fault of a plan as a sentence; shares no code with the planner."""
    faults = []
    for number, a in enumerate(intervals):
        start = plan.offsets[a.name]
        if start < 0 or start % ALIGNMENT or start + a.nbytes + SLACK > plan.arena_bytes:
            faults.append(f"{a.name} at {start} with {a.nbytes} bytes is outside the arena or unaligned")
        for b in intervals[number + 1 :]:
            alive_together = a.first <= b.last and b.first <= a.last
            overlap = start < plan.offsets[b.name] + b.nbytes and plan.offsets[b.name] < start + a.nbytes
            if alive_together and overlap and a.nbytes and b.nbytes:
                faults.append(f"{a.name} and {b.name} are alive together and share bytes")
    return faults


def _round_up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
