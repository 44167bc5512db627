"""Engines that are compared: each answers as ONNX Runtime does, in each precision, or says why it is absent."""

from __future__ import annotations

import importlib.util
from pathlib import Path
import shutil

import numpy as np
import onnx
import pytest

from anycann.tools.engines import Engine, SessionEngine
from benchmarks.engines.job import Absent, Job, Precision
from benchmarks.engines.onnx_runtime import open_onnx_runtime
from benchmarks.engines.open_vino import open_openvino
from benchmarks.engines.ours import Ours, open_ours
from benchmarks.engines.table import open_peers, peers_of
from benchmarks.engines.torch_network import TorchNetwork, open_compiled, open_eager
from benchmarks.zoo import quantised
from benchmarks.zoo.models import Model, by_name, relative_error


def mnist() -> Model:
    (model,) = by_name(["mnist"])
    if not model.path().is_file():
        pytest.skip("mnist is not fetched: run scripts/fetch_models.py")
    return model


def job(path: Path | None = None, precision: Precision = "fp32") -> Job:
    model = mnist()
    return Job(model, path or model.path(), model.feeds()[0], 1, precision)


def error(engine: Engine, other: Engine, feeds: Job) -> float:
    (got,), (wanted,) = (list(each.run(feeds.feeds).values()) for each in (engine, other))
    return relative_error(np.array(got), np.array(wanted))


