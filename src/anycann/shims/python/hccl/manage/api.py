"""hccl.manage.api: groups and ranks of this process."""

from anycann.collective.groups import WORLD
from anycann.collective.process import this_process

__all__ = [
    "create_group",
    "destroy_group",
    "get_group_rank_from_world_rank",
    "get_local_rank_id",
    "get_local_rank_size",
    "get_rank_id",
    "get_rank_size",
    "get_world_rank_from_group_rank",
]


def create_group(group: str, rank_num: int, rank_ids: list[int]) -> None:
    this_process().groups.create(group, rank_num, rank_ids)


def destroy_group(group: str) -> None:
    this_process().groups.destroy(group)


def get_rank_size(group: str = WORLD) -> int:
    return len(this_process().groups.ranks(group))


def get_rank_id(group: str = WORLD) -> int:
    return this_process().groups.rank_in(group)


def get_local_rank_size(group: str = WORLD) -> int:
    return len(this_process().groups.local_ranks(group))


def get_local_rank_id(group: str = WORLD) -> int:
    groups = this_process().groups
    return groups.local_ranks(group).index(groups.placement.rank)


def get_world_rank_from_group_rank(group: str, group_rank_id: int) -> int:
    return this_process().groups.world_rank(group, group_rank_id)


def get_group_rank_from_world_rank(world_rank_id: int, group: str) -> int:
    return this_process().groups.group_rank(world_rank_id, group)
