"""Every model of the table, AnyCANN beside ONNX Runtime (and OpenVINO where installed): speed, errors, compiling, loading, memory.

python -m benchmarks.models --threads 1,2 --json build/benchmarks.json      all of them, and docs/benchmarks.md
python -m benchmarks.models --models mnist,resnet50 --seconds 5             some of them, printed only
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
import shlex
import sys

import click

from anycann.support.errors import AnyCANNError
from benchmarks.machine import this_machine
from benchmarks.measuring import measure_compilation, measure_footprints, scratch_folder, speed_in_child
from benchmarks.report import Result, speed_table, start_table, to_json, write_document
from benchmarks.zoo.models import MODELS, Model, by_name

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"


def measure_model(model: Model, threads: Sequence[int], seconds: float) -> Result:
    """Everything about one model; a failure is kept, not raised, so that the others are still measured."""
    result = Result(model.name)
    try:
        with scratch_folder() as folder:
            result.compilation, om = measure_compilation(model, Path(folder))
            result.footprints = measure_footprints(model, om, Path(folder), max(threads))
        for count in threads:
            result.speed[count] = speed_in_child(model, count, seconds)
    except (AnyCANNError, OSError) as error:
        result.failure = f"{type(error).__name__}: {error}"
    return result


@click.command
@click.option(
    "--models", default="", help=f"Names with commas between them; default: all that are fetched. ({', '.join(m.name for m in MODELS)})"
)
@click.option("--threads", default="1,2", show_default=True, help="Numbers of threads, with commas between them.")
@click.option("--seconds", type=float, default=8.0, show_default=True, help="How long each model is measured for each number of threads.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Also write everything that was measured to this file.")
@click.option(
    "--document", type=click.Path(path_type=Path), help=f"Where to write the page; default with all models: docs/{DOCUMENT.name}."
)
def main(models: str, threads: str, seconds: float, json_path: Path | None, document: Path | None) -> None:
    """Measure models and say how they compare. Exit status 1 if one failed or gave another answer than ONNX Runtime."""
    try:
        chosen = by_name(models.split(",") if models else [])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    absent = [model.name for model in chosen if not model.path().is_file()]
    if absent:
        print(f"not fetched, left out: {', '.join(absent)} (scripts/fetch_models.py --large)", file=sys.stderr)
    counts = [int(word) for word in threads.split(",")]
    machine = this_machine(counts)
    results = []
    for model in (model for model in chosen if model.path().is_file()):
        print(f"measuring {model.name}", file=sys.stderr, flush=True)
        results.append(measure_model(model, counts, seconds))
    command = shlex.join(["python", "-m", "benchmarks.models", *sys.argv[1:]])
    for count in counts:
        print(
            f"\n{count} thread(s), peak {machine.peak[count] / 1e9:.0f} GFLOP/s",
            *speed_table(results, count, machine.peak[count]),
            sep="\n",
        )
    print("", *start_table(results), *(f"FAILED {r.model}: {r.failure}" for r in results if r.failure), sep="\n")
    if json_path:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(to_json(machine, results, command))
    if document or not models:
        write_document(document or DOCUMENT, machine, results, command)
    wrong = any(result.failure or not all(speed.answers_equal for speed in result.speed.values()) for result in results)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
