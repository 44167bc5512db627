"""Sums of rows that end within a vector: what lanes that do not exist add, and what that costs."""

from __future__ import annotations

import numpy as np
import pytest

from anycann.codegen.combining import absent_from, neutral
from anycann.codegen.nest_kernel import Output
from anycann.codegen.objects import emit_assembly
from anycann.codegen.recipe import Recipe
from anycann.codegen.space import Choices
from anycann.target.target import PROCESSORS
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.dtypes import DType
from anycann.te.tensor import Tensor
from anycann.tuning.task import task_of


def deviations(rows: int, length: int) -> Tensor:
    """The sum of squares of each row's distances from its sum, as normalisations have it: of floats."""
    x = te.placeholder("x", (rows, length), dtypes.float32)
    total = te.reduce("sum", (rows,), (length,), lambda i, j: x[i, j])
    return te.reduce("sum", (rows,), (length,), lambda i, j: (x[i, j] - total[i]) * (x[i, j] - total[i]))


@pytest.mark.parametrize("length", [6, 10, 12, 14, 20, 28])
def test_no_lanes_are_moved_to_be_left_out(length: int) -> None:
    """`vexpandpd`, which LLVM makes of pairs of lanes beside zeros, cost such kernels 75 cycles a row there."""
    target = PROCESSORS["znver4"]
    task = task_of(Recipe((Output("y", deviations(400, length)),), {}, target), lambda name: None, Choices())
    assert task is not None
    assembly = emit_assembly(task.generate({**task.default, "vector": -1}).kernel.ir, target)
    assert "vaddps" in assembly
    assert "expand" not in assembly


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32, dtypes.float64], ids=lambda dtype: dtype.name)
def test_what_absent_lanes_add_changes_no_bit(dtype: DType) -> None:
    values = np.array([0.0, -0.0, 1.5, -np.inf, np.nan, np.finfo(dtype.name).tiny], dtype.name)
    added = values + np.array(absent_from("sum", dtype), dtype.name)
    assert added.tobytes() == values.tobytes()


def test_other_reductions_have_one_neutral_element() -> None:
    assert str(absent_from("sum", dtypes.int32)) == "0"
    for kind in ("max", "min", "prod"):
        assert absent_from(kind, dtypes.float32) == neutral(kind, dtypes.float32)
