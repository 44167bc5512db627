"""hccl.split.api: how gradients are put into segments for allreduce."""

from anycann.collective.gradient_split import split_by_index, split_by_size
from anycann.collective.groups import WORLD
from anycann.collective.process import this_process

__all__ = ["set_split_strategy_by_idx", "set_split_strategy_by_size"]


def set_split_strategy_by_idx(idxList: list[int], group: str = WORLD) -> None:
    this_process().set_split(split_by_index(idxList), group)


def set_split_strategy_by_size(dataSizeList: list[float], group: str = WORLD) -> None:
    this_process().set_split(split_by_size(dataSizeList), group)
