"""Measured results as tables of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from anycann.tools.measure import Latency
from benchmarks.engines.job import Precision
from benchmarks.engines.table import OURS, TITLES, peers_of
from benchmarks.measuring import Speed
from benchmarks.results import Result

_ANSWERS = {True: "equal", False: "DIFFERENT", None: ""}


def peer_ratios(speed: Speed) -> dict[str, float]:
    """The time of every other engine over ours: the median of the rounds, or of old results, which have no rounds, the medians' ratio."""
    ours = speed.latency[OURS.name].p50
    return speed.ratios or {name: latency.p50 / ours for name, latency in speed.latency.items() if name != OURS.name}


def best_peer(speed: Speed) -> tuple[str, float] | None:
    """The quickest other engine and how many times as long as ours it takes: above 1 is slower; None if there is no other."""
    return min(peer_ratios(speed).items(), key=lambda item: item[1], default=None)


def times_faster(speed: Speed) -> float | None:
    """The best peer's time over ours: above 1 is faster."""
    best = best_peer(speed)
    return best[1] if best else None


def measured_of(results: Sequence[Result], precision: Precision, threads: int) -> list[tuple[str, Speed]]:
    """Model and speed, where there is one."""
    return [(result.model, result.speed[precision][threads]) for result in results if threads in result.speed.get(precision, {})]


def mean_times_faster(measured: Sequence[tuple[str, Speed]]) -> float | None:
    """The geometric mean over the models that have a peer."""
    ratios = [ratio for _, speed in measured if (ratio := times_faster(speed)) is not None]
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else None


def speed_table(results: Sequence[Result], precision: Precision, threads: int, peak: float) -> list[str]:
    """Latencies of all engines, the best peer's over ours, arithmetic rate and share of the peak; the geometric mean in the last row."""
    measured = measured_of(results, precision, threads)
    names = [peer.name for peer in peers_of(precision) if any(peer.name in speed.latency for _, speed in measured)]
    rows = [_speed_row(model, speed, names, peak) for model, speed in measured]
    mean = mean_times_faster(measured)
    if mean is not None:
        rows.append(["geometric mean", *[""] * (len(names) + 1), f"**{mean:.2f}**", "", "", ""])
    titles = [f"{TITLES[name]} ms" for name in (OURS.name, *names)]
    return markdown(["model", *titles, "times faster", "than", "GFLOP/s", "of peak"], rows)


def _speed_row(model: str, speed: Speed, names: Sequence[str], peak: float) -> list[str]:
    ours, best = speed.latency[OURS.name], best_peer(speed)
    row = [model, _times(ours), *(_times(speed.latency.get(name)) for name in names)]
    row += [f"{best[1]:.2f}", TITLES[best[0]]] if best else ["", ""]
    rate = speed.flops / ours.p50
    return [*row, f"{rate / 1e9:.0f}", f"{speed.share or rate / peak:.0%}"] if speed.flops else [*row, "", ""]


def _times(latency: Latency | None) -> str:
    return f"{latency.p50 * 1e3:.2f} ({latency.p90 * 1e3:.2f})" if latency else ""


def error_table(results: Sequence[Result], precision: Precision, threads: int) -> list[str]:
    """The greatest relative error of each engine against ONNX Runtime in float32, and whether AnyCANN's answers are its answers."""
    measured = [(model, speed) for model, speed in measured_of(results, precision, threads) if speed.errors]
    names = [name for name in TITLES if any(name in speed.errors for _, speed in measured)]
    if precision == "fp32":
        names = [name for name in names if name != "onnxruntime"]  # the reference itself
    rows = []
    for model, speed in measured:
        errors = [f"{speed.errors[name]:.0e}" if name in speed.errors else "" for name in names]
        rows.append([model, *errors, _ANSWERS[speed.answers_equal]])
    return markdown(["model", *(TITLES[name] for name in names), "answers"], rows)


def missing(results: Sequence[Result], precision: Precision, threads: int) -> list[str]:
    """A line for each reason that an engine has no number: its title, the reason, the models."""
    found: dict[tuple[str, str], list[str]] = {}
    for model, speed in measured_of(results, precision, threads):
        for name, reason in speed.absent.items():
            found.setdefault((TITLES[name], reason), []).append(model)
    count = len(measured_of(results, precision, threads))
    return [f"- {title}: {reason} ({'all' if len(models) == count else ', '.join(models)})" for (title, reason), models in found.items()]


def start_table(results: Sequence[Result]) -> list[str]:
    """atc, load, first call, peak memory."""
    header = ["model", "atc cold s", "atc cached s", ".om MB", "load ms", "first call ms", "memory MB", "ORT load ms", "ORT first call ms"]
    rows = []
    for result in results:
        if result.compilation is None or not result.footprints:
            continue
        ours, theirs, done = result.footprints["anycann"], result.footprints["onnxruntime"], result.compilation
        row = [result.model, f"{done.cold_seconds:.1f}", f"{done.cached_seconds:.1f}", f"{done.om_bytes / 1e6:.1f}"]
        for start in (ours, theirs):
            row += [f"{start.load_seconds * 1e3:.0f}", f"{start.first_call_seconds * 1e3:.1f}", f"{start.peak_bytes / 1e6:.0f}"]
        rows.append([*row, f"{ours.peak_bytes / theirs.peak_bytes:.2f}"])
    return markdown([*header, "ORT memory MB", "memory ratio"], rows)


def threads_text(count: int) -> str:
    """1 thread, 2 threads."""
    return f"{count} thread{'s' if count > 1 else ''}"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table of Markdown, numbers to the right."""
    line = ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1)]
    return line + ["| " + " | ".join(row) + " |" for row in rows]
