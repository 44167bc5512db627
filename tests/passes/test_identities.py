"""Nodes that change nothing go, and only those."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.graphs import assert_same, by_definition, compile_graph, floats, parse, run, steps

CONSTANTS = {
    "zeros": np.zeros(2, np.int64),
    "far": np.array([2**31 - 1, 4]),
    "ends": np.array([-99, -99]),
    "turned": np.array([0, -1]),
    "turned_ends": np.array([9, -99]),
    "axes": np.array([1, 0]),
    "ones": np.ones(2, np.int64),
    "back": np.array([1, -1]),
    "two": np.array([2, 2]),
    "nothing": np.array([4, 0]),
    "same": np.array([4, 4]),
    "row": np.array([4]),
    "flat": np.array([2, 8]),
}


def kernels(text: str) -> int:
    model = parse(f"g (float[4,4] x) => (float[N,M] y) {{ a = Exp(x) {text} y = Softmax(b) }}", **CONSTANTS)
    feeds = {"x": floats(4, 4)}
    assert_same(run(model, feeds), by_definition(model, feeds))
    return len(compile_graph(model).kernels)


@pytest.mark.parametrize(
    "text",
    [
        "b = Slice(a, zeros, far)",
        "b = Slice(a, ends, far, axes, ones)",
        "b = Transpose<perm=[0, 1]>(a)",
        "b = Expand(a, row)",
        "b = Tile(a, ones)",
        "b = Reshape(a, same)",
        "b = Concat<axis=0>(a)",
        "c = Slice(a, zeros, nothing) b = Concat<axis=1>(c, a, c)",
        "c = Max(a) b = Cast<to=1>(c)",
        "c = Slice(a, zeros, far) d = Reshape(c, same) b = Sum(d)",
    ],
)
def test_what_changes_nothing_costs_nothing(text: str) -> None:
    assert kernels(text) == kernels("b = Identity(a)")


@pytest.mark.parametrize(
    "text",
    [
        "c = Slice(a, zeros, far) b = Slice(c, turned, turned_ends, axes, back)",
        "b = Slice(a, zeros, two)",
        "b = Transpose(a)",
        "b = Tile(a, two)",
        "b = Concat<axis=0>(a, a)",
        "b = Max(a, x)",
        "c = Transpose<perm=[1, 0]>(a) b = Slice(c, turned, turned_ends, axes, back)",
        "b = Reshape(a, flat)",
    ],
)
def test_what_changes_something_stays(text: str) -> None:
    assert kernels(text) > 0


def test_a_slice_of_everything_may_be_an_output() -> None:
    model = parse(
        "g (float[4,4] x) => (float[4,4] y, float[4,4] z) { a = Exp(x) y = Slice(a, zeros, far) z = Slice(x, zeros, far) }", **CONSTANTS
    )
    feeds = {"x": floats(4, 4)}
    assert_same(run(model, feeds), by_definition(model, feeds))


@pytest.mark.parametrize("operands", ["e, x, e, y", "x, e, y", "e, e"])
def test_operands_without_elements_are_not_joined(operands: str) -> None:
    model = parse(f"g (float[3,0] e, float[3,2] x, float[3,4] y) => (float[N,M] z) {{ z = Concat<axis=1>({operands}) }}")
    feeds = {"e": floats(3, 0), "x": floats(3, 2), "y": floats(3, 4)}
    assert_same(run(model, feeds), by_definition(model, feeds))
    assert "host" not in steps(compile_graph(model).program)


def test_an_operand_without_rows_may_have_columns() -> None:
    model = parse("g (float[0,3] e, float[4,2] x, bool[4] c) => (float[M,N] z) { k = Compress<axis=0>(x, c) z = Concat<axis=1>(e, k) }")
    feeds = {"e": floats(0, 3), "x": floats(4, 2), "c": np.zeros(4, bool)}
    assert_same(run(model, feeds), by_definition(model, feeds))
