"""Operators one by one beside ONNX Runtime, the worst ratio first.

python -m benchmarks.operators                             all of them, on one thread
python -m benchmarks.operators --only TopK --seconds 1     those whose name contains a text
python -m benchmarks.operators --json build/operators.json --document docs/benchmarks-operators.md
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
import json
from pathlib import Path
import shlex
import sys
import tempfile

import click
import numpy as np

from anycann.support.errors import AnyCANNError
from anycann.tools.engines import open_anycann, open_onnxruntime
from anycann.tools.measure import measure_interleaved, relative_errors, summaries
from benchmarks.machine import Machine, this_machine
from benchmarks.operator_cases import Case, all_cases
from benchmarks.report import markdown
from benchmarks.rows import Row


def measure(case: Case, threads: int, seconds: float) -> Row:
    """Both engines in turn. A failure is kept, so that the others are still measured."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "operator.onnx"
            path.write_bytes(case.model().SerializeToString())
            engines = [open_anycann(str(path), threads), open_onnxruntime(str(path), threads)]
            ours, theirs = (engine.run(case.feeds()) for engine in engines)
            latency = summaries(measure_interleaved(engines, case.feeds(), None, seconds))
    except AnyCANNError as failure:
        return Row(case.name, failure=f"{type(failure).__name__}: {failure}")
    missing = [name for name in theirs if np.shape(ours[name]) != np.shape(theirs[name])]
    if missing:
        return Row(case.name, failure=f"{missing[0]} has shape {np.shape(ours[missing[0]])}; ONNX Runtime: {np.shape(theirs[missing[0]])}")
    where = ", ".join(sorted({node.engine for node in engines[0].session.engines()}))
    error = max(relative_errors(ours, theirs).values(), default=0.0)
    return Row(case.name, latency["anycann"].p50, latency["onnxruntime"].p50, error, where)


def table(rows: Sequence[Row]) -> list[str]:
    """Markdown, the worst ratio first, then what failed."""
    measured = sorted((row for row in rows if not row.failure), key=lambda row: -row.ratio)
    cells = [
        [row.name, f"{row.ours * 1e6:.0f}", f"{row.theirs * 1e6:.0f}", f"{row.ratio:.2f}", row.engine, f"{row.error:.0e}"]
        for row in measured
    ]
    lines = markdown(["operator", "AnyCANN us", "ONNX Runtime us", "ratio", "engine", "error"], cells)
    failures = [f"- {row.name}: {row.failure}" for row in rows if row.failure]
    return [*lines, *(["", "What failed:", "", *failures] if failures else [])]


def geometric_mean(rows: Sequence[Row]) -> float:
    """Of the ratios of all rows that were measured."""
    return float(np.exp(np.mean([np.log(row.ratio) for row in rows if not row.failure] or [0.0])))


def page(machine: Machine, rows: Sequence[Row], command: str, threads: int) -> str:
    """The document: what was run, where, and the table."""
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    return "\n".join([
        "# Benchmarks of single operators",
        "",
        "Written by `python -m benchmarks.operators`; do not edit. The numbers below were made by",
        "",
        "```text",
        command,
        "```",
        "",
        f"on {machine.processor}, {machine.cores} cores, {machine.memory_gib} GiB; {machine.system}. Versions: {versions}.",
        "",
        f"Each model is one operator; threads: {threads}. Engines ran in turn in one process; times are medians of a call, in",
        "microseconds. The ratio is AnyCANN's over ONNX Runtime's: below 1 is faster. The error is the relative difference from ONNX",
        f"Runtime in the norm. Geometric mean of the ratios: {geometric_mean(rows):.2f}.",
        "",
        *table(rows),
        "",
    ])  # fmt: skip


@click.command
@click.option("--only", default="", help="Measure the operators whose name contains one of these texts (commas between them).")
@click.option("--threads", default=1, show_default=True, help="Threads of each engine.")
@click.option("--seconds", type=float, default=0.3, show_default=True, help="How long each operator is measured.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Also write everything that was measured to this file.")
@click.option("--document", type=click.Path(path_type=Path), help="Also write the page to this file.")
def main(only: str, threads: int, seconds: float, json_path: Path | None, document: Path | None) -> None:
    """Measure single operators beside ONNX Runtime. Exit status 1 if one failed."""
    texts = only.lower().split(",")
    chosen = [case for case in all_cases() if any(text in case.name.lower() for text in texts)]
    if not chosen:
        raise click.UsageError(f"no operator has {only!r} in its name; accepted: {', '.join(case.name for case in all_cases())}")
    rows = []
    for case in chosen:
        rows.append(measure(case, threads, seconds))
        print(f"{case.name}: {rows[-1].failure or f'{rows[-1].ratio:.2f}'}", file=sys.stderr, flush=True)
    print(*table(rows), f"geometric mean of {len(rows)}: {geometric_mean(rows):.2f}", sep="\n")
    if json_path:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps({"threads": threads, "rows": [{**asdict(row), "ratio": row.ratio} for row in rows]}, indent=2))
    if document:
        command = shlex.join(["python", "-m", "benchmarks.operators", *sys.argv[1:]])
        document.write_text(page(this_machine([threads]), rows, command, threads), encoding="utf-8")
    sys.exit(1 if any(row.failure for row in rows) else 0)


if __name__ == "__main__":
    main()
