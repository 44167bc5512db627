"""`anycann bench`: how fast a model is here, and beside ONNX Runtime in the same run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from anycann.support.errors import UsageError
from anycann.support.records import dataclass
from anycann.tools.engines import OPENERS
from anycann.tools.measure import ColdStart, Latency, measure_cold_start, measure_interleaved, relative_errors, summaries
from anycann.tools.model_options import GivenInputs, input_options, model_argument, threads_option
from anycann.tools.output import console, format_bytes, format_seconds, json_option, print_json, progress, table

DEFAULT_SECONDS = 5.0


@dataclass(frozen=True)
class Result:
    """What was measured of one engine."""

    engine: str
    model: str
    latency: Latency
    cold: ColdStart


def paths_of(model: str, vs: str | None, vs_model: str | None) -> dict[str, str]:
    """The file each engine runs. Raises UsageError where ONNX Runtime would get an .om file."""
    if not vs:
        return {"anycann": model}
    other = vs_model or model
    if other.endswith(".om"):
        raise UsageError(f"--vs {vs} can not run {other}: name the .onnx file it was made from with --vs-model")
    return {"anycann": model, vs: other}


@click.command("bench")
@model_argument
@input_options
@click.option("--vs", type=click.Choice(("onnxruntime",)), help="Measure this runtime too, in turn with AnyCANN.")
@click.option("--vs-model", type=click.Path(exists=True, dir_okay=False), help="The .onnx file for --vs, where MODEL is an .om.")
@click.option("--runs", type=click.IntRange(1), help="Calls to measure; default: as many as fit into --seconds.")
@click.option("--seconds", type=click.FloatRange(0.001), default=DEFAULT_SECONDS, show_default=True, help="Time for measuring.")
@threads_option
@json_option
def bench_command(
    model: str,
    given: GivenInputs,
    vs: str | None,
    vs_model: str | None,
    runs: int | None,
    seconds: float,
    threads: int | None,
    as_json: bool,
) -> None:
    """Measure latency, throughput, load time, first call and memory of MODEL (.om or .onnx); without --input on random numbers."""
    paths = paths_of(model, vs, vs_model)
    engines = [OPENERS[name](path, threads) for name, path in paths.items()]
    feeds = given.feeds_or_random(engines[0].inputs)
    with progress("measuring", enabled=not as_json) as report:
        latencies = summaries(measure_interleaved(engines, feeds, runs, seconds, report))
    errors = relative_errors(*(engine.run(feeds) for engine in engines)) if vs else {}
    results = [Result(name, path, latencies[name], measure_cold_start(name, path, feeds, threads)) for name, path in paths.items()]
    shapes_text = {name: list(array.shape) for name, array in feeds.items()}
    if as_json:
        print_json({"inputs": shapes_text, "threads": threads, "results": [asdict(row) for row in results], "relative_errors": errors})
    else:
        _print(results, shapes_text, errors)


def _print(results: list[Result], shapes: Mapping[str, Any], errors: Mapping[str, float]) -> None:
    columns = ("engine", "p50", "p90", "p99", "calls/s", "first call", "load", "peak memory", "calls")
    rows = [_row(result) for result in results]
    out = console()
    out.print("  ".join(f"{name} {shape}" for name, shape in shapes.items()), markup=False)
    out.print(table(columns, rows, numbers=columns[1:]))
    if len(results) == 2:
        ratio = results[1].latency.p50 / results[0].latency.p50
        out.print(f"{results[0].engine} is {ratio:.2f} times as fast as {results[1].engine} (p50)")
    if errors:
        worst = max(errors, key=lambda name: errors[name])
        out.print(f"largest relative difference {errors[worst]:.1e} (output {worst})", markup=False)


def _row(result: Result) -> tuple[str, ...]:
    latency, cold = result.latency, result.cold
    return (
        result.engine,
        *(format_seconds(value) for value in (latency.p50, latency.p90, latency.p99)),
        f"{latency.per_second:.1f}",
        format_seconds(cold.first_call_seconds),
        format_seconds(cold.load_seconds),
        format_bytes(cold.peak_bytes),
        str(latency.runs),
    )
