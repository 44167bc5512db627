"""The benchmarks run from their commands and write what they say they write."""

from __future__ import annotations

import json
import os
from pathlib import Path
import subprocess
import sys

import numpy as np
import pytest

from anycann.frontends.onnx.load import load_model
from anycann.target.target import by_name
from benchmarks.operator_cases import all_cases
from benchmarks.operators import geometric_mean, table
from benchmarks.peak import ITERATIONS, multiply_adds, peak_flops
from benchmarks.rows import Row
from benchmarks.zoo import models
from benchmarks.zoo.models import relative_error

ROOT = Path(__file__).resolve().parents[2]


def run(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    if not models.by_name(["mnist"])[0].path().is_file():
        pytest.skip("mnist is not fetched: run scripts/fetch_models.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True, env=environment, timeout=900)


@pytest.mark.models
@pytest.mark.slow
def test_a_model_is_measured_beside_onnx_runtime_and_written_down(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    page, data = tmp_path / "page.md", tmp_path / "data.json"
    words = ["--models", "mnist", "--tables", "fp32,bf16,start", "--threads", "1", "--seconds", "0.2"]
    done = run("benchmarks.models", *words, "--document", str(page), "--json", str(data))
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads(data.read_text())["results"]
    speed = result["speed"]["fp32"]["1"]
    assert speed["answers_equal"] is True
    assert 0 <= speed["errors"]["anycann"] < 1e-4
    assert speed["latency"].keys() >= {"anycann", "onnxruntime"}
    assert speed["absent"]["torch"] == "published as an ONNX file, there is no torch module"
    assert 0 < speed["share"] < 2
    assert speed["flops"] == result["compilation"]["flops"] > 2 * 8 * 28 * 28 * 25  # the first convolution alone: 8 channels of 5 x 5
    assert result["speed"]["bf16"]["1"]["errors"]["anycann"] < 2e-2
    assert "onnxruntime" not in result["speed"]["bf16"]["1"]["latency"]
    assert result["footprints"]["anycann"]["peak_bytes"] > 10e6
    text = page.read_text()
    assert "python -m benchmarks.models --models mnist" in text
    assert text.count("| mnist |") == 5  # two precisions, each with speed and errors, and starting


@pytest.mark.models
@pytest.mark.slow
def test_running_a_model_often_leaves_the_resident_size_flat() -> None:
    done = run("benchmarks.memory", "--runs", "20000", "--threads", "1", "--allowed-kib", "1024")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("mnist: 20000 runs of ")


def test_an_unknown_model_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ValueError, match=r"model 'resnet51' is not on the list; accepted: ppocr_det, "):
        models.by_name(["resnet51"])


def test_the_peak_kernel_fills_three_quarters_of_the_registers_and_gives_a_believable_rate() -> None:
    kernel = multiply_adds(by_name("avx2"))
    assert kernel.operations == 2 * 12 * 8
    assert kernel.ir.count("call <8 x float> @llvm.fmuladd") == 12
    rate = peak_flops(1)
    assert 1e8 < rate < 1e12, f"{rate / 1e9} GFLOP/s in {ITERATIONS} iterations"


def test_the_relative_error_notices_wrong_shapes_and_values_that_are_no_numbers() -> None:
    right = np.array([3.0, 4.0])
    assert relative_error(np.array([3.0, 4.5]), right) == pytest.approx(0.1)
    assert relative_error(np.array([3.0, np.nan]), right) == float("inf")
    assert relative_error(np.array([[3.0, 4.0]]), right) == float("inf")
    assert relative_error(np.zeros(2), np.zeros(2)) == 0


@pytest.mark.slow
def test_single_operators_are_measured_and_written_down(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    page, data = tmp_path / "page.md", tmp_path / "data.json"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    words = ["--only", "argmax axis 2,gatherelements", "--seconds", "0.05", "--json", str(data), "--document", str(page)]
    command = [sys.executable, "-m", "benchmarks.operators", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(data.read_text())["rows"]
    assert [row["name"] for row in rows] == ["ArgMax axis 2", "GatherElements"]
    assert all(row["ours"] > 0 and row["theirs"] > 0 and row["engine"] == "AiCore" and row["error"] == 0 for row in rows)
    assert "| GatherElements |" in page.read_text()
    assert "python -m benchmarks.operators --only" in page.read_text()


def test_the_table_of_operators_has_the_slowest_first_and_says_what_failed() -> None:
    rows = [Row("quick", 1e-6, 2e-6), Row("slow", 3e-6, 1e-6), Row("broken", failure="ModelError: no")]
    lines = table(rows)
    assert [line.split(" | ")[0] for line in lines[2:4]] == ["| slow", "| quick"]
    assert lines[-1] == "- broken: ModelError: no"
    assert geometric_mean(rows) == pytest.approx(1.5**0.5)


def test_every_model_of_one_operator_is_valid_and_has_its_own_name() -> None:
    cases = all_cases()
    assert len({case.name for case in cases}) == len(cases) > 190
    for case in cases:
        assert load_model(case.model()).graph.num_nodes() == 1, case.name
