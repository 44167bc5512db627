"""The same graphs by TensorFlow itself, where ANYCANN_TEST_TENSORFLOW names a Python that has it (2.15, which wants another NumPy)."""

from __future__ import annotations

import os
from pathlib import Path
import pickle
import subprocess

import numpy as np
import pytest

from anycann.frontends.tensorflow.load import load_frozen_graph
from anycann.session import InferenceSession

PYTHON = os.environ.get("ANYCANN_TEST_TENSORFLOW", "")
pytestmark = [pytest.mark.large, pytest.mark.skipif(not PYTHON, reason="ANYCANN_TEST_TENSORFLOW names no Python with TensorFlow")]


def test_results_are_tensorflows_own(tmp_path: Path) -> None:
    made = tmp_path / "cases.pickle"
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": ""}
    subprocess.run([PYTHON, str(Path(__file__).with_name("tensorflow_cases.py")), str(made)], check=True, env=environment, timeout=1500)
    cases = pickle.loads(made.read_bytes())
    assert len(cases) > 90
    wrong = [f"{name}: {error}" for name, case in cases.items() if (error := _difference(*case))]
    assert not wrong, "\n".join(wrong)


def _difference(graph: bytes, operands: list[np.ndarray], expected: list[np.ndarray]) -> str:
    """What is wrong with our results, or nothing."""
    session = InferenceSession(load_frozen_graph(graph, outputs=[f"y{number}" for number in range(len(expected))]))
    results = session.run(None, {f"x{number}": array for number, array in enumerate(operands)})
    for got, wanted in zip(results, expected, strict=True):
        if (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
            return f"{got.dtype}{got.shape} for {wanted.dtype}{wanted.shape}"
        if not np.allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=3e-4, atol=3e-5, equal_nan=True):
            return f"differs by {np.abs(got.astype(np.float64) - wanted).max():.2e}"
    return ""
