"""Does memory stay flat? A small model run many times, resident size watched: `python -m benchmarks.memory --runs 100000`.

The first tenth of the runs warms the allocators up; after it the resident size may grow by at most `--allowed-kib`.
"""

from __future__ import annotations

from pathlib import Path
import sys
import time

import click
import numpy as np

from anycann.support.errors import InternalError
from benchmarks.zoo.models import by_name


def resident_kib() -> int:
    """Resident size of this process (proc(5), VmRSS)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise OSError("/proc/self/status has no line VmRSS")


def growth_kib(model_name: str, runs: int, threads: int) -> tuple[int, int, float]:
    """Resident KiB after the first tenth, KiB that the rest of the runs added, and seconds for a run."""
    from anycann import InferenceSession

    (model,) = by_name([model_name])
    session, feeds = InferenceSession(model.path(), num_threads=threads), model.feeds()[0]
    first = [np.array(output) for output in session.run(None, feeds)]
    for _ in range(runs // 10):
        session.run(None, feeds)
    before, started = resident_kib(), time.perf_counter()
    for _ in range(runs - runs // 10):
        last = session.run(None, feeds)
    seconds = (time.perf_counter() - started) / (runs - runs // 10)
    after = resident_kib()
    if not all(np.array_equal(a, b) for a, b in zip(first, last, strict=True)):
        raise InternalError(f"the last of {runs} runs of {model_name} gives another result than the first")
    return before, after - before, seconds


@click.command
@click.option("--model", default="mnist", show_default=True)
@click.option("--runs", type=click.IntRange(100), default=100_000, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
@click.option("--allowed-kib", type=int, default=1024, show_default=True)
def main(model: str, runs: int, threads: int, allowed_kib: int) -> None:
    """Run a model many times. Exit status 1 if the resident size grows by more than is allowed."""
    before, growth, seconds = growth_kib(model, runs, threads)
    print(f"{model}: {runs} runs of {seconds * 1e6:.0f} us on {threads} thread(s); resident {before} KiB, then {growth:+d} KiB")
    sys.exit(1 if growth > allowed_kib else 0)


if __name__ == "__main__":
    main()
