"""Which nodes share a kernel, as text."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from anycann.graph.registry import Registry
from anycann.passes import grouping
from anycann.passes.fusion_limits import MOST_NODES
from anycann.passes.partition import lower_node
from anycann.te.tensor import Tensor
from tests.passes.graphs import assert_same, by_definition, compile_graph, floats, kernels, parse, run, tasks

CONV = {"w": floats(16, 16, 3, 3), "b": floats(16, 1, 1, seed=1)}


@pytest.mark.parametrize(
    ("text", "constants", "expected"),
    [
        (
            "g (float[1,16,8,8] x) => (float[1,16,6,6] y) { c = Conv(x, w) a = Add(c, b) s = Sigmoid(a) y = Mul(a, s) }",
            CONV,
            ["Conv+Add+Sigmoid+Mul"],
        ),
        (
            "g (float[6,64] x) => (float[6,64] y) { m = ReduceMean<keepdims=1>(x, axes) d = Sub(x, m) p = Mul(d, d)"
            " v = ReduceMean<keepdims=1>(p, axes) r = Sqrt(v) y = Div(d, r) }",
            {"axes": np.array([1])},
            ["ReduceMean+Sub+Mul+ReduceMean+Sqrt+Div"],
        ),
        ("g (float[6,64] x) => (float[6,64] y) { a = Relu(x) s = Softmax(a) y = Neg(s) }", {}, ["Relu+Softmax+Neg"]),
        (
            "g (float[4,32] x, float[32] v) => (float[4,8] y) { p = MatMul(x, w) a = Add(p, b) y = Relu(a) z = Neg(v) }",
            {"w": floats(32, 8), "b": floats(8)},
            ["MatMul+Add+Relu"],
        ),
        (
            "g (float[4,32] x) => (float[4,8] y) { a = Exp(x) p = MatMul(a, w) y = Softmax(p) }",
            {"w": floats(32, 8)},
            ["Exp", "MatMul", "Softmax"],
        ),
        (
            "g (float[1,16,6,6] x) => (float[1,16,4,4] y) { a = Relu(x) c = Conv(a, w) d = Relu(c)"
            " p = MaxPool<kernel_shape=[1,1]>(d) y = Neg(p) }",
            CONV,
            ["Relu", "Conv+Relu", "MaxPool+Neg"],
        ),
        ("g (float[4,8] x) => (float[4,8] y, float[4,8] z) { a = Exp(x) y = Neg(a) z = Abs(a) }", {}, ["Exp+Neg+Abs"]),
    ],
)
def test_kernels_are_the_expected_groups(text: str, constants: dict[str, np.ndarray], expected: list[str]) -> None:
    assert [kernel for kernel in kernels(text, **constants) if kernel != "TransData"] == expected


def test_a_node_that_would_close_a_cycle_stays_apart() -> None:
    text = "g (float[4,32] x) => (float[4,32] y) { a = Exp(x) p = MatMul(a, w) y = Add(a, p) }"
    model = parse(text, w=floats(32, 32))
    compiled = compile_graph(model)
    assert kernels(text, w=floats(32, 32)) == ["Exp", "MatMul+Add"]
    feeds = {"x": floats(4, 32)}
    assert_same(run(model, feeds), by_definition(model, feeds))
    assert [str(each) for each in compiled.apart if each.node == "y"] == []


def test_the_operand_of_another_kernel_must_not_depend_on_the_group() -> None:
    model = parse("g (float[4,32] x) => (float[4,8] y) { a = Exp(x) s = ReduceMax<keepdims=1>(a, one) p = MatMul(s, w) n = Mul(s, three)"
                  " y = Add(n, p) }", w=floats(1, 8), one=np.array([1]), three=np.float32(3))  # fmt: skip
    reasons = {(each.node, each.producer): each.reason for each in compile_graph(model).apart}
    assert ("y", "a") not in reasons or reasons["y", "a"] == "another operand depends on the group"
    feeds = {"x": floats(4, 32)}
    assert_same(run(model, feeds), by_definition(model, feeds))


def test_parts_of_a_product_are_no_tail_of_it() -> None:
    for text in (
        "p, q = Split<axis=0, num_outputs=2>(c)",
        "p, q = Split<axis=1, num_outputs=2>(c)",
        "p, q = Split<axis=2, num_outputs=2>(c)",
    ):
        model = parse(f"g (float[2,4,6] a, float[2,6,8] b) => (float[A,B,C] p, float[D,E,F] q) {{ c = MatMul(a, b) {text} }}")
        feeds = {"a": floats(2, 4, 6), "b": floats(2, 6, 8)}
        assert_same(run(model, feeds), by_definition(model, feeds))


def test_an_expensive_value_that_is_read_many_times_is_computed_once() -> None:
    text = "g (float[64,1] x, float[64,96] z) => (float[64,96] y) { a = Exp(x) y = Add(a, z) }"
    compiled = compile_graph(parse(text))
    assert [str(each) for each in compiled.apart] == ["y stays apart from a: it reads each element of 'a' 96 times"]


def test_switching_fusion_off_gives_a_kernel_for_each_node() -> None:
    model = parse("g (float[4,8] x) => (float[4,8] y) { a = Exp(x) b = Neg(a) y = Abs(b) }")
    (native,) = compile_graph(model, fuse=False).program.steps
    assert [task.nodes for task in native.tasks] == [("a",), ("b",), ("y",)]  # type: ignore[union-attr]


def _chain(count: int, following: str) -> str:
    nodes = " ".join(f"v{n + 1} = {following.format(f'v{n}')}" for n in range(count))
    return f"g (float[6,8] v0) => (float[6,8] v{count}) {{ {nodes} }}"


def test_a_long_chain_is_several_kernels_and_each_node_is_lowered_as_often_as_in_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = []

    def count(node: ir.Node, registry: Registry, known: dict[ir.Value, Tensor]) -> list[Tensor]:
        lowered.append(node.name)
        return lower_node(node, registry, known)

    monkeypatch.setattr(grouping, "lower_node", count)
    often = {}
    for length in (20, 120):
        model = parse(_chain(length, "Sqrt({0})"))
        compiled = compile_graph(model)
        often[length] = len(lowered) / length
        lowered.clear()
    assert [len(task.nodes) for task in tasks(compiled.program)] == [MOST_NODES, 120 - MOST_NODES]
    assert often[120] <= often[20] * 1.1
    feeds = {"v0": np.abs(floats(6, 8))}
    assert_same(run(model, feeds), by_definition(model, feeds))


def test_reductions_in_a_chain_do_not_compute_all_before_them_again_and_again() -> None:
    found = tasks(compile_graph(parse(_chain(24, "Softmax({0})"))).program)
    assert 1 < len(found) < 24
    assert sum(len(task.nodes) for task in found) == 24
