"""The thread pool: every task once, one caller at a time has the workers, idle threads sleep, fork and exit are clean."""

from __future__ import annotations

from collections.abc import Callable
import ctypes
import gc
import os
from pathlib import Path
import struct
import threading
import time

import numpy as np
import pytest
from runtime_kernels import busy_kernel, calls_kernel, count_kernel, load, needs_others_kernel, scratch_kernel, table, waiting_kernel

from anycann.codegen.objects import emit_object, undefined_symbols
from anycann.om.plan import Buffer, Task
from anycann.runtime.dispatch import Row, dispatch_ir, split
from anycann.runtime.fork_join import GAP_NS, LETS_SLEEP_BIT, SPELL_NS
from anycann.runtime.launches import letting_sleep, split_kind
from anycann.runtime.loader import LoadedCode
from anycann.runtime.pool_layout import Field
from anycann.runtime.thread_pool import ThreadPool, shared_pool
from anycann.support.errors import UnsupportedError, UsageError
from anycann.target.target import Target, by_name

COUNT, COUNT_IR = count_kernel()
BUSY, BUSY_IR = busy_kernel(20_000)
SCRATCH, SCRATCH_IR = scratch_kernel()
WAITING, WAITING_IR = waiting_kernel()
NEEDS_OTHERS, NEEDS_OTHERS_IR = needs_others_kernel()
CALLS, CALLS_IR = calls_kernel()


@pytest.fixture(scope="module")
def code() -> LoadedCode:
    return load(
        (COUNT, COUNT_IR), (BUSY, BUSY_IR), (SCRATCH, SCRATCH_IR), (WAITING, WAITING_IR), (NEEDS_OTHERS, NEEDS_OTHERS_IR), (CALLS, CALLS_IR)
    )


Workers = Callable[[], list[int]]


@pytest.fixture
def worker_threads() -> Workers:
    """Lists the kernel ids of the pool threads that were started since the test began."""

    def present() -> list[int]:
        return [t.native_id for t in threading.enumerate() if t.name.startswith("anycann-worker") and t.native_id]

    earlier = set(present())
    return lambda: [one for one in present() if one not in earlier]


