"""The backend interface itself: prepare, run_model, run_node, supports_device."""

from __future__ import annotations

import numpy as np
from onnx import helper
import pytest

from anycann.onnx_backend import Backend
from anycann.support.errors import UsageError

X = np.array([[-1, 2], [3, -4]], np.float32)


def subtraction() -> object:
    infos = [helper.make_tensor_value_info(name, 1, [2, 2]) for name in ("a", "b")]
    graph = helper.make_graph([helper.make_node("Sub", ["a", "b"], ["c"])], "g", infos, [helper.make_tensor_value_info("c", 1, [2, 2])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_inputs_go_by_position_and_by_name_and_outputs_too() -> None:
    prepared = Backend.prepare(subtraction())
    np.testing.assert_array_equal(prepared.run([X, 2 * X])[0], -X)
    np.testing.assert_array_equal(prepared.run({"b": X, "a": 2 * X}).c, X)
    np.testing.assert_array_equal(Backend.run_model(subtraction(), [X, X])["c"], 0 * X)


def test_a_node_runs_at_the_opset_that_is_asked_for() -> None:
    squeezed = Backend.run_node(helper.make_node("Squeeze", ["x"], ["y"], axes=[0]), X[None], opset_version=11)
    np.testing.assert_array_equal(squeezed[0], X)
    twice = Backend.run_node(helper.make_node("Add", ["x", "x"], ["y"]), [X])
    np.testing.assert_array_equal(twice.y, 2 * X)


def test_only_the_device_cpu_is_there() -> None:
    assert Backend.supports_device("CPU")
    assert not Backend.supports_device("CUDA")
    with pytest.raises(UsageError, match="accepted: CPU"):
        Backend.prepare(subtraction(), "CUDA")


def test_too_many_inputs_are_refused_by_the_names_there_are() -> None:
    with pytest.raises(UsageError, match="takes 2: a, b"):
        Backend.run_model(subtraction(), [X, X, X])
