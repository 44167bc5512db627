"""Products of one-hot vectors, and functions of rows of a table: what is chosen is the same, numbers out of range included."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.passes.graphs import assert_same, by_definition, floats, kernels, parse, run, told

TABLE = floats(6, 5)
GELU = "g = Add(p, b) h = Mul(g, half) t = Tanh(h) u = Mul(g, t) y = Add(u, one)"
CONSTANTS = {"b": floats(1, 1, 5, seed=2), "half": np.float32(0.5), "one": np.ones(1, np.float32)}


def by_equality(
    integer: str = "int32", table: np.ndarray = TABLE, places: np.ndarray | None = None, tail: str = "y = Relu(p)"
) -> onnx.ModelProto:
    text = f"g ({integer}[3,7,1] i) => (float[3,7,5] y) {{ e = Equal(i, places) o = Cast<to=1>(e) p = MatMul(o, w) {tail} }}"
    return parse(text, w=table, places=np.arange(6, dtype=integer).reshape(1, 6) if places is None else places, **CONSTANTS)


def by_one_hot(values: tuple[float, float] = (0, 1), axis: int = -1, tail: str = "y = Relu(p)") -> onnx.ModelProto:
    text = f"g (int64[3,7] i) => (float[3,7,5] y) {{ o = OneHot<axis={axis}>(i, depth, values) p = MatMul(o, w) {tail} }}"
    return parse(text, w=TABLE, depth=np.array(6), values=np.array(values, np.float32), **CONSTANTS)


def numbers(shape: tuple[int, ...], dtype: str, low: int) -> np.ndarray:
    return np.random.default_rng().integers(low, 9, shape).astype(dtype)


@pytest.mark.parametrize("integer", ["int32", "int64"])
@pytest.mark.parametrize("tail", ["y = Relu(p)", GELU])
def test_a_comparison_with_all_places_chooses_rows(integer: str, tail: str) -> None:
    model = by_equality(integer, tail=tail)
    assert "OneHotProduct applied to p" in told(model)
    feeds = {"i": numbers((3, 7, 1), integer, -3)}
    assert_same(run(model, feeds), by_definition(model, feeds))


@pytest.mark.parametrize("tail", ["y = Relu(p)", GELU])
def test_one_hot_vectors_choose_rows_from_either_end(tail: str) -> None:
    model = by_one_hot(tail=tail)
    assert "OneHotProduct applied to p" in told(model)
    inside = {"i": numbers((3, 7), "int64", -6) % 12 - 6}
    assert_same(run(model, inside), by_definition(model, inside))
    outside = {"i": numbers((3, 7), "int64", -9)}  # which onnx.reference takes modulo 6
    assert_same(run(model, outside), run(model, outside, switched_off=frozenset({"OneHotProduct"})))


@pytest.mark.parametrize(
    "model",
    [
        by_equality(places=np.arange(1, 7, dtype=np.int32)),
        by_equality(places=np.array([0, 1, 2, 3, 5, 5], np.int32)),
        by_one_hot((0, 2)),
        by_one_hot((1, 0)),
    ],
    ids=["from one", "one twice", "two-hot", "cold"],
)
def test_other_vectors_are_multiplied(model: onnx.ModelProto) -> None:
    assert not any("OneHotProduct applied" in line for line in told(model))
    shape = (3, 7, 1) if model.graph.node[0].op_type == "Equal" else (3, 7)
    feeds = {"i": numbers(shape, "int32" if len(shape) == 3 else "int64", 0) % 6}
    assert_same(run(model, feeds), by_definition(model, feeds))


def test_an_infinite_weight_is_multiplied_for_0_times_it_is_no_number() -> None:
    table = TABLE.copy()
    table[2, 3] = np.inf
    assert any("OneHotProduct skipped p: a weight is infinite" in line for line in told(by_equality(table=table)))


def test_what_is_computed_of_each_row_is_computed_once() -> None:
    text = f"g (int64[4,9] i) => (float[4,9,5] y) {{ p = Gather(w, i) {GELU} }}"
    assert kernels(text, w=TABLE, **CONSTANTS) == ["Gather"]
    model = parse(text, w=TABLE, **CONSTANTS)
    feeds = {"i": np.random.default_rng().integers(-6, 6, (4, 9))}
    assert_same(run(model, feeds), by_definition(model, feeds))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("g (int64[2] i) => (float[2,5] y) { p = Gather(w, i) y = Exp(p) }", "the table has more elements than the result"),
        (
            "g (int64[9] i, int64[9] j) => (float[9,5] y) { p = Gather(w, i) q = Gather(w, j) y = Add(p, q) }",
            "its operands are different rows",
        ),
        (
            "g (int64[9] i, float[5] c) => (float[9,5] y) { p = Gather(w, i) y = Add(p, c) }",
            "not every other operand is known and alike for all rows",
        ),
        ("g (int64[9] i) => (float[9,5] y) { p = Gather(w, i) y = Mul(p, r) }", "not every other operand is known and alike for all rows"),
        ("g (int64[9] i) => (float[3,9,5] y) { p = Gather(w, i) y = Add(p, three) }", "the result is of another type than the rows"),
    ],
)
def test_other_functions_stay(text: str, reason: str) -> None:
    model = parse(text, w=TABLE, r=floats(9, 1), three=floats(3, 1, 1))
    assert f"FunctionOfRows skipped y: {reason}" in told(model)
    feeds = {
        v.name: floats(5) if v.name == "c" else numbers((2 if v.name == "i" and "[2]" in text else 9,), "int64", 0) % 6
        for v in model.graph.input
    }
    assert_same(run(model, feeds), by_definition(model, feeds))
