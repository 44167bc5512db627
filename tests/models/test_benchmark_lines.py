"""What a line of memory costs: every kind of access is measured between two real threads, and the states of the cores are told apart."""

from __future__ import annotations

import os

import numpy as np
import pytest

from anycann.support.errors import UsageError
from anycann.target.target import host
from benchmarks.cores import LINE, NBYTES, Cores, usual_way
from benchmarks.lines import HISTORIES, Sample, sample, states, table

needs_two = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")


def sample_of(way: float) -> Sample:
    return Sample(way, {(history, name): way / 10 for history in HISTORIES for name in ("read", "write")})


@needs_two
def test_every_history_costs_something_to_read_and_to_write() -> None:
    found = sample(Cores(host()))
    assert found.way > 1
    assert set(found.lines) == {(history, name) for history in HISTORIES for name in ("read", "write")}
    assert all(0 < cost < 10_000 for cost in found.lines.values())


@needs_two
@pytest.mark.parametrize("name", ["read", "write"])
def test_a_pass_reads_or_writes_all_lines_and_nothing_beside_them(name: str) -> None:
    cores = Cores(host())
    memory, sums, first = cores._memory, cores._sums, LINE // 4
    memory[:], sums[:] = 3, 7
    cores.line(1, name)
    size, lanes = NBYTES // 4, host().lanes
    assert (memory[first : first + size] == (0 if name == "write" else 3)).all()
    assert (np.delete(memory, np.s_[first : first + size]) == 3).all()
    assert (sums[1, :lanes] == (0 if name == "write" else 3 * size / lanes)).all()
    assert (sums[0] == 7).all()


def test_ways_that_are_alike_are_one_state() -> None:
    assert [len(each) for each in states([sample_of(way) for way in (100, 110, 120)])] == [3]


def test_short_and_long_ways_have_columns_of_their_own() -> None:
    found = [sample_of(way) for way in (100, 230, 110, 240, 105)]
    assert [[each.way for each in state] for state in states(found)] == [[100, 110, 105], [230, 240]]
    text = table(found)
    assert text[0] == "a flag's way from one core to the other: 105.0 / 235.0 ns (3 / 2 samples)"
    assert "| written there | 10.5 / 23.5 | 10.5 / 23.5 |" in text


def test_one_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    with pytest.raises(UsageError, match="may use 1 processor; accepted: 2 and more"):
        Cores(host())
    assert usual_way(host()) == 0
