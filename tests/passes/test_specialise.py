"""Specialising: concrete types everywhere, what is known is computed, decided branches are taken, unknown shapes stay unknown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from anycann.frontends.onnx.upgrade import upgrade_model
from anycann.graph.evaluate import evaluate_node
from anycann.graph.registry import OPSET, Operator, TensorType, library
from anycann.passes import specialise as specialising
from anycann.passes.specialise import specialise
from anycann.support.errors import ModelError
from anycann.te import dtypes
from tests.ops.operator_runner import build_node
from tests.passes.graphs import assert_same, parse


def specialised(text: str, constants: dict[str, np.ndarray] | None = None, **shapes: tuple[int, ...]) -> ir.Graph:
    model = upgrade_model(ir.from_proto(parse(text, **(constants or {}))))
    by_name = {value.name: value for value in model.graph.inputs}
    known = {"FLOAT": dtypes.float32, "INT64": dtypes.int64, "BOOL": dtypes.bool_}
    types = {name: TensorType(known[by_name[name].dtype.name], shape) for name, shape in shapes.items()}  # type: ignore[union-attr]
    specialise(model.graph, types)
    return model.graph


def text_of(graph: ir.Graph) -> str:
    """The nodes and the shapes of what they make: "Relu[2, 7] NonZero[1, ?] Loop?"."""
    return " ".join(f"{node.op_type}{shape_text(node.outputs[0].shape)}" for node in graph)


def shape_text(shape: ir.Shape | None) -> str:
    sizes = [str(size) if isinstance(size, int) else "?" for size in shape or ()]
    return "?" if shape is None else f"[{', '.join(sizes)}]"


@pytest.mark.parametrize(
    ("text", "constants", "shapes", "expected"),
    [
        (
            "g (float[N,M] x) => (float[K] y) { s = Shape(x) p = ReduceProd<keepdims=1>(s) r = Relu(x) y = Reshape(r, p) }",
            {},
            {"x": (2, 7)},
            "Relu[2, 7] Reshape[14]",
        ),
        (
            "g (float[N,M] x) => (float[A,B] y)"
            " { s = Shape<start=0,end=1>(x) z = ConstantOfShape(s) u = Unsqueeze(z, one) y = Add(x, u) }",
            {"one": np.array([1])},
            {"x": (3, 2)},
            "Add[3, 2]",
        ),
        ("g (float[N] x) => (float[M] y) { n = NonZero(x) y = Cast<to=1>(n) }", {}, {"x": (5,)}, "NonZero[1, ?] Cast[1, ?]"),
        (
            "g (float[N] x) => (float[M] y) { e = Equal(a, a) y = If (e) <then_branch = t () => (float[K] p) { p = Exp(x) },"
            " else_branch = f () => (float[K] q) { q = Neg(x) }> }",
            {"a": np.array(1)},
            {"x": (5,)},
            "Exp[5]",
        ),
        ("g (float[N] x, bool c) => (float[M] y) { y = If (c) <then_branch = t () => (float[K] p) { p = Exp(x) },"
         " else_branch = f () => (float[K] q) { q = Neg(x) }> }", {}, {"x": (5,), "c": ()}, "If?"),
        (
            "g (float[N,M] x, int64[K] n) => (float[K] y, int64[2] s) { z = Slice(x, n, two, two) s = Shape(z) t = Add(s, s) }",
            {"two": np.array([1])}, {"x": (5, 6), "n": (1,)}, "Slice[?, ?] Shape[2] Add[2]",
        ),
        ("g (float[N] x) => (float[M] y) { r = RandomNormal<shape=[5]>() y = Add(x, r) }", {}, {"x": (5,)}, "RandomNormal[5] Add[5]"),
    ],
)  # fmt: skip
def test_a_graph_becomes_concrete(text: str, constants: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]], expected: str) -> None:
    assert text_of(specialised(text, constants, **shapes)) == expected


def test_shapes_that_contradict_each_other_name_the_node() -> None:
    with pytest.raises(ModelError, match=r"'y' \(MatMul\): Incompatible dimensions.*; its inputs: \w+ FLOAT\[\d+,\d+\], \w+ FLOAT\["):
        specialised("g (float[N,M] x, float[K,L] w) => (float[N,L] y) { y = MatMul(x, w) }", x=(2, 3), w=(4, 5))


def test_a_huge_constant_is_left_for_the_run() -> None:
    graph = specialised(
        "g (float[N] x) => (float[N] y) { z = ConstantOfShape(n) s = ReduceSum<keepdims=0>(z) y = Add(x, s) }",
        {"n": np.array([1 << 28])},
        x=(3,),
    )
    assert "ConstantOfShape" in text_of(graph)


def test_folding_keeps_the_names_of_outputs() -> None:
    graph = specialised("g () => (float[2] y) { y = Add(a, a) }", {"a": np.array([1, 2], np.float32)})
    assert [output.name for output in graph.outputs] == ["y"]
    np.testing.assert_array_equal(graph.outputs[0].const_value.numpy(), [2, 4])  # type: ignore[union-attr]


@pytest.mark.parametrize("operator", [o for o in library().all() if o.fold is not None], ids=lambda o: o.op_type)
def test_what_has_a_fast_way_to_be_computed_now_gives_what_its_reference_gives(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    assert operator.samples is not None
    for sample in operator.samples(np.random.default_rng()):
        graph = ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": OPSET}), ir_version=10).graph
        node = build_node(operator, replace(sample, constant=tuple(range(len(sample.operands)))))
        (want,) = evaluate_node(ir.to_proto(node), OPSET, list(sample.operands))  # type: ignore[arg-type]
        graph.append(node)
        graph.outputs.append(node.outputs[0])
        with monkeypatch.context() as patch:
            patch.setattr(specialising, "evaluate_node", lambda *_: pytest.fail("the reference was asked"))
            specialise(graph, {})
        assert not list(graph)
        assert_same([graph.outputs[0].const_value.numpy()], [want])  # type: ignore[union-attr, list-item]
