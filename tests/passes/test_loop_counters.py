"""Loops that count themselves have a trip count, with the same results."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.passes.graphs import assert_same, by_definition, compile_graph, floats, parse, run, steps

COUNTING = """g (float[3,5] x, int64 n) => (float[3,5] y, INT k) {
  CONDITION
  y, k = Loop(MOST, going, x, start) <body = b (int64 i, bool c, float[3,5] v, INT k0) => (bool again, float[3,5] w, INT k1) {
    f = Cast <to = 1> (k0) s = Add(v, f) w = Sin(s) k1 = Add(k0, unit) again = TEST
  }>
}"""


def counting(condition: str, test: str, most: str, dtype: type[np.generic] = np.int64, start: int = 0, limit: str = "n") -> onnx.ModelProto:
    """A loop of which every turn adds the carried number."""
    text = COUNTING.replace("CONDITION", condition).replace("TEST", test.replace("n)", f"{limit})")).replace("MOST", most)
    constants = {} if "going =" in condition else {"going": np.array(True)}
    numbers = {"start": dtype(start), "unit": dtype(1), "many": np.array(2**62), "none": np.array(-2)}
    return parse(text.replace("INT", np.dtype(dtype).name), **constants, **numbers)


def counted(model: onnx.ModelProto) -> bool:
    """Whether the pass found the number of turns."""
    return any(line.endswith("has a trip count") for report in compile_graph(model).reports for line in report.lines)


@pytest.mark.parametrize(
    ("condition", "test", "most", "start"),
    [
        ("", "Less(k1, n)", "", 0),
        ("", "Greater(n, k1)", "many", -3),
        ("going = Less(start, n)", "Less(k1, n)", "", 2),
        ("going = Greater(n, start)", "Less(k1, n)", "many", 0),
        ("", "Less(k1, n)", "none", 5),
    ],
)
def test_turns_are_counted_before_the_loop(condition: str, test: str, most: str, start: int) -> None:
    made = counting(condition, test, most, start=start)
    assert counted(made)
    for n in (-5, 0, 1, 4):
        feeds = {"x": floats(3, 5), "n": np.array(n)}
        assert_same(run(made, feeds), by_definition(made, feeds))


def test_a_known_limit_leaves_nothing_but_kernels() -> None:
    made = counting("", "Less(k1, n)", "", np.int32, limit="three")
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array(3, np.int32), "three"))
    feeds = {"x": floats(3, 5), "n": np.array(0)}
    assert counted(made)
    assert_same(run(made, feeds), by_definition(made, feeds))


@pytest.mark.parametrize("test", ["LessOrEqual(k1, n)", "Less(k0, n)", "Less(n, k1)"])
def test_other_conditions_stay(test: str) -> None:
    made = counting("", test, "six")
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array(6), "six"))
    assert not counted(made)
    assert "loop" in steps(compile_graph(made).program)
    feeds = {"x": floats(3, 5), "n": np.array(3)}
    assert_same(run(made, feeds), by_definition(made, feeds))
