"""Scalar expressions: literals fold, sharing is kept, types are checked."""

from __future__ import annotations

import pytest

from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Const, Op, Var
from anycann.te.traversal import substitute, walk


def test_integer_literals_are_folded() -> None:
    seven = x.const(7, dtypes.int64)
    for expr, value in ((seven + 3, 10), (seven - 9, -2), (seven * 2, 14), (seven // -2, -4), (seven % 4, 3), (x.maximum(seven, 9), 9)):
        assert isinstance(expr, Const)
        assert expr.value == value


def test_float_literals_are_left_to_the_processor_because_rounding_is_its_own() -> None:
    assert isinstance(x.const(0.1, dtypes.float32) + 0.2, Op)


def test_numbers_take_the_type_of_the_other_operand() -> None:
    half = te.placeholder("h", (3,), dtypes.float16)
    i = Var("i", 3)
    assert (half[i] * 2).dtype is dtypes.float16
    assert (1 - half[i]).dtype is dtypes.float16
    assert (half[i] < 0).dtype is dtypes.bool_


def test_operands_of_different_types_are_refused() -> None:
    with pytest.raises(TypeError, match="operands of different element types: float32 and int64"):
        te.placeholder("a", (3,), dtypes.float32)[Var("i", 3)] + Var("j", 3)


def test_walk_meets_operands_before_users_and_shared_ones_once() -> None:
    i = Var("i", 8)
    shared = i + 1
    root = shared * shared
    order = walk(root)
    assert [e for e in order if e is shared] == [shared]
    assert order.index(i) < order.index(shared) < order.index(root)


def test_substituting_keeps_sharing_and_folds() -> None:
    i, j = Var("i", 8), Var("j", 8)
    shared = i // 2
    moved = substitute(shared * shared + j, {i: x.const(6, dtypes.int64)})
    assert isinstance(moved, Op)
    assert isinstance(moved.operands[0], Const)
    assert moved.operands[0].value == 9
    untouched = substitute(shared * j, {Var("k", 2): j})
    assert untouched.operands[0] is shared  # type: ignore[attr-defined]


def test_a_tree_without_the_variable_stays_itself() -> None:
    i = Var("i", 8)
    expr = i * 3 + 1
    assert substitute(expr, {Var("j", 8): i}) is expr


def test_a_cast_to_the_same_type_is_nothing() -> None:
    i = Var("i", 8)
    assert x.cast(i, dtypes.int64) is i


def test_rewriting_a_chain_of_ten_thousand_operations_is_no_deep_recursion_for_walk() -> None:
    expr: x.Expr = Var("i", 8)
    for _ in range(10_000):
        expr = expr + Var("j", 2)
    assert len(walk(expr)) == 20_001
