"""show, infer and bench on real models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from PIL import Image
import pytest

from tests.tools.conftest import Invoke
from tests.tools.models import ADD, TINY, matmul_model, save_model


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return save_model(TINY, tmp_path / "tiny.onnx")


@pytest.fixture
def offline(tmp_path: Path, invoke: Invoke) -> Path:
    model = save_model(ADD, tmp_path / "add.onnx")
    words = (f"--output={tmp_path}/add", "--input_shape=a:-1,4;b:-1,4", "--dynamic_batch_size=3,1")
    assert invoke("atc", f"--model={model}", "--framework=5", *words).exit_code == 0
    return tmp_path / "add.om"


def test_show_tells_of_inputs_gears_engines_and_memory(invoke: Invoke, offline: Path) -> None:
    result = invoke("show", offline)
    assert result.exit_code == 0
    for part in (
        "add, made by anycann",
        "input   a     float32  [N, 4]",
        "programs, 2 gears",
        "float32[3,4];float32[3,4]",
        "Relu",
        "AiCore",
    ):
        assert part in result.stdout, part


def test_show_as_json_holds_the_same_numbers(invoke: Invoke, offline: Path) -> None:
    made = json.loads(invoke("show", offline, "--json").stdout)
    assert [program["key"] for program in made["programs"]] == ["float32[3,4];float32[3,4]", "float32[1,4];float32[1,4]"]
    assert made["programs"][0]["aicore"] == {"Add": 1, "Relu": 1}
    assert made["inputs"][0] == {"name": "a", "dtype": "float32", "shape": ["N", 4]}
    assert made["peak_bytes"] >= made["constants_bytes"]


def test_show_compiles_an_onnx_model_and_splits_its_operators_by_engine(invoke: Invoke, tiny: Path) -> None:
    made = json.loads(invoke("show", tiny, "--shape", "x:1,3,2,2", "--json").stdout)
    (program,) = made["programs"]
    assert program["aicpu"] == {"ListPlaces": 1, "Reshape": 1}  # the Reshape is a view of what the host made
    assert program["aicore"]["Relu"] == 1


def test_show_of_a_model_of_open_shape_tells_where_its_operators_can_run(invoke: Invoke, tiny: Path) -> None:
    result = invoke("show", tiny)
    assert result.exit_code == 0, result.stderr
    rows = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if line.split()}
    assert "engines, once shapes are known" in result.stdout
    assert (rows["NonZero"], rows["Relu"]) == (["1"], ["1"])
    assert rows["input"] == ["scale", "float32", "[3]"]


def test_show_writes_the_graph_as_a_valid_model_that_computes_the_same(invoke: Invoke, tmp_path: Path) -> None:
    model, graph = matmul_model(tmp_path / "product.onnx"), tmp_path / "graph.onnx"
    result = invoke("show", model, "--shape", "x:2,8", "--graph", graph)
    assert result.exit_code == 0
    written = onnx.load(graph)
    onnx.checker.check_model(written)
    assert [dim.dim_value for dim in written.graph.output[0].type.tensor_type.shape.dim] == [2, 5]
    assert [weight.name for weight in written.graph.initializer] == ["w"]


def test_show_refuses_shapes_for_an_offline_model_and_files_that_are_none(invoke: Invoke, offline: Path, tmp_path: Path) -> None:
    assert invoke("show", offline, "--shape", "a:1,4").exit_code == 2
    (tmp_path / "x.om").write_bytes(b"nothing of the kind")
    result = invoke("show", tmp_path / "x.om")
    assert result.exit_code == 1
    assert result.stderr.startswith("ModelError: ")


def test_a_failing_command_with_json_prints_the_error_as_json(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "x.om").write_bytes(b"")
    result = invoke("show", tmp_path / "x.om", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"]["class"] == "ModelError"


@pytest.mark.parametrize(
    ("suffix", "read"), [("npy", np.load), ("bin", lambda p: np.fromfile(p, np.float32)), ("txt", lambda p: np.loadtxt(p, np.float32))]
)
def test_infer_writes_every_output(invoke: Invoke, offline: Path, tmp_path: Path, suffix: str, read: object) -> None:
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((3, 4)).astype(np.float32) for _ in range(2))
    np.savez(tmp_path / "in.npz", a=a, b=b)
    result = invoke("infer", offline, "--input", tmp_path / "in.npz", "-o", tmp_path / "out", "--format", suffix, "--json")
    assert result.exit_code == 0, result.stderr
    (output,) = json.loads(result.stdout)["outputs"]
    expected = np.maximum(a + b, 0)
    assert (output["name"], output["shape"], output["maximum"]) == ("y", [3, 4], pytest.approx(float(expected.max())))
    got = read(output["file"])  # type: ignore[operator]
    np.testing.assert_allclose(got.reshape(3, 4), expected, rtol=1e-6)


def test_infer_reads_pictures(invoke: Invoke, tiny: Path, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "p.png")
    np.save(tmp_path / "scale.npy", np.array([1, 2, 4], np.float32))
    words = ("-i", tmp_path / "p.png", "-i", f"scale={tmp_path}/scale.npy", "--mean", "10", "--std", "2", "-o", tmp_path / "out")
    result = invoke("infer", tiny, *words)
    assert result.exit_code == 0, result.stderr
    expected = np.maximum((pixels.astype(np.float32) - 10) / 2 * np.array([1, 2, 4], np.float32), 0)
    np.testing.assert_allclose(np.load(tmp_path / "out" / "0_y.npy")[0].transpose(1, 2, 0), expected, rtol=1e-6)
    assert "1_found.npy" in result.stdout


def test_infer_refuses_feeds_that_do_not_fit(invoke: Invoke, offline: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 4)))
    result = invoke("infer", offline, "-i", tmp_path / "a.npy", "-i", tmp_path / "a.npy")
    assert result.exit_code == 2
    assert "float64" in result.stderr
    assert "float32" in result.stderr


def test_bench_measures_beside_onnxruntime(invoke: Invoke, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = matmul_model(tmp_path / "product.onnx")
    result = invoke("bench", model, "--shape", "x:2,8", "--runs", 5, "--vs", "onnxruntime", "--threads", 1, "--json")
    assert result.exit_code == 0, result.stderr
    made = json.loads(result.stdout)
    assert made["inputs"] == {"x": [2, 8]}
    assert made["relative_errors"]["y"] < 1e-6
    assert [row["engine"] for row in made["results"]] == ["anycann", "onnxruntime"]
    for row in made["results"]:
        latency, cold = row["latency"], row["cold"]
        assert latency["runs"] == 5
        assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"]
        assert cold["peak_bytes"] >= cold["base_bytes"] > 1 << 20
        assert cold["load_seconds"] > 0


def test_bench_prints_a_table(invoke: Invoke, offline: Path) -> None:
    result = invoke("bench", offline, "--runs", 3, "--shape", "a:3,4;b:3,4")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[1].split() == [
        "engine",
        "p50",
        "p90",
        "p99",
        "calls/s",
        "first",
        "call",
        "load",
        "peak",
        "memory",
        "calls",
    ]


def test_bench_needs_the_onnx_file_for_onnxruntime(invoke: Invoke, offline: Path) -> None:
    result = invoke("bench", offline, "--vs", "onnxruntime")
    assert result.exit_code == 2
    assert "--vs-model" in result.stderr


def test_show_lists_the_programs_of_regions_and_counts_their_operators(invoke: Invoke, tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 20]> g (float[3] x, bool c) => (float[3] y) {
        t = Exp(x)
        y = If (c) <then_branch = a () => (float[3] p) { p = Neg(t) }, else_branch = b () => (float[3] q) { q = Sqrt(t) }>
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "choice.onnx")
    assert invoke("atc", f"--model={tmp_path}/choice.onnx", "--framework=5", f"--output={tmp_path}/choice").exit_code == 0
    made = json.loads(invoke("show", tmp_path / "choice.om", "--json").stdout)
    model, then, other = sorted(made["programs"], key=lambda program: (bool(program["region"]), program["aicore"].get("Sqrt", 0)))
    assert (model["region"], model["key"], then["key"]) == ("", "float32[3];bool[]", "float32[3]")
    assert (then["region"].split("/")[-1], other["region"].split("/")[-1]) == ("then_branch", "else_branch")
    shown = invoke("show", tmp_path / "choice.om").stdout
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.split()}
    assert (rows["Exp"], rows["Neg"], rows["Sqrt"]) == (["1"], ["1"], ["1"])
