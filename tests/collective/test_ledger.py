"""What ranks see of each other before their data travel: threads and processes stand for them, no framework."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
import os
from pathlib import Path
import subprocess
import sys
import threading

import pytest

from anycann.collective import ledger
from anycann.collective.ledger import Begun, Ledger, MismatchError

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no files without a name")


def ledgers(size: int, change: dict[int, str] | None = None) -> list[Ledger]:
    """One of each rank, all in this process; `change` is what ranks say in place of their own words."""
    words: dict[int, str] = {}
    all_said = threading.Barrier(size)

    def made(rank: int) -> Ledger:
        def exchange(said: str) -> list[str]:
            words[rank] = (change or {}).get(rank, said)
            all_said.wait(60)
            return [words[each] for each in range(size)]

        return Ledger(rank, exchange)

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(made, range(size)))


def test_ranks_that_agree_go_on_however_often() -> None:
    ranks = ledgers(3)
    for number in range(1, 100):
        assert [rank.begin(f"allreduce of {number} float32") for rank in ranks] == [Begun(number, f"allreduce of {number} float32")] * 3
    assert ranks[0].others(Begun(99, "allreduce of 99 float32")) == ""


@pytest.mark.parametrize("before", [0, 1, 31, 32, 33, 70])
def test_whoever_comes_later_learns_of_another_call(before: int) -> None:
    first, second = ledgers(2)
    for _ in range(before):
        first.begin("barrier"), second.begin("barrier")
    first.begin("allreduce of 4 float32, SUM")
    with pytest.raises(
        MismatchError, match=f"collective {before + 1} of this group: barrier on rank 1, allreduce of 4 float32, SUM on rank 0"
    ):
        second.begin("barrier")


def test_a_rank_ahead_is_compared_with_what_it_began_in_that_place() -> None:
    first, second = ledgers(2)
    for number in range(20):
        first.begin(f"broadcast {number}")
    for number in range(19):
        second.begin(f"broadcast {number}")
    with pytest.raises(MismatchError, match="broadcast 19 on rank 0"):
        second.begin("gather")


def test_one_who_waits_learns_where_the_others_are() -> None:
    ranks = ledgers(3)
    begun = ranks[0].begin("barrier")
    ranks[2].begin("barrier")
    assert ranks[0].others(begun) == "rank 1 has not begun number 1 of this group, barrier: it began none"
    ranks[1].begin("barrier")
    begun = ranks[0].begin("gather")
    assert "its last was number 1, barrier; rank 2 has not begun number 2" in ranks[0].others(begun)
    with pytest.raises(MismatchError):
        ranks[1].begin("scatter")
    assert ranks[0].others(begun).startswith("rank 1 began scatter in its place; rank 2 has not begun")


RANK_1 = """
from anycann.collective.ledger import Ledger

def exchange(said):
    print(said, flush=True)
    return [input(), said]

rank_1 = Ledger(1, exchange)
rank_1.begin("barrier")
input()
"""


def test_a_rank_that_has_ended_is_named() -> None:
    source = str(Path(ledger.__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", RANK_1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": source}
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        spoken, heard = other.stdin, other.stdout

        def exchange(said: str) -> list[str]:
            print(said, file=spoken, flush=True)
            return [said, heard.readline().strip()]

        rank_0 = Ledger(0, exchange)
        rank_0.begin("barrier")
        begun = rank_0.begin("gather")
        print(file=spoken, flush=True)
        other.wait(60)
        assert (
            rank_0.others(begun) == "rank 1 has not begun number 2 of this group, gather: its last was number 1, barrier, and it has ended"
        )


def test_ranks_elsewhere_are_not_seen() -> None:
    first, second = ledgers(2, {0: "another/machine 1 3", 1: "another/machine 1 None"})
    first.begin("barrier")
    begun = second.begin("gather")
    assert second.others(begun) == ""


def test_long_words_are_compared_as_far_as_they_are_kept() -> None:
    first, second = ledgers(2)
    first.begin("x" * 500)
    second.begin("x" * 600)
    begun = second.begin("ü" * 200)
    with pytest.raises(MismatchError, match="üü on rank 1"):
        first.begin("barrier")
    assert second.others(begun) == "rank 0 began barrier in its place"
