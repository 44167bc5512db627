"""Operators in numpy for sizes that change from call to call agree with their references."""

from __future__ import annotations

from collections.abc import Sequence
import math
from typing import Any

import numpy as np
import onnx
from onnx import helper
import pytest

from anycann.graph.evaluate import evaluate_node
from anycann.graph.prepared import PreparedNode
from anycann.graph.registry import OPSET
from anycann.support.errors import ModelError


def numbers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return (np.random.default_rng(1).standard_normal(shape) * 3).astype(dtype)


def result(node: onnx.NodeProto, values: Sequence[np.ndarray]) -> np.ndarray:
    return np.asarray(PreparedNode(node, OPSET, quick=True)(values)[0])


@pytest.mark.parametrize("shape", [(7, 33), (1, 1), (0, 4), (5,)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("op_type", "attributes", "operands"),
    [
        ("Erf", {}, 1),
        ("Gelu", {}, 1),
        ("Gelu", {"approximate": "tanh"}, 1),
        ("LayerNormalization", {}, 2),
        ("LayerNormalization", {"epsilon": 0.01}, 3),
        ("LayerNormalization", {"axis": 0}, 3),
        ("Tanh", {}, 1),
    ],
)
def test_agrees_with_the_reference(shape: tuple[int, ...], dtype: type, op_type: str, attributes: dict[str, Any], operands: int) -> None:
    node = helper.make_node(op_type, [f"x{n}" for n in range(operands)], ["y"], **attributes)
    below = shape if attributes.get("axis") == 0 else shape[-1:]
    values = [numbers(*shape, dtype=dtype), numbers(*below, dtype=dtype), numbers(*below, dtype=dtype)][:operands]
    got, want = result(node, values), np.asarray(evaluate_node(node, OPSET, values)[0])
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=3e-6, atol=2e-6)


def test_the_error_function_is_right_to_a_few_units_in_the_last_place() -> None:
    x = np.concatenate([np.linspace(-6, 6, 40001), [1e-30, -1e-7, 0.0, np.inf, -np.inf]]).astype(np.float32)
    got = result(helper.make_node("Erf", ["x"], ["y"]), [x])
    want = np.array([math.erf(value) for value in x.tolist()])
    np.testing.assert_allclose(got, want, rtol=1e-6)
    nothing = result(helper.make_node("Erf", ["x"], ["y"]), [np.array([np.nan], np.float32)])
    assert np.isnan(nothing).all()


@pytest.mark.parametrize("attributes", [{}, {"approximate": "tanh"}], ids=["exact", "tanh"])
def test_what_is_not_finite_warns_of_nothing(attributes: dict[str, Any]) -> None:
    x = np.array([-np.inf, np.inf, np.nan, 3e38, -3e38], np.float32)
    got = result(helper.make_node("Gelu", ["x"], ["y"], **attributes), [x])
    np.testing.assert_array_equal(got[[1, 2, 3]], x[[1, 2, 3]])


@pytest.mark.parametrize("size", [9, 1])
def test_sizes_that_do_not_fit_are_an_error_of_the_model(size: int) -> None:
    node = helper.make_node("LayerNormalization", ["x", "scale"], ["y"])
    with pytest.raises(ModelError, match="do not fit"):
        PreparedNode(node, OPSET, quick=True)([numbers(3, size), numbers(8)])
