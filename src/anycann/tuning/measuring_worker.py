"""The measuring process: `python -m anycann.tuning.measuring_worker` reads jobs from its input and writes timings to its output.

Frames are those of `codegen.frames`. A job is answered by the number of each candidate before its first run, and in the end by a timing
for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
import os
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt

from anycann.codegen.frames import read_frame, write_frame
from anycann.runtime import memory
from anycann.runtime.loader import LoadedCode
from anycann.runtime.thread_pool import ThreadPool
from anycann.support.interruption import left_to_the_parent
from anycann.tuning.measuring import Candidate, Job, Timing
from anycann.tuning.operands import Operand

TOLERANCE = 1e-3  # of the largest result; kernels sum in different orders, and Winograd's loses two digits
COLD_SECONDS = 50e-6  # kernels that take longer find their weights behind the second-level cache, as in a model
MOST_RUNS = 100
SLOW_SECONDS = 0.1  # kernels that take longer are measured three times only
_FARTHEST = 4.5  # standard deviations that the farthest of some 100 000 bytes lies from their middle
HOPELESS = 1.4  # times the fastest after three rounds: not worth more


def measure(job: Job, announce: Callable[[int], None]) -> list[Timing]:
    """Run and time every candidate; `announce(number)` is called before one runs for the first time."""
    buffers = {name: _filled(operand, number) for number, (name, operand) in enumerate(job.inputs.items())}
    results = {name: memory.allocate(max(1, operand.count * _dtype(operand).itemsize)) for name, operand in job.outputs.items()}
    code = LoadedCode({candidate.symbol: candidate.code for candidate in job.candidates}, job.target)
    with ThreadPool(job.threads) as pool:
        launches = [_Launch(candidate, buffers | results, code, pool) for candidate in job.candidates]
        problems = _disagreements(job, launches, results, announce)
        fine = [number for number, problem in enumerate(problems) if not problem]
        rounds = _time([launches[number] for number in fine], job)
    found = {number: Timing(tuple(times)) for number, times in zip(fine, rounds, strict=True)}
    return [found.get(number, Timing(problem=problem)) for number, problem in enumerate(problems)]


class _Launch:
    """A kernel with its pointers, as a table of one row."""

    def __init__(self, candidate: Candidate, buffers: Mapping[str, memory.Bytes], code: LoadedCode, pool: ThreadPool):
        packed = {name: memory.aligned_copy(_bytes(array)) for name, array in candidate.packed.items()}
        self._buffers = [packed[name] if name in packed else buffers[name] for name in candidate.arguments]
        self._pointers = np.array([buffer.ctypes.data for buffer in self._buffers] or [0], np.int64)
        self._row = np.array([code.address(candidate.symbol), self._pointers.ctypes.data, candidate.tasks, 0], np.int64)
        self._stride = -(-candidate.scratch_bytes // memory.ALIGNMENT) * memory.ALIGNMENT
        self._scratch = memory.allocate(max(1, self._stride * pool.threads))
        self._times = np.zeros(2, np.int64)
        self._pool = pool

    def run(self) -> float:
        """Seconds of one run."""
        self._pool.run(self._row.ctypes.data, 1, self._scratch.ctypes.data, self._stride, self._times.ctypes.data)
        return max(1.0, float(self._times[1] - self._times[0])) * 1e-9  # the clock counts nanoseconds


def _dtype(operand: Operand) -> np.dtype[Any]:
    return memory.numpy_dtype(operand.dtype)


def _bytes(array: npt.NDArray[Any]) -> memory.Bytes:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _around(rng: np.random.Generator, middle: int, count: int, limits: np.iinfo[Any]) -> npt.NDArray[Any]:
    """Bytes as quantisation makes them: few are far from their zero point, and the farthest at an end of the range."""
    spread = max(middle - limits.min, limits.max - middle) / _FARTHEST
    return np.clip(rng.normal(middle, spread, count).round(), limits.min, limits.max)


def _filled(operand: Operand, seed: int) -> memory.Bytes:
    """Memory with the operand's value, or random numbers; whole numbers that may be indices are 0."""
    dtype = _dtype(operand)
    buffer = memory.allocate(max(1, operand.count * dtype.itemsize))
    if operand.value is not None:
        data = _bytes(operand.value.astype(dtype, copy=False))
        buffer[: data.size] = data
        buffer[data.size :] = 0
        return buffer
    rng = np.random.default_rng(seed)
    values: npt.NDArray[Any] = np.zeros(operand.count)
    if operand.middle is not None:
        values = _around(rng, operand.middle, operand.count, np.iinfo(dtype))
    elif dtype.kind in "iu" and dtype.itemsize == 1:
        values = rng.integers(0, 100, operand.count)
    elif dtype.kind not in "iub":
        values = rng.standard_normal(operand.count, np.float32)
    buffer.view(dtype)[: operand.count] = values.astype(dtype)
    return buffer


