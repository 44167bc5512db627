"""Loop nests: what they compute is what the tensors say, and what does not fit is refused with a sentence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.nest import CannotFuse, ReduceStage, WriteStage, build_nest
from anycann.te.tensor import Placeholder, Tensor
from tests.te.brute_force import run_nest, whole

Build = Callable[[Placeholder], list[Tensor]]


def source(*shape: int) -> Placeholder:
    return te.placeholder("x", shape, dtypes.float32)


def softmax(a: Placeholder) -> list[Tensor]:
    rows, columns = a.shape
    most = te.reduce("max", (rows,), (columns,), lambda i, j: a[i, j])
    powers = te.compute(a.shape, lambda i, j: x.unary("exp", a[i, j] - most[i]))
    total = te.reduce("sum", (rows,), (columns,), lambda i, j: powers[i, j])
    return [te.compute(a.shape, lambda i, j: powers[i, j] / total[i])]


def mean_and_variance(a: Placeholder) -> list[Tensor]:
    rows, columns = a.shape
    total = te.reduce("sum", (rows,), (columns,), lambda i, j: a[i, j])
    mean = te.compute((rows,), lambda i: total[i] / columns)
    square = te.reduce("sum", (rows,), (columns,), lambda i, j: (a[i, j] - mean[i]) * (a[i, j] - mean[i]))
    return [mean, te.compute((rows,), lambda i: square[i] / columns)]


def chain(a: Placeholder) -> list[Tensor]:
    double = te.compute(a.shape, lambda i, j: a[i, j] * 2)
    turned = te.compute(a.shape[::-1], lambda i, j: double[j, i] + 1)
    return [turned, te.compute(a.shape[::-1], lambda i, j: turned[i, j] * turned[i, j])]


def group_mean(a: Placeholder) -> list[Tensor]:
    """Each element minus the mean of its row's group of two columns: read at j // 2."""
    rows, columns = a.shape
    total = te.reduce("sum", (rows, columns // 2), (2,), lambda i, g, r: a[i, g * 2 + r])
    return [te.compute(a.shape, lambda i, j: a[i, j] - total[i, j // 2] / 2)]


def whole_sum(a: Placeholder) -> list[Tensor]:
    return [te.reduce("sum", (), a.shape, lambda i, j: a[i, j])]


@pytest.mark.parametrize("build", [softmax, mean_and_variance, chain, group_mean, whole_sum], ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", [(3, 4), (1, 6), (5, 2), (1, 2)], ids=str)
def test_a_nest_computes_what_its_tensors_say(build: Build, shape: tuple[int, int]) -> None:
    a = source(*shape)
    memory = {a: np.random.default_rng(0).standard_normal(shape)}
    outputs = build(a)
    for got, tensor in zip(run_nest(build_nest(outputs), outputs, memory), outputs, strict=True):
        np.testing.assert_allclose(got, whole(tensor, memory), rtol=1e-12)


def test_softmax_is_two_reductions_and_a_write_for_each_row() -> None:
    nest = build_nest(softmax(source(3, 4)))
    assert [v.extent for v in nest.outer] == [3]
    assert [type(stage) for stage in nest.stages] == [ReduceStage, ReduceStage, WriteStage]
    assert [[v.extent for v in stage.over] for stage in nest.stages] == [[4], [4], [4]]


def other_shapes(a: Placeholder) -> list[Tensor]:
    return [te.compute((3, 4), lambda i, j: a[i, j]), te.compute((4, 3), lambda i, j: a[j, i])]


def another_row(a: Placeholder) -> list[Tensor]:
    total = te.reduce("sum", (4,), (4,), lambda i, j: a[i, j])
    return [te.compute((4, 4), lambda i, j: a[i, j] - total[3 - i])]


def two_rows(a: Placeholder) -> list[Tensor]:
    total = te.reduce("sum", (4,), (4,), lambda i, j: a[i, j])
    return [te.compute((4, 4), lambda i, j: a[i, j] - total[j] + total[i])]


def independent_output(a: Placeholder) -> list[Tensor]:
    total = te.reduce("sum", (4,), (4,), lambda i, j: a[i, j])
    return [total, te.compute((4, 4), lambda i, j: a[i, j] * 2)]


def reduced_rows_of_reduced_rows(a: Placeholder) -> list[Tensor]:
    total = te.reduce("sum", (4,), (4,), lambda i, j: a[i, j])
    return [te.reduce("sum", (4,), (4,), lambda i, j: a[i, j] * total[j])]


def other_rows(a: Placeholder) -> list[Tensor]:
    rows = te.reduce("sum", (4,), (4,), lambda i, j: a[i, j])
    return [rows, te.reduce("sum", (2,), (4,), lambda i, j: a[i, j])]


@pytest.mark.parametrize(
    ("build", "shape", "why"),
    [
        (other_shapes, (4, 4), r"outputs of different shapes: \[3, 4\] and \[4, 3\]"),
        (another_row, (4, 4), "a reduced value is read at other places than its own row"),
        (two_rows, (4, 4), "an output does not depend on the reduction it is grouped with"),
        (independent_output, (4, 4), "an output does not depend on the reduction it is grouped with"),
        (reduced_rows_of_reduced_rows, (4, 4), "a reduction reads another row of an earlier one"),
        (other_rows, (4, 4), r"loops of different extents: \[2\] and \[4\]"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_does_not_fit_one_nest_is_refused_with_the_reason(build: Build, shape: tuple[int, ...], why: str) -> None:
    with pytest.raises(CannotFuse, match=why):
        build_nest(build(source(*shape)))
