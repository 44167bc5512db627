"""Index arithmetic against brute force: whatever is rewritten has the same value at every index, and no value leaves its range."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np

from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr, Var
from anycann.te.simplify import EVERYTHING, linear, range_of, to_expr
from tests.te.brute_force import places, value_of

VARIABLES = (Var("a", 5), Var("b", 6), Var("c", 1), Var("d", 3))


def expressions() -> st.SearchStrategy[Expr]:
    leaves = st.sampled_from(VARIABLES) | st.integers(-9, 9).map(lambda n: x.const(n, dtypes.int64))
    return st.recursive(leaves, _combined, max_leaves=8)


def _combined(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    two = st.sampled_from(("add", "sub", "min", "max"))
    by_number = st.sampled_from(("mul", "floordiv", "floormod"))
    return (
        st.builds(x.binary, two, inner, inner)
        | st.builds(x.binary, by_number, inner, st.integers(1, 7))
        | st.builds(lambda a, n: n * a, inner, st.integers(-4, 4))
        | st.builds(lambda a: -a, inner)
        | st.builds(lambda a, b, c, d: x.select(a < b, c, d), inner, inner, inner, inner)
    )


@settings(max_examples=300, deadline=None, derandomize=True)
@given(expressions())
def test_the_linear_form_has_the_value_of_the_expression_everywhere(expr: Expr) -> None:
    simple = to_expr(linear(expr))
    for at in places(VARIABLES):
        assert value_of(simple, at, {}) == value_of(expr, at, {})


@settings(max_examples=300, deadline=None, derandomize=True)
@given(expressions())
def test_no_value_leaves_the_range(expr: Expr) -> None:
    bounds = range_of(expr)
    values = [value_of(expr, at, {}) for at in places(VARIABLES)]
    assert bounds.low <= min(values)
    assert max(values) <= bounds.high


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(-12, 12), min_size=4, max_size=4), st.integers(-20, 20), st.integers(1, 12))
def test_quotient_and_remainder_of_a_linear_form_are_exact(factors: list[int], constant: int, divisor: int) -> None:
    form: Expr = x.const(constant, dtypes.int64)
    for variable, factor in zip(VARIABLES, factors, strict=True):
        form = form + variable * factor
    whole, rest = to_expr(linear(form // divisor)), to_expr(linear(form % divisor))
    for at in places(VARIABLES):
        assert (value_of(whole, at, {}), value_of(rest, at, {})) == divmod(value_of(form, at, {}), divisor)


def test_splitting_and_joining_an_index_gives_it_back() -> None:
    row, column = Var("row", 5), Var("column", 12)
    flat = row * 12 + column
    assert linear(flat // 12).terms == ((row, 1),)
    assert linear(flat % 12).terms == ((column, 1),)


def test_a_division_that_may_leave_its_period_stays() -> None:
    i, j = Var("i", 5), Var("j", 13)
    quotient = linear((i * 12 + j) // 12)
    assert quotient.coefficient(i) == 1
    assert len(quotient.terms) == 2


def test_indices_from_memory_are_bounded_only_if_their_table_is_known() -> None:
    known = te.table(np.array([3, -1, 7], np.int64))
    unknown = te.placeholder("index", (3,), dtypes.int64)
    i = Var("i", 3)
    assert (range_of(known[i] + 1).low, range_of(known[i] + 1).high) == (0, 8)
    assert range_of(unknown[i]) == EVERYTHING
    assert range_of(x.clamp(unknown[i], 0, 4)).within(0, 4)
    assert range_of(unknown[i] % 5).within(0, 4)
