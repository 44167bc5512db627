"""Any ONNX file is measured as the models of the table are, with random inputs."""

from __future__ import annotations

import json
import os
from pathlib import Path
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper
import pytest

from anycann.support.errors import UsageError
from benchmarks.zoo.files import random_feeds
from benchmarks.zoo.models import by_name

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """x [free, 4] @ weight [4, 3] where mask is set; the weight is an input too, as old files have it."""
    weight = helper.make_tensor("weight", TensorProto.FLOAT, (4, 3), np.linspace(-1, 1, 12))
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ("free", 4)),
        helper.make_tensor_value_info("mask", TensorProto.INT64, (1, 3)),
        helper.make_tensor_value_info("weight", TensorProto.FLOAT, (4, 3)),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["product"]),
        helper.make_node("Cast", ["mask"], ["factor"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["product", "factor"], ["y"]),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("free", 3))
    path = tmp_path / "own.network.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "own", inputs, [output], [weight])), path)
    return path


def test_inputs_of_a_file_are_random_and_free_dimensions_one(file: Path) -> None:
    feeds = random_feeds(file)
    assert {name: (value.shape, value.dtype.name) for name, value in feeds.items()} == {
        "x": ((1, 4), "float32"),
        "mask": ((1, 3), "int64"),
    }
    assert set(feeds["mask"].ravel()) <= {0, 1}
    assert len(set(feeds["x"].ravel())) == 4
    assert all(np.array_equal(value, feeds[name]) for name, value in random_feeds(file).items())


def test_a_path_is_a_model_beside_those_of_the_table(file: Path) -> None:
    own, listed = by_name([str(file), "mnist"])
    assert (own.name, own.path(), own.word, listed.word) == ("own.network", file, str(file), "mnist")
    with pytest.raises(ValueError, match=r"model 'there_is_none.onnx' is no file"):
        by_name(["there_is_none.onnx"])


def test_an_input_of_strings_is_refused_by_name(tmp_path: Path) -> None:
    words, output = (helper.make_tensor_value_info(name, TensorProto.STRING, (2,)) for name in ("words", "y"))
    graph = helper.make_graph([helper.make_node("Identity", ["words"], ["y"])], "strings", [words], [output])
    onnx.save(helper.make_model(graph), tmp_path / "strings.onnx")
    with pytest.raises(UsageError, match="input words is of type object: give its value with --input"):
        random_feeds(tmp_path / "strings.onnx")


@pytest.mark.slow
def test_a_file_is_measured_and_has_no_answers(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    data = tmp_path / "data.json"
    words = ["--models", str(file), "--tables", "fp32,start", "--threads", "1", "--seconds", "0.1", "--peers", "onnxruntime"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "benchmarks.models", *words, "--json", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads(data.read_text())["results"]
    speed = result["speed"]["fp32"]["1"]
    assert result["model"] == "own.network"
    assert speed["latency"].keys() == {"anycann", "onnxruntime"}
    assert speed["answers_equal"] is None
    assert 0 <= speed["errors"]["anycann"] < 1e-5
    assert result["footprints"]["anycann"]["peak_bytes"] > 10e6
    assert "EQUAL" not in done.stdout.upper()
    assert "DIFFERENT" not in done.stdout
