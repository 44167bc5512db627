"""What this process knows of its groups: made once, from the environment, when a program first asks."""

from __future__ import annotations

from functools import lru_cache

from anycann.collective.gradient_split import GradientSplit
from anycann.collective.groups import WORLD, Groups
from anycann.collective.ranks import placement


class Process:
    """Groups and strategies of one process."""

    def __init__(self) -> None:
        self.groups = Groups(placement())
        self._splits: dict[str, GradientSplit] = {}

    def set_split(self, split: GradientSplit, group: str = WORLD) -> None:
        """Use `split` for allreduce in `group`. Raises UsageError for a group that is not there."""
        self.groups.ranks(group)
        self._splits[group] = split

    def split(self, group: str = WORLD) -> GradientSplit:
        """The strategy of `group`, CANN's default if none was set."""
        self.groups.ranks(group)
        return self._splits.get(group, GradientSplit())


@lru_cache(maxsize=1)
def this_process() -> Process:
    """The state of this process. Raises UsageError if the environment contradicts itself."""
    return Process()
