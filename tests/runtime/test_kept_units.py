"""Units that a thread keeps, where beginning elsewhere costs others something: all are run once, and all of who has not begun are taken."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from runtime_kernels import count_kernel, load, needs_others_kernel, table

from anycann.om.plan import Buffer, Task
from anycann.runtime.dispatch import split
from anycann.runtime.launches import letting_sleep, split_kind
from anycann.runtime.loader import LoadedCode
from anycann.runtime.pool_layout import Field
from anycann.runtime.thread_pool import ThreadPool

COUNT, COUNT_IR = count_kernel()
NEEDS_OTHERS, NEEDS_OTHERS_IR = needs_others_kernel()


@pytest.fixture(scope="module")
def code() -> LoadedCode:
    return load((COUNT, COUNT_IR), (NEEDS_OTHERS, NEEDS_OTHERS_IR))


def test_a_thread_that_has_begun_keeps_few_units(code: LoadedCode) -> None:
    """Of eight tasks whoever has the first waits for the last six. Two are of its own share, too few to be taken: it has to give up."""

    def gives_up(kept: int) -> bool:
        done, give_up = np.zeros(8, np.int64), np.zeros(1, np.int64)
        timer = threading.Timer(0.2, give_up.fill, [1])
        timer.start()
        table(code, (NEEDS_OTHERS, (done, give_up), 8), units=8, kept=kept).run(pool)
        timer.cancel()
        assert done.tolist() == [1] * 8
        return bool(give_up[0])

    with ThreadPool(2) as pool:
        gives_up(kept=0)  # starts the worker
        assert any(gives_up(kept=3) for _ in range(20))  # not where the caller was interrupted before it began


@pytest.mark.parametrize("kept", [0, 9, 10**9])
def test_all_units_of_a_thread_that_has_not_begun_are_taken(code: LoadedCode, kept: int) -> None:
    counts = np.zeros(72, np.int64)
    with ThreadPool(2) as pool:
        pool._ready = True  # as if the worker slept: the caller has all calls
        pool._workers.write(Field.THREADS, 2)
        table(code, (COUNT, (counts,), 64), units=64, resumes=True, kept=kept).run(pool)
        pool._workers.write(Field.THREADS, 1)
    assert counts.tolist() == [1] * 64 + [0] * 8


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize(("units", "kept"), [(0, 5), (7, 1), (100, 40), (10**6, 10**6)])
def test_every_task_of_a_row_whose_units_are_kept_runs_once(code: LoadedCode, threads: int, units: int, kept: int) -> None:
    counts = np.zeros(1009, np.int64)
    rows = table(code, *[(COUNT, (counts,), 1001)] * 200, units=units, kept=kept)
    with ThreadPool(threads) as pool:
        rows.run(pool)
    assert counts.tolist() == [200] * 1001 + [0] * 8


def test_a_row_keeps_units_by_what_beginning_elsewhere_takes() -> None:
    def kind(begin_bytes: int, flops: int = 40_000_000) -> int:
        operand = Buffer("arena", 0, 1000)
        return split_kind(Task("k", (operand,), 99, 0, ("n",), ("Op",), ("y",), flops, True, begin_bytes))

    assert kind(0) == split(100, True)
    assert kind(100_352) == split(100, True, kept=10)  # 98 pixels of 256 channels: 22 us, twice
    assert kind(2**40, 2**62) == split(2**40, True, kept=2**40)  # as much as a row has room for
    assert letting_sleep(np.array([[0, 0, 9, kind(2**40)]], np.int64))[0, 3] >= 0
