"""What waits for a shape becomes a region; what waits for a value, and views of it, run on the host at once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.graphs import assert_same, by_definition, compile_graph, parse, run, steps


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # the rank of a slice is known, so its shape has a known length and is an operand of kernels
        (
            "g (float[9,2] x, int64[1] a, int64[1] b) => (int64[2] y) { p = Slice(x, a, b) n = Shape(p) y = Add(n, n) }",
            "host(Slice) host(Shape) native(1)",
        ),
        # Tile gives as many rows as a value says: no shape would make it native
        (
            "g (float[9] x, int64[2] n) => (int64[M,K] y) { p = NonZero(x) t = Tile(p, n) y = Neg(t) }",
            "native(1) host(ListPlaces) host(Tile) deferred",
        ),
        ("g (float[9] x) => (int64[M] y) { p = NonZero(x) y = Reshape(p, all) }", "native(1) host(ListPlaces) host(Reshape)"),
        (
            "g (float[1] x, bool[3] b) => (float[M] y) { p = NonZero(b) n = Reshape(p, all) q = Expand(x, n) y = Neg(q) }",
            "native(1) host(ListPlaces) host(Reshape) host(Expand) deferred",
        ),
        # a view that only nodes behind it read is one of them; an output is made on the host
        (
            "g (float[1,9] x, float[9] w) => (float[M] y) { p = NonZero(w) q = Transpose(p) y = GatherND(w, q) }",
            "native(1) host(ListPlaces) deferred",
        ),
        (
            "g (float[9] x) => (float[M] y) { p = NonZero(x) i = Squeeze(p, none) j = Identity(i) k = Neg(x) y = Gather(k, j) }",
            "native(2) host(ListPlaces) deferred",
        ),
        (
            "g (float[9] x) => (float[M] y, int64[M] i) { p = NonZero(x) i = Squeeze(p, none) y = Gather(x, i) }",
            "native(1) host(ListPlaces) host(Squeeze) deferred",
        ),
    ],
)
def test_what_waits_for_a_value_runs_on_the_host(text: str, expected: str) -> None:
    assert steps(compile_graph(parse(text, all=np.array([-1]), none=np.array([0]))).program) == expected


def test_a_part_that_values_choose_is_replaced_in_one_region() -> None:
    model = parse(
        """g (float[9] x, int64[1] a, int64[1] b, float[1] u) => (float[9] y) {
            part = Slice(x, a, b) n = Shape(part) wide = Expand(u, n)
            first = Squeeze(a) last = Squeeze(b) places = Range(first, last, one) rows = Unsqueeze(places, zero)
            again = Tile(rows, once) flat = Reshape(again, all) y = ScatterElements(x, flat, wide) }""",
        one=np.array(1), zero=np.array([0]), once=np.array([1, 1]), all=np.array([-1]),
    )  # fmt: skip
    words = steps(compile_graph(model).program).split()
    assert words.count("deferred") == 1
    assert words[-1] == "deferred"
    for first, last in ((2, 5), (8, 9), (0, 9)):
        feeds = {"x": np.arange(9, dtype=np.float32), "a": np.array([first]), "b": np.array([last]), "u": np.array([-1], np.float32)}
        assert_same(run(model, feeds), by_definition(model, feeds))
