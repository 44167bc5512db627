"""A session: what it refuses and how, buffers of the caller, open shapes, threads, control flow, and offline models beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import shutil

import numpy as np
import onnx
import onnxruntime
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.compiler import CompileOptions, compile_model
from anycann.just_in_time import JustInTimeCompiler, Ready
from anycann.om.plan import TensorSpec
from anycann.om.writer import write_offline_model
from anycann.support.errors import UsageError

Feeds = Mapping[str, np.ndarray]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.getbasetemp() / "cache"
    folder.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv("ANYCANN_CACHE_DIR", str(folder))
    return folder


def parse(text: str, opset: int = 20, **constants: np.ndarray) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {text}')
    for name, array in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return model


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def by_onnx_runtime(model: onnx.ModelProto, feeds: Feeds) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(result) for result in session.run(None, dict(feeds))]


def assert_agrees(model: onnx.ModelProto, feeds: Feeds, session: InferenceSession | None = None) -> None:
    session = session or InferenceSession(model, SessionOptions(poison=True))
    for got, want in zip(session.run(None, feeds), by_onnx_runtime(model, feeds), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


FIXED = parse(
    "g (float[2,3] x, int64[2] n) => (float[2,3] y, float[2] z)"
    " { f = Cast<to=1>(n) y = Exp(x) s = ReduceSum<keepdims=0>(x, one) z = Mul(s, f) }",
    one=np.array([1]),
)
OPEN = parse("g (float[N,C,H] x) => (float[N,C,H] y) { p = Softmax(x) y = Add(p, b) }", b=np.float32(0.5))
PRODUCT = parse("g (float[N,40] x) => (float[N,24] y) { p = MatMul(x, w) y = Relu(p) }", w=floats(40, 24))


# ---- what is refused
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


def offline(model: onnx.ModelProto, path: Path, **options: object) -> InferenceSession:
    write_offline_model(path / "model.om", compile_model(model, CompileOptions(**options)))  # type: ignore[arg-type]
    return InferenceSession(path / "model.om")


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


# ---- shapes
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 5), (1, 17, 33), (4, 1, 16)], ids=str)
def test_open_shapes_are_taken_from_the_feeds(shape: tuple[int, ...]) -> None:
    assert_agrees(OPEN, {"x": floats(*shape)})


@pytest.mark.parametrize("shape", [(0, 3, 5), (2, 0, 5), (2, 3, 0)], ids=str)
def test_empty_inputs_give_empty_outputs(shape: tuple[int, ...]) -> None:
    (y,) = InferenceSession(OPEN).run(None, {"x": floats(*shape)})
    assert (y.shape, y.dtype) == (shape, np.float32)


def test_a_product_over_nothing_is_zero() -> None:
    model = parse("g (float[A,K] a, float[K,B] b) => (float[A,B] y) { y = MatMul(a, b) }")
    (y,) = InferenceSession(model, SessionOptions(poison=True)).run(None, {"a": floats(3, 0), "b": floats(0, 4)})
    np.testing.assert_array_equal(y, np.zeros((3, 4)))


SIZED = """g (float[N] x, bool c, float[1] s) => (float[1] y) { n = Shape(x) f = Cast<to=1>(n)
    y = If(c) <then_branch = t () => (float[1] a) { a = Add(s, f) }, else_branch = e () => (float[1] b) { b = Sub(s, f) }> }"""


@pytest.mark.parametrize("kind", ["onnx", "om", "gears"])
def test_branches_know_the_sizes_of_this_run_and_not_of_an_earlier_one(kind: str, tmp_path: Path) -> None:
    model = parse(SIZED)
    gears = tuple({"x": (size,)} for size in (3, 5)) if kind == "gears" else ()
    session = InferenceSession(model) if kind == "onnx" else offline(model, tmp_path, gears=gears)
    for size in (3, 5, 7, 3):
        for condition in (True, False):
            assert_agrees(model, {"x": floats(size), "c": np.array(condition), "s": floats(1)}, session)


def test_forgotten_shapes_are_compiled_again() -> None:
    session = InferenceSession(PRODUCT)
    for rows in (*range(1, 41), 1):
        assert session.run(None, {"x": np.ones((rows, 40), np.float32)})[0].shape == (rows, 24)


def test_a_shape_in_use_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[int | str | None, ...]] = []
    compile_ = JustInTimeCompiler.compile

    def watched(self: JustInTimeCompiler, specs: Sequence[TensorSpec], fed: Sequence[TensorSpec] = ()) -> Ready:
        compiled.append(specs[0].shape)
        return compile_(self, specs, fed)

    monkeypatch.setattr(JustInTimeCompiler, "compile", watched)
    session = InferenceSession(parse("g (float[n] x) => (float[n] y) { y = Neg(x) }"))
    for size in range(1, 75):
        session.run(None, {"x": floats(size)})
        session.run(None, {"x": floats(1)})
    assert compiled.count((1,)) == 1
    session.run(None, {"x": floats(2)})
    assert compiled.count((2,)) == 2


def test_threads_with_different_shapes_do_not_disturb_each_other() -> None:
    session = InferenceSession(PRODUCT, num_threads=2)
    weights = onnx.numpy_helper.to_array(PRODUCT.graph.initializer[0])

    def work(seed: int) -> float:
        worst = 0.0
        for n in range(30):
            x = floats(1 + (seed * 7 + n) % 9, 40, seed=seed * 100 + n)
            (y,) = session.run(None, {"x": x})
            worst = max(worst, float(np.abs(y - np.maximum(x @ weights, 0)).max()))
        return worst

    with ThreadPoolExecutor(6) as pool:
        assert max(pool.map(work, range(6))) < 1e-4


# ---- control flow and shapes that depend on data
LOOP = """g (int64 n, float[2] x) => (float[2] last, float[K,2] all) <bool yes = {1}> {
    last, all = Loop (n, yes, x) <body = b (int64 i, bool go, float[2] v) => (bool more, float[2] next, float[2] out) {
        f = Cast<to=1>(i) next = Add(v, f) out = Mul(next, v) more = Identity(go) }> }"""
EARLY = """g (int64 n, float[2] x) => (float[2] last) <bool yes = {1}, float limit = {9.0}> {
    last = Loop (n, yes, x) <body = b (int64 i, bool go, float[2] v) => (bool more, float[2] next) {
        next = Add(v, v) s = ReduceSum<keepdims=0>(next) more = Less(s, limit) }> }"""
GROWING = """g (int64 n, float[K] x) => (float[M] y) <bool yes = {1}> {
    y = Loop (n, yes, x) <body = b (int64 i, bool go, float[P] v) => (bool more, float[Q] next) {
        next = Concat<axis=0>(v, x) more = Identity(go) }> }"""
BRANCH = """g (bool c, float[3] x) => (float[K] y) {
    y = If (c) <then_branch = t () => (float[3] a) { a = Exp(x) }, else_branch = e () => (float[6] b) { b = Concat<axis=0>(x, x) }> }"""
SCAN = """g (float[4,3] x, float[3] start) => (float[3] end, float[4,3] sums) {
    end, sums = Scan(start, x) <num_scan_inputs=1, body = b (float[3] s, float[3] v) => (float[3] t, float[3] out) {
        t = Add(s, v) out = Mul(t, t) }> }"""
SELECTED = (
    "g (float[N] x) => (int64[R,M] where, float[M] y) { z = Relu(x) where = NonZero(z) t = Transpose(where) g = GatherND(z, t) y = Exp(g) }"
)


@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        *((LOOP, {"n": np.array(n), "x": floats(2)}) for n in (0, 1, 5)),
        *((EARLY, {"n": np.array(n), "x": np.abs(floats(2)) + 0.1}) for n in (0, 2, 20)),
        *((GROWING, {"n": np.array(n), "x": floats(k)}) for n, k in ((0, 3), (3, 2), (2, 0))),
        *((BRANCH, {"c": np.array(c), "x": floats(3)}) for c in (True, False)),
        (SCAN, {"x": floats(4, 3), "start": floats(3, seed=1)}),
        *((SELECTED, {"x": sign * np.abs(floats(9))}) for sign in (1, -1)),
        (SELECTED, {"x": floats(9)}),
    ],
)
def test_control_flow_and_data_dependent_shapes_are_as_in_onnx_runtime(text: str, feeds: Feeds) -> None:
    assert_agrees(parse(text), feeds)


def test_a_loop_runs_from_several_threads_at_once() -> None:
    session = InferenceSession(parse(GROWING))

    def work(n: int) -> bool:
        x = floats(2, seed=n)
        return all(np.array_equal(session.run(None, {"n": np.array(k), "x": x})[0], np.tile(x, k + 1)) for k in range(5))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


# ---- offline models
def gears(tmp_path: Path) -> Path:
    path = tmp_path / "model.om"
    write_offline_model(path, compile_model(PRODUCT, CompileOptions(gears=({"x": (2, 40)}, {"x": (16, 40)}))))
    return path


def test_an_offline_model_gives_what_the_original_gives_bit_for_bit(tmp_path: Path) -> None:
    path = gears(tmp_path)
    for rows in (2, 16, 5):
        feeds = {"x": floats(rows, 40)}
        (om,), (original,) = InferenceSession(path).run(None, feeds), InferenceSession(PRODUCT).run(None, feeds)
        np.testing.assert_array_equal(om, original)
    np.testing.assert_array_equal(InferenceSession(path.read_bytes()).run(None, feeds)[0], original)


def test_gears_share_one_copy_of_the_weights(tmp_path: Path) -> None:
    one = compile_model(PRODUCT, CompileOptions(gears=({"x": (16, 40)},)))
    two = compile_model(PRODUCT, CompileOptions(gears=({"x": (16, 40)}, {"x": (17, 40)}, {"x": (64, 40)})))
    assert len(two.programs) == 3
    assert two.constants.nbytes <= one.constants.nbytes + 4096


def test_without_its_key_the_code_is_compiled_again_and_computes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = gears(tmp_path)
    feeds = {"x": floats(16, 40)}
    want = InferenceSession(path).run(None, feeds)[0]
    assert InferenceSession(path).engines() == []
    other = tmp_path / "another"
    other.mkdir(mode=0o700)
    monkeypatch.setenv("ANYCANN_CACHE_DIR", str(other))
    untrusted = InferenceSession(path)
    np.testing.assert_array_equal(untrusted.run(None, feeds)[0], want)
    assert [report.engine for report in untrusted.engines()] == ["AiCore", "AiCore"]
    shutil.rmtree(other)


@pytest.mark.parametrize("mode", ["force_fp16", "allow_mix_precision_bf16"])
def test_a_precision_mode_holds_for_shapes_that_are_no_gear_too(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "model.om"
    write_offline_model(path, compile_model(PRODUCT, CompileOptions(gears=({"x": (2, 40)},), precision_mode=mode)))
    x = floats(2, 40)
    (gear,) = InferenceSession(path).run(None, {"x": x})
    (other,) = InferenceSession(path).run(None, {"x": np.concatenate([x, x])})
    np.testing.assert_array_equal(other[:2], gear)
    exact = np.maximum(x @ onnx.numpy_helper.to_array(PRODUCT.graph.initializer[0]), 0)
    assert 0 < np.abs(gear - exact).max() < (0.02 if mode == "force_fp16" else 0.2)


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


def test_engines_say_what_runs_on_the_host_and_why() -> None:
    model = parse("g (string[1] a, float[4] x) => (float[4] y, string[1] s) { y = Exp(x) s = StringConcat(a, a) }")
    session = InferenceSession(model)
    _, s = session.run(None, {"a": np.array(["b"], object), "x": floats(4)})
    assert s.tolist() == ["bb"]
    reasons = {r.op_type: (r.engine, r.reason) for r in session.engines()}
    assert reasons == {"Exp": ("AiCore", ""), "StringConcat": ("AiCpu", "no native code for this operator")}
