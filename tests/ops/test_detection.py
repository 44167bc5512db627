"""The ends of detectors: what they choose is what ONNX Runtime chooses, box for box."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.graph.evaluate import evaluate_node
from anycann.graph.prepared import PreparedNode
from anycann.graph.registry import OPSET, library
from anycann.target.target import by_name, host
from tests.codegen.kernels.jit import distinct_names
from tests.ops.test_every_operator import failures


@pytest.mark.parametrize("target", distinct_names("host", "avx2", "sse"))
@pytest.mark.parametrize("name", ["Suppression", "Places"])
def test_an_operator_gives_what_its_reference_gives(name: str, target: str) -> None:
    operator = library().find("anycann", name)
    assert operator is not None
    assert not failures(operator, target)


def model(count: int, overlap: float, least: float | None, centred: int, computed: str = "") -> onnx.ModelProto:
    names = ["boxes", "scores", "count", "overlap", *([] if least is None else ["least"])]
    text = f"""<ir_version: 10, opset_import: ["": 20]> g (float[B,N,4] boxes, float[B,C,N] scores{computed}) => (int64[K,3] y) {{
        y = NonMaxSuppression<center_point_box={centred}>({", ".join(names)}) }}"""
    parsed = onnx.parser.parse_model(text)
    values = {"count": np.array([count]), "overlap": np.array([overlap], np.float32), "least": np.array([least or 0], np.float32)}
    for name in names[2:]:
        if name not in computed:
            parsed.graph.initializer.append(onnx.numpy_helper.from_array(values[name], name))
    return parsed


def boxes_and_scores(batch: int, classes: int, count: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    corner, size = rng.uniform(0, 600, (batch, count, 2)), rng.uniform(-40, 120, (batch, count, 2))
    scores = rng.random((batch, classes, count)).astype(np.float32)
    scores[:, :, ::3] = np.round(scores[:, :, ::3], 1)  # equal ones
    return {"boxes": np.concatenate([corner, corner + size], 2).astype(np.float32), "scores": scores}


@pytest.mark.parametrize("target", distinct_names("host", "avx2", "sse"))
@pytest.mark.parametrize(
    ("size", "count", "overlap", "least", "centred"),
    [
        ((1, 1, 1000), 100, 0.5, 0.5, 0),
        ((2, 3, 333), 1000, 0.3, None, 0),
        ((1, 80, 500), 20, 0.7, 0.05, 1),
        ((1, 2, 9), 5, 0.0, 0.9, 1),
        ((1, 1, 200), 200, 0.5, 2.0, 0),
    ],
)
def test_the_boxes_that_stay_are_those_of_onnx_runtime(
    size: tuple[int, int, int], count: int, overlap: float, least: float | None, centred: int, target: str
) -> None:
    proto = model(count, overlap, least, centred)
    session = InferenceSession(proto, SessionOptions(poison=True, target=host() if target == "host" else by_name(target)))
    theirs = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for seed in range(3):
        feeds = boxes_and_scores(*size, seed)
        np.testing.assert_array_equal(session.run(None, feeds)[0], theirs.run(None, feeds)[0])
    assert {node.engine for node in session.engines() if node.op_type == "Suppression"} == {"AiCore"}


def test_a_computed_limit_is_left_to_the_host() -> None:
    proto = model(10, 0.5, None, 0, ", int64[1] count")
    session = InferenceSession(proto)
    feeds = {**boxes_and_scores(1, 2, 30, 0), "count": np.array([3])}
    theirs = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, feeds)[0], theirs.run(None, feeds)[0])
    assert [node.op_type for node in session.engines() if node.engine == "AiCpu"] == ["NonMaxSuppression"]


@pytest.mark.parametrize("shape", [(0,), (7,), (3, 0), (5, 9), (2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bool", "int64", "uint8"])
def test_the_places_of_what_is_not_zero_are_those_of_the_reference(shape: tuple[int, ...], dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    operator = library().find("", "NonZero")
    assert operator is not None
    assert operator.host is not None
    (got,) = operator.host(x)
    (want,) = evaluate_node(onnx.helper.make_node("NonZero", ["x"], ["y"]), OPSET, [x])
    assert isinstance(got, np.ndarray)
    np.testing.assert_array_equal(got, want)  # type: ignore[arg-type]
    assert got.dtype == np.int64


@pytest.mark.parametrize("dtype", ["FLOAT", "FLOAT16", "BOOL", "INT64"])
def test_places_of_a_model_are_searched_by_a_kernel(dtype: str) -> None:
    """One compiled program finds none, some and all; what follows them has the shape of each time."""
    text = f"""<ir_version: 10, opset_import: ["": 20]> g ({dtype.lower()}[3, 5, 7] x) => (int64[3, N] y, int64[N, 3] z) {{
        y = NonZero(x) z = Transpose<perm = [1, 0]>(y) }}"""
    session = InferenceSession(onnx.parser.parse_model(text), SessionOptions(poison=True))
    kind = onnx.helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, dtype))
    for share in (0.0, 0.3, 1.0):
        x = (np.random.default_rng().random((3, 5, 7)) < share).astype(kind)
        y, z = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, np.argwhere(x).T)
        np.testing.assert_array_equal(z, np.argwhere(x))
    assert {node.engine for node in session.engines() if node.op_type == "Places"} == {"AiCore"}


def test_places_that_might_take_much_memory_are_left_to_the_host() -> None:
    text = """<ir_version: 10, opset_import: ["": 20]> g (bool[5000,4000] x) => (int64[M, N] y) { y = NonZero(x) }"""
    session = InferenceSession(onnx.parser.parse_model(text))
    assert [node.op_type for node in session.engines() if node.engine == "AiCpu"] == ["NonZero"]


@pytest.mark.parametrize("transformation", ["half_pixel", "output_half_pixel"])
def test_regions_that_count_their_points_give_what_the_reference_gives(transformation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng()
    attributes = {"output_height": 3, "output_width": 2, "spatial_scale": 0.6, "coordinate_transformation_mode": transformation}
    node = onnx.helper.make_node("RoiAlign", ["x", "rois", "batches"], ["y"], sampling_ratio=0, **attributes)
    corners = rng.uniform(-6, 20, (12, 2))
    rois = np.concatenate([corners, corners + rng.uniform(-2, 25, (12, 2))], axis=1).astype(np.float32)
    operands = [rng.standard_normal((2, 3, 7, 9), np.float32), rois, rng.integers(0, 2, 12)]
    (want,) = evaluate_node(node, OPSET, operands)
    prepared = PreparedNode(node, OPSET)
    monkeypatch.setattr("anycann.graph.prepared.evaluate_node", lambda *_: pytest.fail("the reference was asked"))
    (got,) = prepared(operands)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)  # type: ignore[arg-type]


def test_an_infinite_element_is_in_no_part_of_a_region_but_its_own() -> None:
    node = onnx.helper.make_node("RoiAlign", ["x", "rois", "batches"], ["y"], sampling_ratio=0, output_height=3, output_width=3)
    x = np.random.default_rng().standard_normal((1, 2, 12, 12), np.float32)
    x[0, 0, 2, 2] = np.inf
    operands = [x, np.array([[0, 0, 11, 11], [1.2, 1.4, 9, 8]], np.float32), np.array([0, 0])]
    (got,), (want,) = PreparedNode(node, OPSET)(operands), evaluate_node(node, OPSET, operands)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)  # type: ignore[arg-type]
    assert np.isfinite(got).sum() > 30  # type: ignore[call-overload]


def test_the_largest_of_parts_of_regions_are_those_of_onnx_runtime() -> None:
    rng = np.random.default_rng()
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[2,3,9,11] x, float[R,5] rois) => (float[R,3,4,3] y) {
        y = MaxRoiPool<pooled_shape = [4, 3], spatial_scale = 0.5>(x, rois) }"""
    parsed = onnx.parser.parse_model(text)
    corners = rng.integers(-8, 24, (20, 4)) + 0.25  # halves are rounded differently, and no place is one
    feeds = {
        "x": rng.standard_normal((2, 3, 9, 11), np.float32),
        "rois": np.concatenate([rng.integers(0, 2, (20, 1)), corners], axis=1).astype(np.float32),
    }
    (want,) = onnxruntime.InferenceSession(parsed.SerializeToString()).run(None, feeds)
    (got,) = InferenceSession(parsed, num_threads=1).run(None, feeds)
    np.testing.assert_array_equal(got, want)
