"""The operators of training one by one beside PyTorch's own, the worst ratio first.

python -m benchmarks.backward                                     all of them, on one thread
python -m benchmarks.backward --only "to weights" --threads 2     those whose name contains a text
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
import json
from pathlib import Path
import sys
import time
from typing import Any

import click
import numpy as np
import torch

from anycann import InferenceSession
from anycann.support.errors import AnyCANNError
from benchmarks.backward_cases import BackwardCase, all_cases
from benchmarks.report import markdown
from benchmarks.rows import Row


def measure(case: BackwardCase, threads: int, seconds: float) -> Row:
    """Both in turn. On one thread the time of the processor is taken, so that other processes disturb little."""
    try:
        session = InferenceSession(case.model(), num_threads=threads)
        feeds = case.feeds()
        found = session.run(None, feeds)
    except AnyCANNError as failure:
        return Row(case.name, failure=f"{type(failure).__name__}: {failure}")
    error = max(_difference(ours, theirs.numpy()) for ours, theirs in zip(found, case.results(), strict=True))
    clock = time.process_time if threads == 1 else time.perf_counter
    times = _interleaved([lambda: session.run(None, feeds), case.theirs], clock, seconds)
    engine = ", ".join(sorted({node.engine for node in session.engines()}))
    return Row(case.name, times[0], times[1], error, engine)


def _difference(ours: Any, theirs: Any) -> float:
    largest = float(np.abs(theirs).max())
    return float(np.abs(ours - theirs).max()) / (largest or 1.0)


def _interleaved(calls: Sequence[Callable[[], object]], clock: Callable[[], float], seconds: float) -> list[float]:
    """Median seconds of each call, all of them in turn until each had its time."""
    found: list[list[float]] = [[] for _ in calls]
    stop = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < stop or len(found[0]) < 5:
        for call, times in zip(calls, found, strict=True):
            call()
            begin = clock()
            call()
            times.append(clock() - begin)
    return [float(np.median(times)) for times in found]


def table(rows: Sequence[Row]) -> list[str]:
    """Markdown, the worst ratio first, then what failed."""
    measured = sorted((row for row in rows if not row.failure), key=lambda row: -row.ratio)
    cells = [
        [row.name, f"{row.ours * 1e6:.0f}", f"{row.theirs * 1e6:.0f}", f"{row.ratio:.2f}", row.engine, f"{row.error:.0e}"]
        for row in measured
    ]
    failures = [f"- {row.name}: {row.failure}" for row in rows if row.failure]
    return [*markdown(["operator", "AnyCANN us", "PyTorch us", "ratio", "engine", "error"], cells), *failures]


@click.command
@click.option("--only", default="", help="Measure the operators whose name contains one of these texts (commas between them).")
@click.option("--threads", default=1, show_default=True, help="Threads of each.")
@click.option("--seconds", type=float, default=0.2, show_default=True, help="How long each operator is measured.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Also write everything that was measured to this file.")
def main(only: str, threads: int, seconds: float, json_path: Path | None) -> None:
    """Measure operators of training beside PyTorch. Exit status 1 if one failed."""
    torch.set_num_threads(threads)
    texts = only.lower().split(",")
    rows = []
    for case in all_cases():
        if any(text in case.name.lower() for text in texts):
            rows.append(measure(case, threads, seconds))
            print(f"{rows[-1].name}: {rows[-1].failure or f'{rows[-1].ratio:.2f}'}", file=sys.stderr, flush=True)
    if not rows:
        raise click.UsageError(f"no operator has {only!r} in its name; accepted: {', '.join(case.name for case in all_cases())}")
    mean = float(np.exp(np.mean([np.log(row.ratio) for row in rows if not row.failure] or [0.0])))
    print(*table(rows), f"geometric mean of {len(rows)}: {mean:.2f}", sep="\n")
    if json_path:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps({"threads": threads, "rows": [{**asdict(row), "ratio": row.ratio} for row in rows]}, indent=2))
    sys.exit(1 if any(row.failure for row in rows) else 0)


if __name__ == "__main__":
    main()
