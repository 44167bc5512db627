"""Measuring engines fairly: interleaved runs in one process for latency, a fresh process each for load time, first call and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
import json
import os
from pathlib import Path
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any, TypeAlias

import numpy as np

from anycann.support.errors import AnyCANNError, DeviceError
from anycann.support.records import dataclass
from anycann.tools.engines import OPENERS, Engine, import_engine
from anycann.tools.env import child_environment

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
WARM_UP_RUNS = 3
_MAX_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True)
class Latency:
    """Seconds of single calls: percentiles, mean, and calls a second when they follow each other."""

    runs: int
    p50: float
    p90: float
    p99: float
    mean: float
    per_second: float


@dataclass(frozen=True)
class ColdStart:
    """A fresh process: seconds to load the model, seconds of the first call, and bytes of its memory: peak, and before loading."""

    load_seconds: float
    first_call_seconds: float
    peak_bytes: int
    base_bytes: int


def summary(seconds: Sequence[float]) -> Latency:
    """The figures of at least one measured call."""
    p50, p90, p99 = (float(value) for value in np.percentile(seconds, (50, 90, 99)))
    return Latency(len(seconds), p50, p90, p99, float(np.mean(seconds)), len(seconds) / float(np.sum(seconds)))


def summaries(rounds: Mapping[str, Sequence[float]]) -> dict[str, Latency]:
    """The figures of what `measure_interleaved` found, by engine."""
    return {name: summary(seconds) for name, seconds in rounds.items()}


def measure_interleaved(
    engines: Sequence[Engine],
    feeds: Mapping[str, Array],
    runs: int | None,
    budget_seconds: float,
    progress: Callable[[int, int], None] | None = None,
    rest_seconds: float = 0.0,
) -> dict[str, list[float]]:
    """Call the engines in turn, `runs` times each, or until `budget_seconds` have passed; a slow spell of the machine hits all of them.

    Seconds of each round, by engine. The order within a round alternates. Before each measured call comes one that is not, so that an
    engine's threads and caches are awake as they are where it runs alone. Before both the process rests, which gives the waiting threads
    of the engine before time to sleep.
    """
    for engine in engines:
        for _ in range(WARM_UP_RUNS):
            engine.run(feeds)
    seconds: dict[str, list[float]] = {engine.name: [] for engine in engines}
    started, done = time.perf_counter(), 0
    while done < runs if runs else (done == 0 or time.perf_counter() - started < budget_seconds):
        for engine in engines if done % 2 == 0 else engines[::-1]:
            time.sleep(rest_seconds)
            engine.run(feeds)
            before = time.perf_counter()
            engine.run(feeds)
            seconds[engine.name].append(time.perf_counter() - before)
        done += 1
        if progress:
            progress(done, runs or done)
    return seconds


def measure_cold_start(engine_name: str, path: str, feeds: Mapping[str, Array], threads: int | None) -> ColdStart:
    """Load and call the model once in a new process. Raises DeviceError with its last words if that process fails."""
    with tempfile.TemporaryDirectory() as folder:
        feeds_path = os.path.join(folder, "feeds")
        Path(feeds_path).write_bytes(pickle.dumps(dict(feeds)))
        words = [sys.executable, "-m", "anycann.tools.measure", engine_name, path, feeds_path, str(threads or 0)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=child_environment())
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise DeviceError(f"the measuring process of {engine_name} failed: {last[0]}")
    return ColdStart(**json.loads(done.stdout.splitlines()[-1]))


def relative_errors(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, float]:
    """|ours - theirs| / |theirs| in the norm of each output that both have as numbers."""
    errors = {}
    for name in ours.keys() & theirs.keys():
        a, b = np.asarray(ours[name]), np.asarray(theirs[name])
        if a.dtype.kind in "biuf" and a.shape == b.shape:
            norm = float(np.linalg.norm(b.astype(np.float64).reshape(-1)))
            errors[name] = float(np.linalg.norm((a.astype(np.float64) - b.astype(np.float64)).reshape(-1))) / max(norm, 1e-30)
    return errors


def _peak_bytes() -> int:
    """The largest resident size of this program. `ru_maxrss` would not do: it survives exec, and so may be the parent's."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAX_RSS_UNIT


def _cold_start(engine_name: str, path: str, feeds_path: str, threads: int) -> ColdStart:
    feeds = pickle.loads(Path(feeds_path).read_bytes())
    import_engine(engine_name)
    base = _peak_bytes()
    started = time.perf_counter()
    engine = OPENERS[engine_name](path, threads or None)
    loaded = time.perf_counter()
    engine.run(feeds)
    return ColdStart(loaded - started, time.perf_counter() - loaded, _peak_bytes(), base)


if __name__ == "__main__":
    try:
        print(json.dumps(asdict(_cold_start(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))))
    except AnyCANNError as error:
        sys.exit(f"{type(error).__name__}: {error}")
