"""x sigmoid(x) is silu(x), where it comes together from nodes of their own; another product is what it was."""

from __future__ import annotations

import pytest

from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.dtypes import DType
from anycann.te.expression import Op
from anycann.te.nest import WriteStage, build_nest
from anycann.te.tensor import Tensor
from anycann.te.traversal import walk


def functions(tensor: Tensor) -> set[str]:
    """The operations of the one nest that computes a tensor."""
    (stage,) = build_nest([tensor]).stages
    assert isinstance(stage, WriteStage)
    return {expr.name for expr in walk(stage.body) if isinstance(expr, Op) and expr.dtype.is_float}


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("gate_first", [False, True])
def test_a_value_times_its_logistic_function_is_one_function(dtype: DType, gate_first: bool) -> None:
    source = te.placeholder("x", (5, 7), dtype)
    value = te.compute(source.shape, lambda i, j: source[i, j] + 1.0)
    gate = te.compute(source.shape, lambda i, j: x.unary("sigmoid", value[i, j]))
    product = te.compute(source.shape, lambda i, j: gate[i, j] * value[i, j] if gate_first else value[i, j] * gate[i, j])
    assert functions(product) == {"add", "silu"}


def test_the_gate_of_another_value_or_place_stays() -> None:
    source = te.placeholder("x", (7, 7), dtypes.float32)
    value = te.compute(source.shape, lambda i, j: source[i, j] + 1.0)
    gate = te.compute(source.shape, lambda i, j: x.unary("sigmoid", value[i, j]))
    assert functions(te.compute(source.shape, lambda i, j: gate[i, j] * source[i, j])) == {"add", "mul", "sigmoid"}
    assert functions(te.compute(source.shape, lambda i, j: gate[j, i] * value[i, j])) == {"add", "mul", "sigmoid"}
