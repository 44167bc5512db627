"""What every turn of a loop computes again moves before it; the results stay those of the specification."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.passes.graphs import assert_same, compile_graph, floats, parse, run

WEIGHT = floats(3, 3)
ATTENDING = parse(
    """g (float[2,3] x, float[2,3] f, int64 n) => (float[2,3] y, float[P,2,3] z) {
        y, z = Loop (n, , x) <body = b (int64 i, bool c, float[2,3] a) => (bool d, float[2,3] b, float[2,3] z) {
            d = Identity(c) p = MatMul(f, w) q = Tanh(p) s = Add(a, q) b = MatMul(s, w) z = Mul(f, b) }>
    }""",
    w=WEIGHT,
)
RANDOM = parse(
    """g (float[2,3] x, int64 n) => (float[2,3] y) {
        y = Loop (n, , x) <body = b (int64 i, bool c, float[2,3] a) => (bool d, float[2,3] b) {
            d = Identity(c) r = RandomUniformLike(x) b = Add(a, r) }>
    }"""
)
SCANNING = parse(
    """g (float[4,3] x, float[3,3] f) => (float[3] e, float[4,3] y) {
        e, y = Scan<num_scan_inputs=1, body = b (float[3] s, float[3] one) => (float[3] t, float[3] u) {
            k = Exp(f) p = MatMul(one, k) t = Add(s, p) u = Neg(t) }>(z, x)
    }""",
    z=floats(3),
)


def lines(model: onnx.ModelProto) -> list[str]:
    return [line for report in compile_graph(model).reports if report.name == "loop invariants" for line in report.lines]


@pytest.mark.parametrize("turns", [0, 1, 4])
def test_a_product_of_values_from_outside_is_computed_once(turns: int) -> None:
    assert any(line.startswith("2 nodes of Loop") for line in lines(ATTENDING))
    x, f = floats(2, 3, seed=1), floats(2, 3, seed=2)
    value, parts = x, []
    for _ in range(turns):
        value = (value + np.tanh(f @ WEIGHT)) @ WEIGHT
        parts.append(f * value)
    got = run(ATTENDING, {"x": x, "f": f, "n": np.array(turns)})
    assert_same(got, [value, np.stack(parts) if parts else np.zeros((0, 2, 3), np.float32)])


def test_a_scan_computes_once_what_no_slice_changes() -> None:
    assert any(line.startswith("1 nodes of Scan") for line in lines(SCANNING))
    x, f = floats(4, 3, seed=1), floats(3, 3, seed=2)
    sums = floats(3) + np.cumsum(x @ np.exp(f), axis=0)
    assert_same(run(SCANNING, {"x": x, "f": f}), [sums[-1], -sums])


def test_random_numbers_are_drawn_in_every_turn() -> None:
    assert lines(RANDOM) == []
    (y,) = run(RANDOM, {"x": np.zeros((2, 3), np.float32), "n": np.array(64)})
    assert np.abs(y / 64 - 0.5).max() < 0.25  # seven times the deviation of the mean of so many


@pytest.mark.parametrize("node", ["Reshape(w, s)", "Expand(w, s)", "Gather(w, s)", "ReduceSum(w, s)", "Cast<to=1>(t)"])
def test_what_cannot_be_computed_stays_in_a_loop_that_may_not_turn(node: str) -> None:
    text = f"""g (float[2,3] x, int64[2] s, string[2] t, int64 n) => (float[2,3] y) {{
        y = Loop (n, , x) <body = b (int64 i, bool c, float[2,3] a) => (bool d, float[2,3] b) {{
            d = Identity(c) r = {node} q = ReduceSum(r) b = Add(a, q) }}>
    }}"""
    model = parse(text, w=floats(2, 3))
    assert lines(model) == []
    x = floats(2, 3, seed=1)
    assert_same(run(model, {"x": x, "s": np.array([7, 9]), "t": np.array(["a", "b"], object), "n": np.array(0)}), [x])


def test_it_moves_from_a_loop_that_surely_turns() -> None:
    text = """g (float[2,3] x, int64[2] s) => (float[3,2] y) {
        y = Loop (n, , x) <body = b (int64 i, bool c, float[3,2] a) => (bool d, float[3,2] b) {
            d = Identity(c) r = Reshape(x, s) b = Add(r, r) }>
    }"""
    model = parse(text, n=np.array(3))
    assert any("of Loop" in line for line in lines(model))
    x = floats(2, 3, seed=1)
    assert_same(run(model, {"x": x, "s": np.array([3, 2])}), [2 * x.reshape(3, 2)])
