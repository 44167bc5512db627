"""Regions whose shapes are known are compiled with the model; a process that runs such a file needs neither ONNX nor LLVM."""

from __future__ import annotations

from pathlib import Path
import subprocess
import sys

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
import pytest

from anycann import InferenceSession
from anycann.compiler import compile_model
from anycann.om.model import OfflineModel
from anycann.om.reader import read_offline_model
from anycann.om.writer import write_offline_model
from anycann.runtime.thread_pool import prepare
from anycann.support.errors import ModelError

HEAD = '<ir_version: 10, opset_import: ["": 20]>'
BRANCHES = """g (float[3, 5] x, bool c) => (float[3, 5] y) {
    t = Exp(x)
    u = If (c) <then_branch = a () => (float[3, 5] p) { p = Softmax(t) }, else_branch = b () => (float[3, 5] q) { q = Neg(t) }>
    y = Sqrt(u)
}"""
LOOP = """g (float[7] x, int64 n) => (float[7] y, float[K, 7] turns) {
    true = Constant <value = bool {1}> ()
    y, turns = Loop (n, true, x) <body = b (int64 i, bool go, float[7] s) => (bool on, float[7] z, float[7] out) {
        on = Identity(go)  f = Cast<to = 1>(i)  r = Add(s, f)  z = Tanh(r)  out = Mul(z, x)
    }>
}"""
SCAN = """g (float[4, 6] x, float[6] first) => (float[6] y, float[4, 6] sums) {
    y, sums = Scan (first, x) <num_scan_inputs = 1, body = b (float[6] s, float[6] row) => (float[6] z, float[6] out) {
        z = Add(s, row)  out = Exp(z)
    }>
}"""
NESTED = """g (float[3] x, int64 n) => (float[3] y) {
    true = Constant <value = bool {1}> ()
    y = Loop (n, true, x) <body = b (int64 i, bool go, float[3] s) => (bool on, float[3] z) {
        on = Identity(go)
        two = Constant <value = int64 {2}> ()
        odd = Mod(i, two)
        choice = Cast<to = 9>(odd)
        z = If (choice) <then_branch = p () => (float[3] u) { u = Mul(s, x) }, else_branch = q () => (float[3] v) { v = Sub(s, x) }>
    }>
}"""
WIDENED = """g (float x, float[3] w, int64 n) => (float[N] y) {
    true = Constant <value = bool {1}> ()
    s = Loop (n, true, x) <body = b (int64 i, bool go, float s) => (bool on, float z) { on = Identity(go)  z = Add(s, w) }>
    y = Exp(s)
}"""
MODELS = {"branches": BRANCHES, "loop": LOOP, "scan": SCAN, "nested": NESTED, "widened": WIDENED}


