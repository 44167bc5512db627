"""What the tail of a product reads beside it, a residual for example, is asked for before the product is computed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from anycann.codegen.contract import UNASKED, generate_contraction
from anycann.codegen.nest_kernel import Output
from anycann.codegen.repeats import Repeats
from anycann.codegen.tail import Generated, Tail
from anycann.target.target import Target, by_name
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.contractions import MatMul
from anycann.te.expression import cast
from anycann.te.tensor import Contraction, Tensor
from tests.codegen.kernels.jit import runnable
from tests.codegen.test_short_products import run

M, N, K = 131, 157, 130
AVX2 = by_name("avx2")


def product(m: int, k: int = K) -> Contraction:
    x, w = te.placeholder("x", (m, k), dtypes.float32), te.placeholder("w", (k, N), dtypes.float32)
    return te.contraction(MatMul(x, w), (m, N), dtypes.float32)


def with_residual(sums: Contraction) -> Tensor:
    bias, rest = te.placeholder("b", (N,), dtypes.float32), te.placeholder("r", sums.shape, dtypes.float32)
    return te.compute(sums.shape, lambda i, j: sums[i, j] + bias[j] + rest[i, j])


def generated(result: Tensor, target: Target = AVX2) -> Generated:
    return generate_contraction([Output("y", result)], {}, target, lambda _: None, UNASKED, Repeats())


def fetches(result: Tensor) -> int:
    return generated(result).kernel.ir.count("call void @llvm.prefetch")


def with_bias(sums: Contraction) -> Tensor:
    bias = te.placeholder("b", (N,), dtypes.float32)
    return te.compute(sums.shape, lambda i, j: sums[i, j] + bias[j])


def test_lines_of_a_large_residual_are_fetched_and_those_of_a_bias_or_of_a_near_one_not() -> None:
    assert fetches(with_residual(product(M))) > fetches(with_bias(product(M)))
    assert fetches(with_residual(product(40))) == fetches(with_bias(product(40)))


def test_short_products_fetch_nothing_that_would_come_behind_them() -> None:
    assert fetches(with_residual(product(M, 120))) == fetches(with_bias(product(M, 120)))


def gathered(sums: Contraction) -> Tensor:
    table, rows = te.placeholder("t", (1000, N), dtypes.float32), te.placeholder("i", (M,), dtypes.int64)
    return te.compute(sums.shape, lambda i, j: sums[i, j] + table[rows[i], j])


def turned(sums: Contraction) -> Tensor:
    rest = te.placeholder("r", (N, M), dtypes.float32)
    return te.compute(sums.shape, lambda i, j: sums[i, j] + rest[j, i])


def narrow(sums: Contraction) -> Tensor:
    rest = te.placeholder("r", (M, N), dtypes.float16)
    return te.compute(sums.shape, lambda i, j: sums[i, j] + cast(rest[i, j], dtypes.float32))


@pytest.mark.parametrize(
    ("tail", "far"),
    [(with_residual, ["r"]), (with_bias, []), (gathered, []), (turned, ["r"]), (narrow, ["r"])],
)
def test_far_operands_change_with_the_row_and_their_places_need_no_reading(tail: Callable[[Contraction], Tensor], far: list[str]) -> None:
    sums = product(M)
    found = Tail(sums, [Output("y", tail(sums))], {}, AVX2, 1, split=False).far_operands
    assert [load.tensor.source.name for load in found] == far


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
def test_results_are_what_they_are_without_fetching(target: Target) -> None:
    rng = np.random.default_rng()
    shapes = {"x": (M, K), "w": (K, N), "b": (N,), "r": (M, N)}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    y = np.full(M * N + 32, 123.0, np.float32)
    run(generated(with_residual(product(M)), target).kernel, target, {**arrays, "y": y})
    exact = arrays["x"].astype(np.float64) @ arrays["w"] + arrays["b"] + arrays["r"]
    np.testing.assert_allclose(y[: M * N].reshape(M, N), exact, rtol=1e-5, atol=1e-4)
    assert (y[M * N :] == 123).all()
