"""Every model of the table, or any other, beside ONNX Runtime, OpenVINO and torch: speed, errors, compiling, loading, memory.

python -m benchmarks.models --tables fp32,start --threads 1,2 --json build/fp32.json    measure
python -m benchmarks.models --tables bf16,int8 --threads 1,2 --json build/narrow.json
python -m benchmarks.page build/fp32.json build/narrow.json                             docs/benchmarks.md of both
python -m benchmarks.models --models mnist,resnet50,yours.onnx --seconds 5              some of them, and one of your own
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
import shlex
import sys

import click

from anycann.support.errors import AnyCANNError
from benchmarks.engines.job import PRECISIONS, Precision
from benchmarks.engines.table import PEERS
from benchmarks.machine import Machine, this_machine
from benchmarks.measuring import file_of, measure_compilation, measure_footprints, scratch_folder, speed_in_child
from benchmarks.page import write_page
from benchmarks.report import error_table, missing, speed_table, start_table
from benchmarks.results import Report, Result, to_json
from benchmarks.zoo.models import MODELS, Model, by_name

START = "start"
TABLES = (*PRECISIONS, START)


def measure_start(result: Result, model: Model, threads: int) -> None:
    """Compiling, loading and memory."""
    with scratch_folder() as folder:
        result.compilation, om = measure_compilation(model, Path(folder))
        result.footprints = measure_footprints(model, om, Path(folder), threads)


def measure_precision(
    result: Result, model: Model, precision: Precision, threads: Sequence[int], seconds: float, peers: Sequence[str]
) -> None:
    """Speed and errors for each number of threads; nothing where there is no quantised form."""
    if file_of(model, precision).is_file():
        for count in threads:
            result.speed.setdefault(precision, {})[count] = speed_in_child(model, count, seconds, precision, peers)


def measure_model(model: Model, tables: Sequence[str], threads: Sequence[int], seconds: float, peers: Sequence[str]) -> Result:
    """What the tables need of one model; a failure is kept, not raised, so that the others are still measured."""
    result = Result(model.name)
    for what in tables:
        try:
            if what == START:
                measure_start(result, model, max(threads))
            else:
                measure_precision(result, model, what, threads, seconds, peers)  # type: ignore[arg-type]
        except (AnyCANNError, OSError) as error:
            result.failures[what] = f"{type(error).__name__}: {error}"
    return result


def _listed(text: str, accepted: Sequence[str], what: str) -> list[str]:
    words = [word for word in text.split(",") if word]
    unknown = [word for word in words if word not in accepted]
    if unknown:
        raise click.UsageError(f"{what} {unknown[0]!r} is unknown; accepted: {', '.join(accepted)}")
    return words


def _print(report: Report) -> None:
    machine: Machine = report.machine
    for precision in PRECISIONS:
        for count in report.threads:
            if any(count in result.speed.get(precision, {}) for result in report.results):
                peak = machine.ceilings(count).peaks.get(precision, machine.peak[count])
                print(f"\n{precision}, {count} thread(s), peak {peak / 1e9:.0f} GFLOP/s")
                print(*speed_table(report.results, precision, count, peak), "", *error_table(report.results, precision, count), sep="\n")
                print(*missing(report.results, precision, count), sep="\n")
    if any(result.compilation for result in report.results):
        print("", *start_table(report.results), sep="\n")
    print(*(f"FAILED {r.model}, {what}: {why}" for r in report.results for what, why in r.failures.items()), sep="\n")


def _wrong(result: Result) -> bool:
    """Something failed, or float32 gave another answer than ONNX Runtime; fewer bits may."""
    return bool(result.failures) or any(speed.answers_equal is False for speed in result.speed.get("fp32", {}).values())


@click.command
@click.option(
    "--models",
    default="",
    help="Names and ONNX files, with commas between them; inputs of a file are random, its free dimensions 1. Default: all that are "
    f"fetched. ({', '.join(m.name for m in MODELS)})",
)
@click.option("--tables", default="fp32,start", show_default=True, help=f"What to measure, with commas between: {', '.join(TABLES)}.")
@click.option("--peers", default="", help=f"Engines to compare with; default: all installed. ({', '.join(peer.name for peer in PEERS)})")
@click.option("--threads", default="1,2", show_default=True, help="Numbers of threads, with commas between them.")
@click.option("--seconds", type=float, default=2.0, show_default=True, help="How long each model is measured for each number of threads.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Also write everything that was measured to this file.")
@click.option("--document", type=click.Path(path_type=Path), help="Also write the page of this run alone; see benchmarks.page.")
def main(models: str, tables: str, peers: str, threads: str, seconds: float, json_path: Path | None, document: Path | None) -> None:
    """Measure models and say how they compare. Exit status 1 if one failed or gave another answer in float32 than ONNX Runtime."""
    what, others = _listed(tables, TABLES, "table"), _listed(peers, [peer.name for peer in PEERS], "engine")
    try:
        chosen = by_name(models.split(",") if models else [])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    absent = [model.name for model in chosen if not model.path().is_file()]
    if absent:
        print(f"not fetched, left out: {', '.join(absent)} (scripts/fetch_models.py --large)", file=sys.stderr)
    if "int8" in what and not any(file_of(model, "int8").is_file() for model in chosen):
        print("no model is quantised: scripts/fetch_models.py --quantised", file=sys.stderr)
    counts = [int(word) for word in threads.split(",")]
    machine = this_machine(counts, rates=True)
    report = Report((shlex.join(["python", "-m", "benchmarks.models", *sys.argv[1:]]),), machine, ())
    for model in (model for model in chosen if model.path().is_file()):
        print(f"measuring {model.name}", file=sys.stderr, flush=True)
        report = replace(report, results=(*report.results, measure_model(model, what, counts, seconds, others)))
        if json_path:  # after each model, so that what was measured is kept when this is interrupted
            json_path.parent.mkdir(parents=True, exist_ok=True)
            json_path.write_text(to_json(report))
    _print(report)
    if document:
        write_page([report], document)
    sys.exit(1 if any(_wrong(result) for result in report.results) else 0)


if __name__ == "__main__":
    main()
