"""What a second thread gains, beside what it could gain: the multiply-adds that were measured in turn with the engines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.engines.arithmetic import Arithmetic
from benchmarks.engines.job import Precision
from benchmarks.engines.table import OURS, TITLES, peers_of
from benchmarks.measuring import Speed
from benchmarks.report import markdown, measured_of, threads_text
from benchmarks.results import Result

ARITHMETIC = Arithmetic.name


def scaling_table(results: Sequence[Result], precision: Precision, few: int, many: int) -> list[str]:
    """How many times faster each engine is with `many` threads than with `few`, and so the multiply-adds; geometric means in the last row.

    In float32 also the share of the multiply-adds' rate at that time that the model's operations took. Where it was kept, how long a flag
    took from one core to another before and behind: much longer where they have no cache in common, and then threads wait for each other's
    lines. Empty where nothing was measured with both.
    """
    before = dict(measured_of(results, precision, few))
    pairs = [(model, before[model], after) for model, after in measured_of(results, precision, many) if model in before]
    if not pairs:
        return []
    names = [OURS.name, *(peer.name for peer in peers_of(precision) if any(_gain(peer.name, a, b) for _, a, b in pairs)), ARITHMETIC]
    gains = [[_gain(name, one, two) for name in names] for _, one, two in pairs]
    counts = (few, many) if precision == "fp32" else ()
    rows = []
    for (model, one, two), found in zip(pairs, gains, strict=True):
        shares = [_share(speed) for speed in (one, two)] if counts else []
        rows.append([model, *(f"{gain:.2f}" if gain else "" for gain in found), *shares, " and ".join(f"{ns:.0f}" for ns in two.flag)])
    rows.append(["geometric mean", *(_mean(column) for column in zip(*gains, strict=True)), *([""] * len(counts)), ""])
    titles = [TITLES.get(name, name) for name in names]
    return markdown(["model", *titles, *(f"share of multiply-adds, {threads_text(count)}" for count in counts), "a flag's way, ns"], rows)


def _gain(name: str, one: Speed, two: Speed) -> float | None:
    if name == ARITHMETIC:
        return two.arithmetic / one.arithmetic if one.arithmetic and two.arithmetic else None
    if name not in one.latency or name not in two.latency:
        return None
    return one.latency[name].p50 / two.latency[name].p50


def _share(speed: Speed) -> str:
    rate = speed.flops / speed.latency[OURS.name].p50
    return f"{rate / speed.arithmetic:.0%}" if rate and speed.arithmetic else ""


def _mean(gains: Sequence[float | None]) -> str:
    known = [gain for gain in gains if gain]
    return f"**{np.exp(np.mean(np.log(known))):.2f}**" if known else ""
