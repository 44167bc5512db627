"""The kernels of one model beside the roofline of this machine, the longest first.

python -m benchmarks.layers resnet50                                   a model of the table, on one thread
python -m benchmarks.layers mobilenet_v2 --precision int8 --threads 2
python -m benchmarks.layers model.onnx --shape images:1,3,224,224 --json build/layers.json --plot build/roofline.png
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
import json
from pathlib import Path
import shlex
import sys
import tempfile
import time
from typing import Any

import click
import numpy as np

from anycann.compiler import CompileOptions, compile_model
from anycann.model_programs import ModelPrograms, SessionOptions
from anycann.om.plan import Program, TensorSpec
from anycann.om.writer import write_offline_model
from anycann.runtime.executor import CompiledProgram
from anycann.runtime.observe import StepEvent
from anycann.support.errors import AnyCANNError
from anycann.tools.feeds import random_feeds
from anycann.tools.model_options import GivenInputs, input_options
from anycann.tools.output import format_bytes
from benchmarks.engines.job import PRECISIONS, Precision
from benchmarks.engines.ours import MODES
from benchmarks.machine import Machine, this_machine
from benchmarks.measuring import file_of
from benchmarks.report import markdown
from benchmarks.roofline import Ceilings, Work, works
from benchmarks.zoo.models import MODELS

LEAST_RUNS, MOST_RUNS = 5, 200
Feeds = Mapping[str, Any]


@dataclass(frozen=True)
class Layer:
    """A kernel launch, host node or region: median seconds of a run (of all its launches), its work, the least time it could take here.

    work is None, and floor_seconds 0, for what is no kernel of the program itself: host nodes, and what runs inside a region.
    """

    name: str
    nodes: tuple[str, ...]
    op_types: tuple[str, ...]
    seconds: float
    work: Work | None = None
    floor_seconds: float = 0.0

    @property
    def share(self) -> float:
        """Of the roofline."""
        return self.floor_seconds / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Layers:
    """All layers in the order they run, and the median seconds of a whole run, with what lies between kernels."""

    model: str
    precision: Precision
    threads: int
    seconds: float
    layers: tuple[Layer, ...]

    @property
    def floor_seconds(self) -> float:
        return sum(layer.floor_seconds for layer in self.layers)


def measure_layers(executable: CompiledProgram, feeds: Sequence[Any], seconds: float) -> tuple[float, dict[tuple[str, ...], Layer]]:
    """Median seconds of a run, and every event of a run with its median time, by its name and outputs; work is not filled in."""
    totals, times, seen = list[float](), dict[tuple[str, ...], list[float]](), dict[tuple[str, ...], StepEvent]()
    for _ in range(3):
        executable.run(feeds)
    depth = list[StepEvent]()
    with executable.observe(depth.append, tensors=False):
        started = time.perf_counter()
        while len(totals) < LEAST_RUNS or (len(totals) < MOST_RUNS and time.perf_counter() - started < seconds):
            depth.clear()
            before = time.perf_counter()
            executable.run(feeds)
            totals.append(time.perf_counter() - before)
            once: dict[tuple[str, ...], float] = {}
            for event in depth:
                key = (event.name, *event.outputs)
                seen[key] = event
                once[key] = once.get(key, 0.0) + (event.end_ns - event.begin_ns) * 1e-9
            for key, value in once.items():
                times.setdefault(key, []).append(value)
    medians = {key: float(np.median(values)) for key, values in times.items()}
    return float(np.median(totals)), {key: Layer(e.name, e.nodes, e.op_types, medians[key]) for key, e in seen.items()}


def with_work(program: Program, measured: Mapping[tuple[str, ...], Layer], ceilings: Ceilings) -> tuple[Layer, ...]:
    """The layers with what the program knows of its own launches."""
    known = {(task.symbol, *task.outputs): work for task, work in works(program)}
    return tuple(
        Layer(layer.name, layer.nodes, layer.op_types, layer.seconds, known[key], ceilings.seconds(known[key])) if key in known else layer
        for key, layer in measured.items()
    )


@dataclass(frozen=True)
class Loaded:
    """A program, the feeds in the order of its inputs, and what compiles its regions when they are met."""

    program: CompiledProgram
    feeds: list[Any]
    programs: ModelPrograms


def loaded(name: str, path: Path, feeds: Feeds, precision: Precision, threads: int) -> Loaded:
    """A model compiled for the shapes of `feeds`, or an offline model as it is."""
    with tempfile.TemporaryDirectory(prefix="anycann-layers-") as folder:
        if path.suffix != ".om":
            shapes = {name: array.shape for name, array in feeds.items()}
            model, path = compile_model(path, CompileOptions(name, shapes, precision_mode=MODES[precision])), Path(folder) / "model.om"
            write_offline_model(path, model)
        programs = ModelPrograms(path, SessionOptions(), threads)
        values = [feeds[spec.name] for spec in programs.inputs]
        specs = [TensorSpec(spec.name, value.dtype.name, value.shape) for spec, value in zip(programs.inputs, values, strict=True)]
        return Loaded(programs.find(specs).use(), values, programs)


def layers_of(name: str, path: Path, feeds: Feeds, precision: Precision, ceilings: Ceilings, threads: int, seconds: float) -> Layers:
    """The kernels of a model, measured."""
    model = loaded(name, path, feeds, precision, threads)
    total, measured = measure_layers(model.program, model.feeds, seconds)
    return Layers(name, precision, threads, total, with_work(model.program.program, measured, ceilings))


def table(found: Layers, top: int | None = None) -> list[str]:
    """Markdown, the longest first, and the sums in the last row."""
    longest = sorted(found.layers, key=lambda layer: -layer.seconds)[:top]
    rows = [[source(layer), f"{layer.seconds * 1e6:.1f}", f"{layer.seconds / found.seconds:.1%}", *_work(layer)] for layer in longest]
    flops = sum(layer.work.flops for layer in found.layers if layer.work)
    nbytes = sum(layer.work.bytes for layer in found.layers if layer.work)
    whole = [f"{flops / 1e6:.2f}", f"{nbytes / 1e6:.2f}", f"{flops / max(nbytes, 1):.1f}", f"{flops / found.seconds / 1e9:.0f}"]
    rows.append([f"all {len(found.layers)}", f"{found.seconds * 1e6:.1f}", "", *whole, f"{found.floor_seconds / found.seconds:.0%}"])
    return markdown(["source nodes", "us", "of the run", "MFLOP", "MB", "FLOP a byte", "GFLOP/s", "of the roofline"], rows)


def _work(layer: Layer) -> list[str]:
    work = layer.work
    if work is None:
        return ["", "", "", "", ""]
    rate = f"{work.flops / layer.seconds / 1e9:.0f}" if layer.seconds else ""
    return [f"{work.flops / 1e6:.2f}", f"{work.bytes / 1e6:.2f}", f"{work.intensity:.1f}", rate, f"{layer.share:.0%}"]


def source(layer: Layer) -> str:
    """The first source node, how many more, and what they are."""
    first, more = layer.nodes[0] if layer.nodes else layer.name, len(layer.nodes) - 1
    kinds = "+".join(dict.fromkeys(layer.op_types))
    return f"{first}{f' and {more} more' if more > 0 else ''} ({kinds})"


def to_json(machine: Machine, found: Layers, command: str) -> str:
    """Everything, seconds and bytes; `share` is of the roofline."""
    rows = [{**asdict(layer), "share": layer.share} for layer in found.layers]
    return json.dumps({"command": command, "machine": asdict(machine), **asdict(found), "layers": rows}, indent=2)


def layers_from(facts: Mapping[str, Any]) -> Layers:
    """From JSON."""
    layers = [{key: value for key, value in row.items() if key != "share"} for row in facts["layers"]]
    made = tuple(
        Layer(**{**row, "nodes": tuple(row["nodes"]), "op_types": tuple(row["op_types"]), "work": row["work"] and Work(**row["work"])})
        for row in layers
    )
    return Layers(facts["model"], facts["precision"], facts["threads"], facts["seconds"], made)


def chosen(model: str, precision: Precision, given: GivenInputs) -> tuple[str, Path, Feeds]:
    """Name, file and feeds of a model of the table, or of a file."""
    for known in MODELS:
        if known.name == model:
            return model, file_of(known, precision), known.feeds()[0]
    path = Path(model)
    if not path.is_file():
        raise click.UsageError(f"{model} is no file and not on the list; accepted: {', '.join(known.name for known in MODELS)}")
    inputs = ModelPrograms(path, SessionOptions(), 1).inputs
    return path.stem, path, given.feeds_or_random(inputs) if given.words else random_feeds(inputs, given.shapes)


@click.command
@click.argument("model")
@input_options
@click.option("--precision", type=click.Choice(PRECISIONS), default="fp32", show_default=True, help="int8 runs the quantised form.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--seconds", type=float, default=3.0, show_default=True, help="How long the model is run.")
@click.option("--top", type=click.IntRange(1), help="Print only so many, the longest.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Also write everything that was measured to this file.")
@click.option("--plot", type=click.Path(path_type=Path), help="Also draw the roofline into this PNG; needs matplotlib.")
def main(
    model: str,
    given: GivenInputs,
    precision: Precision,
    threads: int,
    seconds: float,
    top: int | None,
    json_path: Path | None,
    plot: Path | None,
) -> None:
    """Time every kernel of MODEL (a name of the table, an .onnx or an .om file) and say what share of the roofline it reaches."""
    name, path, feeds = chosen(model, precision, given)
    machine = this_machine([threads], rates=True)
    ceilings = machine.ceilings(threads)
    try:
        found = layers_of(name, path, feeds, precision, ceilings, threads, seconds)
    except (AnyCANNError, OSError) as error:
        raise click.ClickException(f"{type(error).__name__}: {error}") from None
    peaks = ", ".join(f"{kind} {peak / 1e9:.0f} GFLOP/s" for kind, peak in ceilings.peaks.items())
    levels = ", ".join(f"{format_bytes(nbytes)} {rate / 1e9:.1f} GB/s" for nbytes, rate in ceilings.bandwidth.levels)
    print(
        f"{name}, {precision}, {threads} thread(s): {found.seconds * 1e3:.3f} ms, {found.floor_seconds / found.seconds:.0%} of the roofline"
    )
    print(f"peaks: {peaks}; {levels}", *table(found, top), sep="\n")
    if json_path:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(to_json(machine, found, shlex.join(["python", "-m", "benchmarks.layers", *sys.argv[1:]])))
    if plot:
        from benchmarks.plots import draw_roofline

        draw_roofline(found, ceilings, plot)


if __name__ == "__main__":
    main()
