"""Random numbers of the host: their distribution, types and shapes; seeds mean what they did."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from onnx import TensorProto, helper
import pytest

from anycann.graph.evaluate import evaluate_node
from anycann.graph.prepared import PreparedNode
from anycann.graph.registry import OPSET

NORMAL, UNIFORM = {"mean": 3.0, "scale": 0.5}, {"low": 2.0, "high": 4.0}
OPERANDS = {"RandomNormalLike": NORMAL, "RandomUniformLike": UNIFORM, "RandomNormal": NORMAL, "RandomUniform": UNIFORM}


def drawn(op_type: str, monkeypatch: pytest.MonkeyPatch, **attributes: object) -> list[np.ndarray]:
    """Two runs of one node, without the reference."""
    inputs = [np.zeros((40, 50), np.float32)] if op_type.endswith("Like") else []
    more = {} if inputs else {"shape": [40, 50]}
    prepared = PreparedNode(helper.make_node(op_type, ["x"][: len(inputs)], ["y"], **attributes, **more), OPSET)
    monkeypatch.setattr("anycann.graph.prepared.evaluate_node", lambda *_: pytest.fail("the reference was asked"))
    return [np.asarray(prepared(inputs)[0]) for _ in range(2)]


@pytest.mark.parametrize(("dtype", "numpy_type"), [(None, "float32"), (TensorProto.DOUBLE, "float64"), (TensorProto.FLOAT16, "float16")])
@pytest.mark.parametrize("op_type", OPERANDS)
def test_numbers_are_spread_as_asked_and_new_in_every_run(
    op_type: str, dtype: int | None, numpy_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stated = OPERANDS[op_type] | ({} if dtype is None else {"dtype": dtype})
    first, second = drawn(op_type, monkeypatch, **stated)
    assert first.shape == second.shape == (40, 50)
    assert first.dtype == second.dtype == numpy_type
    assert not np.array_equal(first, second)
    assert abs(first.mean(dtype=np.float64) - 3) < 0.2  # ten standard deviations and more of the mean of 2000
    assert 0.35 < first.std(dtype=np.float64) < 0.75
    assert "Normal" in op_type or (first.min() >= 2 and first.max() <= 4)


@pytest.mark.parametrize("op_type", OPERANDS)
def test_a_seed_gives_the_numbers_of_the_reference(op_type: str) -> None:
    inputs = [np.zeros((3, 4), np.float32)] if op_type.endswith("Like") else []
    node = helper.make_node(op_type, ["x"][: len(inputs)], ["y"], seed=7.0, **({} if inputs else {"shape": [3, 4]}))
    np.testing.assert_array_equal(PreparedNode(node, OPSET)(inputs)[0], evaluate_node(node, OPSET, inputs)[0])


FORKED = """
import os
import numpy as np
from anycann.graph.ops.random import _normal
reading, writing = os.pipe()
if os.fork() == 0:
    os.write(writing, _normal((4,), np.dtype(np.float32), None, None, None)[0].tobytes())
    os._exit(0)
theirs = np.frombuffer(os.read(reading, 16), np.float32)
assert theirs.size == 4 and not (theirs == _normal((4,), np.dtype(np.float32), None, None, None)[0]).any()
os.wait()
"""


def test_a_forked_process_draws_other_numbers() -> None:
    child = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