def model_of(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{HEAD} {text}")


def feeds_of(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    generator, feeds = np.random.default_rng(seed), {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [size.dim_value for size in kind.shape.dim]
        if kind.elem_type == onnx.TensorProto.FLOAT:
            feeds[value.name] = generator.uniform(0.1, 1.0, shape).astype(np.float32)
        else:
            feeds[value.name] = np.array(generator.integers(1, 6)) if kind.elem_type == onnx.TensorProto.INT64 else np.array(seed % 2 == 0)
    return feeds


def programs_of(model: OfflineModel) -> dict[str, list[str]]:
    return {name: sorted(region.programs) for name, region in model.regions.items()}


CHILD = """
import sys
import numpy as np
from anycann import InferenceSession
session = InferenceSession(sys.argv[1], num_threads=2)
feeds = dict(np.load(sys.argv[2]))
np.savez(sys.argv[3], *session.run(None, feeds))
print(*[name for name in ("llvmlite.binding", "onnx", "onnx_ir", "anycann.assembly") if name in sys.modules])
"""


def run_in_child(folder: Path, feeds: dict[str, np.ndarray]) -> tuple[list[str], list[np.ndarray]]:
    """What a process that runs `m.om` loads, and the results."""
    np.savez(folder / "feeds.npz", **feeds)
    words = [sys.executable, "-c", CHILD, *(str(folder / name) for name in ("m.om", "feeds.npz", "results.npz"))]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return done.stdout.split(), list(np.load(folder / "results.npz").values())


@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_control_flow_runs_without_llvm_and_onnx(name: str, tmp_path: Path) -> None:
    model = model_of(MODELS[name])
    write_offline_model(tmp_path / "m.om", compile_model(model))
    prepare()  # as atc does
    for seed in (1, 2):
        feeds = feeds_of(model, seed)
        loaded, results = run_in_child(tmp_path, feeds)
        assert loaded == []
        exact = ReferenceEvaluator(model).run(None, feeds)
        for got, right in zip(results, exact, strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)


def test_a_body_is_compiled_for_each_type_that_its_values_take() -> None:
    programs = programs_of(compile_model(model_of(WIDENED)))
    body = next(keys for name, keys in programs.items() if name.endswith("body"))
    assert body == ["int64[];bool[];float32[3];float32[3]", "int64[];bool[];float32[];float32[3]"]
    after = next(keys for name, keys in programs.items() if name.endswith("deferred"))
    assert after == ["float32[3]", "float32[]"]


def test_a_carried_value_whose_type_a_turn_does_not_tell_is_taken_to_keep_it() -> None:
    text = """g (float x, float[3] w, int64[1] a, int64[1] b, int64 n) => (float[N] y) {
        true = Constant <value = bool {1}> ()
        s, t = Loop (n, true, x, w) <body = c (int64 i, bool go, float s, float[M] t) => (bool on, float z, float[L] u) {
            on = Identity(go)  z = Add(s, w)  u = Slice(t, a, b)
        }>
        y = Mul(s, t)
    }"""
    programs = programs_of(compile_model(model_of(text)))
    body = next(keys for name, keys in programs.items() if name.endswith("body"))
    assert [key.split(";")[2:4] for key in body] == [["float32[3]", "float32[3]"], ["float32[]", "float32[3]"]]


GROWING = """g (float[1] x, int64 n) => (float[N] y) {
    true = Constant <value = bool {1}> ()
    factor = Constant <value = float {FACTOR}> ()
    s = Loop (n, true, x) <body = b (int64 i, bool go, float[M] s) => (bool on, float[L] z) {
        on = Identity(go)  z = Concat<axis = 0>(s, x)
    }>
    y = Mul(s, factor)
}"""


def test_a_loop_whose_values_grow_is_compiled_for_the_first_turns_and_then_while_it_runs_by_another_process(tmp_path: Path) -> None:
    factor = float(np.float32(np.random.default_rng().uniform(2, 3)))  # kernels that are not in the cache yet
    compiled = compile_model(model_of(GROWING.replace("FACTOR", repr(factor))))
    assert {len(keys) for keys in programs_of(compiled).values()} == {4}
    write_offline_model(tmp_path / "m.om", compiled)
    prepare()
    loaded, (y,) = run_in_child(tmp_path, {"x": np.ones(1, np.float32), "n": np.array(9)})
    np.testing.assert_array_equal(y, np.full(10, factor, np.float32))
    assert loaded == ["onnx", "onnx_ir", "anycann.assembly"]


def test_a_branch_that_fits_no_input_stops_nobody_but_who_runs_it(tmp_path: Path) -> None:
    model = model_of(
        """g (float[3, 5] x, bool c) => (float[N] y) {
            y = If (c) <then_branch = a () => (float[P] p) { p = ReduceSum<keepdims = 0>(x, axis) },
                        else_branch = b () => (float[Q] q) { q = MatMul(x, x) }>
        }""".replace("{\n", "{ axis = Constant <value = int64[1] {1}> ()\n", 1)
    )
    write_offline_model(tmp_path / "m.om", compile_model(model))
    session, x = InferenceSession(tmp_path / "m.om"), np.ones((3, 5), np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x, "c": np.array(True)})[0], np.full(3, 5, np.float32))
    with pytest.raises(ModelError, match="else_branch"):
        session.run(None, {"x": x, "c": np.array(False)})


def test_programs_of_a_region_share_their_weights_with_each_other_and_the_model() -> None:
    text = """g (float[2, 64] x, bool c) => (float[2, 64] y) {
        t = MatMul(x, w)
        y = If (c) <then_branch = a () => (float[2, 64] p) { p = MatMul(t, w) },
                        else_branch = b () => (float[2, 64] q) { n = Neg(t) q = MatMul(n, w) }>
    }"""
    model = model_of(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.random.default_rng(0).random((64, 64), np.float32), "w"))
    compiled = compile_model(model)
    assert sum(len(keys) for keys in programs_of(compiled).values()) == 2
    assert compiled.constants.nbytes < 1.2 * 64 * 64 * 4


def test_the_programs_of_regions_are_in_the_file_and_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a.om", "b.om"):
        write_offline_model(tmp_path / name, compile_model(model_of(NESTED)))
    assert (tmp_path / "a.om").read_bytes() == (tmp_path / "b.om").read_bytes()
    assert all(programs_of(read_offline_model(tmp_path / "a.om")).values())
