"""Published models on real inputs give ONNX Runtime's answers: each output within 1e-4 in its norm, top answers equal."""

from __future__ import annotations

from collections.abc import Iterator
import json

import pytest

from anycann import InferenceSession
from benchmarks.zoo.models import MODELS, Model, Outputs, relative_error, run_all

onnxruntime = pytest.importorskip("onnxruntime")


def session_of(model: Model, threads: int) -> InferenceSession:
    if not model.path().is_file():
        pytest.skip(f"{model.path().name} is not fetched: run scripts/fetch_models.py{' --large' if model.large else ''}")
    return InferenceSession(model.path(), num_threads=threads)


def wanted(model: Model) -> list[Outputs]:
    """ONNX Runtime's outputs, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return run_all(onnxruntime.InferenceSession(model.path(), options, providers=["CPUExecutionProvider"]), model)


def parameters() -> Iterator[object]:
    for model in MODELS:
        marks = [pytest.mark.models, pytest.mark.slow, *([pytest.mark.large] if model.large else [])]
        yield pytest.param(model, marks=marks, id=model.name)


@pytest.mark.parametrize("model", list(parameters()))
def test_a_published_model_answers_as_onnx_runtime_does(model: Model) -> None:
    session = session_of(model, threads=2)
    expected = wanted(model)
    for call in range(2):  # a second time, over the memory that the first run has left behind
        results = run_all(session, model)
        for step, (got, right) in enumerate(zip(results, expected, strict=True)):
            errors = {o.name: relative_error(g, r) for o, g, r in zip(session.get_outputs(), got, right, strict=True)}
            assert max(errors.values()) <= model.tolerance, f"run {call}, call {step} of {model.name}: {json.dumps(errors)} {model.reason}"
            assert model.answer(got) == model.answer(right), f"run {call}, call {step} of {model.name}"


@pytest.mark.models
def test_inputs_and_outputs_of_a_published_model_have_onnx_runtimes_names_and_types() -> None:
    checked = 0
    for model in MODELS:
        if model.large or not model.path().is_file():
            continue
        theirs = onnxruntime.InferenceSession(model.path(), providers=["CPUExecutionProvider"])
        ours = InferenceSession(model.path())
        assert [(i.name, i.type) for i in ours.get_inputs()] == [(i.name, i.type) for i in theirs.get_inputs()], model.name
        assert [(o.name, o.type) for o in ours.get_outputs()] == [(o.name, o.type) for o in theirs.get_outputs()], model.name
        checked += 1
    if not checked:
        pytest.skip("no published model is fetched: run scripts/fetch_models.py")
