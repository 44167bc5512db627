"""Into which segments gradients are put for allreduce: hccl.split.api. A segment is one collective."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from anycann.support.errors import UsageError
from anycann.support.records import dataclass

MOST_SEGMENTS = 8
# without a strategy, CANN splits by bytes at this share
DEFAULT_PERCENT = (96.54, 3.46)


@dataclass(frozen=True)
class GradientSplit:
    """Either the last index of each segment, or the percentage of bytes of each segment."""

    indices: tuple[int, ...] = ()
    percent: tuple[float, ...] = ()

    def segments(self, sizes_bytes: Sequence[int]) -> list[range]:
        """The indices of gradients in each segment, for gradients of these sizes in the order in which they become ready.

        Raises UsageError if indices were given and do not end at the last gradient.
        """
        if not sizes_bytes:
            return []
        if self.indices:
            return _by_index(self.indices, len(sizes_bytes))
        return _by_size(self.percent or DEFAULT_PERCENT, sizes_bytes)


def split_by_index(indices: Sequence[int]) -> GradientSplit:
    """Segments that end at these gradient indices. Raises UsageError."""
    numbers = all(isinstance(index, int) and index >= 0 for index in indices)
    rising = all(first < second for first, second in pairwise(indices))
    if not (numbers and rising and 0 < len(indices) <= MOST_SEGMENTS):
        raise UsageError(f"idxList must be 1 to {MOST_SEGMENTS} rising indices from 0, got {list(indices)}")
    return GradientSplit(indices=tuple(indices))


def split_by_size(percent: Sequence[float]) -> GradientSplit:
    """Segments with these shares of the bytes. Raises UsageError unless they are positive and sum to 100."""
    if not (0 < len(percent) <= MOST_SEGMENTS and all(share > 0 for share in percent) and abs(sum(percent) - 100) < 1e-6):
        raise UsageError(f"dataSizeList must be 1 to {MOST_SEGMENTS} positive percentages with the sum 100, got {list(percent)}")
    return GradientSplit(percent=tuple(percent))


def _by_index(indices: Sequence[int], count: int) -> list[range]:
    if indices[-1] != count - 1:
        raise UsageError(f"idxList ends at {indices[-1]}, the last gradient is {count - 1}")
    starts = [0, *(index + 1 for index in indices[:-1])]
    return [range(start, last + 1) for start, last in zip(starts, indices, strict=True)]


def _by_size(percent: Sequence[float], sizes_bytes: Sequence[int]) -> list[range]:
    """A segment ends where its share, summed with those before, is reached; a segment that would be empty is left out."""
    reached = list(accumulate(sizes_bytes))
    bounds = [share / 100 * reached[-1] for share in accumulate(percent)]
    ends = [next((index + 1 for index, total in enumerate(reached) if total >= bound), len(reached)) for bound in bounds[:-1]]
    starts = [0, *ends]
    return [range(start, end) for start, end in zip(starts, [*ends, len(reached)], strict=True) if end > start]
