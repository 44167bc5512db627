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


GUARDED = """g (float[20,9] x) => (float[N,9] y) {
  none = SequenceEmpty() weight = Mul(x, two)
  list, last = Loop(, going, none, start) <body = b (int64 i, bool c, seq(float[1,9]) l, int64 k)
                                               => (bool again, seq(float[1,9]) m, int64 n) {
    at = Reshape(k, minus) n = Add(k, unit) behind = Add(at, one) far = Add(at, twice)
    from = Slice(offsets, at, behind) to = Slice(offsets, behind, far) same = Equal(from, to)
    bag = If(same) <then_branch = t () => (float[1,9] u) { u = Identity(zeros) },
                    else_branch = e () => (float[1,9] w) { part = Slice(weight, from, to) w = ReduceSum(part, zero) }>
    m = SequenceInsert(l, bag) again = Less(n, limit)
  }>
  y = ConcatFromSequence <axis = 0> (list)
}"""


def listed(offsets: np.ndarray, text: str = GUARDED) -> onnx.ModelProto:
    """Bags as a list that a counting loop appends to, with an If around empty ones."""
    numbers = {"zero": [0], "one": [1], "twice": [2], "minus": [-1], "offsets": offsets}
    scalars = {"start": np.array(0), "unit": np.array(1), "limit": np.array(len(offsets) - 1), "going": np.array(True)}
    vectors = {name: np.array(value, np.int64) for name, value in numbers.items()}
    return parse(text, zeros=np.zeros((1, 9), np.float32), two=np.float32(2), **scalars, **vectors)


@pytest.mark.parametrize("kind", ["ReduceSum", "ReduceMean"])
@pytest.mark.parametrize("size", [1, 4])
def test_equal_bags_of_a_list_are_one_sum_whatever_they_hold(size: int, kind: str) -> None:
    made = listed(np.arange(0, 21, size), GUARDED.replace("ReduceSum", kind))
    assert " " not in steps(compile_graph(made).program)
    x = floats(20, 9)
    x[3, 2] = np.inf
    assert_same(run(made, {"x": x}), by_definition(made, {"x": x}))


@pytest.mark.parametrize("kind", ["ReduceSum", "ReduceMean"])
def test_bags_of_a_list_may_be_empty(kind: str) -> None:
    text = GUARDED.replace("g (float[20,9] x)", "g (int64[20] ids)").replace("Mul(x, two)", "Gather(table, ids)").replace("ReduceSum", kind)
    made = listed(np.array([0, 3, 3, 4, 11, 20, 20]), text)
    made.graph.initializer.append(onnx.numpy_helper.from_array(floats(30, 9), "table"))
    assert " " not in steps(compile_graph(made).program)
    given = {"ids": np.random.default_rng().integers(0, 30, 20)}
    assert_same(run(made, given), by_definition(made, given))


def test_unequal_bags_of_what_may_be_infinite_stay_a_loop() -> None:
    made, x = listed(np.array([0, 3, 3, 20])), floats(20, 9)
    x[7, 7] = -np.inf
    assert "loop" in steps(compile_graph(made).program)
    assert_same(run(made, {"x": x}), by_definition(made, {"x": x}))
