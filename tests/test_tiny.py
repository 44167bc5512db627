"""Each promise of the README in a few lines, all of them in a few seconds: the first tests to read, and to run."""

from __future__ import annotations

import json
import os
from pathlib import Path
import subprocess
import sys

import numpy as np
import onnx
import onnx.reference
import pytest

from anycann import InferenceSession, SessionOptions
from anycann.compiler import CompileOptions, compile_model, convert_model
from anycann.explain import explain
from anycann.om.writer import write_offline_model
from anycann.support.errors import ModelError, UnsupportedError, UsageError
from anycann.target.target import NAMED

SOURCE = Path(__file__).resolve().parents[1] / "src"
TEXT = """<ir_version: 10, opset_import: ["": 20]> tiny (float[N,3,6,6] x) => (float[N,8] y) {
    c = Conv(x, w) r = Relu(c) p = GlobalAveragePool(r) y = Flatten(p) }"""
X = np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.getbasetemp() / "cache"
    folder.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv("ANYCANN_CACHE_DIR", str(folder))


def tiny() -> onnx.ModelProto:
    model = onnx.parser.parse_model(TEXT)
    weights = np.random.default_rng(1).standard_normal((8, 3, 3, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return model


def wanted() -> np.ndarray:
    return np.asarray(onnx.reference.ReferenceEvaluator(tiny()).run(None, {"x": X})[0])


def test_a_model_runs_and_gives_what_it_means() -> None:
    session = InferenceSession(tiny().SerializeToString())
    assert [(arg.name, arg.type, arg.shape) for arg in session.get_inputs()] == [("x", "tensor(float)", ("N", 3, 6, 6))]
    np.testing.assert_allclose(session.run(["y"], {"x": X})[0], wanted(), rtol=1e-5, atol=1e-6)


def test_everything_in_it_is_native_and_fused() -> None:
    made = explain(convert_model(tiny(), CompileOptions(gears=({"x": (2, 3, 6, 6)},))))
    assert {node.engine for node in made.nodes} == {"AiCore"}
    assert ("Conv", "Relu") in [kernel.op_types for kernel in made.kernels]


def test_an_offline_model_is_a_file_with_gears(tmp_path: Path) -> None:
    path = tmp_path / "tiny.om"
    write_offline_model(path, compile_model(tiny(), CompileOptions(gears=({"x": (1, 3, 6, 6)}, {"x": (2, 3, 6, 6)}))))
    np.testing.assert_allclose(InferenceSession(path).run(None, {"x": X})[0], wanted(), rtol=1e-5, atol=1e-6)


def test_atc_makes_one_from_the_command_line(tmp_path: Path) -> None:
    onnx.save(tiny(), tmp_path / "tiny.onnx")
    words = ["atc", f"--model={tmp_path}/tiny.onnx", "--framework=5", f"--output={tmp_path}/tiny", "--input_shape=x:2,3,6,6", "--explain"]
    done = subprocess.run(
        [sys.executable, "-m", "anycann.tools.cli", *words, "--message_format=json"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["ok"]) == (0, True)
    assert facts["explanation"]["kernels"][0]["op_types"][:2] == ["Conv", "Relu"]
    np.testing.assert_allclose(InferenceSession(facts["output"]).run(None, {"x": X})[0], wanted(), rtol=1e-5, atol=1e-6)


def test_importing_takes_no_time() -> None:
    script = "import sys, anycann; print(sorted({'numpy', 'onnx', 'llvmlite', 'onnx_ir'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SOURCE)}, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_processor_can_be_compiled_for(name: str) -> None:
    model = compile_model(tiny(), CompileOptions(target=NAMED[name], gears=({"x": (1, 3, 6, 6)},)))
    ((key, kernels),) = model.code.items()
    assert key == NAMED[name].key
    assert all(data.startswith(b"\x7fELF") for data in kernels.values())


def test_sixteen_bit_precision_is_a_mode() -> None:
    model = compile_model(tiny(), CompileOptions(precision_mode="force_fp16", gears=({"x": (2, 3, 6, 6)},)))
    assert model.metadata["precision"] == "force_fp16"


def test_an_operator_without_native_code_runs_on_the_host() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[4] x) => (float[4] y) { u = Hardmax(x) y = Add(u, x) }'
    )
    x = np.array([1, 4, 2, 3], np.float32)
    np.testing.assert_array_equal(InferenceSession(model).run(None, {"x": x})[0], [1, 5, 2, 3])


def test_errors_say_what_where_and_what_is_accepted() -> None:
    with pytest.raises(UsageError, match=r"input 'x' has dtype float64; accepted: float32"):
        InferenceSession(tiny()).run(None, {"x": X.astype(np.float64)})
    with pytest.raises(ModelError):
        InferenceSession(b"no model")
    with pytest.raises((UnsupportedError, ModelError), match="Nothing"):
        InferenceSession(
            onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 20]> g (float[4] x) => (float[4] y) { y = Nothing(x) }')
        ).run(None, {"x": X[0, 0, 0, :4]})


def test_poisoned_memory_changes_nothing() -> None:
    (plain,) = InferenceSession(tiny()).run(None, {"x": X})
    (poisoned,) = InferenceSession(tiny(), SessionOptions(poison=True)).run(None, {"x": X})
    np.testing.assert_array_equal(plain, poisoned)