def processor_seconds(thread: int) -> float:
    fields = Path(f"/proc/self/task/{thread}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("tasks", [0, 1, 2, 3, 5, 7, 64, 1001])
def test_every_task_runs_once(code: LoadedCode, threads: int, tasks: int) -> None:
    counts = np.zeros(tasks + 8, np.int64)
    rows = table(code, *[(COUNT, (counts,), tasks)] * 50)
    with ThreadPool(threads) as pool:
        rows.run(pool)
    assert counts.tolist() == [50] * tasks + [0] * 8


def test_rows_run_in_order_and_a_later_row_sees_what_an_earlier_one_wrote(code: LoadedCode) -> None:
    stages = [np.zeros(999, np.int64) for _ in range(3)]
    rows = table(code, *[(COUNT, (stage,), 999) for stage in stages], (COUNT, (stages[0],), 1))
    with ThreadPool(2) as pool:
        for _ in range(2000):
            rows.run(pool)
    assert stages[0][0] == 4000
    assert all((stage[1:] == 2000).all() for stage in stages)


def test_each_thread_has_its_own_scratch_at_its_stride(code: LoadedCode) -> None:
    out = np.zeros(4, np.int64)
    scratch = np.zeros((4, 64), np.uint8)
    with ThreadPool(4) as pool:
        table(code, (SCRATCH, (out,), 4)).run(pool, scratch)
    places = (out - scratch.ctypes.data).tolist()
    assert set(places) <= {0, 64, 128, 192}  # who has which is whoever comes first
    held = scratch[:, :8].view(np.int64)[:, 0].tolist()
    assert all(places[held[place // 64]] == place for place in places)  # each thread leaves the number of a task of its own


def test_a_row_does_not_wait_for_workers_that_never_come(code: LoadedCode) -> None:
    counts = np.zeros(1001, np.int64)
    with ThreadPool(2) as pool:
        pool._ready = True  # as if the worker slept: it is never started
        pool._workers.write(Field.THREADS, 2)
        table(code, *[(COUNT, (counts,), 1001)] * 20).run(pool)
        pool._workers.write(Field.THREADS, 1)
    assert counts.tolist() == [20] * 1001


@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize(("tasks", "units"), [(2, 0), (7, 3), (64, 5), (1001, 100), (1001, 10**6)])
def test_every_task_of_a_row_of_many_units_runs_once(code: LoadedCode, threads: int, tasks: int, units: int) -> None:
    counts = np.zeros(tasks + 8, np.int64)
    rows = table(code, *[(COUNT, (counts,), tasks)] * 200, units=units)
    with ThreadPool(threads) as pool:
        rows.run(pool)
    assert counts.tolist() == [200] * tasks + [0] * 8


def test_what_a_slow_thread_has_not_begun_another_one_does(code: LoadedCode) -> None:
    """Whoever has the first of eight tasks waits for the last six, of which two are of its own share."""
    done, give_up = np.zeros(8, np.int64), np.zeros(1, np.int64)
    timer = threading.Timer(600, give_up.fill, [1])
    timer.start()
    with ThreadPool(2) as pool:
        table(code, (NEEDS_OTHERS, (done, give_up), 8), units=8).run(pool)
    timer.cancel()
    assert done.tolist() == [1] * 8
    assert not give_up[0]


@pytest.mark.parametrize("resumes", [False, True])
def test_a_kernel_that_resumes_is_told_which_calls_go_on(code: LoadedCode, resumes: bool) -> None:
    calls, scratch = np.zeros((64, 2), np.int64), np.zeros((2, 64), np.uint8)
    with ThreadPool(2) as pool:
        pool._ready = True  # as if the worker slept: the caller has all calls, first those of its own half
        pool._workers.write(Field.THREADS, 2)
        table(code, (CALLS, (calls,), 64), units=64, resumes=resumes).run(pool, scratch)
        pool._workers.write(Field.THREADS, 1)
    begins = [begin for begin in range(64) if calls[begin, 1]]
    assert begins == [0, 16, 24, 28, 30, 31, 32, 33, 34, 36, 40, 48]
    assert [calls[begin, 0] - scratch.ctypes.data for begin in begins] == [int(resumes and 0 < begin < 32) for begin in begins]
    assert [calls[begin, 1] for begin in begins] == [*begins[1:], 64]


def test_every_thread_has_as_many_units(code: LoadedCode) -> None:
    calls, scratch = np.zeros((14, 2), np.int64), np.zeros((2, 64), np.uint8)
    with ThreadPool(2) as pool:
        pool._ready = True  # as if the worker slept: the caller has all calls
        pool._workers.write(Field.THREADS, 2)
        table(code, (CALLS, (calls,), 14), units=3).run(pool, scratch)
        pool._workers.write(Field.THREADS, 1)
    assert calls[:, 1].nonzero()[0].tolist() == [0, 4, 7, 11]  # two of each half


def test_rows_have_units_by_their_work() -> None:
    small, moved = Buffer("arena", 0, 1000), Buffer("arena", 0, 2_000_000)

    def units(operand: Buffer, flops: int, resumes: bool = False) -> int:
        kind = split_kind(Task("k", (operand,), 99, 0, ("n",), ("Op",), ("y",), flops, resumes))
        assert kind == split(kind >> 8, resumes)
        return kind >> 8

    assert units(small, 100_000) == 0  # a microsecond: one unit a thread
    assert units(small, 40_000_000) == 100
    assert units(moved, 0, resumes=True) == 25


@pytest.mark.parametrize(
    ("flops", "nbytes", "whole"), [(99_000, 0, True), (101_000, 0, False), (1, 99_000, True), (1, 101_000, False), (0, 100, False)]
)
def test_a_row_of_less_than_a_microsecond_is_not_split_if_its_work_is_known(flops: int, nbytes: int, whole: bool) -> None:
    task = Task("k", (Buffer("arena", 0, nbytes),), 99, 0, ("n",), ("Op",), ("y",), flops, True)
    assert (split_kind(task) == Row.INLINE) == whole


def test_a_row_of_unknown_arithmetic_is_worth_waking_for() -> None:
    task = Task("k", (Buffer("arena", 0, 100),), 99, 0, ("n",), ("TopK",), ("y",), 0)
    assert sleeps([(99, split_kind(task))]) == [False]


def sleeps(rows: list[tuple[int, int]]) -> list[bool]:
    """Of rows of (tasks, kind): which let workers sleep."""
    marked = letting_sleep(np.array([(0, 0, *row) for row in rows], np.int64).reshape(-1, 4))
    return [bool(kind >> LETS_SLEEP_BIT & 1) for kind in marked[:, 3]]


def test_workers_are_woken_while_enough_is_left_to_split() -> None:
    assert sleeps([(9, split(15))]) == [True]  # 62 us
    assert sleeps([(9, split(16, resumes=True))]) == [False]
    assert sleeps([(9, Row.INLINE), (9, split(8)), (9, split(0)), (9, split(7))]) == [False, False, True, True]
    assert sleeps([(9, split(1))] * 20) == [False] * 10 + [True] * 10
    assert sleeps([(9, split(1)), (1, split(99))])[0]  # one task is not split, however long it takes
    assert sleeps([]) == []


def test_workers_are_woken_in_a_loop_and_by_what_is_before_it_but_not_by_what_little_comes_behind() -> None:
    little, choice = (9, split(1)), (4, int(Row.CHOICE))
    assert sleeps([little, choice, little, (1, Row.JUMP), little]) == [False, False, False, False, True]
    assert sleeps([choice, little, (5, Row.JUMP), little, little]) == [False, True, False, True, True]  # a branch, not a loop


@pytest.mark.parametrize("awake", [False, True])
def test_a_row_that_lets_workers_sleep_runs_whole_where_all_of_them_do(code: LoadedCode, awake: bool) -> None:
    calls, scratch = np.zeros((64, 2), np.int64), np.zeros((2, 64), np.uint8)
    with ThreadPool(2) as pool:
        pool._ready = True  # never started: the caller has all calls
        pool._workers.write(Field.THREADS, 2)
        pool._workers.write(Field.SLEEPERS, int(not awake))
        rows = table(code, (CALLS, (calls,), 64), resumes=True)
        rows.rows[:, 3] |= 1 << LETS_SLEEP_BIT
        rows.run(pool, scratch)
        pool._workers.write(Field.THREADS, 1)
    assert [(begin, calls[begin, 1]) for begin in range(64) if calls[begin, 1]] == ([(0, 32), (32, 64)] if awake else [(0, 64)])
    assert set(calls[calls[:, 1] > 0, 0] - scratch.ctypes.data) == {0}


def test_a_long_spell_of_rows_that_let_workers_sleep_is_shared(code: LoadedCode) -> None:
    """The first row begins a spell; one that began longer ago than that is long, and ends with a pause."""
    seen = []
    with ThreadPool(2) as pool:
        pool._ready = True  # never started: the caller has all calls
        pool._workers.write(Field.THREADS, 2)
        pool._workers.write(Field.SLEEPERS, 1)
        for began, last in ((0, 0), (-2 * SPELL_NS, 10**12), (-2 * SPELL_NS, -2 * GAP_NS)):
            calls = np.zeros((64, 2), np.int64)
            rows = table(code, (CALLS, (calls,), 64))
            rows.rows[:, 3] |= 1 << LETS_SLEEP_BIT
            offset, memory = pool._workers.address - ctypes.addressof(pool._workers._memory), pool._workers._memory
            now = time.monotonic_ns() if began else 0
            struct.pack_into("<qq", memory, offset + Field.SPELL_BEGAN, now + began, now + last)
            rows.run(pool)
            seen.append(np.count_nonzero(calls[:, 1]))
        pool._workers.write(Field.THREADS, 1)
    assert seen == [1, 2, 1]


def test_rows_that_let_workers_sleep_and_rows_that_wake_them_lose_no_task(code: LoadedCode) -> None:
    counts = np.zeros(999, np.int64)
    rows = table(code, *[(COUNT, (counts,), 999)] * 3)
    rows.rows[1:, 3] |= 1 << LETS_SLEEP_BIT
    with ThreadPool(3, spin_pauses=1) as pool:
        for number in range(600):
            rows.run(pool)
            if number % 100 == 0:
                time.sleep(0.01)
    assert (counts == 1800).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_times_are_monotonic_and_enclose_each_row(code: LoadedCode, threads: int) -> None:
    counts = np.zeros(100, np.int64)
    rows = table(code, (COUNT, (counts,), 1), (BUSY, (counts,), 20), (COUNT, (counts,), 0))
    times = np.full(5, -1, np.int64)
    with ThreadPool(threads) as pool:
        before = time.monotonic_ns()
        rows.run(pool, times=times)
        after = time.monotonic_ns()
    assert before <= times[0] <= times[1] <= times[2] <= times[3] <= after
    assert times[2] - times[1] > 100_000  # 20 x 20,000 dependent multiplications
    assert times[4] == -1


def test_callers_on_several_threads_all_finish_and_lose_no_task(code: LoadedCode) -> None:
    counts = [np.zeros(101, np.int64) for _ in range(6)]

    def call(mine: np.ndarray) -> None:
        rows = table(code, *[(COUNT, (mine,), 101)] * 10)
        for _ in range(500):
            rows.run(pool)

    with ThreadPool(2) as pool:
        callers = [threading.Thread(target=call, args=(mine,)) for mine in counts]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(600)
    assert all((mine == 5000).all() for mine in counts)


def test_a_second_caller_runs_at_once_on_its_own_thread(code: LoadedCode) -> None:
    started, go, quick = np.zeros(4, np.int64), np.zeros(1, np.int64), np.zeros(4, np.int64)
    out, scratch = np.zeros(4, np.int64), np.zeros((2, 64), np.uint8)
    waits = table(code, (WAITING, (started, go), 4))
    give_up = threading.Timer(600, go.fill, [1])
    with ThreadPool(2) as pool:
        busy = threading.Thread(target=waits.run, args=(pool,))
        busy.start()
        give_up.start()
        while not started[0]:
            time.sleep(0.001)
        table(code, (COUNT, (quick,), 4), (SCRATCH, (out,), 4)).run(pool, scratch)
        in_time = not go[0]
        go[0] = 1
        busy.join()
    give_up.cancel()
    assert in_time
    assert quick.tolist() == [1] * 4
    assert set(out - scratch.ctypes.data) == {0}  # all on the caller


def test_idle_workers_sleep(code: LoadedCode, worker_threads: Workers) -> None:
    counts = np.zeros(8, np.int64)
    with ThreadPool(3) as pool:
        table(code, (COUNT, (counts,), 8)).run(pool)
        give_up = time.monotonic() + 600
        after, before = [processor_seconds(thread) for thread in worker_threads()], [-1.0]
        while after != before and time.monotonic() < give_up:  # on a busy machine they come late to where they sleep
            before = after
            time.sleep(0.5)
            after = [processor_seconds(thread) for thread in worker_threads()]
    assert len(before) == 2
    assert after == before


def test_sleeping_workers_wake_for_the_next_run(code: LoadedCode) -> None:
    counts = np.zeros(8, np.int64)
    rows = table(code, (COUNT, (counts,), 8))
    with ThreadPool(2, spin_pauses=1) as pool:
        for _ in range(3000):
            rows.run(pool)
        for _ in range(5):
            time.sleep(0.02)
            rows.run(pool)
    assert (counts == 3005).all()


def test_the_caller_sleeps_while_a_worker_is_slow(code: LoadedCode) -> None:
    """Of three tasks the caller has two and then waits, of two long ones with three threads it has one and waits for the other."""
    counts = np.zeros(3, np.int64)
    with ThreadPool(2, spin_pauses=1) as pool, ThreadPool(3, spin_pauses=1) as crowded:
        for _ in range(300):
            table(code, (BUSY, (counts,), 3)).run(pool)
            table(code, (BUSY, (counts,), 2)).run(crowded)
    assert counts.tolist() == [600, 600, 300]


def test_close_ends_the_threads_and_a_closed_pool_refuses(code: LoadedCode, worker_threads: Workers) -> None:
    counts = np.zeros(8, np.int64)
    rows = table(code, (COUNT, (counts,), 8))
    pool = ThreadPool(4)
    rows.run(pool)
    time.sleep(0.02)
    assert len(worker_threads()) == 3
    pool.close()
    pool.close()
    assert worker_threads() == []
    with pytest.raises(UsageError, match="closed"):
        rows.run(pool)


def test_a_dropped_pool_ends_its_threads(code: LoadedCode, worker_threads: Workers) -> None:
    pool = ThreadPool(3)
    table(code, (COUNT, (np.zeros(8, np.int64),), 8)).run(pool)
    assert len(worker_threads()) == 2
    del pool
    gc.collect()
    assert worker_threads() == []


def test_threads_start_with_the_first_run(worker_threads: Workers) -> None:
    with ThreadPool(4):
        assert worker_threads() == []


@pytest.mark.parametrize("threads", [0, -1, 5000])
def test_an_absurd_number_of_threads_is_refused(threads: int) -> None:
    with pytest.raises(UsageError, match="1 to 1024"):
        ThreadPool(threads)


def test_shared_pools_are_one_for_a_number_of_threads_and_replaced_when_closed() -> None:
    first = shared_pool(2)
    assert shared_pool(2) is first
    assert shared_pool(3) is not first
    first.close()
    assert shared_pool(2) is not first


def test_the_dispatcher_compiles_for_arm_and_calls_only_libc() -> None:
    target = by_name("neon")
    assert sorted(undefined_symbols(emit_object(dispatch_ir(target), target))) == ["clock_gettime", "memcpy", "sched_getcpu", "syscall"]


def test_a_system_without_futex_is_refused_with_its_name() -> None:
    with pytest.raises(UnsupportedError, match="apple"):
        dispatch_ir(Target("mac", "arm64-apple-macosx", "generic", "", 4, 32))
