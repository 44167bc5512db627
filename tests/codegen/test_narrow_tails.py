"""Bytes and 16-bit floats that products end in: several vectors of sums are rounded, held within the range and stored together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from anycann.codegen.contract import UNASKED, generate_contraction
from anycann.codegen.nest_kernel import Output
from anycann.codegen.repeats import Repeats
from anycann.codegen.tail import Generated
from anycann.graph.ops.quantize import limits, saturated
from anycann.target.target import Target, by_name
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.contractions import Convolution, MatMul
from anycann.te.dtypes import DType
from anycann.te.layout import NHWC
from anycann.te.tensor import Contraction
from tests.codegen.kernels.jit import runnable
from tests.codegen.test_layouts_read import aligned, run

SCALE = np.float32(0.37)
TABLE = np.random.default_rng(4).permutation(256).astype(np.uint8)
COLUMNS = (1, 16, 32, 33, 47, 48, 64, 80, 100, 131)
Bytes = Callable[[x.Expr, DType, int], x.Expr]


def held(total: x.Expr, dtype: DType, zero: int) -> x.Expr:
    return saturated(x.cast(total, dtypes.float32) * float(SCALE), x.const(zero, dtype), dtype)


def looked_up(total: x.Expr, dtype: DType, zero: int) -> x.Expr:
    return x.lookup(held(total, dtypes.uint8, zero), TABLE.tobytes(), dtype)


def rounded(total: x.Expr, dtype: DType, _: int) -> x.Expr:
    return x.cast(total * float(SCALE), dtype)


def wanted(sums: np.ndarray, dtype: DType, zero: int) -> np.ndarray:
    scaled = np.round(sums.astype(np.float32) * SCALE).astype(np.float64)
    return np.clip(scaled + zero, *limits(dtype)).astype(dtype.numpy)


def product(columns: int) -> tuple[Contraction, dict[str, np.ndarray], np.ndarray]:
    """Sums that lie far outside of bytes as well."""
    rng = np.random.default_rng()
    a, b = rng.integers(0, 256, (37, 9)).astype(np.uint8), rng.integers(-128, 128, (9, columns)).astype(np.int8)
    operator = MatMul(te.placeholder("a", a.shape, dtypes.uint8), te.placeholder("b", b.shape, dtypes.int8))
    sums = a.astype(np.int32) @ b.astype(np.int32)
    sums_of = te.contraction(operator, sums.shape, dtypes.int32)
    return sums_of, {"a": a, "b": b}, sums


def generated(contraction: Contraction, arrays: dict[str, np.ndarray], body: Bytes, dtype: DType, zero: int, target: Target) -> Generated:
    result = te.compute(contraction.shape, lambda *index: body(contraction[index], dtype, zero))
    layouts = {"x": NHWC} if "x" in arrays else {}
    known = {name: array for name, array in arrays.items() if name in ("b", "w")}
    return generate_contraction([Output("y", result)], layouts, target, known.get, UNASKED, Repeats())


def computed(made: Generated, arrays: dict[str, np.ndarray], dtype: DType, shape: tuple[int, ...], target: Target) -> np.ndarray:
    memory = {name: aligned(array) for name, array in arrays.items()} | {packed.name: aligned(packed.array) for packed in made.packed}
    memory["y"] = aligned(np.full(shape, 77, dtype.numpy))
    run(made.kernel, target, memory)
    return memory["y"]


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize(
    ("dtype", "zero"), [(dtypes.uint8, 0), (dtypes.uint8, 128), (dtypes.int8, 0), (dtypes.int8, 5), (dtypes.int8, -128)], ids=str
)
def test_products_end_in_bytes(dtype: DType, zero: int, target: Target) -> None:
    for columns in COLUMNS:
        contraction, arrays, sums = product(columns)
        made = generated(contraction, arrays, held, dtype, zero, target)
        got = computed(made, arrays, dtype, contraction.shape, target)
        np.testing.assert_array_equal(got, wanted(sums, dtype, zero), err_msg=f"{columns} columns")


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_products_end_in_a_table(target: Target) -> None:
    for columns in COLUMNS:
        contraction, arrays, sums = product(columns)
        made = generated(contraction, arrays, looked_up, dtypes.uint8, 100, target)
        got = computed(made, arrays, dtypes.uint8, contraction.shape, target)
        np.testing.assert_array_equal(got, TABLE[wanted(sums, dtypes.uint8, 100)], err_msg=f"{columns} columns")


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_products_end_in_bfloat16(target: Target) -> None:
    """Of whole numbers, whose sums are exact; infinity stays, and halves between two numbers go to the even one."""
    rng, kind = np.random.default_rng(), dtypes.bfloat16.numpy
    for columns in COLUMNS:
        a, b = rng.integers(-9, 9, (37, 10)).astype(kind), rng.integers(-9, 9, (10, columns)).astype(np.float32)
        a[:, -1], b[-1] = 1, rng.choice([0, 0, 0, np.inf, -np.inf], columns)
        operator = MatMul(te.placeholder("a", a.shape, dtypes.bfloat16), te.placeholder("b", b.shape, dtypes.float32))
        contraction = te.contraction(operator, (37, columns), dtypes.float32)
        made = generated(contraction, {"a": a, "b": b}, rounded, dtypes.bfloat16, 0, target)
        got = computed(made, {"a": a, "b": b}, dtypes.bfloat16, contraction.shape, target)
        np.testing.assert_array_equal(got, ((a.astype(np.float32) @ b) * SCALE).astype(kind), err_msg=f"{columns} columns")


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_a_convolution_ends_in_bytes(target: Target) -> None:
    rng = np.random.default_rng()
    for outputs in (24, 48, 96):
        image, w = rng.integers(0, 256, (5, 7, 20)).astype(np.uint8), rng.integers(-128, 128, (outputs, 20, 1, 1)).astype(np.int8)
        operator = Convolution(
            te.placeholder("x", (1, 20, 5, 7), dtypes.uint8), te.placeholder("w", w.shape, dtypes.int8), (1, 1), (0, 0), (1, 1), 1, (5, 7)
        )
        contraction = te.contraction(operator, (1, outputs, 5, 7), dtypes.int32)
        arrays = {"x": image[None], "w": w}
        made = generated(contraction, arrays, held, dtypes.uint8, 3, target)
        sums = np.einsum("hwc,oc->ohw", image.astype(np.int32), w[:, :, 0, 0].astype(np.int32))
        got = computed(made, arrays, dtypes.uint8, contraction.shape, target)
        np.testing.assert_array_equal(got, wanted(sums, dtypes.uint8, 3)[None])


@pytest.mark.parametrize(("columns", "registers"), [(16, 1), (32, 2), (48, 3), (64, 4)])
@pytest.mark.parametrize("zero", [0, 9, -9])
def test_several_registers_are_packed_and_one_is_narrowed(columns: int, registers: int, zero: int) -> None:
    """However many there are, no clamp of integers is left; a zero point that could wrap is held before it is rounded."""
    contraction, arrays, _ = product(columns)
    ir = generated(contraction, arrays, held, dtypes.int8, zero, by_name("avx512")).kernel.ir
    assert ("packsswb" in ir) == (registers > 1)
    assert ("x i32> @llvm.smax" in ir) == (registers == 1 and zero >= 0)
