"""The groups of hccl.manage.api: names for sets of ranks. The world's name is hccl_world_group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from anycann.collective.ranks import Placement
from anycann.support.errors import UsageError
from anycann.support.records import dataclass

WORLD = "hccl_world_group"
MOST_NAME_BYTES = 127


@dataclass
class Groups:
    """The groups of one process that stands at `placement`."""

    placement: Placement
    members: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.members[WORLD] = tuple(range(self.placement.size))

    def create(self, name: str, count: int, ranks: Iterable[int]) -> None:
        """Name the group of `count` world `ranks`, in the order given. Raises UsageError."""
        ranks = tuple(ranks)
        if not (isinstance(name, str) and 0 < len(name.encode()) <= MOST_NAME_BYTES):
            raise UsageError(f"a group's name is text of 1 to {MOST_NAME_BYTES} bytes, got {name!r}")
        if name in self.members:
            raise UsageError(f"group {name!r} is there already")
        if count != len(ranks) or not ranks:
            raise UsageError(f"group {name!r}: rank_num is {count}, rank_ids has {len(ranks)}; they must agree and not be 0")
        if len(set(ranks)) != len(ranks) or not set(ranks) <= set(self.members[WORLD]):
            raise UsageError(f"group {name!r}: rank_ids {list(ranks)} must be different ranks from 0 to {self.placement.size - 1}")
        if self.placement.rank not in ranks:
            raise UsageError(f"group {name!r} of the ranks {list(ranks)} is created by rank {self.placement.rank}, which is not in it")
        self.members[name] = ranks

    def destroy(self, name: str) -> None:
        """Forget the group. Raises UsageError for the world and unknown names."""
        if name == WORLD:
            raise UsageError(f"{WORLD} cannot be destroyed")
        self.ranks(name)
        del self.members[name]

    def ranks(self, name: str = WORLD) -> tuple[int, ...]:
        """World ranks of the group. Raises UsageError with the names that are there."""
        if name not in self.members:
            raise UsageError(f"there is no group {name!r}; there are {', '.join(sorted(self.members))}")
        return self.members[name]

    def local_ranks(self, name: str = WORLD) -> tuple[int, ...]:
        """World ranks of the group on this server."""
        here = set(self.placement.neighbours)
        return tuple(rank for rank in self.ranks(name) if rank in here)

    def rank_in(self, name: str = WORLD) -> int:
        """The position of this process in the group."""
        return self.ranks(name).index(self.placement.rank)

    def world_rank(self, name: str, group_rank: int) -> int:
        """The world rank of the member at `group_rank`. Raises UsageError."""
        ranks = self.ranks(name)
        if not 0 <= group_rank < len(ranks):
            raise UsageError(f"group {name!r} has no rank {group_rank}; accepted: 0 to {len(ranks) - 1}")
        return ranks[group_rank]

    def group_rank(self, world_rank: int, name: str) -> int:
        """The position of `world_rank` in the group. Raises UsageError."""
        ranks = self.ranks(name)
        if world_rank not in ranks:
            raise UsageError(f"world rank {world_rank} is not in group {name!r} of the ranks {list(ranks)}")
        return ranks.index(world_rank)
