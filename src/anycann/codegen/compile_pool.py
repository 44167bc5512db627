"""Compiling many kernels at once, in worker processes: LLVM is used under one lock, so threads compile no faster than one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
import json
import os
from pathlib import Path
import queue
import subprocess
import sys
import threading

from anycann.codegen.frames import read_frame, write_frame
from anycann.support import options
from anycann.support.errors import InternalError
from anycann.support.processors import available_processors
from anycann.support.records import dataclass
from anycann.target.target import Target

# A worker needs 0.1-0.2 s to start: below this much text the process compiles its own kernels sooner.
WORTHWHILE_KERNELS = 4
WORTHWHILE_CHARACTERS = 40_000


@dataclass(frozen=True)
class Outcome:
    """What became of one kernel: its object, or the `error` it was refused with, or neither if the worker was killed."""

    symbol: str
    data: bytes | None = None
    error: str = ""


def compile_missing(
    kernels: Mapping[str, str], target: Target, workers: int | None, done: Callable[[str, bytes], None], apart: bool = False
) -> None:
    """Call `done(symbol, object)` in this thread for each of `kernels` (symbol -> IR text), longest text first, in any order.

    `workers` is the number of processes, by default ANYCANN_COMPILE_WORKERS, or one a processor; 0 or 1 compiles here. `apart`: not here,
    however little it is, unless this process has LLVM already, which takes 40 MB that it keeps. A kernel whose worker is killed is
    compiled here. Raises InternalError for a kernel that LLVM refuses; no worker outlives the call.
    """
    workers = options.COMPILE_WORKERS.get() if workers is None else workers
    workers = available_processors() if workers is None else workers
    longest_first = sorted(kernels, key=lambda symbol: -len(kernels[symbol]))
    characters = sum(map(len, kernels.values()))
    worthwhile = workers >= 2 and len(kernels) >= WORTHWHILE_KERNELS and characters >= WORTHWHILE_CHARACTERS
    apart = apart and "llvmlite.binding" not in sys.modules
    if not (worthwhile or apart) or not sys.executable:
        for symbol in longest_first:
            done(symbol, _emit(kernels[symbol], target))
        return
    with _Workers(max(1, min(workers, len(kernels) // 2)), target) as pool:
        for outcome in pool.run(kernels, longest_first):
            if outcome.error:
                raise InternalError(outcome.error)
            done(outcome.symbol, _emit(kernels[outcome.symbol], target) if outcome.data is None else outcome.data)


def _emit(ir_text: str, target: Target) -> bytes:
    from anycann.codegen.objects import emit_object  # LLVM

    return emit_object(ir_text, target)


class _Workers:
    """`count` worker processes, each fed by a thread from one queue. A context manager: leaving it ends and reaps every process."""

    def __init__(self, count: int, target: Target):
        self._target = json.dumps(asdict(target)).encode()
        self._threads: list[threading.Thread] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        for _ in range(count):
            self._processes.append(_start_worker())

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for thread in self._threads:
            thread.join()
        for process in self._processes:
            process.wait()
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):  # a request may still be in the buffer of a killed worker's pipe
                    if stream:
                        stream.close()

    def run(self, kernels: Mapping[str, str], order: list[str]) -> Iterator[Outcome]:
        """Yield what became of each of the symbols in `order`, as they come."""
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        outcomes: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()
        for symbol in order:
            waiting.put(symbol)
        for process in self._processes:
            thread = threading.Thread(target=self._feed, args=(process, kernels, waiting, outcomes), daemon=True)
            self._threads.append(thread)
            thread.start()
        feeding = len(self._threads)
        while feeding:
            outcome = outcomes.get()
            feeding -= outcome is None
            if outcome is not None:
                yield outcome
        while not waiting.empty():  # every worker died
            yield Outcome(waiting.get())

    def _feed(
        self,
        process: subprocess.Popen[bytes],
        kernels: Mapping[str, str],
        waiting: queue.SimpleQueue[str],
        outcomes: queue.SimpleQueue[Outcome | None],
    ) -> None:
        """Keep one worker busy until nothing waits or it dies; then put None."""
        try:
            symbol = ""
            with suppress(OSError, ValueError, queue.Empty):
                _send(process, self._target)
                while True:
                    symbol = waiting.get_nowait()
                    _send(process, kernels[symbol].encode())
                    reply = read_frame(process.stdout) if process.stdout else None
                    if reply is None:
                        break
                    outcomes.put(_outcome(symbol, reply))
                    symbol = ""
            if symbol:
                outcomes.put(Outcome(symbol))
        finally:
            outcomes.put(None)


def _send(process: subprocess.Popen[bytes], frame: bytes) -> None:
    if process.stdin:
        write_frame(process.stdin, frame)


def _outcome(symbol: str, reply: bytes) -> Outcome:
    return Outcome(symbol, data=reply[1:]) if reply[:1] == b"o" else Outcome(symbol, error=reply[1:].decode(errors="replace"))


def _start_worker() -> subprocess.Popen[bytes]:
    """A worker that sees the modules this process sees; the folder it is started in does not count (PYTHONSAFEPATH)."""
    package_root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(dict.fromkeys([package_root, *filter(None, sys.path)]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "anycann.codegen.worker"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
