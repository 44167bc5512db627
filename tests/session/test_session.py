"""A session: what it refuses and how, buffers of the caller, inputs with a default value, options."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.session import _dtype_name
from anycann.support.errors import UsageError
from tests.session.models import FIXED, OPEN, PRODUCT, Feeds, assert_agrees, floats, offline, parse

X, N = floats(2, 3), np.array([1, 2])


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"x": X}, r"input 'n' is missing; accepted: x, n"),
        ({"x": X, "n": N, "w": X}, r"input 'w' is unknown; accepted: x, n"),
        ({"x": X.astype(np.float64), "n": N}, r"input 'x' has dtype float64; accepted: float32"),
        ({"x": X, "n": N.astype(np.int32)}, r"input 'n' has dtype int32; accepted: int64"),
        ({"x": X.reshape(-1), "n": N}, r"input 'x' has shape \[6\]; accepted: \[2, 3\]"),
        ({"x": X.T, "n": N}, r"input 'x' has shape \[3, 2\]; accepted: \[2, 3\]"),
        ({"x": np.zeros((2, 0), np.float32), "n": N}, r"input 'x' has shape \[2, 0\]; accepted: \[2, 3\]"),
        ({"x": "text", "n": N}, r"input 'x' has dtype <U4; accepted: float32"),
        ({"x": np.array([[None] * 3] * 2), "n": N}, r"input 'x' has dtype object; accepted: float32"),
    ],
)
def test_wrong_feeds_are_refused_with_what_is_accepted(feeds: Feeds, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        InferenceSession(FIXED).run(None, feeds)


def test_open_sizes_are_named_in_the_refusal() -> None:
    with pytest.raises(UsageError, match=r"input 'x' has shape \[4\]; accepted: \['N', 'C', 'H'\]"):
        InferenceSession(OPEN).run(None, {"x": floats(4)})


def test_an_unknown_output_is_refused() -> None:
    with pytest.raises(UsageError, match="output 'q' is unknown; accepted: y, z"):
        InferenceSession(FIXED).run(["q"], {"x": X, "n": N})


def test_outputs_come_in_the_order_asked_for() -> None:
    session = InferenceSession(FIXED)
    z, y = session.run(["z", "y"], {"x": X, "n": N})
    np.testing.assert_allclose(y, np.exp(X), rtol=1e-6)
    np.testing.assert_allclose(z, X.sum(1) * N, rtol=1e-6, atol=1e-6)
    assert session.run([], {"x": X, "n": N}) == []


def test_the_interface_is_that_of_onnx_runtime() -> None:
    ours, theirs = InferenceSession(FIXED), onnxruntime.InferenceSession(FIXED.SerializeToString(), providers=["CPUExecutionProvider"])
    for mine, other in zip((*ours.get_inputs(), *ours.get_outputs()), (*theirs.get_inputs(), *theirs.get_outputs()), strict=True):
        assert (mine.name, mine.type, list(mine.shape)) == (other.name, other.type, other.shape)


# ---- feeds and buffers
@pytest.mark.parametrize(
    "make",
    [
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x[::-1].copy()[::-1],
        lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape),
        lambda x: np.broadcast_to(x[:1], x.shape),
    ],
    ids=["columns first", "every other", "backwards", "unaligned", "broadcast"],
)
def test_feeds_of_any_memory_order_are_read_right(make) -> None:  # type: ignore[no-untyped-def]
    feeds = {"x": make(floats(5, 40))}
    assert_agrees(PRODUCT, feeds, InferenceSession(PRODUCT))


def test_nan_and_infinity_go_through() -> None:
    x = floats(3, 40)
    x[0, 3], x[1, 5], x[2, 7] = np.nan, np.inf, -np.inf
    (y,) = InferenceSession(PRODUCT).run(None, {"x": x})
    assert np.isnan(y[0]).all()
    assert np.isfinite(y[1:][~np.isnan(y[1:]) & (y[1:] != np.inf)]).all()
    model = parse("g (float[N] x) => (float[N] y, bool[N] n) { y = Max(x, zero) n = IsNaN(x) }", zero=np.float32(0))
    values = np.array([np.nan, np.inf, -np.inf, -1, 2] * 9, np.float32)
    y, n = InferenceSession(model).run(None, {"x": values})
    np.testing.assert_array_equal(y, np.maximum(values, 0))
    np.testing.assert_array_equal(n, np.isnan(values))


def test_results_are_written_into_the_callers_buffers() -> None:
    session = InferenceSession(FIXED)
    y = np.full((2, 3), np.nan, np.float32)
    results = session.run(None, {"x": X, "n": N}, {"y": y})
    assert results[0] is y
    np.testing.assert_allclose(y, np.exp(X), rtol=1e-6)


def test_a_buffer_that_is_also_the_feed_does_not_spoil_the_result() -> None:
    model = parse("g (float[N,N] x) => (float[N,N] y) { y = MatMul(x, x) }")
    x = floats(30, 30)
    want = x @ x
    InferenceSession(model).run(None, {"x": x}, {"y": x})
    np.testing.assert_allclose(x, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("buffer", [np.zeros((3, 2), np.float32), np.zeros((2, 3), np.float64), np.zeros(6, np.float32)], ids=str)
def test_a_buffer_of_another_type_is_refused(buffer: np.ndarray) -> None:
    with pytest.raises(UsageError, match=r"the buffer for output 0 \('y'\) is .*; accepted: a numpy array of float32\[2, 3\]"):
        InferenceSession(FIXED).run(None, {"x": X, "n": N}, {"y": buffer})


def test_results_of_two_runs_do_not_share_memory() -> None:
    session = InferenceSession(PRODUCT)
    first = session.run(None, {"x": floats(4, 40)})[0]
    kept = first.copy()
    session.run(None, {"x": floats(4, 40, seed=1)})
    np.testing.assert_array_equal(first, kept)


def test_an_input_that_is_also_an_output_is_a_copy() -> None:
    model = parse("g (float[N] x) => (float[N] x, float[N] y, float[N] z) { y = Identity(x) z = Identity(x) }")
    x = floats(7)
    for result in InferenceSession(model).run(None, {"x": x}):
        assert not np.shares_memory(result, x)
        np.testing.assert_array_equal(result, x)


# ---- inputs with a default value
def with_default(ir_version: int = 8) -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        f'<ir_version: {ir_version}, opset_import: ["": 20]> g'
        " (float[N,40] x, float[40,M] w, int64[1] axes, float[1] scale) => (float[N] y) {"
        " p = MatMul(x, w) s = Mul(p, scale) y = ReduceSum<keepdims=0>(s, axes) }"
    )
    for name, array in {"w": floats(40, 24), "axes": np.array([1]), "scale": np.float32([0.5])}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


@pytest.mark.parametrize("kind", ["onnx", "om"])
@pytest.mark.parametrize(
    "fed",
    [
        {},
        {"w": floats(40, 24, seed=1)},
        {"w": floats(40, 7, seed=2)},
        {"scale": np.float32([3]), "axes": np.array([0])},
        {"axes": np.array([-1])},
    ],
    ids=["none", "weights", "wider weights", "scale and axes", "axes"],
)
def test_a_feed_replaces_a_default_as_in_onnx_runtime(fed: Feeds, kind: str, tmp_path: Path) -> None:
    model = with_default()
    session = InferenceSession(model) if kind == "onnx" else offline(model, tmp_path)
    assert_agrees(model, {"x": floats(3, 40), **fed}, session)
    assert_agrees(model, {"x": floats(3, 40)}, session)
    assert_agrees(model, {**fed, "x": floats(5, 40)}, session)


def test_inputs_with_a_default_are_listed_as_in_onnx_runtime() -> None:
    for ir_version in (3, 4, 8):
        model = with_default(ir_version)
        ours, theirs = InferenceSession(model), onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        assert [arg.name for arg in ours.get_inputs()] == [arg.name for arg in theirs.get_inputs()]
        want = [(arg.name, arg.type, arg.shape) for arg in theirs.get_overridable_initializers()]
        assert sorted((arg.name, arg.type, list(arg.shape)) for arg in ours.get_overridable_initializers()) == sorted(want)


@pytest.mark.parametrize(
    ("ir_version", "feeds", "message"),
    [
        (3, {"w": floats(40, 24)}, r"input 'w' is unknown; accepted: x$"),
        (8, {"w": floats(24, 40)}, r"input 'w' has shape \[24, 40\]; accepted: \[40, 'M'\]"),
        (8, {"w": floats(40, 24).astype(np.float64)}, r"input 'w' has dtype float64; accepted: float32"),
        (8, {"w": None}, r"input 'w' is None"),
        (8, {"q": X}, r"input 'q' is unknown; accepted: x, w, axes, scale"),
    ],
)
def test_wrong_feeds_for_a_default_are_refused(ir_version: int, feeds: Feeds, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        InferenceSession(with_default(ir_version)).run(None, {"x": floats(3, 40), **feeds})


# ---- options
def test_fusion_and_poison_change_no_result() -> None:
    feeds = {"x": floats(3, 17, 21)}
    results = [
        InferenceSession(OPEN, SessionOptions(fuse=fuse, poison=poison)).run(None, feeds)[0]
        for fuse in (True, False)
        for poison in (True, False)
    ]
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-6)


def test_dropout_that_trains_is_not_taken_for_an_identity() -> None:
    model = parse(
        "g (float[N] x) => (float[N] y) { y0 = Dropout(x, ratio, train) y = Abs(y0) }", ratio=np.float32(0.5), train=np.array(True)
    )
    (y,) = InferenceSession(model).run(None, {"x": np.ones(1000, np.float32)})
    assert set(np.unique(y)) == {0.0, 2.0}


def test_names_of_types_are_kept_for_few_lengths_of_strings() -> None:
    session = InferenceSession(parse("g (string[N] x) => (string[N] y) { y = Identity(x) }"))
    for length in range(1, 100):
        assert session.run(None, {"x": np.array(["a" * length])})[0].tolist() == ["a" * length]
    assert _dtype_name.cache_info().currsize < 99


def test_engines_say_what_runs_on_the_host_and_why() -> None:
    model = parse("g (string[1] a, float[4] x) => (float[4] y, string[1] s) { y = Exp(x) s = StringConcat(a, a) }")
    session = InferenceSession(model)
    _, s = session.run(None, {"a": np.array(["b"], object), "x": floats(4)})
    assert s.tolist() == ["bb"]
    reasons = {r.op_type: (r.engine, r.reason) for r in session.engines()}
    assert reasons == {"Exp": ("AiCore", ""), "StringConcat": ("AiCpu", "no native code for this operator")}
