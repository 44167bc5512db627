"""docs/benchmarks.md and its plots, from what was measured before.

python -m benchmarks.page build/fp32.json build/narrow.json --layers build/resnet50.json
"""

from __future__ import annotations

from collections.abc import Sequence
import json
from pathlib import Path

import click

from anycann.tools.output import format_bytes
from benchmarks.engines.job import PRECISIONS, Precision
from benchmarks.layers import Layers, layers_from
from benchmarks.layers import table as layer_table
from benchmarks.machine import Machine
from benchmarks.measuring import Speed
from benchmarks.report import error_table, mean_times_faster, measured_of, missing, speed_table, start_table, threads_text, times_faster
from benchmarks.results import Report, joined, other_machines, read
from benchmarks.scaling import scaling_table
from benchmarks.zoo.models import MODELS

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
TITLES: dict[Precision, str] = {"fp32": "float32", "bf16": "bfloat16", "int8": "8-bit integers"}
LAYERS_SHOWN = 12
HOW: dict[Precision, str] = {
    "fp32": "The model as it is published.",
    "bf16": (
        "AnyCANN with `--precision_mode_v2=mixed_bfloat16`, OpenVINO with `INFERENCE_PRECISION_HINT=bf16`; ONNX Runtime has no bfloat16\n"
        "kernels for processors."
    ),
    "int8": (
        "The same QDQ file for all, written by `scripts/fetch_models.py --large --quantised`: ONNX Runtime's static quantizer on the real\n"
        "inputs, scales a channel for weights. What stays float32 in the file is computed in float32."
    ),
}


def page(report: Report, layers: Sequence[Layers] = (), layer_commands: Sequence[str] = (), plots: Sequence[tuple[str, str]] = ()) -> str:
    """The document. `plots`: what a picture shows and its path as the document sees it."""
    lines = [*_head(report, layer_commands), *_summary(report), *(f"![{title}]({path})\n" for title, path in plots)]
    for precision in PRECISIONS:
        if any(measured_of(report.results, precision, count) for count in report.threads):
            lines += _precision(report, precision)
    for found in layers:
        lines += _layers(found)
    if any(result.compilation for result in report.results):
        lines += ["## Compiling, loading and memory", "", *start_table(report.results), "", START]
    measured = {result.model for result in report.results}
    lines += [f"- `{model.name}`: {model.reason}." for model in MODELS if model.reason and model.name in measured]
    failures = [f"- `{result.model}`, {what}: {why}" for result in report.results for what, why in result.failures.items()]
    return "\n".join([*lines, *(["", "## What failed", "", *failures] if failures else [])]).rstrip() + "\n"


def _head(report: Report, layer_commands: Sequence[str]) -> list[str]:
    machine = report.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    return [
        "# Benchmarks",
        "",
        "Written by `python -m benchmarks.page`; do not edit. The numbers below were made by",
        "",
        "```text",
        *report.commands,
        *layer_commands,
        "```",
        "",
        f"on {machine.processor}, {machine.cores} cores, {machine.memory_gib} GiB; {machine.system}.",
        f"Features: {', '.join(machine.features)}. Versions: {versions}.",
        "",
        *_rates(machine),
        ENGINES,
    ]


def _rates(machine: Machine) -> list[str]:
    """What this machine reached when nothing but one instruction, or reading, was asked of it."""
    lines = []
    for count, kinds in machine.rates.items():
        rates = "; ".join(f"{kind} {name} {rate / 1e9:.0f}" for kind, found in kinds.items() for name, rate in found.items())
        levels = ", ".join(f"{format_bytes(nbytes)} {rate / 1e9:.1f}" for nbytes, rate in machine.bandwidth[count].levels)
        lines.append(f"- Peaks with {threads_text(count)}, GFLOP/s: {rates}. GB/s read again and again from: {levels}.")
    return [*lines, ""]


def _summary(report: Report) -> list[str]:
    """The geometric means, and what is slower than its best peer."""
    lines = []
    for precision in PRECISIONS:
        for count in report.threads:
            measured = measured_of(report.results, precision, count)
            mean = mean_times_faster(measured)
            if mean is not None:
                lines.append(
                    f"- {TITLES[precision]}, {threads_text(count)}: {mean:.2f} times the speed of the best peer, {_slower(measured)}."
                )
    return ["In the geometric mean:", "", *lines, ""] if lines else []


def _slower(measured: Sequence[tuple[str, Speed]]) -> str:
    slower = [f"`{model}` ({ratio:.2f})" for model, speed in measured if (ratio := times_faster(speed)) is not None and ratio < 1]
    return f"slower than it: {', '.join(slower)}" if slower else "on none slower than it"


def _precision(report: Report, precision: Precision) -> list[str]:
    lines = [f"## {TITLES[precision]}", "", HOW[precision], ""]
    for count in report.threads:
        if not measured_of(report.results, precision, count):
            continue
        peak = report.machine.ceilings(count).peaks.get(precision, report.machine.peak[count])
        lines += [f"### {TITLES[precision]}, {threads_text(count)}", "", *speed_table(report.results, precision, count, peak), ""]
    counts = [count for count in report.threads if measured_of(report.results, precision, count)]
    lines += _scaling(report, precision, counts)
    count = counts[0]
    lines += [f"### {TITLES[precision]}, errors", "", *error_table(report.results, precision, count), ""]
    absent = missing(report.results, precision, count)
    return [*lines, *(["Without a number:", "", *absent, ""] if absent else [])]


