"""Values that are quantised and dequantised within one kernel: the bytes between are left out where they hold every number."""

from __future__ import annotations

from collections.abc import Mapping
import operator

import numpy as np
import pytest

from anycann.graph.ops.quantize import saturated
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.dtypes import DType
from anycann.te.expression import Const, Expr, Load, Op
from anycann.te.nest import WriteStage, build_nest
from anycann.te.tensor import Tensor
from anycann.te.traversal import walk

BINARY = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "gt": operator.gt, "lt": operator.lt}
KINDS = [(dtypes.uint8, 0), (dtypes.uint8, 117), (dtypes.uint8, 255), (dtypes.int8, -128), (dtypes.int16, 3)]
VALUES = np.array([0, -0.5, 0.5, 1.5, 2.5, -7.49, 127.5, 128, -128.6, 255.5, 300, -300, 1e9, -1e9, np.inf, -np.inf, np.nan], np.float32)


def evaluate(expr: Expr, memory: Mapping[Tensor, np.ndarray]) -> np.ndarray:
    """The expression for all elements at once, by numpy."""
    if isinstance(expr, Const):
        return np.array(expr.value, expr.dtype.numpy)
    if isinstance(expr, Load):
        return memory[expr.tensor]
    assert isinstance(expr, Op)
    operands = [evaluate(operand, memory) for operand in expr.operands]
    if expr.name == "select":
        return np.where(*operands)
    if expr.name == "nearest":
        return np.rint(operands[0]).astype(np.int32)
    if expr.name == "cast":
        return operands[0].astype(expr.dtype.numpy)
    return BINARY[expr.name](*operands)


def body_of(tensor: Tensor) -> Expr:
    (stage,) = build_nest([tensor]).stages
    assert isinstance(stage, WriteStage)
    return stage.body


def packs(body: Expr) -> bool:
    """Whether a number of 8 or 16 bits is made on the way."""
    return any(isinstance(expr, Op) and expr.name == "cast" and expr.dtype.nbytes < 4 for expr in walk(body))


def there_and_back(dtype: DType, zero: int, back: int) -> tuple[Tensor, Tensor]:
    """(source, the integers less `back`) of a quantisation to `dtype` with zero point `zero`."""
    source = te.placeholder("x", VALUES.shape, dtypes.float32)
    packed = te.compute(source.shape, lambda i: saturated(source[i], x.const(zero, dtype), dtype))
    return source, te.compute(source.shape, lambda i: x.cast(packed[i], dtypes.int32) - x.const(back, dtypes.int32))


@pytest.mark.parametrize("back", [0, 3, 117])
@pytest.mark.parametrize(("dtype", "zero"), KINDS)
def test_a_value_that_is_quantised_and_dequantised_is_never_packed(dtype: DType, zero: int, back: int) -> None:
    source, result = there_and_back(dtype, zero, back)
    body, limits = body_of(result), np.iinfo(dtype.numpy)
    wanted = np.clip(np.rint(np.nan_to_num(VALUES, nan=-np.inf).astype(np.float64)) + zero, limits.min, limits.max) - back
    assert not packs(body)
    np.testing.assert_array_equal(evaluate(body, {source: VALUES}), wanted.astype(np.int32))


@pytest.mark.parametrize("shift", [1, -1, 200])
def test_a_number_that_does_not_fit_is_packed_as_before(shift: int) -> None:
    """What a byte cannot hold wraps round, and that must be seen."""
    source = te.placeholder("x", VALUES.shape, dtypes.float32)
    low, high = x.const(0.0, dtypes.float32), x.const(255.0, dtypes.float32)

    def packed(i: Expr) -> Expr:
        value = x.select(source[i] > low, source[i], low)
        whole = x.unary("nearest", x.select(value < high, value, high), dtypes.int32)
        return x.cast(whole + x.const(shift, dtypes.int32), dtypes.uint8)

    bytes_ = te.compute(source.shape, packed)
    body = body_of(te.compute(source.shape, lambda i: x.cast(bytes_[i], dtypes.int32)))
    assert packs(body)
    wanted = np.clip(np.rint(np.nan_to_num(VALUES, nan=0)), 0, 255).astype(np.int32) + shift
    np.testing.assert_array_equal(evaluate(body, {source: VALUES}), wanted & 255)


def test_sums_with_literals_that_leave_the_range_of_32_bits_are_left_alone() -> None:
    source = te.placeholder("x", (3,), dtypes.int32)
    far = 1 << 30
    step = te.compute((3,), lambda i: source[i] + x.const(far, dtypes.int32))
    body = body_of(te.compute((3,), lambda i: step[i] + x.const(far, dtypes.int32)))
    assert isinstance(body, Op)
    assert isinstance(body.operands[0], Op)
