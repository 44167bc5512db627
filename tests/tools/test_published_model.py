"""The commands on PP-OCR's recognition model, as published."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.zoo.packages import by_name, default_folder, location
from tests.tools.conftest import Invoke

PACKAGE = by_name(["rapidocr"])[0]
# found when this file is imported: the tests themselves have a cache folder of their own
MODEL = location(PACKAGE, next(member for member in PACKAGE.files if "rec" in Path(member).name), default_folder())

pytestmark = [pytest.mark.models, pytest.mark.slow]


def test_atc_show_infer_and_bench_agree_with_onnxruntime_on_it(invoke: Invoke, tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    if not MODEL.is_file():
        pytest.skip(f"{MODEL.name} is not fetched: run scripts/fetch_models.py")
    words = ("--input_format=ND", "--input_shape=x:1,3,48,-1", "--dynamic_dims=64;160", "--message_format=json")
    made = json.loads(invoke("atc", f"--model={MODEL}", "--framework=5", f"--output={tmp_path}/rec", *words).stdout)
    assert made["programs"] == ["float32[1,3,48,64]", "float32[1,3,48,160]"]

    shown = json.loads(invoke("show", tmp_path / "rec.om", "--json").stdout)
    assert len(shown["gears"]) == 2
    assert shown["programs"][1]["flops"] == pytest.approx(1.13e9, rel=0.01)

    x = np.random.default_rng(0).uniform(-1, 1, (1, 3, 48, 160)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    result = invoke("infer", tmp_path / "rec.om", "-i", tmp_path / "x.npy", "-o", tmp_path / "out", "--json")
    got = np.load(json.loads(result.stdout)["outputs"][0]["file"])
    (expected,) = ort.InferenceSession(MODEL, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    assert np.linalg.norm(got - expected) <= 1e-4 * np.linalg.norm(expected)

    words = ("--vs", "onnxruntime", "--vs-model", MODEL, "--shape", "x:1,3,48,64", "--runs", 3)
    report = json.loads(invoke("bench", tmp_path / "rec.om", *words, "--json").stdout)
    assert max(report["relative_errors"].values()) <= 1e-4
