"""Products of fewer columns than half a register has lanes: neighbours of k lie side by side, whatever the sizes, types and order."""

from dataclasses import replace

import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels import matmul
from anycann.codegen.kernels.matmul import MatmulIndex, MatmulTile, contiguous
from anycann.codegen.kernels.matmul_narrow import k_group
from anycann.codegen.kernels.matmul_space import MatmulSpace
from anycann.codegen.values import Value
from anycann.target.target import NAMED, Target
from anycann.te import dtypes
from anycann.te.dtypes import DType
from tests.codegen.kernels.jit import Compiled, assert_compiles_everywhere, runnable
from tests.codegen.kernels.products import HOST, Problem, check, packed, problem, write

TARGETS = pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)


def constant(p: Problem, target: Target) -> Problem:
    """The same product with B packed for its default tile."""
    return packed(p, target, matmul.default_tile(replace(p.shape, packed=True), target))


@pytest.mark.parametrize(
    ("name", "n", "group"), [("avx512", 2, 8), ("avx512", 5, 2), ("avx512", 9, 1), ("avx2", 3, 2), ("sse", 2, 2), ("sse", 3, 1)]
)
def test_as_many_neighbours_of_k_as_the_columns_leave_room_for(name: str, n: int, group: int) -> None:
    assert k_group(contiguous((), 100, n, 64, packed=True), NAMED[name]) == group


@TARGETS
@pytest.mark.parametrize(("n", "k"), [(2, 33), (3, 103), (8, 32)])
def test_few_columns_are_exact_to_rounding_packed_computed_and_transposed(n: int, k: int, target: Target) -> None:
    for m in (2, 37):
        check(constant(problem(m, n, k), target), target=target)
    check(problem(37, n, k), target=target)
    check(problem(37, n, k, transpose_b=True), target=target)
    check(problem(37, n, k, (2,)), target=target)


@TARGETS
@pytest.mark.parametrize("form", ["packed", "copied"])
def test_parts_of_k_wait_in_scratch_until_their_lanes_are_added(form: str, target: Target) -> None:
    p, tile = problem(23, 2, 101), MatmulTile(4, 1, 32, 3, copy=form == "copied")
    check(packed(p, target, tile) if form == "packed" else p, target=target, tile=tile)


@pytest.mark.parametrize("form", ["packed", "copied"])
def test_a_bank_can_only_say_tiles_that_give_the_product(form: str) -> None:
    for vectors in (1, 2, 8):
        p, tile = problem(23, 3, 45), MatmulTile(2, vectors, 45, 2, copy=form == "copied")
        p = packed(p, HOST, tile) if form == "packed" else p
        if MatmulSpace(p.shape, HOST).refusal(tile) is None:
            check(p, tile=tile)


def test_a_b_that_is_not_copied_is_read_as_it_lies() -> None:
    check(problem(37, 4, 50), tile=MatmulTile(7, 1, 50, 3))


@pytest.mark.parametrize(
    "types", [(dtypes.float16, dtypes.float32), (dtypes.float32, dtypes.bfloat16), (dtypes.float64, dtypes.float64)], ids=str
)
def test_operands_of_other_types_are_widened(types: tuple[DType, DType]) -> None:
    a_dtype, b_dtype = types
    accumulator = dtypes.float64 if a_dtype is dtypes.float64 else dtypes.float32
    check(problem(40, 3, 45, a_dtype=a_dtype, b_dtype=b_dtype, accumulator=accumulator))


@TARGETS
@pytest.mark.parametrize("depth", [70, 16])
def test_sums_start_from_what_the_caller_says(depth: int, target: Target) -> None:
    p = constant(problem(9, 2, 70), target)
    tile = replace(matmul.default_tile(p.shape, target), depth=depth)
    e, first = Emitter(), np.random.default_rng().standard_normal(16, np.float32)
    a, b, c, bias = (e.argument(i) for i in range(4))

    def start(e: Emitter, index: MatmulIndex) -> Value:
        return e.load(e.gep(bias, index.n, "float"), f"<{target.lanes} x float>", 4)

    tasks = matmul.emit_matmul(e, p.shape, target, tile, a, b, matmul.plain_writer(c, (), 2), start=start)
    y = np.full((9, 2), np.nan, np.float32)
    Compiled(e, "started", target, matmul.scratch_bytes(p.shape, target, tile))([p.a_memory, p.b_memory, y, first], tasks, 2)
    expected = p.a.astype(np.float64) @ p.b.astype(np.float64) + first[:2]
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("n", [3, 40])
def test_what_is_packed_can_be_read_back(n: int, transposed: bool) -> None:
    b = np.random.default_rng().standard_normal((2, 45, n), np.float32)
    shape = contiguous((2,), 30, n, 45, packed=True)
    tile = matmul.default_tile(shape, HOST)
    stored = np.swapaxes(b, -1, -2) if transposed else b
    arrangement = matmul.b_arrangement(shape, HOST, tile, stored.shape, transposed)
    assert arrangement is not None
    np.testing.assert_array_equal(arrangement.restore(matmul.pack_b(shape, HOST, tile, b)), stored)


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_target_compiles_few_columns(name: str) -> None:
    shape = contiguous((), 19, 2, 40)
    assert_compiles_everywhere(lambda target: write(shape, target, matmul.default_tile(shape, target))[0], [NAMED[name]])
