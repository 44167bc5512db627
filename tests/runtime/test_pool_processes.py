"""The thread pool in processes of their own: processors, fork and exit."""

from __future__ import annotations

import os
from pathlib import Path
import subprocess
import sys

import pytest

from anycann.support.processors import available_processors


def run_script(text: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=timeout, env={**os.environ, "PYTHONPATH": path}
    )


PREAMBLE = """
import os, sys, threading, time
import numpy as np
from runtime_kernels import count_kernel, load, needs_others_kernel, table
from anycann.runtime.thread_pool import ThreadPool, shared_pool
symbol, ir = count_kernel()
code = load((symbol, ir))
counts = np.zeros(9, np.int64)
rows = table(code, *[(symbol, (counts,), 9)] * 20)
"""


@pytest.mark.skipif(available_processors() < 2, reason="one processor")
def test_a_worker_on_the_callers_processor_goes_to_another() -> None:
    script = """
both, ir = needs_others_kernel()
waiting = load((both, ir))
done, give_up = np.zeros(8, np.int64), np.zeros(1, np.int64)
first, *others = sorted(os.sched_getaffinity(0))
with ThreadPool(2) as pool:
    table(waiting, (both, (done, give_up), 8)).run(pool)  # so the worker is at work
    (worker,) = (thread for thread in threading.enumerate() if thread.name.startswith("anycann-worker"))
    os.sched_setaffinity(0, {first})
    os.sched_setaffinity(worker.native_id, {first})
    until = time.monotonic() + 30
    while os.sched_getaffinity(worker.native_id) == {first} and time.monotonic() < until:
        rows.run(pool)
    print(sorted(os.sched_getaffinity(worker.native_id)) == others, counts.min() == counts.max())
"""
    assert run_script(PREAMBLE + script).stdout.split() == ["True", "True"]


def test_a_worker_that_cannot_leave_the_callers_processor_leaves_it_to_the_caller() -> None:
    """Both have one processor; a worker that waits awake, though nothing can move meanwhile, takes half of the time."""
    script = """
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
with ThreadPool(2, spin_pauses=4_000_000) as pool:
    rows.run(pool)
    (worker,) = (thread for thread in threading.enumerate() if thread.name.startswith("anycann-worker"))
    clock = time.pthread_getcpuclockid(worker.ident)
    theirs, ours = time.clock_gettime(clock), time.thread_time()
    while time.thread_time() < ours + 0.3:
        rows.run(pool)
    print((time.clock_gettime(clock) - theirs) / (time.thread_time() - ours), counts.min() == counts.max() > 20)
"""
    share, same = run_script(PREAMBLE + script).stdout.split()
    assert float(share) < 0.3
    assert same == "True"


def test_a_forked_child_builds_workers_of_its_own() -> None:
    script = (
        PREAMBLE
        + """
pool = shared_pool(3)
rows.run(pool)
child = os.fork()
rows.run(pool)
workers = sum(t.name.startswith("anycann-worker") and t.is_alive() for t in threading.enumerate())
print(os.getpid() == child or child, counts.tolist() == [40] * 9, workers, flush=True)
if child:
    print(os.waitpid(child, 0)[1])
"""
    )
    done = run_script(script)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    assert sorted(line.split(" ", 1)[1] for line in lines if " " in line) == ["True 2", "True 2"]
    assert "0" in lines


def test_a_child_forked_while_another_thread_runs_is_not_locked_out() -> None:
    script = (
        PREAMBLE
        + """
pool = ThreadPool(2)
stop = False
def hammer():
    mine = table(code, *[(symbol, (np.zeros(9, np.int64),), 9)] * 20)
    while not stop:
        mine.run(pool)
thread = threading.Thread(target=hammer)
thread.start()
results = []
for _ in range(20):
    child = os.fork()
    if not child:
        rows.run(pool)
        time.sleep(0.01)
        os._exit(0 if sum(t.name.startswith("anycann-worker") for t in threading.enumerate()) == 1 and (counts == 20).all() else 3)
    results.append(os.waitpid(child, 0)[1])
stop = True
thread.join()
print(set(results))
"""
    )
    done = run_script(script)
    assert (done.returncode, done.stdout.strip()) == (0, "{0}"), done.stderr


@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "del pool", "globals().clear()"])
def test_the_interpreter_ends_cleanly_with_a_pool_open(ending: str) -> None:
    done = run_script(PREAMBLE + f"pool = ThreadPool(4)\nrows.run(pool)\n{ending}\n")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_interpreter_ends_cleanly_while_a_daemon_thread_runs_tables() -> None:
    script = (
        PREAMBLE
        + """
pool = ThreadPool(2)
def forever():
    while True:
        rows.run(pool)
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.2)
"""
    )
    done = run_script(script)
    assert done.returncode == 0, done.stderr
    assert "Fatal" not in done.stderr
