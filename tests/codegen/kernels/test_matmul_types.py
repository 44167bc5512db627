"""Matrix products of every element type: what is summed in what, and the dot product instructions."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from anycann.codegen.kernels import matmul
from anycann.codegen.kernels.matmul import Strides, contiguous
from anycann.target.target import by_name
from anycann.te import dtypes
from anycann.te.dtypes import DType
from tests.codegen.kernels.products import HOST, check, compute, packed, problem

FLOAT_TYPES = [dtypes.float16, dtypes.bfloat16]


@pytest.mark.parametrize("dtype", FLOAT_TYPES, ids=str)
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("rows", [2, 31])
def test_16_bit_operands_are_summed_in_float32(dtype: DType, transpose_b: bool, rows: int) -> None:
    check(problem(rows, 37, 50, transpose_b=transpose_b, a_dtype=dtype, b_dtype=dtype))
    check(problem(rows, 37, 50, transpose_b=transpose_b, a_dtype=dtype))


@pytest.mark.parametrize("transpose_b", [False, True])
def test_double_is_summed_in_double(transpose_b: bool) -> None:
    types = {"a_dtype": dtypes.float64, "b_dtype": dtypes.float64, "accumulator": dtypes.float64}
    for m in (2, 31):
        check(problem(m, 37, 50, transpose_b=transpose_b, **types))


@pytest.mark.parametrize("a_dtype", [dtypes.int8, dtypes.uint8], ids=str)
@pytest.mark.parametrize("b_dtype", [dtypes.int8, dtypes.uint8], ids=str)
def test_bytes_are_summed_in_int32(a_dtype: DType, b_dtype: DType) -> None:
    for transpose_b in (False, True):
        check(problem(17, 37, 50, transpose_b=transpose_b, a_dtype=a_dtype, b_dtype=b_dtype, accumulator=dtypes.int32))


@pytest.mark.skipif(not HOST.has("avx512vnni"), reason="this processor has no dot product of bytes")
@pytest.mark.parametrize("a_dtype", [dtypes.int8, dtypes.uint8], ids=str)
@pytest.mark.parametrize("b_dtype", [dtypes.int8, dtypes.uint8], ids=str)
def test_dot_products_of_four_bytes_are_exact_for_all_signs(a_dtype: DType, b_dtype: DType) -> None:
    for m, n, k in ((17, 37, 50), (1, 200, 7), (8, 48, 64), (3, 5, 3), (5, 20, 0)):
        p = problem(m, n, k, (2,), a_dtype=a_dtype, b_dtype=b_dtype, accumulator=dtypes.int32)
        shape = replace(p.shape, packed=True, grouped=True, b=Strides((1,), 0, 0))
        assert matmul.wants_groups(p.shape, HOST)
        tile = matmul.default_tile(shape, HOST)
        first = np.random.default_rng().integers(-1000, 1000, (2, n), np.int32)
        panels = matmul.pack_b(shape, HOST, tile, p.b, first)
        got = compute(replace(p, shape=shape, b_memory=panels), tile=tile)
        np.testing.assert_array_equal(got, p.exact + first[:, None])


@pytest.mark.skipif(not HOST.has("avx512bf16"), reason="this processor has no dot product of bfloat16")
@pytest.mark.parametrize("size", [(17, 37, 50), (1, 200, 7), (8, 48, 64), (3, 5, 1), (5, 20, 0)], ids=str)
def test_dot_products_of_two_bfloat16_are_summed_in_float32(size: tuple[int, int, int]) -> None:
    p = problem(*size, (2,), a_dtype=dtypes.bfloat16, b_dtype=dtypes.bfloat16)
    assert matmul.wants_groups(p.shape, HOST)
    shape = replace(p.shape, packed=True, grouped=True, b=Strides((1,), 0, 0))
    check(replace(p, shape=shape, b_memory=matmul.pack_b(shape, HOST, matmul.default_tile(shape, HOST), p.b)))


def test_dot_products_of_bytes_are_only_wanted_where_the_processor_has_them() -> None:
    shape = contiguous((), 8, 32, 16, a_dtype=dtypes.uint8, b_dtype=dtypes.int8, accumulator=dtypes.int32)
    assert not matmul.wants_groups(shape, by_name("avx2"))
    assert not matmul.wants_groups(contiguous((), 8, 32, 16), HOST)


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.int64, dtypes.uint32], ids=str)
def test_wider_integers_are_summed_in_their_own_type(dtype: DType) -> None:
    check(problem(17, 37, 20, a_dtype=dtype, b_dtype=dtype, accumulator=dtype))


def test_a_packed_16_bit_b_stays_16_bit() -> None:
    p = problem(9, 40, 30, b_dtype=dtypes.bfloat16)
    q = packed(p, HOST, matmul.default_tile(replace(p.shape, packed=True), HOST))
    assert q.b_memory.dtype == ml_dtypes.bfloat16
    check(q)
