"""The benchmark of training's operators measures what PyTorch computes too."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.backward import measure, table
from benchmarks.backward_cases import all_cases
from benchmarks.rows import Row

SMALL = ("to weights 512, 1 px", "product 64 x 1000 x 512", "batch norm backward 64 x 256 x 2 x 2", "softmax backward", "max pool backward")


def test_small_cases_agree_with_pytorch_and_are_native() -> None:
    rows = [measure(case, 1, 0.0) for case in all_cases() if case.name in SMALL]
    assert sorted(row.name for row in rows) == sorted(SMALL)
    for row in rows:
        assert not row.failure
        assert row.engine == "AiCore"
        assert row.error < 1e-4
        assert min(row.ours, row.theirs) > 0


def test_the_worst_ratio_comes_first_and_failures_last() -> None:
    lines = table([Row("a", 1.0, 2.0), Row("b", 3.0, 2.0), Row("c", failure="no")])
    assert [line.split("|")[1].strip() for line in lines[2:4]] == ["b", "a"]
    assert lines[4:] == ["- c: no"]
