"""Published models, upgraded, give in ONNX Runtime what they gave before: the front end alone, without our compiler."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from anycann.frontends.onnx.check import NEWEST_OPSET
from anycann.frontends.onnx.load import load_model
from anycann.frontends.onnx.upgrade import upgrade_model
from anycann.graph.sources import source_names
from benchmarks.zoo.models import MODELS, Model, run_all


def runtime(model: str | bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@pytest.mark.models
@pytest.mark.slow
@pytest.mark.parametrize("model", [pytest.param(model, id=model.name) for model in MODELS if not model.large])
def test_an_upgraded_model_answers_as_before(model: Model) -> None:
    if not model.path().is_file():
        pytest.skip(f"{model.path().name} is not fetched: run scripts/fetch_models.py")
    upgraded = upgrade_model(load_model(model.path()))
    assert upgraded.opset_imports[""] == NEWEST_OPSET
    assert all(source_names(node) for node in upgraded.graph.all_nodes())
    upgraded.ir_version = 10
    before = run_all(runtime(str(model.path())), model)
    after = run_all(runtime(ir.to_proto(upgraded).SerializeToString()), model)
    for ours, theirs in zip(after, before, strict=True):
        for got, wanted in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(wanted, np.float64), rtol=1e-3, atol=1e-5)
