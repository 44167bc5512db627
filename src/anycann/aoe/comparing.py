"""Two offline models measured in turn in a process of its own, so that neither a crash nor this process's memory disturbs."""

from __future__ import annotations

from collections.abc import Sequence
import json
import os
from pathlib import Path
import subprocess
import sys
import time

import numpy as np

from anycann.om.plan import TensorSpec
from anycann.om.reader import read_offline_model
from anycann.runtime.memory import numpy_dtype
from anycann.session import InferenceSession
from anycann.support.errors import InternalError

SECONDS = 2.0  # for each model
LEAST_ROUNDS = 7


def compare(models: Sequence[Path], threads: int, seconds: float | None = None) -> list[float]:
    """Seconds of the fastest run of the first model; of the others, that times the median ratio of runs beside each other.

    A run takes so long that another process may disturb all runs of one model, but then it disturbs their neighbours as well.
    Raises InternalError if one ends the process.
    """
    package_root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(dict.fromkeys([package_root, *filter(None, sys.path)]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "anycann.aoe.comparing", str(threads), str(seconds or SECONDS), *map(str, models)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise InternalError(f"measuring {', '.join(map(str, models))} ended with status {done.returncode}: {done.stderr[-500:]}")
    return [float(number) for number in json.loads(done.stdout.splitlines()[-1])]


def random_feeds(specs: Sequence[TensorSpec], seed: int = 0) -> dict[str, np.ndarray]:
    """Random numbers for every input; zeros where they may be indices."""
    rng, feeds = np.random.default_rng(seed), {}
    for spec in specs:
        shape = tuple(size if isinstance(size, int) else 1 for size in spec.shape)
        dtype = numpy_dtype(spec.dtype)
        feeds[spec.name] = (np.zeros(shape) if dtype.kind in "iub" else rng.standard_normal(shape)).astype(dtype)
    return feeds


def _seconds(sessions: Sequence[InferenceSession], feeds: dict[str, np.ndarray], seconds: float) -> list[list[float]]:
    for session in sessions:
        session.run(None, feeds)
    times: list[list[float]] = [[] for _ in sessions]
    stop = time.perf_counter() + seconds * len(sessions)
    while time.perf_counter() < stop or len(times[0]) < LEAST_ROUNDS:
        order = range(len(sessions)) if len(times[0]) % 2 else reversed(range(len(sessions)))
        for which in order:
            start = time.perf_counter()
            sessions[which].run(None, feeds)
            times[which].append(time.perf_counter() - start)
    return times


def main(words: Sequence[str]) -> None:
    """`threads seconds model...`: run the first program of each and print the seconds of a run as JSON."""
    threads, seconds, paths = int(words[0]), float(words[1]), words[2:]
    sessions = [InferenceSession(path, num_threads=threads) for path in paths]
    program = next(iter(read_offline_model(paths[0]).programs.values()))
    feeds = random_feeds(program.inputs)
    first, *others = (np.array(times) for times in _seconds(sessions, feeds, seconds))
    print(json.dumps([float(first.min()), *(float(first.min() * np.median(times / first)) for times in others)]))


if __name__ == "__main__":
    main(sys.argv[1:])
