"""bfloat16 as it is stored: which values become narrow, what reads them, and results near those of float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from anycann.codegen.kernels.arithmetic_rate import multiplies_bfloat
from anycann.compiler import CompileOptions, compile_model
from anycann.om.plan import Program
from anycann.om.writer import write_offline_model
from anycann.session import InferenceSession, SessionOptions
from anycann.target.target import Target, by_name, host, processor
from tests.codegen.kernels.jit import distinct
from tests.passes.graphs import AVX512, by_definition, floats, parse, run, tasks

WITH_PAIRS = replace(AVX512, features=AVX512.features + ",+avx512bf16")
WITH_TILES = replace(WITH_PAIRS, features=WITH_PAIRS.features + ",+amx-tile,+amx-bf16")
NETWORK = """
g (float[2,3,10,9] x) => (float[2,20] y) {
    a = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(a)
    c = Conv<pads=[1,1,1,1]>(r, v) s = Add(c, r)
    d = Conv<group=24, strides=[2,2], pads=[1,1,1,1]>(s, u) e = Sigmoid(d)
    p = ReduceMean<keepdims=0>(e, axes) q = Relu(p) y = Gemm<transB=1>(q, m, k)
}"""


def network(**changes: np.ndarray[Any, Any]) -> onnx.ModelProto:
    constants = {
        "w": floats(24, 3, 3, 3), "b": floats(24), "v": floats(24, 24, 3, 3) * 0.1, "u": floats(24, 1, 3, 3), "axes": np.array([2, 3]),
        "m": floats(20, 24), "k": floats(20),
    }  # fmt: skip
    return parse(NETWORK, **{**constants, **changes})


def program(model: onnx.ModelProto, target: Target, mode: str = "mixed_bfloat16") -> Program:
    return next(iter(compile_model(model, CompileOptions(target=target, precision_mode=mode)).programs.values()))


def stored(program: Program) -> dict[str, str]:
    """The type of each value in the arena."""
    return {name: location.spec.dtype for name, location in program.values.items() if location.buffer.space == "arena"}


@pytest.mark.parametrize("target", [WITH_PAIRS, WITH_TILES])
def test_what_kernels_hand_each_other_is_stored_narrow(target: Target) -> None:
    found = program(network(), target)
    assert set(stored(found).values()) == {"bfloat16"}
    kinds = ["+".join(task.op_types) for task in tasks(found)]
    assert kinds[0].endswith("Conv+Relu+Cast")  # what rounds the picture is in the same kernel, or its reader's
    assert "Cast+Conv+Add+Cast" in kinds  # the residual is read narrow and added wide


def test_a_processor_without_the_instructions_or_with_slow_ones_keeps_32_bits() -> None:
    slow = replace(WITH_PAIRS, cpu="sapphirerapids")
    assert set(stored(program(network(), slow)).values()) == {"float32"}
    assert set(stored(program(network(), AVX512)).values()) == {"float32"}
    assert set(stored(program(network(), WITH_PAIRS, "must_keep_origin_dtype")).values()) == {"float32"}


def test_values_that_something_else_wants_stay_wide() -> None:
    model = parse(
        """g (float[2,8] x) => (float[2,16] y, float[2,8] a) {
            a = MatMul(x, w) b = Relu(a) c = MatMul(b, w) y = Concat<axis=1>(b, c)
        }""",
        w=floats(8, 8),
    )
    types = {name: location.spec.dtype for name, location in program(model, WITH_PAIRS).values.items()}
    assert {types[name] for name in ("a", "b", "c", "y")} == {"float32"}


def test_views_of_narrow_values_are_narrow() -> None:
    model = parse(
        "g (float[6,8] x) => (float[4,12] y) { a = MatMul(x, w) b = Relu(a) c = Reshape(b, to) y = MatMul(c, v) }",
        w=floats(8, 8), v=floats(12, 12), to=np.array([4, 12]),
    )  # fmt: skip
    found = program(model, WITH_PAIRS)
    assert found.values["c"].spec.dtype == "bfloat16"


ATTENTION = """g (float[40,64] x, float[1,1,40,40] mask) => (float[40,64] y) {
    q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv)
    q4 = Reshape(q, heads) k4 = Reshape(k, heads) v4 = Reshape(v, heads)
    qt = Transpose<perm=[0,2,1,3]>(q4) kt = Transpose<perm=[0,2,3,1]>(k4) vt = Transpose<perm=[0,2,1,3]>(v4)
    s = MatMul(qt, kt) m = Add(s, mask) p = Softmax<axis=-1>(m) o = MatMul(p, vt)
    ot = Transpose<perm=[0,2,1,3]>(o) flat = Reshape(ot, rows) y = MatMul(flat, wo)
}"""


def attention() -> onnx.ModelProto:
    weights = {name: floats(64, 64, seed=seed) * 0.2 for seed, name in enumerate(("wq", "wk", "wv", "wo"))}
    return parse(ATTENTION, heads=np.array([1, 40, 4, 16]), rows=np.array([40, 64]), **weights)


@pytest.mark.parametrize("target", [WITH_PAIRS, WITH_TILES])
def test_what_attention_multiplies_is_narrow(target: Target) -> None:
    narrow = stored(program(attention(), target))
    assert {narrow[f"{name}/stored"] for name in "qkv"} == {"bfloat16"}


def test_attention_reads_copies_of_all_it_multiplies_where_the_model_shows_its_keys() -> None:
    model = attention()
    model.graph.output.add().CopyFrom(onnx.helper.make_tensor_value_info("k", onnx.TensorProto.FLOAT, [40, 64]))
    found = program(model, WITH_TILES)
    types = {name: location.spec.dtype for name, location in found.values.items()}
    assert {types[name] for name in "qkv"} == {"float32"}
    assert [types[name] for name in types if name.endswith("/copied")] == ["bfloat16"] * 3
    feeds = {"x": floats(40, 64, seed=9), "mask": np.zeros((1, 1, 40, 40), np.float32)}
    got, want = run(model, feeds, precision_mode="mixed_bfloat16"), run(model, feeds)
    for one, other in zip(got, want, strict=True):
        assert np.linalg.norm(one - other) < 2e-2 * np.linalg.norm(other)


@pytest.mark.parametrize(("columns", "copied"), [(64, {"a/copied"}), (4, set())])
def test_a_product_reads_a_copy_of_what_the_model_shows_where_it_multiplies_enough(columns: int, copied: set[str]) -> None:
    types = f"(float[9,64] x) => (float[9,64] a, float[9,{columns}] y, float[9,{columns}] z)"
    text = f"g {types} {{ a = Tanh(x) y = MatMul(a, w) z = MatMul(a, v) }}"
    model = parse(text, w=floats(64, columns) * 0.2, v=floats(64, columns, seed=1) * 0.2)
    kept = stored(program(model, WITH_TILES))
    assert {name for name, dtype in kept.items() if name.startswith("a") and dtype == "bfloat16"} == copied
    feeds = {"x": floats(9, 64, seed=9)}
    for got, want in zip(run(model, feeds, precision_mode="mixed_bfloat16"), run(model, feeds), strict=True):
        np.testing.assert_allclose(got, want, atol=0.05)


def test_a_transposed_convolution_to_one_channel_reads_no_copy() -> None:
    """It multiplies with each element nine times, however many channels it has."""
    text = "g (float[1,256,8,8] x) => (float[1,256,8,8] a, float[1,1,16,16] y) { a = Tanh(x) y = ConvTranspose<strides=[2,2],"
    model = parse(f"{text}pads=[0,0,1,1]>(a, w) }}", w=floats(256, 1, 3, 3) * 0.1)
    assert not any(name.endswith("/copied") for name in program(model, WITH_TILES).values)


def test_a_recurrent_layer_behind_another_multiplies_a_copy_of_its_sequence() -> None:
    text = """g (float[5,2,9] x) => (float[5,1,2,64] y) {
        a = LSTM<hidden_size=64>(x, w, r) f = Squeeze(a, one) y = LSTM<hidden_size=64>(f, v, r) }"""
    w, v, r = (floats(1, 256, inputs, seed=seed) * 0.2 for seed, inputs in enumerate((9, 64, 64)))
    model = parse(text, w=w, v=v, r=r, one=np.array([1]))
    found = program(model, WITH_TILES)
    assert stored(found)["f/copied"] == "bfloat16"
    assert sum(task.symbol.startswith("dots") for task in tasks(found)) == 2
    feeds = {"x": floats(5, 2, 9, seed=3)}
    (got,), (want,) = run(model, feeds, precision_mode="mixed_bfloat16"), run(model, feeds)
    np.testing.assert_allclose(got, want, atol=0.03)


@pytest.mark.parametrize("target", distinct(processor(), by_name("avx2")), ids=lambda target: target.name)
def test_attention_has_the_error_of_bfloat16(target: Target) -> None:
    model, mask = attention(), np.where(np.random.default_rng().random((1, 1, 40, 40)) < 0.2, -np.inf, 0).astype(np.float32)
    mask[..., 0] = 0
    feeds, file = {"x": floats(40, 64, seed=9), "mask": mask}, BytesIO()
    write_offline_model(file, compile_model(model, CompileOptions(target=target, precision_mode="mixed_bfloat16")))
    (got,) = InferenceSession(file.getvalue()).run(None, feeds)
    (want,) = by_definition(model, feeds)
    assert np.abs(got - want).max() / np.abs(want).max() < 3e-2


def runnable() -> list[Target]:
    """This processor, it without tiles, and AVX2, as far as they differ."""
    here = processor()
    plain = replace(here, features=",".join(f for f in here.features.split(",") if not f.startswith("+amx")))
    return distinct(here, plain, by_name("avx2"))


@pytest.mark.parametrize("target", runnable())
def test_results_are_those_of_bfloat16(target: Target) -> None:
    model, feeds = network(), {"x": floats(2, 3, 10, 9, seed=9)}
    file = BytesIO()
    write_offline_model(file, compile_model(model, CompileOptions(target=target, precision_mode="mixed_bfloat16")))
    (got,) = InferenceSession(file.getvalue()).run(None, feeds)
    (want,) = by_definition(model, feeds)
    error = np.abs(got - want).max() / np.abs(want).max()
    assert 1e-5 < error < 2e-2  # rounded, and no worse than eight bits of mantissa over a few layers


@pytest.mark.parametrize("target", [WITH_PAIRS, WITH_TILES])
def test_a_node_may_read_a_narrow_value_twice_and_through_a_view(target: Target) -> None:
    text = """g (float[6,32] x) => (float[12,16] y, float[6,32] z) {
        a = MatMul(x, w) r = Reshape(a, shape) s = Mul(r, r) b = MatMul(s, v) y = Add(b, s) c = MatMul(x, w) d = Mul(c, c) z = Relu(d)
    }"""
    made = program(parse(text, w=floats(32, 32), v=floats(16, 16), shape=np.array([12, 16])), target)
    assert "bfloat16" in stored(made).values()


CUT_AND_JOINED = """
g (float[1,32,6,7] x) => (float[1,16,6,7] y) {
    a = Conv(x, w) r = Relu(a)
    l, h = Split<axis=1, num_outputs=2>(r)
    c = Conv(h, v) d = Sigmoid(c)
    j = Concat<axis=1>(l, d, r) y = Conv(j, u)
}"""


def cut_and_joined(text: str = CUT_AND_JOINED) -> onnx.ModelProto:
    return parse(text, w=floats(32, 32, 1, 1), v=floats(16, 16, 1, 1), u=floats(16, 64, 1, 1))


@pytest.mark.parametrize("target", [WITH_PAIRS, WITH_TILES])
def test_what_is_cut_and_joined_between_products_is_narrow(target: Target) -> None:
    types = {name: location.spec.dtype for name, location in program(cut_and_joined(), target).values.items()}
    assert {types[name] for name in ("l", "h", "j")} == {"bfloat16"}


@pytest.mark.parametrize("target", runnable())
def test_results_of_what_is_cut_and_joined_are_those_of_bfloat16(target: Target) -> None:
    model, feeds = cut_and_joined(), {"x": floats(1, 32, 6, 7, seed=4)}
    file = BytesIO()
    write_offline_model(file, compile_model(model, CompileOptions(target=target, precision_mode="mixed_bfloat16")))
    (got,) = InferenceSession(file.getvalue()).run(None, feeds)
    (want,) = by_definition(model, feeds)
    assert np.abs(got - want).max() / np.abs(want).max() < 2e-2


def test_a_value_that_must_stay_wide_keeps_all_it_is_joined_with_wide() -> None:
    text = CUT_AND_JOINED.replace("float[1,16,6,7] y", "float[1,64,6,7] j").replace("y = Conv(j, u)", "")
    types = {name: location.spec.dtype for name, location in program(cut_and_joined(text), WITH_PAIRS).values.items()}
    assert {types[name] for name in ("l", "h", "j")} == {"float32"}


RESIDUAL = """
g (float[2,9,32] x) => (float[2,9,32] y) {
    a = MatMul(x, w) n = LayerNormalization<axis=-1>(a, s, b)
    h = MatMul(n, w) r = Relu(h) m = MatMul(r, v) t = Add(m, n) y = LayerNormalization<axis=-1>(t, s, b)
}"""


def residual() -> onnx.ModelProto:
    return parse(RESIDUAL, w=floats(32, 32) * 0.2, v=floats(32, 32, seed=1) * 0.2, s=floats(32, seed=2), b=floats(32, seed=3))


WIDE = "g (float[1,64,20,18] x) => (float[1,64,20,18] y) { a = Conv(x, w) b = Relu(a) y = Conv<pads=[1,1,1,1]>(b, v) }"


def wide() -> onnx.ModelProto:
    return parse(WIDE, w=floats(64, 64, 1, 1) * 0.1, v=floats(64, 64, 3, 3) * 0.05)


def test_three_by_three_goes_through_winograd_in_float32_where_that_beats_pairs() -> None:
    kinds = [[task.symbol.split("_")[0] for task in tasks(program(wide(), target))] for target in (by_name("znver4"), WITH_TILES)]
    assert "winograd" in kinds[0]
    assert "winograd" not in kinds[1]
    assert "bfloat16" in stored(program(wide(), by_name("znver4"))).values(), "what it reads is stored narrow"


@pytest.mark.skipif(not processor().has("avx512bf16"), reason="it has no instructions for pairs of bfloat16")
def test_winograd_of_what_is_stored_narrow_is_near_float32() -> None:
    x = floats(1, 64, 20, 18, seed=5)
    options = SessionOptions(target=by_name("znver4"), precision_mode="mixed_bfloat16")
    (got,) = InferenceSession(wide(), options).run(None, {"x": x})
    (want,) = by_definition(wide(), {"x": x})
    assert 0 < np.linalg.norm(got - want) < 5e-3 * np.linalg.norm(want)


@pytest.mark.parametrize("target", [WITH_PAIRS, WITH_TILES])
def test_what_a_product_and_a_residual_read_is_stored_both_ways(target: Target) -> None:
    types = stored(program(residual(), target))
    assert types["n"] == types["t"] == "float32"
    assert types["n/stored"] == types["r/stored"] == "bfloat16"
    assert "r" not in types


@pytest.mark.skipif(not multiplies_bfloat(host()), reason="without instructions for bfloat16 every result is rounded")
def test_sums_along_a_residual_keep_their_bits() -> None:
    """The result is that of operands of eight bits and sums of 24, and not that of rounded sums."""
    x = floats(2, 9, 32, seed=4)
    (got,) = run_narrow(residual(), {"x": x})
    kept, rounded = residual_of(x, lambda sums: sums), residual_of(x, bfloat)
    assert np.linalg.norm(got - kept) < 0.5 * np.linalg.norm(got - rounded)


def bfloat(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.astype(ml_dtypes.bfloat16).astype(np.float64)


def residual_of(x: np.ndarray[Any, Any], sums: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """RESIDUAL in float64 with rounded operands of products; `sums` is what becomes of what the residual adds and gives."""
    w, v, s, b = floats(32, 32) * 0.2, floats(32, 32, seed=1) * 0.2, floats(32, seed=2), floats(32, seed=3)

    def normalised(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        away = rows - rows.mean(-1, keepdims=True)
        return away / np.sqrt((away * away).mean(-1, keepdims=True) + 1e-5) * s + b

    n = normalised(bfloat(x) @ bfloat(w))
    r = np.maximum(bfloat(n) @ bfloat(w), 0)
    return normalised(sums(bfloat(r) @ bfloat(v) + sums(n)))


def run_narrow(model: onnx.ModelProto, feeds: dict[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    file = BytesIO()
    write_offline_model(file, compile_model(model, CompileOptions(target=processor(), precision_mode="mixed_bfloat16")))
    return [np.asarray(result) for result in InferenceSession(file.getvalue()).run(None, feeds)]


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3)])
def test_recurrent_layers_read_narrow_sequences(kind: str, gates: int) -> None:
    text = f"""g (float[7,2,9] x) => (float[7,2,2,12] y) {{
        e = Tanh(x) a = {kind}<hidden_size=12, direction="bidirectional">(e, w, r) t = Transpose<perm=[0,2,1,3]>(a) f = Reshape(t, s)
        y = {kind}<hidden_size=12, direction="bidirectional">(f, v, r) }}"""
    w, v, r = (floats(2, gates * 12, inputs, seed=inputs) * 0.3 for inputs in (9, 24, 12))
    model = parse(text, w=w, v=v, r=r, s=np.array([7, 2, 24]))
    found = program(model, WITH_TILES)
    narrow = {name.split("/")[0] for name, dtype in stored(found).items() if dtype == "bfloat16"}
    assert {"e", "t"} <= narrow
    assert stored(found)["a"] == "float32"
    assert sum(task.symbol.startswith("dots") for task in tasks(found)) == 2
    feeds = {"x": floats(7, 2, 9, seed=3)}
    (got,), (want,) = run(model, feeds, precision_mode="mixed_bfloat16"), run(model, feeds)
    np.testing.assert_allclose(got, want, atol=0.03)
