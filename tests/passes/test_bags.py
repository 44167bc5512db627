"""Loops that sum up rows of a table are one product, whatever the bounds of the bags are; others stay loops."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from anycann.session import InferenceSession
from tests.passes.graphs import assert_same, by_definition, compile_graph, floats, parse, run, steps

TEXT = """g (int64[20] ids, int64[6] begins, int64[6] ends) => (float[6,9] y) {
  y = Loop(count, going) <body = b (int64 i, bool c) => (bool again, float[9] bag) {
    again = Identity(c)
    first = Gather(begins, i) last = Gather(ends, i) from = Unsqueeze(first, zero) to = Unsqueeze(last, zero)
    part = Slice(ids, from, to, zero) rows = Gather(table, part) bag = ReduceSum <keepdims = 0> (rows, zero)
  }>
}"""


def model(text: str = TEXT, table: np.ndarray | None = None) -> onnx.ModelProto:
    constants = {"count": np.array(6), "going": np.array(True), "zero": np.array([0]), "one": np.array([1])}
    return parse(text, table=floats(30, 9) if table is None else table, **constants)


def feeds(begins: np.ndarray, ends: np.ndarray) -> dict[str, np.ndarray]:
    return {"ids": np.random.default_rng().integers(0, 30, 20), "begins": begins, "ends": ends}


@pytest.mark.parametrize("kind", ["ReduceSum", "ReduceMean"])
def test_bags_that_follow_one_another_are_summed_up(kind: str) -> None:
    made = model(TEXT.replace("ReduceSum", kind))
    assert steps(compile_graph(made).program).startswith("native(")
    assert " " not in steps(compile_graph(made).program)
    edges = np.sort(np.random.default_rng().choice(np.arange(1, 20), 5, replace=False))
    given = feeds(np.array([0, *edges]), np.array([*edges, 20]))
    assert_same(run(made, given), by_definition(made, given))


def test_any_bounds_mean_what_they_mean_to_slice() -> None:
    rng = np.random.default_rng()
    session = InferenceSession(model(), num_threads=1)
    for _ in range(20):
        given = feeds(rng.integers(-30, 30, 6), rng.integers(-30, 30, 6))
        want = [floats(30, 9)[given["ids"][first:last]].sum(axis=0) for first, last in zip(given["begins"], given["ends"], strict=True)]
        assert_same(session.run(None, given), [np.stack(want)])  # Python's slices are those of ONNX


@pytest.mark.parametrize(
    "made",
    [
        model(table=np.where(floats(30, 9) > 1, np.float32(np.inf), floats(30, 9))),
        model(TEXT.replace("(rows, zero)", "(rows, one)").replace("float[9] bag", "float[K] bag").replace("float[6,9] y", "float[6,K] y")),
        model(TEXT.replace("Gather(table, part)", "Gather <axis = 1> (table, part)")),
        model(TEXT.replace("last = Gather(ends, i)", "other = Neg(i) last = Gather(ends, other)")),
    ],
    ids=["infinite", "another sum", "columns", "another turn"],
)
def test_other_loops_stay(made: onnx.ModelProto) -> None:
    assert "loop" in steps(compile_graph(made).program)
