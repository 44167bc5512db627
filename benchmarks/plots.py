"""Pictures of what was measured: speed beside the best peer for each model, and kernels below the roofline. Needs matplotlib."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from anycann.tools.output import format_bytes
from benchmarks.engines.job import PRECISIONS
from benchmarks.layers import Layers
from benchmarks.report import measured_of, times_faster
from benchmarks.results import Report
from benchmarks.roofline import Ceilings

COLOURS = {"fp32": "#2f6fab", "bf16": "#d9822b", "int8": "#4a9a5d"}
DOTS_PER_INCH = 100  # with few colours a picture stays far below 100 KB


def matplotlib_is_here() -> bool:
    """Whether anything can be drawn."""
    return importlib.util.find_spec("matplotlib") is not None


def draw_ratios(report: Report, file: Path) -> bool:
    """A bar for each model and precision, on as many threads as were measured: times faster than the best peer. False if there is none."""
    count = report.threads[-1]
    ratios = {
        precision: {model: ratio for model, speed in measured_of(report.results, precision, count) if (ratio := times_faster(speed))}
        for precision in PRECISIONS
    }
    kinds = [precision for precision in PRECISIONS if ratios[precision]]
    models = [result.model for result in report.results if any(result.model in ratios[kind] for kind in kinds)]
    if not kinds:
        return False
    figure, axes = _figure(9.0, 0.9 + 0.13 * len(models) * (len(kinds) + 1))
    height = 0.8 / len(kinds)
    for number, kind in enumerate(kinds):
        places = [models.index(model) + (number - (len(kinds) - 1) / 2) * height for model in ratios[kind]]
        axes.barh(places, list(ratios[kind].values()), height, color=COLOURS[kind], label=kind)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_yticks(range(len(models)), models, fontsize=8)
    axes.set_ylim(len(models) - 0.5, -0.5)
    axes.set_xlabel(f"times faster than the best peer, {count} thread{'s' if count > 1 else ''}")
    axes.legend(fontsize=8, loc="lower right")
    _save(figure, file)
    return True


def draw_roofline(found: Layers, ceilings: Ceilings, file: Path) -> None:
    """Each kernel by its operations for a byte and the rate it reached, its area by its time, below the roofs of this machine."""
    figure, axes = _figure(8.0, 5.0)
    layers = [layer for layer in found.layers if layer.work and layer.work.flops and layer.seconds]
    reach = [layer.work.intensity for layer in layers if layer.work] or [1.0]
    at = np.geomspace(min(0.1, *reach), max(200.0, *reach), 200)
    for kind in dict.fromkeys(["fp32", *(layer.work.kind for layer in layers if layer.work)]):
        peak = ceilings.peaks.get(kind, ceilings.peaks["fp32"])
        for nbytes, rate in ceilings.bandwidth.levels:
            axes.plot(at, np.minimum(peak, at * rate) / 1e9, color=COLOURS[kind], linewidth=0.8, alpha=0.7)
            axes.annotate(format_bytes(nbytes), (at[0], at[0] * rate / 1e9), fontsize=7)
        axes.annotate(f"{kind} peak", (at[-1], peak / 1e9), fontsize=7, ha="right", va="bottom")
        own = [(layer, layer.work) for layer in layers if layer.work and layer.work.kind == kind]
        rates = [work.flops / layer.seconds / 1e9 for layer, work in own]
        areas = [8 + 800 * layer.seconds / found.seconds for layer, _ in own]
        axes.scatter([work.intensity for _, work in own], rates, areas, color=COLOURS[kind], alpha=0.5, linewidths=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("operations for each byte")
    axes.set_ylabel("GFLOP/s")
    axes.set_title(f"{found.model}, {found.precision}, {found.threads} thread{'s' if found.threads > 1 else ''}", fontsize=10)
    _save(figure, file)


def _figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.grid(axis="x", alpha=0.3)
    return figure, axes


def _save(figure: Any, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=DOTS_PER_INCH, metadata={"Software": None})
