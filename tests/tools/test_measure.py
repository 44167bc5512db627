"""Latency figures and comparisons."""

from __future__ import annotations

from collections.abc import Mapping
import time

import numpy as np
import pytest

from anycann.om.plan import TensorSpec
from anycann.tools.measure import WARM_UP_RUNS, measure_interleaved, relative_errors, summaries, summary


class Recorder:
    """An engine that writes down when it is called."""

    inputs: tuple[TensorSpec, ...] = ()

    def __init__(self, name: str, calls: list[str]):
        self.name = name
        self.calls = calls

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, object]:
        self.calls.append(self.name)
        return {}


def test_the_percentiles_are_those_of_the_calls() -> None:
    figures = summary([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (figures.runs, figures.p50, figures.mean) == (5, 3.0, 3.0)
    assert figures.p90 == pytest.approx(4.6)
    assert figures.p99 == pytest.approx(4.96)
    assert figures.per_second == pytest.approx(1 / 3)


def test_engines_take_turns_after_warming_up() -> None:
    calls: list[str] = []
    seen: list[tuple[int, int]] = []
    rounds = measure_interleaved([Recorder("a", calls), Recorder("b", calls)], {}, 3, 0.0, lambda done, total: seen.append((done, total)))
    results = summaries(rounds)
    assert calls == ["a"] * WARM_UP_RUNS + ["b"] * WARM_UP_RUNS + [*"aabb", *"bbaa", *"aabb"]
    assert {name: figures.runs for name, figures in results.items()} == {"a": 3, "b": 3}
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_the_process_rests_before_each_engine_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(time, "sleep", lambda seconds: calls.append(f"rest {seconds}"))
    measure_interleaved([Recorder("a", calls), Recorder("b", calls)], {}, 1, 0.0, rest_seconds=0.5)
    assert calls[2 * WARM_UP_RUNS :] == ["rest 0.5", "a", "a", "rest 0.5", "b", "b"]


def test_without_a_number_of_runs_the_budget_ends_measuring_after_at_least_one() -> None:
    assert summaries(measure_interleaved([Recorder("a", [])], {}, None, 0.0))["a"].runs == 1


def test_relative_errors_are_norms_of_outputs_both_have() -> None:
    ours = {"y": np.array([3.0, 4.0]), "only": np.zeros(2), "shape": np.zeros(3), "text": np.array(["a"])}
    theirs = {"y": np.array([3.0, 4.5]), "shape": np.zeros(4), "text": np.array(["a"])}
    assert relative_errors(ours, theirs) == {"y": pytest.approx(0.5 / np.hypot(3.0, 4.5))}
    assert relative_errors({"y": np.zeros(2)}, {"y": np.zeros(2)}) == {"y": 0.0}
