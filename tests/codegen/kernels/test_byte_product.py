"""Products of bytes that are both computed, by fours or words: exact for any zero points, in every size, between untouchable pages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.byte_product import ByteProduct, emit_byte_product
from anycann.codegen.kernels.matmul import contiguous
from anycann.codegen.kernels.matmul_shape import MatmulShape
from anycann.codegen.kernels.matmul_writer import plain_writer
from anycann.codegen.objects import emit_assembly
from anycann.target.target import NAMED, Target, by_name
from anycann.te import dtypes
from anycann.te.dtypes import DType
from tests.codegen.kernels.jit import Compiled, assert_compiles_everywhere, distinct, guarded, runnable
from tests.codegen.kernels.products import HOST

SIZES = [
    (1, 1, 1), (1, 64, 37), (2, 1, 7), (3, 16, 8), (5, 17, 9), (7, 15, 32), (12, 33, 33), (13, 2, 40), (49, 31, 71), (50, 64, 97),
    (197, 5, 65),
]  # fmt: skip
# What processors with 32 registers compute, where it runs: the same tiles, of which LLVM keeps a part in memory.
MANY_REGISTERS = replace(by_name("avx2"), name="avx2 with 32 registers", registers=32)
VNNI = by_name("avx512,+avx512vnni")


def shape_of(m: int, k: int, n: int, batch: tuple[int, ...] = (), a: DType = dtypes.uint8, b: DType = dtypes.uint8) -> MatmulShape:
    return contiguous(batch, m, n, k, a_dtype=a, b_dtype=b, accumulator=dtypes.int32)


def write_kernel(plan: ByteProduct, zero_a: int, zero_b: int) -> tuple[Emitter, int]:
    e, shape = Emitter(), plan.shape
    a, b, y = (e.argument(number) for number in range(3))
    results = contiguous(shape.batch, shape.m, shape.n, shape.n).a
    writer = plain_writer(y, results.batch, results.row, 1, dtypes.int32)
    return e, emit_byte_product(e, plan, a, b, e.const(zero_a, "i8"), e.const(zero_b, "i8"), writer)


def as_signed(zero: int) -> int:
    return int(np.int64(zero).astype(np.int8))


def assert_exact(plan: ByteProduct, zero_a: int, zero_b: int, seed: int = 0) -> None:
    shape, random = plan.shape, np.random.default_rng(seed)
    a, b = (
        random.choice(np.array([low, low + 255, low + 7], dtype.numpy), (*shape.batch, *size))
        for dtype, size in ((shape.a_dtype, (shape.m, shape.k)), (shape.b_dtype, (shape.k, shape.n)))
        for low in [int(np.iinfo(dtype.numpy).min)]
    )
    e, tasks = write_kernel(plan, as_signed(zero_a), as_signed(zero_b))
    assert tasks == plan.tasks
    kernel = Compiled(e, "words", plan.target, plan.scratch_bytes)
    want = (a.astype(np.int32) - zero_a) @ (b.astype(np.int32) - zero_b)
    for left, right, y in guarded(a, b, np.full(want.shape, 77, np.int32)):
        kernel.run([left.address, right.address, y.address], tasks, min(3, tasks))
        np.testing.assert_array_equal(y.array, want)


@pytest.mark.parametrize("target", [*distinct(HOST, *runnable()), MANY_REGISTERS], ids=lambda target: target.name)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_size_is_exact(target: Target, size: tuple[int, int, int]) -> None:
    assert_exact(ByteProduct(shape_of(*size), target), 133, 255)


@pytest.mark.parametrize("a", [dtypes.uint8, dtypes.int8], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("b", [dtypes.uint8, dtypes.int8], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("least", [True, False])
@pytest.mark.parametrize("target", distinct(HOST, *runnable()), ids=lambda target: target.name)
def test_bytes_of_either_sign_have_any_zero_point(a: DType, b: DType, least: bool, target: Target) -> None:
    ends = [int(np.iinfo(dtype.numpy).min) if least else int(np.iinfo(dtype.numpy).max) for dtype in (a, b)]
    for zeros in (ends, (0, ends[1]), (ends[0], 0), (0, 0)):
        assert_exact(ByteProduct(shape_of(7, 70, 43, (2,), a, b), target), *zeros)


def test_rows_and_columns_of_one_matrix_are_shared_out() -> None:
    rows = ByteProduct(shape_of(301, 130, 150), by_name("avx2"))
    columns = ByteProduct(shape_of(20, 700, 331), by_name("avx2"))
    assert (rows.chunks.count, columns.chunks.count) == (6, 1)
    assert columns.parts > 3
    for plan in (rows, columns):
        assert_exact(plan, 3, 200)


def test_long_rows_are_copied_few_at_a_time() -> None:
    plan = ByteProduct(shape_of(130, 5003, 16), replace(by_name("avx2"), l2_bytes=1 << 18))
    assert plan.chunks.most == 11
    assert plan.scratch_bytes < 1 << 19
    assert_exact(plan, 255, 1)


def test_a_matrix_that_several_share_is_read_for_each() -> None:
    shape = shape_of(9, 30, 50, (3, 2))
    plan = ByteProduct(replace(shape, b=replace(shape.b, batch=(1500, 0))), by_name("avx2"))
    random = np.random.default_rng(3)
    a, b = random.integers(0, 256, (3, 2, 9, 30)).astype(np.uint8), random.integers(0, 256, (3, 1, 30, 50)).astype(np.uint8)
    e, tasks = write_kernel(plan, 0, as_signed(130))
    y = np.full((3, 2, 9, 50), 77, np.int32)
    Compiled(e, "words", plan.target, plan.scratch_bytes)([a, b, y], tasks, 2)
    np.testing.assert_array_equal(y, a.astype(np.int32) @ (b.astype(np.int32) - 130))


def test_nothing_is_written_of_no_rows_and_zeros_of_no_products() -> None:
    target = by_name("avx2")
    for size in ((0, 4, 4), (4, 4, 0)):
        assert write_kernel(ByteProduct(shape_of(*size), target), 0, 0)[1] == 0
    assert_exact(ByteProduct(shape_of(5, 0, 20), target), 9, 9)


def test_it_compiles_for_every_target() -> None:
    assert_compiles_everywhere(
        lambda target: write_kernel(ByteProduct(shape_of(30, 19, 75), target), 7, as_signed(200))[0], [*NAMED.values(), VNNI]
    )


def test_32_registers_hold_vectors_of_b_beside_twice_the_sums() -> None:
    rows = {vectors: ByteProduct(shape_of(60, 64, 64), VNNI).rows(vectors) for vectors in (1, 2, 3, 4)}
    assert rows == {1: 24, 2: 12, 3: 8, 4: 6}
    assert ByteProduct(shape_of(60, 64, 64), by_name("avx2")).rows(4) == ByteProduct(shape_of(60, 64, 64), by_name("neon")).rows(4) == 3
    e, _ = write_kernel(ByteProduct(shape_of(60, 64, 64), VNNI), 7, 9)
    assembly = emit_assembly(e.finish("words")[1], VNNI)
    loop = next(block for block in assembly.split(".LBB") if block.count("vpdpbusd") == 24)
    assert "(%rsp)" not in loop
    assert len([line for line in loop.splitlines() if "zmm" in line and "(" in line]) == 4 + 6  # of B and of A
    assert not ByteProduct(shape_of(60, 64, 64), by_name("avx512")).by_quads