def as_written(path: Path) -> Engine:
    """ONNX Runtime without its integer kernels: with AVX2 and no VNNI those add pairs of products in 16 bits that saturate (0.034 here)."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return SessionEngine("onnxruntime", onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]))


@pytest.fixture(scope="module")
def quantised_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("models")
    there = mnist().path(folder)
    there.parent.mkdir(parents=True)
    shutil.copy(mnist().path(), there)
    made = quantised.quantise(mnist(), folder, lambda text: None)
    assert made is not None
    return made


@pytest.mark.models
def test_ours_computes_in_each_precision_and_counts_its_operations() -> None:
    pytest.importorskip("onnxruntime")
    reference = open_onnx_runtime(job())
    plain, narrow = open_ours(job()), open_ours(job(precision="bf16"))
    assert error(plain, reference, job()) < 1e-5
    assert 1e-5 < error(narrow, reference, job()) < 2e-2
    assert isinstance(plain, Ours)
    assert plain.flops > 2 * 8 * 28 * 28 * 25


@pytest.mark.models
def test_the_quantised_file_has_integers_and_ours_computes_it_as_it_is_written(quantised_file: Path) -> None:
    graph = onnx.load(quantised_file).graph
    assert "DequantizeLinear" in {node.op_type for node in graph.node}
    assert any(tensor.data_type == onnx.TensorProto.INT8 for tensor in graph.initializer)
    assert quantised.scales_fit(graph)
    small = job(quantised_file, "int8")
    assert error(open_ours(small), as_written(quantised_file), small) < 1e-4
    assert 1e-5 < error(open_ours(small), open_onnx_runtime(job()), small) < 5e-2


@pytest.mark.models
def test_quantising_again_costs_nothing(quantised_file: Path) -> None:
    before = quantised_file.stat().st_mtime_ns
    assert quantised.quantise(mnist(), quantised_file.parents[1], pytest.fail) == quantised_file
    assert quantised_file.stat().st_mtime_ns == before


def test_what_is_quantised_or_has_no_products_is_left_alone() -> None:
    def graph(body: str) -> onnx.GraphProto:
        text = f'<ir_version: 10, opset_import: ["": 20]> g (float[4, 4] x) => (float[4, 4] y) {{ {body} }}'
        return onnx.parser.parse_model(text).graph

    assert quantised.why_not(graph("y = MatMul(x, x)")) == ""
    assert quantised.why_not(graph("y = Relu(x)")) == "it has no product with weights"
    assert (
        quantised.why_not(graph("z, s, p = DynamicQuantizeLinear(x) y = DequantizeLinear(z, s, p)")) == "it is quantised as it is published"
    )


def test_sums_of_networks_with_attention_stay_as_they_are() -> None:
    text = """<ir_version: 10, opset_import: ["": 20]> g (float[4, 4] x) => (float[4, 4] y) {
        a = Add(x, x) s = Softmax(a) y = %s(s, x)
    }"""
    assert "Add" not in quantised.kinds(onnx.parser.parse_model(text % "MatMul").graph)
    assert "Add" in quantised.kinds(onnx.parser.parse_model(text % "Mul").graph)


@pytest.mark.models
def test_a_model_that_eight_bits_ruin_is_left_alone(quantised_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    quantised_file.rename(quantised_file.with_suffix(".kept"))
    monkeypatch.setattr(quantised, "WORST_ERROR", 1e-6)
    assert quantised.quantise(mnist(), quantised_file.parents[1], told.append) is None
    assert told[-1].startswith("mnist is not quantised: its outputs would be off by 0.0")
    assert [file.name for file in quantised_file.parent.iterdir()] == ["mnist.kept"]
    quantised_file.with_suffix(".kept").rename(quantised_file)


def test_scales_must_be_as_many_as_the_channels_of_their_axis() -> None:
    def fits(shape: tuple[int, ...], scales: int, axis: int) -> bool:
        node = onnx.helper.make_node("DequantizeLinear", ["w", "s"], ["y"], axis=axis)
        tensors = [
            onnx.numpy_helper.from_array(np.zeros(shape, np.int8), "w"),
            onnx.numpy_helper.from_array(np.ones(scales, np.float32), "s"),
        ]
        return quantised.scales_fit(onnx.helper.make_graph([node], "g", [], [], tensors))

    assert fits((10, 3), 10, 0)
    assert fits((1, 10), 10, -1)
    assert fits((1, 10), 1, 0)
    assert not fits((1, 10), 10, 0)


@pytest.mark.models
def test_openvino_answers_as_onnx_runtime_in_float32_and_nearly_so_in_bfloat16() -> None:
    pytest.importorskip("openvino", reason="openvino is not installed: pip install 'anycann[bench]'")
    pytest.importorskip("onnxruntime")
    reference = open_onnx_runtime(job())
    assert error(open_openvino(job()), reference, job()) < 1e-5
    try:
        narrow = open_openvino(job(precision="bf16"))
    except Absent as reason:
        pytest.skip(str(reason))
    assert 1e-6 < error(narrow, reference, job()) < 2e-2


@pytest.mark.models
def test_peers_that_cannot_run_a_model_say_why() -> None:
    opened, absent = open_peers(job(), ["openvino", "torch"])
    assert absent["torch"] == "published as an ONNX file, there is no torch module"
    there = importlib.util.find_spec("openvino") is not None
    assert [engine.name for engine in opened] == (["openvino"] if there else [])
    assert there or absent["openvino"] == "openvino is not installed (pip install 'anycann[bench]')"


def test_a_file_that_no_engine_reads_is_told_with_the_engines_words(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    opened, absent = open_peers(Job(by_name(["mnist"])[0], broken, {}, 1), ["onnxruntime"])
    assert not opened
    assert absent["onnxruntime"].startswith("ModelError: ONNX Runtime refuses ")


def test_without_a_compiler_torch_compile_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    (model,) = by_name(["mobilenet_v2"])
    with pytest.raises(Absent, match=r"torch\.compile needs a C\+\+ compiler, and no-such-compiler is not there"):
        open_compiled(Job(model, model.path(), {}, 1))


@pytest.mark.large
@pytest.mark.models
def test_the_torch_module_has_the_weights_of_its_onnx_file() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    (model,) = by_name(["all_minilm_l6_v2"])
    if not model.path().is_file():
        pytest.skip("all_minilm_l6_v2 is not fetched: run scripts/fetch_models.py --large")
    large = Job(model, model.path(), model.feeds()[0], 1)
    engine = open_eager(large)
    assert isinstance(engine, TorchNetwork)
    assert error(engine, open_onnx_runtime(large), large) < 1e-5


def test_onnx_runtime_takes_no_part_in_bfloat16_and_an_unknown_engine_is_refused() -> None:
    assert [peer.name for peer in peers_of("bf16")] == ["openvino"]
    assert [peer.name for peer in peers_of("int8", ["openvino"])] == ["openvino"]
    with pytest.raises(ValueError, match=r"engine 'tvm' is not on the list; accepted: onnxruntime, openvino, torch, torch\.compile"):
        peers_of("fp32", ["tvm"])
