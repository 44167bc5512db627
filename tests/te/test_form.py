"""Two computations have one form exactly if nothing but names tells them apart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.contractions import MatMul
from anycann.te.expression import Expr, Op, Var, const
from anycann.te.form import Form, Former
from anycann.te.tensor import Tensor

SIZE = (4, 6)


def _memory(name: str, dtype: dtypes.DType = dtypes.float32) -> Tensor:
    return te.placeholder(name, SIZE, dtype)


def _form(*roots: Tensor) -> Form:
    return Former().form(*roots)


def _sum(a: str, b: str, factor: float = 2.0) -> Tensor:
    x, y = _memory(a), _memory(b)
    return te.compute(SIZE, lambda i, j: x[i, j] * factor + y[i, j])


def _same_operand(name: str) -> Tensor:
    x = _memory(name)
    return te.compute(SIZE, lambda i, j: x[i, j] * 2.0 + x[i, j])


def test_names_alone_make_no_difference() -> None:
    former, other = Former(), Former()
    assert former.form(_sum("a", "b")) == other.form(_sum("x", "y"))
    assert list(former.names) == ["a", "b"]
    assert list(other.names) == ["x", "y"]


@pytest.mark.parametrize(
    "other",
    [
        lambda: _sum("a", "b", 3.0),
        lambda: _sum("a", "a"),
        lambda: _same_operand("a"),
        lambda: te.compute(SIZE, lambda i, j: _memory("a")[i, j]),
        lambda: te.compute(SIZE, lambda i, j: _memory("a")[i, j] - _memory("b")[i, j]),
    ],
    ids=["another literal", "one name twice", "one tensor twice", "less", "another operator"],
)
def test_what_differs_otherwise_has_another_form(other: Callable[[], Tensor]) -> None:
    assert _form(other()) != _form(_sum("a", "b"))


def test_numbers_that_compare_equal_are_told_apart() -> None:
    values = (const(0.0, dtypes.float32), const(-0.0, dtypes.float32), const(0, dtypes.float32), const(False, dtypes.float32))
    forms = [_form(te.compute(SIZE, lambda i, j, value=value: _memory("x")[i, j] + value)) for value in values]
    assert len(set(forms)) == len(values)


def test_a_value_computed_once_is_not_one_computed_twice() -> None:
    def square(apart: bool) -> Tensor:
        x = _memory("x")

        def element(i: Expr, j: Expr) -> Expr:
            first = x[i, j] + 1.0
            return first * (x[i, j] + 1.0 if apart else first)

        return te.compute(SIZE, element)

    assert _form(square(True)) == _form(square(True)) != _form(square(False))


def test_the_order_in_which_loops_were_made_counts_and_their_names_do_not() -> None:
    def added(first: str, second: str, turned: bool) -> Tensor:
        i, j = Var(first, 4), Var(second, 4)
        if turned:
            i, j = j, i
        x = te.placeholder("x", (4, 4), dtypes.float32)
        return te.Compute((4, 4), dtypes.float32, (i, j), x[i, j])

    assert _form(added("i", "j", False)) == _form(added("p", "q", False)) != _form(added("i", "j", True))


def test_tables_are_what_is_in_them() -> None:
    def looked_up(*values: int) -> Tensor:
        table = te.table(np.array(values, np.int32))
        return te.compute((3,), lambda i: table[i])

    assert _form(looked_up(1, 2, 3)) == _form(looked_up(1, 2, 3)) != _form(looked_up(1, 2, 4))


def test_what_a_contraction_computes_belongs_to_its_form() -> None:
    def product(transposed: bool, names: str = "ab") -> Tensor:
        a, b = (te.placeholder(name, (5, 5), dtypes.float32) for name in names)
        return te.contraction(MatMul(a, b, transpose_b=transposed), (5, 5), dtypes.float32)

    assert _form(product(False)) == _form(product(False, "xy")) != _form(product(True))


def test_a_long_chain_of_operators_is_no_deep_recursion() -> None:
    def chain(last: str) -> Tensor:
        x = _memory("x")

        def element(i: Expr, j: Expr) -> Expr:
            value: Expr = x[i, j]
            for _ in range(5000):
                value = Op("neg", (value,), dtypes.float32)
            return Op(last, (value,), dtypes.float32)

        return te.compute(SIZE, element)

    assert _form(chain("abs")) == _form(chain("abs")) != _form(chain("neg"))
