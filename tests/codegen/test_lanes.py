"""Expressions at one point of the loops: what is known for all lanes is not written again for some of them."""

from __future__ import annotations

from anycann.codegen.nest_kernel import Output, generate
from anycann.target.target import by_name
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.layout import NC1HWC0, NHWC


def test_what_clamps_choose_between_is_computed_once_where_channel_blocks_are_partial() -> None:
    source = te.placeholder("source", (1, 24, 5, 5), dtypes.uint8)

    def body(*index: x.Expr) -> x.Expr:
        value = x.cast(source[index], dtypes.float32)
        for _ in range(4):
            value = value / 3.0
            value = x.select(value > -7.0, value, -7.0)
            value = x.select(value < 7.0, value, 7.0)
        return value

    result = te.compute(source.shape, body)
    ir = generate([Output("result", result, NC1HWC0)], {"source": NHWC}, by_name("avx512")).ir
    assert ir.count("call <16 x float> @llvm.fma") == 4  # the divisions
    assert ir.count("call <16 x i8> @llvm.masked.load") == 1


def test_branches_of_a_choice_know_nothing_of_each_other() -> None:
    source = te.placeholder("source", (24,), dtypes.float32)
    other = te.placeholder("other", (20,), dtypes.float32)
    result = te.compute((24,), lambda i: x.select(i < 20, other[i], source[i]) + x.select(i < 12, other[i], source[i]))
    ir = generate([Output("result", result)], {}, by_name("avx512")).ir
    assert ir.count("call <16 x float> @llvm.masked.load") >= 2  # each under the condition of its own branch
