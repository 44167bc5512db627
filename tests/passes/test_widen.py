"""Models of float16 that compute in float32: which they are, what they give, and that nobody sees it from outside."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
import onnx_ir as ir
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.assembly.graph_compiler import type_of
from anycann.frontends.onnx.upgrade import upgrade_model
from anycann.om.plan import TensorSpec
from anycann.passes.pipeline import run_passes
from anycann.passes.widen import HALVES, Widened, _wide, is_widened

NATIVE = SessionOptions(switched_off=frozenset({HALVES}))
HALF, FLOAT = TensorProto.FLOAT16, TensorProto.FLOAT


def model_of(
    nodes: Sequence[onnx.NodeProto], shape: Sequence[int], kind: int = HALF, outputs: dict[str, int] | None = None
) -> onnx.ModelProto:
    """Nodes that read x and the half constants w (8 x 8 channels of 3 x 3), v (8 x 8) and b (8)."""
    random = np.random.default_rng(4)
    constants = {
        name: (random.standard_normal(size) / 4).astype(np.float16) for name, size in (("w", (8, 8, 3, 3)), ("v", (8, 8)), ("b", (8,)))
    }
    given = helper.make_tensor_value_info("x", kind, shape)
    results = [helper.make_tensor_value_info(name, type_, None) for name, type_ in (outputs or {"y": HALF}).items()]
    graph = helper.make_graph(nodes, "halves", [given], results, [numpy_helper.from_array(a, name) for name, a in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


CONVOLUTIONS = [
    helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
    helper.make_node("Relu", ["c"], ["r"]),
    helper.make_node("Conv", ["r", "w"], ["d"], pads=[1, 1, 1, 1]),
    helper.make_node("Add", ["d", "c"], ["y"]),
]


def widened(model: onnx.ModelProto) -> bool:
    clone = upgrade_model(ir.from_proto(model))
    (x,) = clone.graph.inputs
    kind = "float16" if x.dtype == ir.DataType.FLOAT16 else "float32"
    run_passes(clone, {"x": type_of(TensorSpec("x", kind, tuple(x.shape.numpy())))})  # type: ignore[union-attr]
    return is_widened(clone.graph)


def test_results_are_halves_and_as_near_as_those_of_halves() -> None:
    model = model_of(CONVOLUTIONS, (2, 8, 9, 11))
    assert widened(model)
    x = np.random.default_rng().standard_normal((2, 8, 9, 11)).astype(np.float16)
    wide = InferenceSession(model).run(None, {"x": x})[0]
    native = InferenceSession(model, NATIVE).run(None, {"x": x})[0]
    assert wide.dtype == native.dtype == np.float16
    np.testing.assert_allclose(wide.astype(np.float32), native.astype(np.float32), rtol=0, atol=4e-3 * np.abs(native).max())
    session = InferenceSession(model)
    assert [(each.name, each.type) for each in (*session.get_inputs(), *session.get_outputs())] == [
        ("x", "tensor(float16)"),
        ("y", "tensor(float16)"),
    ]


def test_what_is_stored_is_rounded() -> None:
    """3 * 1025 is 3076 in float16; 3 would be left of it if what the second product reads were float32."""
    constants = {"v": np.full((1, 8), 3), "i": np.eye(8), "less": np.full(8, -3072)}
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["p"]),
        helper.make_node("MatMul", ["p", "i"], ["q"]),
        helper.make_node("Add", ["q", "less"], ["y"]),
    ]
    known = [numpy_helper.from_array(array.astype(np.float16), name) for name, array in constants.items()]
    given, result = helper.make_tensor_value_info("x", HALF, (2, 1)), helper.make_tensor_value_info("y", HALF, None)
    graph = helper.make_graph(nodes, "sums", [given], [result], known)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert widened(model)
    np.testing.assert_array_equal(InferenceSession(model).run(None, {"x": np.full((2, 1), 1025, np.float16)})[0], 4)


def test_what_overflows_is_infinite() -> None:
    nodes = [helper.make_node("MatMul", ["x", "v"], ["p"]), helper.make_node("MatMul", ["p", "v"], ["y"])]
    model = model_of(nodes, (1, 8), outputs={"p": HALF, "y": HALF})
    assert widened(model)
    p, y = InferenceSession(model).run(None, {"x": np.full((1, 8), 60000, np.float16)})
    assert not np.isfinite(p).all()
    assert not np.isfinite(y).any()


def test_inputs_and_outputs_of_float32_are_rounded_where_the_model_casts_them() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=HALF),
        helper.make_node("MatMul", ["h", "v"], ["p"]),
        helper.make_node("MatMul", ["p", "v"], ["q"]),
        helper.make_node("Cast", ["q"], ["y"], to=FLOAT),
    ]
    model = model_of(nodes, (3, 8), FLOAT, {"y": FLOAT})
    assert widened(model)
    x = np.random.default_rng().standard_normal((3, 8)).astype(np.float32)
    results = [
        InferenceSession(model, options).run(None, {"x": each})[0]
        for each in (x, x.astype(np.float16).astype(np.float32))
        for options in (None,)
    ]
    np.testing.assert_array_equal(*results)
    assert results[0].dtype == np.float32
    np.testing.assert_array_equal(results[0], results[0].astype(np.float16).astype(np.float32))


def test_what_the_model_computes_in_float32_is_not_rounded() -> None:
    nodes = [
        *(helper.make_node("MatMul", [a, "v"], [b]) for a, b in (("x", "p"), ("p", "q"))),
        helper.make_node("Cast", ["q"], ["f"], to=FLOAT),
        helper.make_node("Mul", ["f", "f"], ["s"]),
        helper.make_node("ReduceMean", ["s"], ["mean"], axes=[1]),
        helper.make_node("Cast", ["mean"], ["h"], to=HALF),
        helper.make_node("Add", ["h", "q"], ["y"]),
    ]
    model = model_of(nodes, (8, 8), outputs={"q": HALF, "s": FLOAT, "mean": FLOAT, "y": HALF})
    assert widened(model)
    x = np.random.default_rng().standard_normal((8, 8)).astype(np.float16)
    q, s, mean, y = InferenceSession(model).run(None, {"x": x})
    np.testing.assert_allclose(s, q.astype(np.float32) ** 2, rtol=2e-3)
    assert (s != s.astype(np.float16)).any()
    np.testing.assert_allclose(mean, s.mean(1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(y, (mean.astype(np.float16) + q), rtol=0, atol=2e-3 * np.abs(y).max())


@pytest.mark.parametrize(
    "nodes",
    [
        [helper.make_node("MatMul", ["x", "v"], ["y"])],
        [helper.make_node("MatMul", ["x", "x"], ["p"]), helper.make_node("MatMul", ["p", "x"], ["y"])],
    ],
    ids=["one product", "nothing known"],
)
def test_others_stay_as_they_are(nodes: list[onnx.NodeProto]) -> None:
    model = model_of(nodes, (8, 8))
    assert not widened(model)
    x = np.random.default_rng().standard_normal((8, 8)).astype(np.float16)
    np.testing.assert_array_equal(InferenceSession(model).run(None, {"x": x})[0], InferenceSession(model, NATIVE).run(None, {"x": x})[0])


def test_numbers_of_an_operator_that_are_float32_in_every_model_do_not_count() -> None:
    nodes = [
        *CONVOLUTIONS[:3],
        helper.make_node("Constant", [], ["s"], value=numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32))),
        helper.make_node("Resize", ["d", "", "s"], ["y"], mode="linear"),
    ]
    model = model_of(nodes, (1, 8, 6, 7))
    assert widened(model)
    x = np.random.default_rng().standard_normal((1, 8, 6, 7)).astype(np.float16)
    wide, native = (InferenceSession(model, options).run(None, {"x": x})[0] for options in (None, NATIVE))
    np.testing.assert_allclose(wide.astype(np.float32), native.astype(np.float32), rtol=0, atol=4e-3 * np.abs(native).max())


@pytest.mark.parametrize("outputs", [{"y": HALF}, {"y": HALF, "e": HALF}], ids=["inside", "and shown"])
def test_a_table_that_rows_are_picked_from_stays_as_it_is(outputs: dict[str, int]) -> None:
    random = np.random.default_rng()
    table, w = (random.standard_normal(size).astype(np.float16) for size in ((900, 80), (80, 80)))
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["e"]),
        *(helper.make_node("MatMul", [a, "w"], [b]) for a, b in (("e", "p"), ("p", "y"))),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.INT64, (2, 5))
    results = [helper.make_tensor_value_info(name, type_, None) for name, type_ in outputs.items()]
    known = [numpy_helper.from_array(array, name) for name, array in (("table", table), ("w", w))]
    model = helper.make_model(
        helper.make_graph(nodes, "rows", [given], results, known), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    clone = upgrade_model(ir.from_proto(model))
    run_passes(clone, {"x": type_of(TensorSpec("x", "int64", (2, 5)))})
    assert is_widened(clone.graph)
    assert clone.graph.initializers["table"].dtype == ir.DataType.FLOAT16
    x = random.integers(0, 900, (2, 5))
    wide, native = (InferenceSession(model, options).run(None, {"x": x}) for options in (None, NATIVE))
    np.testing.assert_allclose(wide[0].astype(np.float32), native[0].astype(np.float32), rtol=0, atol=4e-3 * np.abs(native[0]).max())
    for shown in wide[1:]:
        np.testing.assert_array_equal(shown, table[x])


def test_a_large_weight_is_widened_where_it_is_read() -> None:
    w = np.random.default_rng().standard_normal((256, 256)).astype(np.float16)
    wide = _wide(ir.tensor(w, name="w"))
    assert isinstance(wide, Widened)
    assert (wide.dtype, wide.name) == (ir.DataType.FLOAT, "w")
    np.testing.assert_array_equal(wide.numpy(), w.astype(np.float32))
    np.testing.assert_array_equal(wide.source.numpy(), w)
