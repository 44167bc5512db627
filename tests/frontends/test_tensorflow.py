"""Frozen graphs of TensorFlow: what their operators mean, where channels go, and what is refused."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir
import pytest

from anycann.frontends.tensorflow.load import load_frozen_graph
from anycann.frontends.tensorflow.schema import message_class
from anycann.frontends.tensorflow.values import tensor_array
from anycann.graph.registry import static_type
from anycann.passes.pipeline import run_passes
from anycann.session import InferenceSession
from anycann.support.errors import ModelError, UnsupportedError, UsageError
from tests.frontends.tensorflow_graphs import GraphDef

STRIDES = {"strides": [1, 1, 1, 1], "padding": "SAME"}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng()


def run(graph: GraphDef, outputs: list[str], **feeds: np.ndarray) -> list[np.ndarray]:
    return list(InferenceSession(load_frozen_graph(graph.content(), outputs=outputs)).run(None, feeds))


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def convolved(x: np.ndarray, weights: np.ndarray, step: int = 1) -> np.ndarray:
    """SAME convolution with channels last, one window after the other."""
    height, width = weights.shape[:2]
    rows, columns = -(-x.shape[1] // step), -(-x.shape[2] // step)
    down = max((rows - 1) * step + height - x.shape[1], 0)
    right = max((columns - 1) * step + width - x.shape[2], 0)
    padded = np.pad(x.astype(np.float64), ((0, 0), (down // 2, down - down // 2), (right // 2, right - right // 2), (0, 0)))
    made = np.zeros((x.shape[0], rows, columns, weights.shape[3]))
    for row in range(rows):
        for column in range(columns):
            window = padded[:, row * step : row * step + height, column * step : column * step + width]
            made[:, row, column] = np.einsum("nhwc,hwco->no", window, weights)
    return made


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("shape", [(2, 7, 6, 5), (None, None, None, 5)])
def test_a_same_convolution_has_the_larger_padding_behind(rng: np.random.Generator, step: int, shape: tuple[int | None, ...]) -> None:
    x, weights = floats(rng, 2, 7, 6, 5), floats(rng, 3, 2, 5, 4)
    graph = GraphDef()
    graph.placeholder("x", shape)
    graph.constant("w", weights)
    graph.node("Conv2D", "x", "w", name="y", strides=[1, step, step, 1], padding="SAME")
    np.testing.assert_allclose(run(graph, ["y"], x=x)[0], convolved(x, weights, step), rtol=1e-4, atol=1e-5)


def test_a_depthwise_convolution_keeps_the_results_of_a_channel_together(rng: np.random.Generator) -> None:
    x, weights = floats(rng, 1, 5, 4, 3), floats(rng, 3, 3, 3, 2)
    graph = GraphDef()
    graph.placeholder("x", x.shape)
    graph.constant("w", weights)
    graph.node("DepthwiseConv2dNative", "x", "w", name="y", **STRIDES)
    expected = [convolved(x[..., c : c + 1], weights[:, :, c : c + 1, m : m + 1]) for c in range(3) for m in range(2)]
    np.testing.assert_allclose(run(graph, ["y"], x=x)[0], np.concatenate(expected, -1), rtol=1e-4, atol=1e-5)


def block(rng: np.random.Generator) -> GraphDef:
    """Convolution, normalisation, a way past it, pooling, mean, product: what a ResNet is made of."""
    graph = GraphDef()
    graph.placeholder("x", (None, 9, 8, 6))
    for name, shape in (("w", (3, 3, 6, 6)), ("bias", (6,)), ("mean", (6,)), ("scale", (6,)), ("dense", (6, 4))):
        graph.constant(name, floats(rng, *shape))
    graph.constant("variance", np.full(6, 0.7))
    graph.constant("spatial", [1, 2], np.int32)
    graph.constant("paddings", [[0, 0], [1, 1], [2, 0], [0, 0]], np.int32)
    graph.node("Conv2D", "x", "w", name="conv", **STRIDES)
    graph.node("BiasAdd", "conv", "bias", name="biased")
    graph.node("FusedBatchNormV3", "biased", "scale", "bias", "mean", "variance", name="norm", is_training=False, epsilon=0.001)
    graph.node("AddV2", "norm", "x", name="sum")
    graph.node("Relu", "sum", name="relu")
    graph.node("Pad", "relu", "paddings", name="padded")
    graph.node("MaxPool", "padded", name="pooled", ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
    graph.node("Mean", "pooled", "spatial", name="average")
    graph.node("MatMul", "average", "dense", name="logits")
    return graph


def constant(graph: GraphDef, name: str) -> np.ndarray:
    node = next(node for node in graph.proto.node if node.name == name)
    return tensor_array(node.attr[0].value.tensor)


def test_a_residual_block_computes_what_its_formula_says(rng: np.random.Generator) -> None:
    graph, x = block(rng), floats(rng, 3, 9, 8, 6)
    w, bias, mean, scale, dense = (constant(graph, name).astype(np.float64) for name in ("w", "bias", "mean", "scale", "dense"))
    norm = (convolved(x, w) + bias - mean) / np.sqrt(np.float32(0.7) + 0.001) * scale + bias
    padded = np.pad(np.maximum(norm + x, 0), ((0, 0), (1, 1), (2, 0), (0, 0)))
    pooled = padded[:, :10, :10].reshape(3, 5, 2, 5, 2, 6).max((2, 4))
    np.testing.assert_allclose(run(graph, ["logits"], x=x)[0], pooled.mean((1, 2)) @ dense, rtol=1e-4, atol=1e-4)


def test_only_the_input_of_a_residual_block_is_turned(rng: np.random.Generator) -> None:
    model = load_frozen_graph(block(rng).content(), {"x": (2, 9, 8, 6)})
    run_passes(model, {"x": static_type(model.graph.inputs[0])})
    turned = [node for node in model.graph if node.op_type == "Transpose"]
    assert [list(node.inputs) for node in turned] == [[model.graph.inputs[0]]]


@pytest.mark.parametrize("source", ["computed", "given"])
def test_zeros_around_a_picture_and_its_bias_go_into_the_convolution(rng: np.random.Generator, source: str) -> None:
    x, w, bias = floats(rng, 2, 6, 5, 4), floats(rng, 3, 3, 4, 7), floats(rng, 7)
    graph = GraphDef()
    graph.placeholder("x", x.shape)
    graph.constant("w", w)
    graph.constant("bias", bias)
    graph.constant("edges", [[0, 0], [2, 1], [1, 3], [0, 0]], np.int32)
    graph.node("MaxPool", "x", name="computed", ksize=[1, 1, 1, 1], strides=[1, 1, 1, 1], padding="SAME")
    graph.node("Pad", "computed" if source == "computed" else "x", "edges", name="padded")
    graph.node("Conv2D", "padded", "w", name="conv", strides=[1, 1, 1, 1], padding="VALID")
    graph.node("BiasAdd", "conv", "bias", name="biased")
    graph.node("Relu", "biased", name="y")
    wide = np.pad(x, ((0, 0), (3, 2), (2, 4), (0, 0)))  # as wide as SAME would make it, and then cut
    expected = np.maximum(convolved(wide, w)[:, 2:-2, 2:-2] + bias, 0)
    np.testing.assert_allclose(run(graph, ["y"], x=x)[0], expected, rtol=1e-4, atol=1e-4)
    model = load_frozen_graph(graph.content())
    run_passes(model, {"x": static_type(model.graph.inputs[0])})
    assert [node.op_type for node in model.graph if node.op_type in ("Conv", "Pad", "Add")] == ["Conv"]


def test_nodes_keep_their_names_and_outputs_are_called_after_them(rng: np.random.Generator) -> None:
    model = load_frozen_graph(block(rng).content())
    assert [value.name for value in model.graph.outputs] == ["logits:0"]
    assert {node.name for node in model.graph} >= {"conv", "biased", "norm", "sum", "relu", "padded", "pooled", "average", "logits"}


def test_results_that_are_read_in_both_orders_are_right_in_both(rng: np.random.Generator) -> None:
    x, w = floats(rng, 2, 4, 3, 5), floats(rng, 1, 1, 5, 6)
    graph = GraphDef()
    graph.placeholder("x", x.shape)
    graph.constant("w", w)
    graph.node("Conv2D", "x", "w", name="c", **STRIDES)
    graph.constant("order", [0, 3, 1, 2], np.int32)
    graph.node("Transpose", "c", "order", name="nchw")
    graph.constant("sizes", [-1, 18], np.int32)
    graph.node("Reshape", "c", "sizes", name="rows")
    graph.constant("last", -1, np.int32)
    graph.node("Split", "last", "c", name="parts", num_split=3)
    graph.node("ConcatV2", "parts:2", "parts", "last", name="joined")
    graph.node("Shape", "c", name="shape")
    c = convolved(x, w)
    expected = [c.transpose(0, 3, 1, 2), c.reshape(-1, 18), np.concatenate([c[..., 4:], c[..., :2]], -1), [2, 4, 3, 6]]
    for got, wanted in zip(run(graph, ["nchw", "rows", "joined", "shape"], x=x), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("masks", "spec", "expected"),
    [
        ({}, ([1, 0, 2], [3, 2, 5], [1, 1, 2]), np.s_[1:3, 0:2, 2:5:2]),
        ({"begin_mask": 1, "end_mask": 4}, ([1, 1, 1], [2, 2, 2], [1, 1, 1]), np.s_[:2, 1:2, 1:]),
        ({"shrink_axis_mask": 5}, ([-1, 1, 2], [0, 3, 3], [1, 1, 1]), np.s_[-1, 1:3, 2]),
        ({"ellipsis_mask": 1, "shrink_axis_mask": 2}, ([0, -2], [0, 0], [1, 1]), np.s_[..., -2]),
        ({"new_axis_mask": 2, "end_mask": 1}, ([1, 0, 1], [0, 0, 3], [1, 1, 1]), np.s_[1:, None, 1:3]),
        ({"begin_mask": 3, "end_mask": 3}, ([0, 0], [0, 0], [-1, -2]), np.s_[::-1, ::-2]),
    ],
)
def test_the_masks_of_a_strided_slice(masks: dict[str, int], spec: tuple[list[int], ...], expected: object) -> None:
    x = np.arange(4 * 3 * 6, dtype=np.float32).reshape(4, 3, 6)
    graph = GraphDef()
    graph.placeholder("x", x.shape)
    for name, row in zip("bes", spec, strict=True):
        graph.constant(name, row, np.int32)
    graph.node("StridedSlice", "x", "b", "e", "s", name="y", **masks)
    np.testing.assert_array_equal(run(graph, ["y"], x=x)[0], x[expected])  # type: ignore[index]


def test_sizes_that_are_computed_from_the_input_follow_it(rng: np.random.Generator) -> None:
    graph = GraphDef()
    graph.placeholder("x", (None, None, 3))
    graph.node("Shape", "x", name="shape")
    for name, row in (("from", [0]), ("to", [1]), ("one", [1])):
        graph.constant(name, row, np.int32)
    graph.node("StridedSlice", "shape", "from", "to", "one", name="batch", shrink_axis_mask=1)
    graph.constant("rest", -1, np.int32)
    graph.node("Pack", "batch", "rest", name="sizes", axis=0)
    graph.node("Reshape", "x", "sizes", name="flat")
    for shape in ((2, 5, 3), (4, 1, 3)):
        x = floats(rng, *shape)
        np.testing.assert_array_equal(run(graph, ["flat"], x=x)[0], x.reshape(shape[0], -1))


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("condition", [False, True])
def test_a_condition_chooses_a_side_while_running_or_beforehand(known: bool, condition: bool) -> None:
    graph = GraphDef()
    graph.placeholder("x", (3,))
    if known:
        graph.constant("c", condition, bool)
    else:
        graph.placeholder("c", (), bool)
    graph.node("Switch", "x", "c", name="switch")
    graph.node("Neg", "switch:1", name="yes")
    graph.constant("two", 2)
    graph.node("Mul", "switch", "two", name="no")
    if known:
        graph.node("Unheard", "switch:1" if not condition else "switch", name="never")
    graph.node("Merge", "no" if not known or not condition else "never", "yes" if not known or condition else "never", name="y")
    x = np.array([1, 2, 3], np.float32)
    feeds = {"x": x} if known else {"x": x, "c": np.array(condition)}
    np.testing.assert_array_equal(run(graph, ["y"], **feeds)[0], -x if condition else 2 * x)


def test_a_placeholder_with_a_default_is_an_input_where_its_shape_is_given() -> None:
    graph = GraphDef()
    graph.constant("default", 3.0)
    graph.node("PlaceholderWithDefault", "default", name="factor", dtype=np.dtype(np.float32))
    graph.placeholder("x", (2,))
    graph.node("Mul", "x", "factor", name="y")
    x = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(run(graph, ["y"], x=x)[0], 3 * x)
    session = InferenceSession(load_frozen_graph(graph.content(), {"factor": (), "x": (2,)}))
    np.testing.assert_array_equal(session.run(None, {"x": x, "factor": np.array(5, np.float32)})[0], 5 * x)


def test_short_lists_of_values_go_on_with_their_last_one() -> None:
    proto = message_class("TensorProto")(dtype=1, float_val=[1, 2])
    proto.tensor_shape.dim.add(size=4)
    np.testing.assert_array_equal(tensor_array(proto), np.array([1, 2, 2, 2], np.float32))
    half = message_class("TensorProto")(dtype=19, half_val=[0x3C00])
    np.testing.assert_array_equal(tensor_array(half), np.float16(1))


def test_every_operator_that_is_missing_is_named() -> None:
    graph = GraphDef()
    graph.placeholder("x", (2,))
    graph.node("Unheard", "x", name="a")
    graph.node("Unheard", "a", name="b")
    graph.node("Strange", "b", name="c")
    with pytest.raises(UnsupportedError, match=r"Unheard \(2, the first is 'a'\), Strange \(1, the first is 'c'\)"):
        load_frozen_graph(graph.content())


def test_what_is_no_graph_is_told() -> None:
    with pytest.raises(ModelError, match="not a GraphDef of TensorFlow"):
        load_frozen_graph(b'node {\n  name: "x"\n}\n')
    with pytest.raises(ModelError, match="no nodes"):
        load_frozen_graph(b"")
    graph = GraphDef()
    graph.node("Relu", "nowhere", name="y")
    with pytest.raises(ModelError, match="reads node 'nowhere', which is not in the graph"):
        load_frozen_graph(graph.content())


def test_names_that_are_not_there_are_told() -> None:
    graph = GraphDef()
    graph.placeholder("x", (2,))
    graph.node("Relu", "x", name="y")
    with pytest.raises(UsageError, match="the graph has no node 'z'"):
        load_frozen_graph(graph.content(), outputs=["z:0"])
    with pytest.raises(UsageError, match="input 'X' is not in the model; accepted: x"):
        load_frozen_graph(graph.content(), {"X": (2,)})


def test_damaged_files_end_in_an_error_and_nothing_else(rng: np.random.Generator) -> None:
    content = bytearray(block(rng).content())
    for place in rng.integers(0, len(content), 60):
        damaged = bytes(content[:place]) + bytes([int(rng.integers(256))]) + bytes(content[place + 1 :])
        assert _loaded_or_told(damaged) in (ir.Model, ModelError, UnsupportedError, UsageError)


def _loaded_or_told(content: bytes) -> type:
    try:
        return type(load_frozen_graph(content))
    except Exception as error:
        return type(error)


def test_inputs_come_in_the_order_of_the_file_though_nobody_reads_them(rng: np.random.Generator) -> None:
    graph = GraphDef()
    graph.placeholder("first", (2,))
    graph.placeholder("second", (3,))
    graph.node("Relu", "second", name="y")
    model = load_frozen_graph(graph.content())
    assert [value.name for value in model.graph.inputs] == ["first", "second"]
    assert Counter(node.op_type for node in model.graph) == {"Relu": 1, "Identity": 1}
    assert isinstance(model, ir.Model)
