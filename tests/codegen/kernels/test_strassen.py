"""Products by Strassen's algorithm against float64: odd numbers of rows, parts of k, chunks of rows, in whole calls and in parts."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_packing import pack_columns
from anycann.codegen.kernels.matmul_shape import MatmulShape, Strides, contiguous
from anycann.codegen.kernels.matmul_writer import plain_writer
from anycann.codegen.kernels.strassen import emit_strassen
from anycann.codegen.kernels.strassen_space import ProductAlgorithmSpace, StrassenSpace
from anycann.codegen.kernels.strassen_tile import StrassenSizes, StrassenTile, strassen_gains, strassen_refusal, strassen_tiles
from anycann.target.target import NAMED, PROCESSORS, Target
from anycann.te import dtypes
from tests.codegen.kernels.jit import Compiled, assert_compiles_everywhere, assert_passes_in_child, guarded, runnable

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng()
TARGETS = pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)


def shape_of(m: int, k: int, n: int, batch: tuple[int, ...] = (), row: int | None = None) -> MatmulShape:
    """A product whose constant B lies in panels; `row`: elements between rows of A."""
    shape = contiguous(batch, m, n, k, packed=True)
    b = Strides((0,) * len(batch), n, 1)
    a = shape.a if row is None else Strides((), row, 1)
    return replace(shape, a=a, b=b)


def write(shape: MatmulShape, target: Target, tile: StrassenTile) -> tuple[Emitter, int]:
    e = Emitter()
    a, b, y = (e.argument(i) for i in range(3))
    strides = tuple(shape.m * shape.n * prod(shape.batch[i + 1 :]) for i in range(len(shape.batch)))
    return e, emit_strassen(e, shape, target, tile, a, b, plain_writer(y, strides, shape.n))


class Problem:
    """Operands, the kernel, and what float64 says."""

    def __init__(self, shape: MatmulShape, target: Target, tile: StrassenTile | None = None):
        self.shape = shape
        tile = tile or StrassenSpace(shape, target).default()
        assert StrassenSpace(shape, target).refusal(tile) is None
        self.sizes = StrassenSizes.of(shape, tile, target.lanes)
        rows = shape.batches * shape.m
        pool = RNG.standard_normal((rows, shape.a.row)).astype(np.float32)
        b = RNG.standard_normal((shape.k, shape.n)).astype(np.float32)
        self.want = pool[:, : shape.k].astype(np.float64) @ b
        used = pool.ravel()[: (rows - 1) * shape.a.row + shape.k]
        self.a, self.b = used.copy(), pack_columns(b, self.sizes.width)
        e, self.tasks = write(shape, target, tile)
        self.kernel = Compiled(e, "strassen", target, self.sizes.scratch_bytes)

    def result(self, parts: int = 1) -> Array:
        y = np.full(self.want.shape, np.nan, np.float32)
        self.kernel([self.a, self.b, y], self.tasks, parts)
        return y

    def check(self, parts: int = 1) -> None:
        error = np.linalg.norm(self.result(parts) - self.want) / np.linalg.norm(self.want)
        assert error < 4e-6, (error, self.sizes)


@TARGETS
@pytest.mark.parametrize("m", [2, 3, 7, 16, 33, 97, 191, 192, 197, 256, 515])
def test_any_number_of_rows_gives_the_product(m: int, target: Target) -> None:
    """From 192 rows on two chunks, which a call that has all tasks takes together; of 515 the last ones overlap."""
    problem = Problem(shape_of(m, 256, 6 * target.lanes), target, StrassenTile(min(3, -(-m // 2)), 3, 256))
    problem.check()
    problem.check(parts=2)


@TARGETS
@pytest.mark.parametrize("k", [256, 320, 512, 768, 1536, 3072])
def test_parts_of_k_are_added_up(k: int, target: Target) -> None:
    for m in (45, 200):
        Problem(shape_of(m, k, 4 * target.lanes), target).check()


@TARGETS
def test_every_tile_gives_the_product(target: Target) -> None:
    shape = shape_of(50, 512, 24 * target.lanes)
    tiles = strassen_tiles(shape, target)
    assert len({tile.vectors for tile in tiles}) > 2
    assert {tile.depth for tile in tiles} == {128, 256, 512}
    for tile in tiles:
        Problem(shape, target, tile).check()
        Problem(shape, target, replace(tile, rows=1)).check()


@TARGETS
@pytest.mark.parametrize("m", [60, 197, 400])
def test_calls_of_any_tasks_give_the_same_bits_whether_they_go_on_or_not(m: int, target: Target) -> None:
    problem = Problem(shape_of(m, 512, 12 * target.lanes), target, StrassenTile(3, 2, 256))
    whole = problem.result()
    assert np.isfinite(whole).all()
    for parts in (2, 3, problem.tasks):
        np.testing.assert_array_equal(problem.result(parts), whole)
    room = np.full(problem.sizes.scratch_bytes + 128, 0xFF, np.uint8)
    scratch = room.ctypes.data + -room.ctypes.data % 64
    for step in (1, 2):
        y = np.full(whole.shape, np.nan, np.float32)
        for begin in range(0, problem.tasks, step):
            problem.kernel.call([problem.a, problem.b, y], begin, min(begin + step, problem.tasks), scratch + (begin > 0))
        np.testing.assert_array_equal(y, whole)


@TARGETS
def test_rows_may_lie_apart_and_in_batches(target: Target) -> None:
    Problem(shape_of(37, 256, 8 * target.lanes, row=300), target).check()
    Problem(shape_of(19, 256, 8 * target.lanes, batch=(2, 3)), target).check()


@TARGETS
@pytest.mark.parametrize(("batch", "m"), [((3,), 65), ((2,), 197), ((2, 2), 300)])
def test_a_sample_of_many_rows_has_no_part_in_the_sums_of_another(batch: tuple[int, ...], m: int, target: Target) -> None:
    problem = Problem(shape_of(m, 256, 4 * target.lanes, batch=batch), target)
    problem.check()
    problem.check(parts=2)
    problem.a[m * 256 : (m + 1) * 256] = np.nan  # the first row of the second sample
    finite = np.isfinite(problem.result()).all(axis=1)
    assert finite[:m].all()
    assert finite[2 * m :].all()
    assert not finite[m]


@TARGETS
def test_the_error_is_about_twice_that_of_eight_products(target: Target) -> None:
    problem = Problem(shape_of(128, 768, 8 * target.lanes), target)
    b = np.moveaxis(problem.b, 0, 1).reshape(768, -1)
    plain = problem.a.reshape(128, 768) @ b - problem.want
    assert np.linalg.norm(problem.result() - problem.want) < 5 * np.linalg.norm(plain)


def guarded_cases() -> None:
    """Each operand and the result right before a page that must not be touched, and right behind one."""
    for target in runnable():
        for m, k, n in ((7, 256, 2), (33, 512, 6), (193, 256, 4)):
            problem = Problem(shape_of(m, k, n * target.lanes), target)
            for a, b, c in guarded(problem.a, problem.b, np.full((m, n * target.lanes), np.nan, np.float32)):
                problem.kernel.run([a.address, b.address, c.address], problem.tasks)
                np.testing.assert_allclose(c.array, problem.want, rtol=1e-3, atol=1e-3)


def test_nothing_is_touched_around_the_operands_or_the_result() -> None:
    assert_passes_in_child("tests.codegen.kernels.test_strassen", "guarded_cases")


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_target_compiles(name: str) -> None:
    target = NAMED[name]
    shape = shape_of(41, 512, 4 * target.lanes)
    assert_compiles_everywhere(lambda t: write(shape, t, StrassenSpace(shape, t).default())[0], [target])


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (replace(shape_of(128, 768, 768), packed=False), "no constant matrix"),
        (replace(shape_of(128, 768, 768, batch=(4,)), b=Strides((1,), 768, 1)), "no constant matrix"),
        (replace(shape_of(128, 768, 768), a_dtype=dtypes.bfloat16), "product of bfloat16"),
        (replace(shape_of(128, 768, 768), a=Strides((), 1, 128)), "rows of A"),
        (shape_of(1, 768, 768), "rows of A"),
        (shape_of(128, 768, 1000), "halves"),
        (shape_of(128, 200, 768), "halves"),
        (shape_of(128, 1000, 768), "halves"),
    ],
)
def test_other_products_are_refused_with_the_reason(shape: MatmulShape, reason: str) -> None:
    target = NAMED["avx512"]
    assert reason in (strassen_refusal(shape, target) or "")
    assert not strassen_gains(shape, target)
    assert not ProductAlgorithmSpace(shape, target).default().strassen


def test_it_is_taken_where_it_was_measured_to_gain() -> None:
    halved = PROCESSORS["znver4"]
    assert strassen_gains(shape_of(197, 768, 3072), halved)
    assert not strassen_gains(shape_of(24, 768, 3072), halved), "few rows do not repay the sums of B"
    assert not strassen_gains(shape_of(20, 768, 3072, batch=(3,)), halved), "samples of few rows would be halved together"
    assert not strassen_gains(shape_of(197, 64, 3072), halved), "a short k does not repay the sums of C"
    assert not strassen_gains(shape_of(197, 768, 32), halved), "few columns do not repay the sums of A"
    assert not strassen_gains(shape_of(197, 768, 3072), NAMED["avx2"])
