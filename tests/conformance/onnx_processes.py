"""Cases over worker processes: a process that dies or hangs fails the case it was at, and another one goes on with the rest."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
import json
import os
from pathlib import Path
from queue import Empty, SimpleQueue
import subprocess
import sys
from threading import Thread, Timer

from onnx_cases import Outcome

WORKER = Path(__file__).with_name("onnx_worker.py")
CASE_SECONDS = 120  # a case that takes longer hangs


def run_in_processes(names: Iterable[str], processes: int) -> dict[str, Outcome]:
    """The outcome of each case of `names`, over so many processes."""
    pending: SimpleQueue[str] = SimpleQueue()
    for name in names:
        pending.put(name)
    outcomes: dict[str, Outcome] = {}
    threads = [Thread(target=_drain, args=(pending, outcomes)) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def _drain(pending: SimpleQueue[str], outcomes: dict[str, Outcome]) -> None:
    """Feed one worker after the other until nothing is pending."""
    worker = _start()
    try:
        while True:
            try:
                name = pending.get_nowait()
            except Empty:
                return
            outcomes[name] = _ask(worker, name)
            if worker.poll() is not None:
                _stop(worker)
                worker = _start()
    finally:
        _stop(worker)


def _ask(worker: subprocess.Popen[str], name: str) -> Outcome:
    """One case on `worker`, which is dead afterwards if the case brought it down."""
    timer = Timer(CASE_SECONDS, worker.kill)
    timer.start()
    try:
        worker.stdin.write(name + "\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
    except BrokenPipeError:
        line = ""
    finally:
        timer.cancel()
    if line:
        return Outcome(**json.loads(line))
    status = worker.wait()
    return Outcome(name, f"the process died with status {status}" + (f" after {CASE_SECONDS} s" if status == -9 else ""))


def _stop(worker: subprocess.Popen[str]) -> None:
    with suppress(BrokenPipeError):
        worker.stdin.close()
    worker.wait()
    worker.stdout.close()


def _start() -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        [sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
