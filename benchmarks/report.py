"""Measured results as JSON, as a table on the screen and as docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
import json
from pathlib import Path

from benchmarks.machine import Machine
from benchmarks.measuring import Compilation, Footprint, Speed
from benchmarks.zoo.models import MODELS


@dataclass
class Result:
    """All that was measured of one model; `failure` says why there is not more."""

    model: str
    speed: dict[int, Speed] = field(default_factory=dict)  # by number of threads
    compilation: Compilation | None = None
    footprints: dict[str, Footprint] = field(default_factory=dict)
    failure: str = ""


def to_json(machine: Machine, results: Sequence[Result], command: str) -> str:
    """Everything, seconds and bytes."""
    return json.dumps({"command": command, "machine": asdict(machine), "results": [asdict(result) for result in results]}, indent=2)


def write_document(path: Path, machine: Machine, results: Sequence[Result], command: str) -> None:
    """docs/benchmarks.md."""
    threads = sorted(machine.peak)
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    peak = ", ".join(f"{count} thread{'s' if count > 1 else ''} {machine.peak[count] / 1e9:.0f} GFLOP/s" for count in threads)
    lines = [
        "# Benchmarks",
        "",
        "Written by `python -m benchmarks.models`; do not edit. The numbers below were made by",
        "",
        "```text",
        command,
        "```",
        "",
        f"on {machine.processor}, {machine.cores} cores, {machine.memory_gib} GiB; {machine.system}.",
        f"Features: {', '.join(machine.features)}. Versions: {versions}.",
        f"Peak of float32 multiply-adds, measured with a generated kernel: {peak}.",
        "",
        "Engines ran in turn in one process with the same number of threads and the same real inputs. Times are medians, with the 90th",
        "percentile in brackets. The ratio is AnyCANN's median over ONNX Runtime's: below 1 is faster. The error is the greatest relative",
        "difference from ONNX Runtime in the norm of an output, over all outputs and calls. GFLOP/s counts the operations of the model as",
        "it is written; Winograd convolutions need fewer multiplications, so a model may exceed the peak. Control flow is not counted.",
        "",
    ]
    for count in threads:
        lines += [f"## {count} thread{'s' if count > 1 else ''}", "", *speed_table(results, count, machine.peak[count]), ""]
    lines += ["## Compiling, loading and memory", "", *start_table(results), ""]
    lines += [
        "`atc` cold begins with an empty kernel cache, cached has every kernel. Loading, first call and memory are of fresh processes with",
        "one engine (Python and its packages included), AnyCANN with the offline model, ONNX Runtime with the ONNX file.",
        "Memory is the peak of resident bytes of the process that runs the model, pages of mapped files included. Kernels for shapes that",
        "only running can tell are compiled by processes of their own, which end when they are done and are not counted.",
        "",
    ]
    measured = {result.model for result in results}
    lines += [f"- `{model.name}`: {model.reason}." for model in MODELS if model.reason and model.name in measured]
    failures = [result for result in results if result.failure]
    if failures:
        lines += ["", "## What failed", "", *(f"- `{result.model}`: {result.failure}" for result in failures), ""]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def speed_table(results: Sequence[Result], threads: int, peak: float) -> list[str]:
    """Markdown rows: latencies, ratio, arithmetic rate and share of the peak, error, answers."""
    measured = [result for result in results if threads in result.speed]
    with_openvino = any("openvino" in result.speed[threads].latency for result in measured)
    header = ["model", "AnyCANN ms", "ONNX Runtime ms", "ratio", *(["OpenVINO ms"] if with_openvino else []), "GFLOP/s", "of peak"]
    rows = []
    for result in measured:
        speed = result.speed[threads]
        ours, theirs = speed.latency["anycann"], speed.latency.get("onnxruntime")
        flops = result.compilation.flops if result.compilation else 0
        row = [result.model, _times(ours), _times(theirs), f"{ours.p50 / theirs.p50:.2f}" if theirs else ""]
        row += [_times(speed.latency.get("openvino"))] if with_openvino else []
        row += [f"{flops / ours.p50 / 1e9:.0f}", f"{flops / ours.p50 / peak:.0%}"] if flops else ["", ""]
        rows.append([*row, f"{speed.error:.0e}", "equal" if speed.answers_equal else "DIFFERENT"])
    return markdown([*header, "error", "answers"], rows)


def _times(latency: object) -> str:
    return f"{latency.p50 * 1e3:.2f} ({latency.p90 * 1e3:.2f})" if latency else ""  # type: ignore[attr-defined]


def start_table(results: Sequence[Result]) -> list[str]:
    """Markdown rows: atc, load, first call, peak memory."""
    header = ["model", "atc cold s", "atc cached s", ".om MB", "load ms", "first call ms", "memory MB", "ORT load ms", "ORT first call ms"]
    rows = []
    for result in results:
        if result.compilation is None or not result.footprints:
            continue
        ours, theirs, done = result.footprints["anycann"], result.footprints["onnxruntime"], result.compilation
        row = [result.model, f"{done.cold_seconds:.1f}", f"{done.cached_seconds:.1f}", f"{done.om_bytes / 1e6:.1f}"]
        row += [*_start(ours), f"{ours.peak_bytes / 1e6:.0f}", *_start(theirs), f"{theirs.peak_bytes / 1e6:.0f}"]
        rows.append([*row, f"{ours.peak_bytes / theirs.peak_bytes:.2f}"])
    return markdown([*header, "ORT memory MB", "memory ratio"], rows)


def _start(footprint: Footprint) -> list[str]:
    return [f"{footprint.load_seconds * 1e3:.0f}", f"{footprint.first_call_seconds * 1e3:.1f}"]


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table of Markdown, numbers to the right."""
    line = ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1)]
    return line + ["| " + " | ".join(row) + " |" for row in rows]
