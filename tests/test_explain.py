"""What --explain says is what happened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from anycann.compiler import CompileOptions, convert_model
from anycann.explain import explain
from anycann.om.plan import NativeStep
from anycann.target.target import by_name

TEXT = """<ir_version: 10, opset_import: ["": 20]> g (float[1,4,8,8] x) => (float[1,K] y, int64[R,M] z) {
    c = Conv(x, w) n = BatchNormalization(c, k, k, k, s) r = Relu(n) d = Conv<pads=[1,1,1,1]>(r, v) p = GlobalAveragePool(d)
    f = Flatten(p) y = Softmax(f) z = NonZero(y) }"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder: Path = tmp_path_factory.getbasetemp() / "cache"
    folder.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv("ANYCANN_CACHE_DIR", str(folder))


def model() -> onnx.ModelProto:
    made = onnx.parser.parse_model(TEXT)
    rng = np.random.default_rng(0)
    arrays = {"w": rng.random((32, 4, 3, 3)), "v": rng.random((32, 32, 3, 3)), "k": rng.random(32), "s": rng.random(32) + 1}
    for name, array in arrays.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    for node in made.graph.node:
        node.name = node.output[0]
    return made


def test_every_part_of_the_explanation_is_true() -> None:
    conversion = convert_model(model(), CompileOptions(target=by_name("avx2")))
    made = explain(conversion)
    (program,) = conversion.model.programs.values()
    tasks = [task for step in program.steps if isinstance(step, NativeStep) for task in step.tasks]
    assert [kernel.symbol for kernel in made.kernels] == [task.symbol for task in tasks]
    lines = list(made.lines())
    assert "  FoldBatchNormalization applied to n" in lines
    assert "  z (ListPlaces): AiCpu, because no native code for this operator" in lines
    assert "  z (ListPlaces) on the host" in lines
    assert ("Conv", "Relu") in [kernel.op_types for kernel in made.kernels]
    assert set(made.layouts["NC1HWC0"]) == {name for name, location in program.values.items() if location.layout == "NC1HWC0"}
    assert made.memory.arena_bytes == program.arena_bytes
    assert f"  arena of {program.arena_bytes:,} bytes for {made.memory.values} values of {made.memory.values_bytes:,} bytes" in lines


def test_reasons_for_staying_apart_are_sentences_about_two_nodes() -> None:
    made = explain(convert_model(model(), CompileOptions(target=by_name("avx2"))))
    assert "p stays apart from d: the product is read at other places than it is written" in [str(each) for each in made.apart]


def test_an_open_model_says_that_it_is_open() -> None:
    text = '<ir_version: 10, opset_import: ["": 20]> g (float[N] x) => (float[N] y) { y = Exp(x) }'
    assert list(explain(convert_model(onnx.parser.parse_model(text))).lines()) == [
        "the model leaves shapes open: it is compiled when they are known, or for the shapes and gears that are given"
    ]


def test_the_facts_are_plain_data() -> None:
    facts = explain(convert_model(model(), CompileOptions(target=by_name("avx2")))).facts()
    assert facts["kernels"][0]["op_types"]  # type: ignore[index]
    assert facts["memory"]["arena_bytes"] > 0  # type: ignore[index]