def _disagreements(job: Job, launches: list[_Launch], results: Mapping[str, memory.Bytes], announce: Callable[[int], None]) -> list[str]:
    """For each candidate how its results differ from those of the first; "" if they do not."""
    wanted: dict[str, npt.NDArray[Any]] = {}
    problems = []
    for number, launch in enumerate(launches):
        for result in results.values():
            result[:] = memory.POISON
        announce(number)
        launch.run()
        found = {name: _real(results[name], operand) for name, operand in job.outputs.items()}
        wanted = wanted or found
        problems.append(next(filter(None, (_difference(wanted[name], found[name]) for name in found)), ""))
    return problems


def _real(buffer: memory.Bytes, operand: Operand) -> npt.NDArray[Any]:
    """A copy of the elements that are there: lanes beyond the channels may hold anything."""
    elements = buffer.view(_dtype(operand))
    return elements.copy() if operand.blocks is None else elements[: operand.count][operand.blocks.real()]


def _difference(wanted: npt.NDArray[Any], found: npt.NDArray[Any]) -> str:
    """How much `found` differs where `wanted` was written."""
    if wanted.dtype.kind in "iub":
        worst = int(np.max(np.abs(wanted.astype(np.int64) - found.astype(np.int64)), initial=0)) if wanted.dtype.itemsize < 8 else 0
        return f"its results differ by {worst}" if worst > 1 else ""
    with np.errstate(all="ignore"):
        a, b = wanted.astype(np.float64), found.astype(np.float64)
        written = np.isfinite(a)
        scale = np.max(np.abs(a[written]), initial=1e-30)
        wrong = np.where(written, ~(np.abs(a - b) <= TOLERANCE * scale), False)
    return f"{int(wrong.sum())} of {a.size} results differ from those of the default" if wrong.any() else ""


def _time(launches: list[_Launch], job: Job) -> list[list[float]]:
    """Seconds of a run of each, round by round, all of them in each round."""
    once = [min(launch.run() for _ in range(3)) for launch in launches]
    evicted = np.zeros(job.target.l2_bytes // 2, np.float32) if max(once, default=0.0) > COLD_SECONDS else None  # twice the cache
    runs = [min(MOST_RUNS, max(1, int(job.round_seconds / max(seconds, 1e-7)))) for seconds in once]
    times: list[list[float]] = [[] for _ in launches]
    going = list(range(len(launches)))
    for number in range(job.rounds if max(once, default=0.0) < SLOW_SECONDS else 3):
        for which in going if number % 2 == 0 else reversed(going):
            times[which].append(_round(launches[which], runs[which], evicted))
        if number == 2:
            fastest = min(min(times[which]) for which in going)
            going = [which for which in going if which == 0 or min(times[which]) < HOPELESS * fastest]
    return times


def _round(launch: _Launch, runs: int, evicted: npt.NDArray[np.float32] | None) -> float:
    """Seconds of the fastest of some runs, short ones with their operands in the cache: another process only makes a run longer."""
    if evicted is not None:
        return min(_cold(launch, evicted) for _ in range(min(2, runs)))
    return min(launch.run() for _ in range(runs))


def _cold(launch: _Launch, evicted: npt.NDArray[np.float32]) -> float:
    evicted += 1.0
    return launch.run()


def main() -> None:
    """Serve until the input ends."""
    left_to_the_parent()
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that prints may get between the frames
    with suppress(BrokenPipeError):
        while (request := read_frame(requests)) is not None:
            timings = measure(pickle.loads(request), lambda number: write_frame(replies, pickle.dumps(number)))
            write_frame(replies, pickle.dumps(timings))


if __name__ == "__main__":
    main()
