"""Loops whose shapes change from turn to turn are written out, and give what their definition says; all others stay."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from anycann.frontends.onnx.upgrade import upgrade_model
from anycann.graph.registry import TensorType
from anycann.passes.specialise import specialise
from anycann.te import dtypes
from tests.passes.graphs import by_definition, floats, parse, run

BOUNDS = np.array([0, 3, 4, 8, 11])
BAGS = """g (float[11,5] x, float[5] s) => (float[5] sum, float[4,5] means) {
  sum, means = Loop(count, going, s) <body = b (int64 i, bool c, float[5] before) => (bool again, float[5] after, float[5] mean) {
    again = Identity(c)
    begin = Gather(bounds, i)
    next = Add(i, one)
    end = Gather(bounds, next)
    first = Unsqueeze(begin, zero)
    last = Unsqueeze(end, zero)
    part = Slice(x, first, last, zero)
    mean = ReduceMean <keepdims = 0> (part, zero)
    after = Add(before, mean)
  }>
}"""


def model(text: str = BAGS, count: int = 4) -> onnx.ModelProto:
    constants = {"count": np.array(count), "going": np.array(True), "bounds": BOUNDS, "one": np.array(1), "zero": np.array([0])}
    return parse(text, **constants)


def operators(made: onnx.ModelProto) -> list[str]:
    graph = upgrade_model(ir.from_proto(made)).graph
    known = {v.name: TensorType(dtypes.float32, tuple(int(n) for n in v.shape)) for v in graph.inputs}  # type: ignore[union-attr, arg-type]
    specialise(graph, known)
    return [node.op_type for node in graph]


def test_turns_of_other_shapes_are_written_out() -> None:
    found = operators(model())
    assert "Loop" not in found
    assert found.count("Slice") == found.count("ReduceMean") == found.count("Add") == 4
    feeds = {"x": floats(11, 5), "s": floats(5, seed=1)}
    for got, want in zip(run(model(), feeds), by_definition(model(), feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_two_loops_over_the_same_values_are_written_out_apart() -> None:
    head, loop = BAGS.split("{\n", 1)
    twice = loop.rsplit("}", 1)[0]
    text = head.replace("float[4,5] means", "float[4,5] rows") + "{\n" + twice
    text += twice.replace("sum, means", "more, rows").replace("going, s)", "going, sum)").replace("body = b", "body = b2") + "}"
    text = text.replace("(float[5] sum, ", "(float[5] more, ")
    assert operators(model(text)).count("ReduceMean") == 8
    feeds = {"x": floats(11, 5), "s": floats(5, seed=1)}
    for got, want in zip(run(model(text), feeds), by_definition(model(text), feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_what_a_turn_hands_on_as_it_came_is_written_out_too() -> None:
    text = """g (float[11,5] x, float[5] s) => (float[5] sum, float[5] other, float[3,5] befores) {
      sum, other, befores = Loop(count, going, s, s)
        <body = b (int64 i, bool c, float[5] before, float[5] o) => (bool c, float[5] o, float[5] after, float[5] before) {
          begin = Unsqueeze(i, zero) part = Slice(x, begin, four, zero) mean = ReduceMean <keepdims = 0> (part, zero)
          after = Add(before, mean)
        }>
    }"""
    made = model(text, 3)
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([4]), "four"))
    assert "Loop" not in operators(made)
    feeds = {"x": floats(11, 5), "s": floats(5, seed=1)}
    for got, want in zip(run(made, feeds), by_definition(made, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_value_on_many_ways_to_a_shape_is_looked_at_once() -> None:
    doubled = "d0 = Sub(i, i) " + " ".join(f"d{n + 1} = Add(d{n}, d{n})" for n in range(40))
    assert "Loop" not in operators(model(BAGS.replace("begin = Gather(bounds, i)", f"{doubled} j = Add(i, d40) begin = Gather(bounds, j)")))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (BAGS, 0),
        (BAGS, 65),
        (BAGS.replace("again = Identity(c)", "norm = ReduceSum<keepdims = 0>(before) again = Less(norm, norm)"), 4),
        (BAGS.replace("Slice(x, first, last, zero)", "Gather(x, first)"), 4),
        (BAGS.replace("begin = Gather(bounds, i)", "d = ReduceSum<keepdims = 0>(s) e = Cast<to = 7>(d) begin = Mul(e, one)"), 4),
    ],
    ids=["no turn", "many turns", "a condition that is computed", "shapes that stay", "shapes that only running tells"],
)
def test_other_loops_stay(text: str, count: int) -> None:
    assert operators(model(text, count)) == ["Loop"]
