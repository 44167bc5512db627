"""hccl.manage.api and hccl.split.api."""

from __future__ import annotations

from collections.abc import Iterator
import importlib
from pathlib import Path
from typing import Any

import pytest

from anycann.collective.gradient_split import GradientSplit, split_by_index, split_by_size
from anycann.collective.process import this_process
from anycann.support.errors import UsageError

SHIMS = Path(__file__).parents[2] / "src" / "anycann" / "shims" / "python"


@pytest.fixture
def _rank_5_of_8(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {"RANK": 5, "WORLD_SIZE": 8, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 4}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.syspath_prepend(SHIMS)
    this_process.cache_clear()
    yield
    this_process.cache_clear()


def manage() -> Any:
    return importlib.import_module("hccl.manage.api")


@pytest.mark.usefixtures("_rank_5_of_8")
def test_the_world_is_a_group() -> None:
    api = manage()
    assert (api.get_rank_size(), api.get_rank_id(), api.get_local_rank_size(), api.get_local_rank_id()) == (8, 5, 4, 1)
    assert api.get_rank_size("hccl_world_group") == 8


@pytest.mark.usefixtures("_rank_5_of_8")
def test_a_group_has_its_own_ranks() -> None:
    api = manage()
    api.create_group("odd", 4, [1, 3, 5, 7])
    assert (api.get_rank_size("odd"), api.get_rank_id("odd"), api.get_local_rank_size("odd"), api.get_local_rank_id("odd")) == (4, 2, 2, 0)
    assert (api.get_world_rank_from_group_rank("odd", 3), api.get_group_rank_from_world_rank(7, "odd")) == (7, 3)
    api.destroy_group("odd")
    with pytest.raises(UsageError, match="there is no group 'odd'; there are hccl_world_group"):
        api.get_rank_size("odd")


@pytest.mark.usefixtures("_rank_5_of_8")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", 1, [5]), "a group's name is text of 1 to 127 bytes"),
        (("hccl_world_group", 1, [5]), "is there already"),
        (("g", 2, [5]), "rank_num is 2, rank_ids has 1"),
        (("g", 2, [5, 8]), "must be different ranks from 0 to 7"),
        (("g", 2, [5, 5]), "must be different ranks"),
        (("g", 2, [0, 1]), "created by rank 5, which is not in it"),
    ],
)
def test_a_group_that_cannot_be_is_refused(arguments: tuple[str, int, list[int]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        manage().create_group(*arguments)


@pytest.mark.usefixtures("_rank_5_of_8")
def test_what_is_not_in_a_group_has_no_rank_there() -> None:
    api = manage()
    api.create_group("pair", 2, [4, 5])
    with pytest.raises(UsageError, match="world rank 0 is not in group 'pair'"):
        api.get_group_rank_from_world_rank(0, "pair")
    with pytest.raises(UsageError, match="has no rank 2; accepted: 0 to 1"):
        api.get_world_rank_from_group_rank("pair", 2)
    with pytest.raises(UsageError, match="cannot be destroyed"):
        api.destroy_group("hccl_world_group")


@pytest.mark.usefixtures("_rank_5_of_8")
def test_a_split_belongs_to_its_group() -> None:
    split = importlib.import_module("hccl.split.api")
    split.set_split_strategy_by_idx([0, 2])
    assert this_process().split().segments([4, 4, 4]) == [range(1), range(1, 3)]
    with pytest.raises(UsageError, match="there is no group 'g'"):
        split.set_split_strategy_by_size([100], "g")


def test_segments_by_index_end_at_the_indices() -> None:
    assert split_by_index([20, 100, 159]).segments([1] * 160) == [range(21), range(21, 101), range(101, 160)]
    with pytest.raises(UsageError, match="idxList ends at 159, the last gradient is 99"):
        split_by_index([159]).segments([1] * 100)


def test_segments_by_size_have_their_share_of_the_bytes() -> None:
    assert split_by_size([60, 20, 20]).segments([10] * 10) == [range(6), range(6, 8), range(8, 10)]
    assert GradientSplit().segments([96, 1, 1, 1, 1]) == [range(2), range(2, 5)]
    assert split_by_size([50, 50]).segments([100]) == [range(1)]
    assert split_by_size([50, 50]).segments([]) == []


@pytest.mark.parametrize("indices", [[], [3, 1], [-1, 2], [1, 1], list(range(9))])
def test_wrong_indices_are_refused(indices: list[int]) -> None:
    with pytest.raises(UsageError, match="idxList must be 1 to 8 rising indices"):
        split_by_index(indices)


@pytest.mark.parametrize("percent", [[], [50, 40], [0, 100], [-10, 110], [12.5] * 9])
def test_wrong_shares_are_refused(percent: list[float]) -> None:
    with pytest.raises(UsageError, match="dataSizeList must be 1 to 8 positive percentages"):
        split_by_size(percent)
