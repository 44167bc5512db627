"""Quantised bytes as they are stored: what is far outside of their range, not finite or half-way, for every zero point and every rest."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from anycann.codegen.kernel import Kernel
from anycann.codegen.nest_kernel import Output, generate
from anycann.graph.ops.quantize import limits, saturated
from anycann.runtime.loader import LoadedCode
from anycann.target.target import Target, by_name
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.dtypes import DType
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


def test_one_comparison_of_floats_is_left() -> None:
    """Where packing saturates and the zero point can't wrap; not where the value may fall below all integers and is made smaller still."""
    for zero, comparisons in ((0, 1), (9, 1), (-9, 2)):
        assert kernel_of(64, dtypes.int8, zero, by_name("avx2")).ir.count("fcmp") == comparisons
    assert kernel_of(64, dtypes.uint8, 0, by_name("avx512")).ir.count("fcmp") == 2
