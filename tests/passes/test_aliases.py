"""Values without a buffer of their own: where they lie, and that computing through them gives the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.graphs import AVX512, assert_same, by_definition, compile_graph, floats, kernels, parse, run

CONV = {"w": floats(16, 16, 1, 1), "v": floats(32, 16, 1, 1, seed=1)}


def offsets(text: str, *names: str, **constants: np.ndarray) -> list[int]:
    """Where the named values lie in the arena."""
    values = compile_graph(parse(text, **constants), AVX512).program.values
    assert all(values[name].buffer.space == "arena" for name in names), {name: values[name].buffer.space for name in names}
    return [values[name].buffer.offset_bytes for name in names]


def test_convolutions_write_straight_into_their_concatenation() -> None:
    text = """g (float[1,16,4,4] x) => (float[1,32,4,4] y) {
        a = Conv(x, w) b = Conv(a, w) j = Concat<axis=1>(a, b) y0 = Conv(j, u) y = Exp(y0) }"""
    constants = {"w": CONV["w"], "u": floats(32, 32, 1, 1)}
    a, b, j = offsets(text, "a", "b", "j", **constants)
    assert (a, b) == (j, j + 16 * 16 * 4)
    assert "Concat" not in kernels(text, **constants)


@pytest.mark.parametrize(
    ("text", "copies"),
    [
        ("{ a = Exp(x) b = Neg(x) y = Concat<axis=0>(a, b) }", 2),  # the result is an output
        ("{ a = Exp(x) b = Neg(x) j = Concat<axis=0>(a, b) y = Relu(j) }", 0),
        ("{ a = Exp(x) b = Neg(x) j = Concat<axis=1>(a, b) y = Relu(j) }", 2),  # rows of the parts take turns
        ("{ a = Exp(x) j = Concat<axis=0>(a, a) y = Relu(j) }", 2),  # one value twice
        ("{ a = Exp(x) j = Concat<axis=0>(a, x) y = Relu(j) }", 1),  # an input stays the caller's
        ("{ a = Exp(x) j = Concat<axis=0>(a, k) y = Relu(j) }", 1),  # a constant
    ],
)
def test_what_cannot_lie_in_the_result_is_copied(text: str, copies: int) -> None:
    model_text = f"g (float[16,16] x) => (float[A,B] y) {text}"
    constants = {"k": floats(16, 16)} if "k)" in text else {}
    assert kernels(model_text, **constants).count("Concat") == copies
    model = parse(model_text, **constants)
    feeds = {"x": floats(16, 16)}
    assert_same(run(model, feeds), by_definition(model, feeds))


@pytest.mark.parametrize(
    "text",
    [
        "{ a = Exp(x) v = Reshape(a, shape) j = Concat<axis=0>(a, v) y = Relu(j) }",  # a view of the other part
        "{ a = Exp(x) b = Neg(x) j = Concat<axis=0>(a, b) k = Concat<axis=0>(j, b) y = Relu(k) }",  # in both
        "{ a = Exp(x) b = Neg(x) j = Concat<axis=1>(b, a) r = Reshape(j, two) k = Concat<axis=0>(r, b) y = Relu(k) }",
    ],
)
def test_a_value_that_lies_elsewhere_in_the_same_memory_is_copied(text: str) -> None:
    model = parse(f"g (float[16,16] x) => (float[A,B] y) {text}", shape=np.array([16, 16]), two=np.array([32, 16]))
    feeds = {"x": floats(16, 16)}
    for fuse in (True, False):
        assert_same(run(model, feeds, fuse=fuse), by_definition(model, feeds))


def test_an_odd_part_that_would_begin_within_a_cache_line_is_copied() -> None:
    text = "g (float[3,5] x) => (float[6,5] y) { a = Exp(x) b = Neg(x) j = Concat<axis=0>(a, b) y = Relu(j) }"
    assert kernels(text).count("Concat") == 1  # the first part begins at 0


@pytest.mark.parametrize(
    ("text", "free"),
    [
        ("{ e = MatMul(x, x) p, q = Split<axis=0, num_outputs=2>(e) n = MatMul(p, x) y = MatMul(q, x) z = Add(n, q) }", True),
        ("{ e = MatMul(x, x) p, q = Split<axis=1, num_outputs=2>(e) n = MatMul(x, p) y = MatMul(x, q) z = Add(n, q) }", False),
        ("{ p, q = Split<axis=0, num_outputs=2>(x) n = Neg(p) y = Add(n, q) }", False),
        ("{ e = MatMul(x, x) p = Slice(e, start, end, axes) y = MatMul(p, x) }", True),
    ],
)
def test_slices_of_whole_rows_stay_where_they_are(text: str, free: bool) -> None:
    constants = {"start": np.array([-8]), "end": np.array([16]), "axes": np.array([0])} if "start" in text else {}
    model_text = f"g (float[16,16] x) => (float[A,B] y) {text}"
    model = parse(model_text, **constants)
    made = kernels(model_text, **constants)
    assert any(name in kernel for kernel in made for name in ("Split", "Slice")) != free, made
    feeds = {"x": floats(16, 16)}
    assert_same(run(model, feeds), by_definition(model, feeds))


def test_views_of_views_of_slices_of_a_concatenation_read_the_right_bytes() -> None:
    model = parse(
        """g (float[8,16] x) => (float[B,C] y) { a = Exp(x) b = Neg(x) j = Concat<axis=0>(a, b) f = Reshape(j, flat)
        s = Slice(f, start, end) t = Reshape(s, square) u = Flatten(t) y = Relu(u) }""",
        flat=np.array([-1]),
        start=np.array([64]),
        end=np.array([192]),
        square=np.array([8, 4, 4]),
    )
    feeds = {"x": floats(8, 16)}
    assert_same(run(model, feeds), by_definition(model, feeds))


@pytest.mark.parametrize(
    ("text", "copies"),
    [
        ("{ a = Exp(x) y = Reshape(a, flat) z = Neg(a) }", 0),  # computed in the output, and read there
        ("{ a = Exp(x) v = Reshape(a, square) z = MatMul(v, x) y = Reshape(v, flat) }", 0),  # by a view of a view
        ("{ a = Exp(x) b = Neg(x) j = Concat<axis=0>(a, b) z = Relu(j) y = Reshape(j, flat) }", 0),  # parts and all
        ("{ a = Exp(x) y = Reshape(a, flat) z = Reshape(a, other) }", 1),  # twice: one is a copy
        ("{ y = Reshape(x, flat) z = Neg(x) }", 1),  # an input stays the caller's
        ("{ a = MatMul(x, x) p, q = Split<axis=0, num_outputs=2>(a) z = MatMul(p, x) y = Reshape(q, flat) }", 1),  # part of a value
    ],
)
def test_an_output_that_shows_a_value_is_where_that_is_computed(text: str, copies: int) -> None:
    shapes = {"flat": np.array([-1]), "square": np.array([16, 16]), "other": np.array([4, -1])}
    constants = {name: value for name, value in shapes.items() if name in text}
    model_text = f"g (float[16,16] x) => (float[A] y, float[B,C] z) {text}"
    assert kernels(model_text, **constants).count("TransData") == copies
    model, feeds = parse(model_text, **constants), {"x": floats(16, 16)}
    for fuse in (True, False):
        assert_same(run(model, feeds, fuse=fuse), by_definition(model, feeds))
