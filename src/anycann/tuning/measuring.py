"""Measuring kernels in a child process: one that crashes, hangs or computes something else loses itself and nothing more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
import io
import os
from pathlib import Path
import pickle
import select
from statistics import median
import subprocess
import sys
from typing import IO, Any, Protocol, cast

import numpy.typing as npt

from anycann.codegen.frames import read_frame, write_frame
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.tuning.operands import Operand

HANG_SECONDS = 60.0


@dataclass(frozen=True)
class Candidate:
    """A compiled kernel and the constants packed for it."""

    symbol: str
    code: bytes
    arguments: tuple[str, ...]
    tasks: int
    scratch_bytes: int
    packed: Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Job:
    """Kernels that compute the same of the same operands, to be measured in turn. The first is what the others must agree with."""

    candidates: tuple[Candidate, ...]
    inputs: Mapping[str, Operand]
    outputs: Mapping[str, Operand]
    target: Target
    threads: int
    rounds: int = 9
    round_seconds: float = 0.002  # for each candidate


@dataclass(frozen=True)
class Timing:
    """What became of one candidate: seconds of a run in each round, or why there are none."""

    rounds: tuple[float, ...] = ()
    problem: str = ""

    @property
    def seconds(self) -> float:
        """The fastest round: what disturbs a measurement only makes it longer."""
        return min(self.rounds, default=float("inf"))

    def ratio(self, other: Timing) -> float:
        """Time / time of `other`, measured in turn with it: by the fastest rounds or by rounds side by side, whichever is more.

        On a busy machine luck makes one of them small, seldom both.
        """
        if not self.rounds or not other.rounds:
            return float("inf")
        side_by_side = median(mine / its for mine, its in zip(self.rounds, other.rounds, strict=False))
        return max(self.seconds / other.seconds, side_by_side)


class Measuring(Protocol):
    """Where jobs are measured: a process of this machine, or many machines."""

    @property
    def places(self) -> int:
        """Jobs that are measured at the same time."""

    def measure_all(self, jobs: Sequence[Job]) -> Iterator[tuple[int, list[Timing]]]:
        """The number of each job and a timing for each of its candidates, as they come."""


class Measurer:
    """The child process, started when it is needed and again when it was lost. A context manager."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    places = 1  # jobs that are measured at the same time

    def measure_all(self, jobs: Sequence[Job]) -> Iterator[tuple[int, list[Timing]]]:
        """The number and the timings of each job, one job after the other."""
        return ((number, self.measure(job)) for number, job in enumerate(jobs))

    def measure(self, job: Job) -> list[Timing]:
        """A timing for each candidate. What kills the child is left out, and the others are measured again."""
        lost: dict[int, str] = {}
        while True:
            alive = [number for number in range(len(job.candidates)) if number not in lost]
            if not alive or 0 in lost:
                return [Timing(problem=lost.get(n, "the kernel it is compared with was lost")) for n in range(len(job.candidates))]
            timings, running, why = self._ask(job, alive)
            if not why:
                found = dict(zip(alive, timings, strict=True))
                return [found.get(n, Timing(problem=lost.get(n, ""))) for n in range(len(job.candidates))]
            self._end()
            lost[running] = why

    def _ask(self, job: Job, alive: Sequence[int]) -> tuple[list[Timing], int, str]:
        """The timings; or which candidate ran when the child was lost, and how it was lost."""
        child = self._running()
        assert child.stdin is not None
        assert child.stdout is not None
        part = replace(job, candidates=tuple(job.candidates[number] for number in alive))
        running = alive[0]
        try:
            write_frame(child.stdin, pickle.dumps(part))
            while True:
                if not select.select([child.stdout], [], [], HANG_SECONDS)[0]:
                    return [], running, f"it ran for more than {HANG_SECONDS:.0f} s"
                frame = read_frame(cast(IO[bytes], _Raw(child.stdout.fileno())))
                if frame is None:
                    child.wait()
                    return [], running, f"it ended the process (status {child.returncode})"
                reply = pickle.loads(frame)
                if isinstance(reply, int):
                    running = alive[reply]
                else:
                    return reply, running, ""
        except BrokenPipeError:
            child.wait()
            return [], running, f"it ended the process (status {child.returncode})"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self._end()
            package_root = str(Path(__file__).resolve().parents[2])
            path = os.pathsep.join(dict.fromkeys([package_root, *filter(None, sys.path)]))
            environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
            command = [sys.executable, "-m", "anycann.tuning.measuring_worker"]
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        return self._child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout):
            with suppress(OSError):  # a request may still be in the buffer of a killed child's pipe
                if stream:
                    stream.close()


class _Raw(io.RawIOBase):
    """Whole reads without a buffer, which would hide frames from `select`."""

    def __init__(self, descriptor: int):
        self._descriptor = descriptor

    def read(self, size: int = -1) -> bytes:
        parts, missing = [], size
        while missing and (part := os.read(self._descriptor, missing)):
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)
