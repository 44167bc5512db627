"""Operators that keep their types under a precision mode of 16 bits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from anycann.compiler import CompileOptions, compile_model
from anycann.om.writer import write_offline_model
from anycann.passes.precision import Kept, kept_operators, round_inputs, set_kept
from anycann.session import InferenceSession
from anycann.support.errors import ModelError
from anycann.te import dtypes

X = np.array([[1000.0, 300.0, 1.0009765625]], np.float32)  # the last one is neither a float16 nor a bfloat16


def network(size: str = "1, 3") -> ir.Model:
    """large = x @ (1000 I), beyond float16; small = large @ (I / 1000); y = small * w."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 20]> g (float[{size}] x) => (float[{size}] y)
        <float[3, 3] up = {{1000, 0, 0, 0, 1000, 0, 0, 0, 1000}}, float[3, 3] down = {{0.001, 0, 0, 0, 0.001, 0, 0, 0, 0.001}},
        float[3] w = {{1.0001, 3.0, 1.0}}> {{ large = MatMul(x, up) small = MatMul(large, down) y = Mul(small, w) }}"""
    )
    for node, name in zip(model.graph.node, ("large", "small", "scale"), strict=True):
        node.name = name
    return ir.from_proto(model)


def computed(tmp_path: Path, model: ir.Model, mode: str = "force_fp16") -> np.ndarray:
    path = f"{tmp_path}/model.om"
    write_offline_model(path, compile_model(model, CompileOptions(precision_mode=mode)))
    (y,) = InferenceSession(path).run(None, {"x": X})
    return np.asarray(y)


@pytest.mark.parametrize(
    ("kept", "whole"),
    [
        (Kept(), False),
        (Kept(nodes=frozenset({"large"})), False),  # the next operator reads it as float16
        (Kept(nodes=frozenset({"large", "small"})), True),
        (Kept(types=frozenset({"MatMul"})), True),
    ],
)
@pytest.mark.parametrize("size", ["1, 3", "n, 3"])
def test_results_between_kept_operators_are_not_rounded(tmp_path: Path, kept: Kept, whole: bool, size: str) -> None:
    model = network(size)
    set_kept(model.graph, kept)
    y = computed(tmp_path, model)
    assert np.isfinite(y[0, 0]) == whole


def test_weights_inputs_and_outputs_of_kept_operators_are_not_rounded(tmp_path: Path) -> None:
    model = network()
    set_kept(model.graph, Kept(nodes=frozenset({"large", "small", "scale"})))
    exact = X * np.array([1.0001, 3.0, 1.0], np.float32)
    np.testing.assert_allclose(computed(tmp_path, model), exact, rtol=3e-7)
    np.testing.assert_allclose(computed(tmp_path, model, "allow_mix_precision_bf16"), exact, rtol=3e-7)


def test_an_input_is_rounded_for_the_others_only() -> None:
    model = network()
    set_kept(model.graph, Kept(types=frozenset({"MatMul"})))
    round_inputs(model.graph, dtypes.float16)
    assert [node.op_type for node in model.graph] == ["MatMul", "MatMul", "Mul"]
    set_kept(model.graph, Kept(types=frozenset({"Mul"})))
    round_inputs(model.graph, dtypes.float16)
    assert [node.op_type for node in model.graph] == ["Cast", "Cast", "MatMul", "MatMul", "Mul"]


def test_damaged_marks_are_refused() -> None:
    graph = network().graph
    assert kept_operators(graph) == Kept()
    graph.metadata_props["anycann.kept"] = json.dumps([1])
    with pytest.raises(ModelError, match=r"anycann.kept"):
        kept_operators(graph)
