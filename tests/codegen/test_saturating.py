"""Quantised bytes as they are stored: what is far outside of their range, not finite or half-way, for every zero point and every rest."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from anycann.codegen.kernel import Kernel
from anycann.codegen.nest_kernel import Output, generate
from anycann.codegen.saturating import with_floats
from anycann.graph.ops.quantize import limits, saturated
from anycann.runtime.loader import LoadedCode
from anycann.target.target import Target, by_name
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.dtypes import DType
from anycann.te.traversal import walk
from tests.codegen.kernels.jit import ENTRY, guarded, object_of, runnable

POINTS = [
    (dtypes.uint8, 0),
    (dtypes.uint8, 3),
    (dtypes.uint8, 255),
    (dtypes.int8, 0),
    (dtypes.int8, 127),
    (dtypes.int8, -1),
    (dtypes.int8, -128),
]
ENDS = [
    0.0,
    -0.0,
    0.5,
    1.5,
    2.5,
    -0.5,
    -1.5,
    127.5,
    128.5,
    254.5,
    255.5,
    256.0,
    32767.0,
    32768.0,
    65535.0,
    65536.0,
    2.0**31,
    3e9,
    1e30,
    np.inf,
]


def kernel_of(size: int, dtype: DType, zero: int, target: Target) -> Kernel:
    """round(2 v) + zero as bytes."""
    v = te.placeholder("v", (size,), dtypes.float32)
    made = te.compute((size,), lambda i: saturated(v[i] * 2, x.const(zero, dtype), dtype))
    return generate([Output("y", made)], {}, target)


@pytest.mark.parametrize("target", runnable(), ids=str)
@pytest.mark.parametrize(("dtype", "zero"), POINTS, ids=str)
def test_bytes_saturate(dtype: DType, zero: int, target: Target) -> None:
    values = np.array([*ENDS, *(-v for v in ENDS), np.nan, *np.random.default_rng().normal(0, 100, 60)], np.float32) / 2
    low, high = limits(dtype)
    for size in (1, 7, 8, 9, 31, len(values)):
        kernel = kernel_of(size, dtype, zero, target)
        code = LoadedCode({kernel.symbol: object_of(kernel.ir, target)}, target)
        doubled = np.nan_to_num(values[-size:] * 2, nan=-1e9, posinf=1e9, neginf=-1e9).astype(np.float64)
        wanted = np.clip(np.round(doubled) + zero, low, high)
        for given, made in guarded(values[-size:], np.full(size, 77, dtype.numpy)):
            table = (ctypes.c_void_p * 2)(given.address, made.address)
            ENTRY(code.address(kernel.symbol))(table, 0, kernel.tasks, None)
            np.testing.assert_array_equal(made.array, wanted.astype(dtype.numpy))


def residual_of(size: int, dtype: DType, zero: int, target: Target) -> Kernel:
    """v as int8 with a zero point of 2 and a scale of 0.6, and a byte with one of 0.3, added, as bytes: both kinds of rounding."""
    v, r = te.placeholder("v", (size,), dtypes.float32), te.placeholder("r", (size,), dtypes.uint8)

    def element(i: x.Expr) -> x.Expr:
        held = x.cast(x.cast(saturated(v[i] * 2, x.const(2, dtypes.int8), dtypes.int8), dtypes.int32) - 2, dtypes.float32)
        return saturated(held * 0.6 + x.cast(x.cast(r[i], dtypes.int32), dtypes.float32) * 0.3, x.const(zero, dtype), dtype)

    return generate([Output("y", te.compute((size,), element))], {}, target)


@pytest.mark.parametrize("target", runnable(), ids=str)
@pytest.mark.parametrize(("dtype", "zero"), POINTS, ids=str)
def test_bytes_that_are_added_saturate(dtype: DType, zero: int, target: Target) -> None:
    rng = np.random.default_rng()
    values = np.array([*ENDS, *(-v for v in ENDS), np.nan, *np.arange(-140, 140) / 2, *rng.normal(0, 100, 60)], np.float32) / 2
    beside = rng.integers(0, 256, len(values)).astype(np.uint8)
    low, high = limits(dtype)
    for size in (1, 7, 8, 9, 31, len(values)):
        kernel = residual_of(size, dtype, zero, target)
        code = LoadedCode({kernel.symbol: object_of(kernel.ir, target)}, target)
        doubled = np.nan_to_num(values[-size:] * 2, nan=-1e9, posinf=1e9, neginf=-1e9)
        held = np.clip(np.round(doubled), -130, 125).astype(np.float32) * np.float32(0.6)
        wanted = np.clip(np.round(held + beside[-size:].astype(np.float32) * np.float32(0.3)) + zero, low, high)
        for given, bytes_, made in guarded(values[-size:], beside[-size:], np.full(size, 77, dtype.numpy)):
            order = {"v": given.address, "r": bytes_.address, "y": made.address}
            table = (ctypes.c_void_p * 3)(*(order[name] for name in kernel.arguments))
            ENTRY(code.address(kernel.symbol))(table, 0, kernel.tasks, None)
            np.testing.assert_array_equal(made.array, wanted.astype(dtype.numpy))


@pytest.mark.parametrize("zero", [0, 9, -9])
def test_sums_of_bytes_are_not_compared(zero: int) -> None:
    """They show their bounds; and what is a byte on the way stays a float."""
    ir = residual_of(64, dtypes.int8, zero, by_name("avx2")).ir
    assert ir.count("fcmp") == 2  # of v, which may be anything
    assert ir.count("llvm.lrint.v8i32.v8f32(<8 x float> %") == 1


def test_a_float_keeps_the_zero_that_an_integer_makes() -> None:
    """round(-0.25) is -0.0, which a division or a stored float would tell from 0.0."""
    v, least, most = te.placeholder("v", (3,), dtypes.float32)[0], x.const(-9, dtypes.float32), x.const(9, dtypes.float32)
    upper = x.select(v < most, v, most)
    number = x.cast(x.unary("nearest", x.select(upper > least, upper, least), dtypes.int32), dtypes.float32)
    assert "nearest" not in [expr.name for expr in walk(with_floats(number * 3)) if isinstance(expr, x.Op)]
    for kept in (1 / number, x.cast(x.unary("nearest", upper, dtypes.int32), dtypes.float32)):  # one is divided by, one has no lower end
        assert with_floats(kept) is kept


def test_what_branches_share_is_rounded_once() -> None:
    """v = v * byte(v) over and over: each turn once made two of what both branches read, 14 turns 600 times the expression."""
    least, most = x.const(0, dtypes.float32), x.const(255, dtypes.float32)

    def byte(value: x.Expr) -> x.Expr:
        upper = x.select(value > least, value, least)
        return x.cast(x.unary("nearest", x.select(upper < most, upper, most), dtypes.int32), dtypes.float32)

    value = x.cast(te.placeholder("b", (4,), dtypes.uint8)[0], dtypes.float32)
    for _ in range(14):
        value = byte(value * byte(value * 0.5))
    assert len(walk(with_floats(value))) <= len(walk(value))


def test_one_comparison_of_floats_is_left() -> None:
    """Where packing saturates and the zero point can't wrap; not where the value may fall below all integers and is made smaller still."""
    for zero, comparisons in ((0, 1), (9, 1), (-9, 2)):
        for target in ("avx2", "avx512"):
            assert kernel_of(64, dtypes.int8, zero, by_name(target)).ir.count("fcmp") == comparisons
    assert kernel_of(64, dtypes.int8, 0, by_name("sse")).ir.count("fcmp") == 2