def _scaling(report: Report, precision: Precision, counts: Sequence[int]) -> list[str]:
    """The gain from the fewest to the most threads that were measured."""
    rows = scaling_table(report.results, precision, counts[0], counts[-1]) if len(counts) > 1 else []
    title = f"### {TITLES[precision]}, times faster with {threads_text(counts[-1])} than with {threads_text(counts[0])}"
    return [title, "", *rows, "", SCALING] if rows else []


def _layers(found: Layers) -> list[str]:
    return [
        f"## Kernels of {found.model}, {TITLES[found.precision]}, {threads_text(found.threads)}",
        "",
        *layer_table(found, LAYERS_SHOWN),
        "",
        ROOFLINE,
    ]


ENGINES = """\
Engines ran in turn in one process with the same number of threads and the same real inputs, each woken by a call that is not
measured. Times are medians, with the 90th percentile in brackets. "Times faster" is the median over the rounds of the best peer's time
over AnyCANN's in the same round: above 1 AnyCANN is faster. GFLOP/s counts the operations of the model as it is written; Winograd's
convolutions and Strassen's products need fewer, so a model may exceed the peak. In float32 the share of the peak is of multiply-adds that
run between the kernels, over the time of the kernels and in turns that another's work did not disturb (`benchmarks/shares.py`): the clock
changes within a second and is lower under products. With fewer bits it is of the rate above. Control flow is not counted. Errors are the
greatest relative difference in the norm of an output, over all outputs and calls, from ONNX Runtime in float32; answers (the class, the
boxes) are compared with the same.
"""
SCALING = """\
Multiply-adds of registers ran in turn with the engines, on as many threads: what they gain is all that threads can gain in arithmetic,
and on a machine that shares its cores, clock and power with others it is not their number, and not always the same. What else
threads share is in the rates of reading at the top of this page. A flag's way from one core to another, before and behind, says how
far apart they were: the cores of a virtual machine have a common cache at one time and none at another, and then memory that threads
share takes four times as long to write (`python -m benchmarks.lines`).
"""
ROOFLINE = """\
The share is of the least time that the kernel could take here: its operations at the peak of the type it multiplies, or its bytes, each
once, whichever is longer. Values come from the smallest measured working set that holds the kernel, constants from the one that holds
the program; what the kernel before left in a nearer cache, Winograd and Strassen can exceed it.
"""
START = """\
`atc` cold begins with an empty kernel cache, cached has every kernel. Loading, first call and memory are of fresh processes with
one engine (Python and its packages included), AnyCANN with the offline model, ONNX Runtime with the ONNX file.
Memory is the peak of resident bytes of the process that runs the model, pages of mapped files included. Kernels for shapes that
only running can tell are compiled by processes of their own, which end when they are done and are not counted.
"""


def write_page(reports: Sequence[Report], document: Path, layer_files: Sequence[Path] = (), plot: bool = True) -> None:
    """The document, and beside it a picture of the ratios and one of the roofline, where matplotlib is installed and they are asked for."""
    report = joined(reports)
    facts = [json.loads(path.read_text()) for path in layer_files]
    layers = [layers_from(fact) for fact in facts]
    document.parent.mkdir(parents=True, exist_ok=True)
    plots = _draw(report, layers, document) if plot else []
    text = page(report, layers, [fact["command"] for fact in facts], plots)
    document.write_text(text, encoding="utf-8")


def _draw(report: Report, layers: Sequence[Layers], document: Path) -> list[tuple[str, str]]:
    from benchmarks.plots import draw_ratios, draw_roofline, matplotlib_is_here

    if not matplotlib_is_here():
        return []
    ratios = document.with_name(f"{document.stem}-ratios.png")
    plots = [("Speed beside the best peer", ratios.name)] if draw_ratios(report, ratios) else []
    for found in layers:
        file = document.with_name(f"{document.stem}-{found.model}-{found.precision}.png")
        draw_roofline(found, report.machine.ceilings(found.threads), file)
        plots.append((f"Kernels of {found.model} below the roofline", file.name))
    return plots


@click.command
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--layers", multiple=True, type=click.Path(exists=True, path_type=Path), help="Written by benchmarks.layers; repeatable.")
@click.option("--document", type=click.Path(path_type=Path), default=DOCUMENT, help=f"Default: docs/{DOCUMENT.name}.")
@click.option("--plot/--no-plot", default=True, show_default=True, help="Draw pictures beside the document.")
def main(files: tuple[Path, ...], layers: tuple[Path, ...], document: Path, plot: bool) -> None:
    """Write the page from FILES that benchmarks.models wrote (--json), all measured on one machine."""
    try:
        reports = [read(path) for path in files]
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    others = other_machines(reports)
    if others:
        raise click.UsageError(f"the files are of several machines: {reports[0].machine.processor}, {', '.join(others)}; accepted: one")
    write_page(reports, document, layers, plot)
    print(document)


if __name__ == "__main__":
    main()
