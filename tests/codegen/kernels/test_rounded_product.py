"""Products of rows that are rounded to bytes with weights of 4 and 8 bits: any size, between pages that nothing may touch."""

from dataclasses import replace

import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul import MatmulShape, contiguous
from anycann.codegen.kernels.matmul_writer import plain_writer
from anycann.codegen.kernels.rounded_product import RoundedProduct, emit_rounded_product, may_round, pack_rounded
from anycann.target.target import NAMED, by_name
from anycann.te import dtypes
from tests.codegen.kernels.jit import Compiled, assert_compiles_everywhere, distinct, guarded, runnable
from tests.codegen.kernels.products import HOST

TARGETS = [
    target for target in distinct(HOST, *runnable()) if may_round(contiguous((), 1, 1, 1, b_dtype=dtypes.int8, scale_rows=32), target)
]
NAMED_TARGETS = [by_name("avx512,+avx512vnni"), by_name("avx2,+avxvnni")]


def shape_of(m: int, n: int, k: int, block: int, batch: tuple[int, ...] = ()) -> MatmulShape:
    shape = contiguous(batch, m, n, k, b_dtype=dtypes.int8, scale_rows=block)
    return replace(shape, b=replace(shape.b, batch=(0,) * len(batch)))


def written(plan: RoundedProduct) -> tuple[Emitter, int]:
    e, shape = Emitter(), plan.shape
    a, b, c = (e.argument(i) for i in range(3))
    results = contiguous(shape.batch, shape.m, shape.n, shape.n).a
    return e, emit_rounded_product(e, plan, a, b, plain_writer(c, results.batch, results.row, 1, dtypes.float32))


def rounded(a: np.ndarray, block: int) -> np.ndarray:
    """Each block of each row as the multiples of its largest element / 127 that are nearest."""
    depth = a.shape[-1]
    padded = np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, -depth % block)]).reshape(*a.shape[:-1], -1, block).astype(np.float32)
    largest = np.abs(padded).max(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        numbers = np.where(largest > 0, np.rint(padded * (np.float32(127) / largest)), 0)
    return (numbers * (largest.astype(np.float64) / 127)).reshape(*a.shape[:-1], -1)[..., :depth]


def check(plan: RoundedProduct) -> None:
    shape, random = plan.shape, np.random.default_rng()
    low, high = (-8, 7) if plan.halves else (-128, 127)
    a = random.standard_normal((*shape.batch, shape.m, shape.k)).astype(np.float32)
    a[..., : shape.k // 3] *= random.choice([0.0, 1e-3, 1e4])
    b = random.integers(low, high, (shape.k, shape.n), np.int8, endpoint=True)
    scales = random.uniform(0.01, 0.1, (plan.blocks, shape.n)).astype(np.float32)
    e, tasks = written(plan)
    assert tasks == plan.tasks
    kernel = Compiled(e, "rounded", plan.target, plan.scratch_bytes)
    exact = b * np.repeat(scales.astype(np.float64), shape.scale_rows, axis=0)[: shape.k]
    want, size = rounded(a, shape.scale_rows) @ exact, np.abs(rounded(a, shape.scale_rows)) @ np.abs(exact)
    for left, panels, c in guarded(a, pack_rounded(plan, b, scales), np.full(want.shape, np.nan, np.float32)):
        kernel.run([left.address, panels.address, c.address], tasks, min(3, max(1, tasks)))
        assert (np.abs(c.array - want) <= 4 * np.finfo(np.float32).eps * np.sqrt(plan.blocks + 4) * size + 1e-30).all()


@pytest.mark.skipif(not TARGETS, reason="this processor has no dot products of bytes")
@pytest.mark.parametrize("halves", [True, False])
@pytest.mark.parametrize(
    "size",
    [
        (1, 70, 67, 16),
        (1, 1, 40, 32),
        (3, 33, 300, 32),
        (20, 130, 129, 128),
        (9, 5, 50, 16),
        (61, 51, 16, 16),
        (7, 64, 256, 32),
        (1, 64, 512, 256),
    ],
    ids=str,
)
def test_products_of_any_size_are_those_of_rounded_rows(size: tuple[int, int, int, int], halves: bool) -> None:
    for target in TARGETS:
        check(RoundedProduct(shape_of(*size), target, halves))


@pytest.mark.skipif(not TARGETS, reason="this processor has no dot products of bytes")
def test_batches_and_tasks_round_rows_of_their_own() -> None:
    for target in TARGETS:
        check(RoundedProduct(shape_of(5, 40, 70, 32, (2, 3)), target, halves=True))
        many = RoundedProduct(shape_of(150, 300, 520, 32), replace(target, l2_bytes=1 << 16), halves=True)
        assert (many.chunks.count, many.parts) > (1, 1)
        check(many)
        wide = RoundedProduct(shape_of(2, 3000, 1024, 32), target, halves=False)
        assert wide.parts > 1
        check(wide)


@pytest.mark.skipif(not TARGETS, reason="this processor has no dot products of bytes")
def test_rows_that_are_not_finite_make_no_numbers_and_no_others() -> None:
    for target in TARGETS:
        plan = RoundedProduct(shape_of(3, 20, 64, 32), target, halves=True)
        a = np.ones((3, 64), np.float32)
        a[1, 5] = np.nan
        c = np.zeros((3, 20), np.float32)
        e, tasks = written(plan)
        panels = pack_rounded(plan, np.ones((64, 20), np.int8), np.ones((2, 20), np.float32))
        Compiled(e, "rounded", target, plan.scratch_bytes)([a, panels, c], tasks, 1)
        assert np.isnan(c[1]).all()
        np.testing.assert_allclose(c[[0, 2]], 64, rtol=1e-5)


@pytest.mark.parametrize("halves", [True, False])
def test_it_compiles_for_every_target_that_has_the_instruction(halves: bool) -> None:
    shape = shape_of(9, 75, 96, 32)
    assert not any(may_round(shape, target) for target in NAMED.values())
    assert all(may_round(shape, target) for target in NAMED_TARGETS)
    assert not may_round(replace(shape, scale_rows=20), NAMED_TARGETS[0]), "blocks are whole vectors"
    assert_compiles_everywhere(lambda target: written(RoundedProduct(shape, target, halves))[0], NAMED_TARGETS)
