"""In which steps a program runs: native runs as long as the graph allows, host work late, the rest once shapes are known."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.graphs import assert_same, by_definition, compile_graph, floats, parse, run, steps


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("g (float[4] x) => (float[4] y) { a = Exp(x) y = Neg(a) }", "native(1)"),
        # two branches through the host: everything native before both, then both, then the rest
        (
            "g (float[2,2] x) => (float y) { a = Exp(x) h = Det(a) b = Neg(x) i = Det(b) c = Add(h, i) y = Abs(c) }",
            "native(2) host(Det) host(Det) native(1)",
        ),
        (
            "g (float[4] x) => (float[M] y) { a = Exp(x) n = NonZero(a) t = Cast<to=1>(n) y = Neg(t) }",
            "native(2) host(ListPlaces) deferred",
        ),
        (
            "g (float[4] x, bool c) => (float[4] y) { a = Exp(x) y = If (c) <then_branch = t () => (float[4] p) { p = Neg(a) },"
            " else_branch = e () => (float[4] q) { q = Abs(a) }> }",
            "native(1) if",
        ),
    ],
)
def test_the_steps_of_a_program(text: str, expected: str) -> None:
    assert steps(compile_graph(parse(text)).program) == expected


def test_regions_are_graphs_of_their_own_with_captured_constants_inside() -> None:
    text = """g (float[4] x, bool c) => (float[4] y) { a = Exp(x) y = If (c) <then_branch = t () => (float[4] p) { p = Add(a, k) },
        else_branch = e () => (float[4] q) { q = Mul(a, k) }> }"""
    model = parse(text, k=floats(4))
    regions = compile_graph(model).regions
    assert sorted(name.rsplit("/", 1)[1] for name in regions) == ["else_branch", "then_branch"]
    for region in regions.values():
        assert [value.name for value in region.graph.inputs] == ["a"]
        assert list(region.graph.initializers) == ["k"]
    for chosen in (True, False):
        feeds = {"x": floats(4), "c": np.array(chosen)}
        assert_same(run(model, feeds), by_definition(model, feeds))


def test_regions_in_regions_find_values_of_every_level() -> None:
    text = """g (float[3] x, bool c, int64 n) => (float[3] y) <bool yes = {1}> { a = Exp(x)
        y = If (c) <then_branch = t () => (float[3] p) { b = Neg(a)
            p = Loop (n, yes, b) <body = l (int64 i, bool go, float[3] v) => (bool more, float[3] next)
                { s = Add(v, a) next = Add(s, b) more = Identity(go) }> },
        else_branch = e () => (float[3] q) { q = Identity(a) }> }"""
    model = parse(text)
    for chosen, count in ((True, 0), (True, 4), (False, 1)):
        feeds = {"x": floats(3), "c": np.array(chosen), "n": np.array(count)}
        assert_same(run(model, feeds), by_definition(model, feeds))


def test_the_same_graph_gives_the_same_program_twice() -> None:
    text = """g (float[1,16,8,8] x) => (float[1,16,8,8] y) { a = Conv(x, w) b = Relu(a) c = Conv(b, w) d = Add(c, b) e = Sigmoid(d)
        y = Mul(e, d) }"""
    model = parse(text, w=floats(16, 16, 1, 1))
    first, second = compile_graph(model), compile_graph(model)
    assert first.program == second.program
    assert first.kernels == second.kernels


def test_what_a_branch_gives_is_an_output_under_the_name_of_the_identity_behind_it() -> None:
    model = parse(
        """g (float[3] x, bool c) => (float[N] y, float[N] z) {
            a, b = If (c) <then_branch = p () => (float[3] d, float[1] e) { d = Neg(x) e = ReduceMax(x) },
                           else_branch = q () => (float[2] f, float[3] h) { f = Slice(x, zero, two) h = Exp(x) }>
            y = Identity(a) z = Identity(b)
        }""",
        zero=np.array([0]),
        two=np.array([2]),
    )
    program = compile_graph(model).program
    assert steps(program) == "if"
    assert [spec.name for spec in program.outputs] == ["y", "z"]
    for condition in (True, False):
        feeds = {"x": np.array([1, 2, 3], np.float32), "c": np.array(condition)}
        assert_same(run(model, feeds), by_definition(model, feeds))


def test_an_identity_of_an_input_or_of_what_is_returned_already_stays() -> None:
    model = parse("g (float[3] x) => (float[3] y, float[3] z, float[3] t) { y = Neg(x) z = Identity(y) t = Identity(x) }")
    feeds = {"x": np.array([1, 2, 3], np.float32)}
    assert_same(run(model, feeds), by_definition(model, feeds))
