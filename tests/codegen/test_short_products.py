"""Products of short k write registers straight into the result, where little is done to it; others go through scratch."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from anycann.codegen.contract import UNASKED, generate_contraction
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernels.matmul import contiguous, writes_registers
from anycann.codegen.nest_kernel import Output
from anycann.codegen.objects import emit_object
from anycann.codegen.repeats import Repeats
from anycann.codegen.tail import Tail
from anycann.runtime.loader import LoadedCode
from anycann.target.target import Target, by_name
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.contractions import MatMul
from anycann.te.expression import maximum, unary
from anycann.te.nest import contractions
from anycann.te.tensor import Contraction, Tensor
from tests.codegen.kernels.jit import ENTRY, runnable

BATCH, KEPT = 3, 123.0
BODIES = {
    "as it is": (lambda p, b, r: p, lambda p, b, r: p),
    "bias and Relu": (lambda p, b, r: maximum(p + b, 0.0), lambda p, b, r: np.maximum(p + b, 0)),
    "bias and residual": (lambda p, b, r: p + b + r, lambda p, b, r: p + b + r),
    "an exponential": (lambda p, b, r: unary("exp", p), lambda p, b, r: np.exp(p)),
}


def product(m: int, n: int, k: int) -> Contraction:
    x, w = te.placeholder("x", (BATCH, m, k), dtypes.float32), te.placeholder("w", (BATCH, k, n), dtypes.float32)
    return te.contraction(MatMul(x, w), (BATCH, m, n), dtypes.float32)


def finished(body: str, m: int, n: int, k: int) -> Tensor:
    sums, function = product(m, n, k), BODIES[body][0]
    bias, rest = te.placeholder("b", (n,), dtypes.float32), te.placeholder("r", (BATCH, m, n), dtypes.float32)
    return te.compute(sums.shape, lambda g, i, j: function(sums[g, i, j], bias[j], rest[g, i, j]))


def run(kernel: Kernel, target: Target, arrays: dict[str, np.ndarray]) -> None:
    pointers = (ctypes.c_void_p * len(kernel.arguments))(*(arrays[name].ctypes.data for name in kernel.arguments))
    scratch = np.full(kernel.scratch_bytes + 64, 0xAA, np.uint8)
    code = LoadedCode({kernel.symbol: emit_object(kernel.ir, target)}, target)
    ENTRY(code.address(kernel.symbol))(pointers, 0, kernel.tasks, scratch.ctypes.data)


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("size", [(1, 8, 1), (5, 24, 16), (33, 40, 64), (14, 49, 31), (7, 16, 65)], ids=str)
def test_every_result_is_written_and_nothing_behind_them(size: tuple[int, int, int], body: str, target: Target) -> None:
    m, n, k = size
    rng = np.random.default_rng()
    shapes = {"x": (BATCH, m, k), "w": (BATCH, k, n), "b": (n,), "r": (BATCH, m, n)}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) / 4 for name, shape in shapes.items()}
    y = np.full(BATCH * m * n + 32, KEPT, np.float32)
    made = generate_contraction([Output("y", finished(body, m, n, k))], {}, target, lambda _: None, UNASKED, Repeats())
    run(made.kernel, target, {**arrays, "y": y})
    want = BODIES[body][1](arrays["x"] @ arrays["w"], arrays["b"], arrays["r"])
    np.testing.assert_allclose(y[: want.size].reshape(want.shape), want, rtol=1e-5, atol=1e-5)
    assert (y[want.size :] == KEPT).all()


@pytest.mark.parametrize(("body", "is_short"), [("as it is", True), ("bias and Relu", True), ("an exponential", False)])
def test_only_few_single_instructions_are_short(body: str, is_short: bool) -> None:
    result = finished(body, 4, 24, 16)
    (anchor,) = contractions([result])
    assert Tail(anchor, [Output("y", result)], {}, by_name("avx2"), 2, split=False).is_short == is_short


def test_a_transposed_result_and_two_results_are_not_short() -> None:
    sums = product(4, 24, 16)
    turned = te.compute((BATCH, 24, 4), lambda g, j, i: sums[g, i, j])
    both = [
        Output("y", te.compute(sums.shape, lambda g, i, j: sums[g, i, j])),
        Output("z", te.compute(sums.shape, lambda g, i, j: sums[g, i, j] + 1)),
    ]
    for outputs in ([Output("y", turned)], both):
        assert not Tail(sums, outputs, {}, by_name("avx2"), 2, split=False).is_short


def test_only_short_sums_are_written_so_and_whole_vectors_where_there_are_no_masks() -> None:
    avx2 = by_name("avx2")
    assert writes_registers(contiguous((), 100, 24, 64), avx2)
    assert not writes_registers(contiguous((), 100, 25, 64), avx2)
    assert not writes_registers(contiguous((), 100, 24, 300), avx2)
    avx512 = by_name("avx512")
    assert writes_registers(contiguous((), 100, 49, 64), avx512), "masks cost nothing there"
    assert not writes_registers(contiguous((), 100, 48, 300), avx512)
