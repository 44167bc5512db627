"""Groups of an input that are sorted by their size: which go where, and that sums are exact however they are mixed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
import itertools

import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.dot_lists import list_bytes, list_starts
from anycann.codegen.kernels.dot_packing import pack_dots
from anycann.codegen.kernels.dot_plane import as_plane
from anycann.codegen.kernels.dot_products import may_take_magnitudes
from anycann.codegen.kernels.dot_shape import DotPlan, DotTile
from anycann.codegen.kernels.dot_sorted import around_of, gains_by_sorting
from anycann.codegen.kernels.dot_space import DotSpace
from anycann.target.target import NAMED, Target, by_name
from anycann.te import dtypes
from anycann.te.dtypes import DType
from tests.codegen.kernels import test_dot_magnitudes
from tests.codegen.kernels.jit import Compiled, assert_compiles_everywhere, runs
from tests.codegen.kernels.test_dot_convolution import SHAPES, Array, naive, operands, sizes, write_kernel
from tests.codegen.kernels.test_dot_magnitudes import product

UNSIGNED, SIGNED = dtypes.uint8, dtypes.int8
ZEROS = [(UNSIGNED, 0), (UNSIGNED, 9), (UNSIGNED, 120), (UNSIGNED, 255), (SIGNED, 0), (SIGNED, -119), (SIGNED, 3)]
AROUND = pytest.mark.parametrize(("dtype", "zero"), ZEROS, ids=str)
AVX2 = by_name("avx2")
assert_exact = partial(test_dot_magnitudes.assert_exact, sorts=True)


def mixed(shape: ConvolutionShape, zero: int, rng: np.random.Generator) -> Array:
    """An input [N, ..., C] of which groups of channels lie around the zero point, near it and far."""
    limits = np.iinfo(shape.dtype.numpy)
    size = (shape.batch, *shape.in_size, shape.in_channels)
    spread = rng.choice([1, 20, 60, 400], size=(*size[:-2], 1, -(-size[-1] // 4))).repeat(4, axis=-1)[..., : size[-1]]
    return np.clip(rng.normal(0, 1, size) * spread + zero, limits.min, limits.max).astype(shape.dtype.numpy)


@pytest.mark.parametrize("name", SHAPES)
@AROUND
def test_sums_are_those_of_the_definition(name: str, dtype: DType, zero: int) -> None:
    rng = np.random.default_rng()
    shape = replace(SHAPES[name], dtype=dtype)
    _, w = operands(shape, rng)
    assert_exact(shape, mixed(shape, zero, rng), w, zero)


@pytest.mark.parametrize(
    "group",
    [
        [255, 1, 0, 0],
        [255, 2, 1, 0],
        [128, 128, 255, 255],
        [64, 64, 64, 64],
        [64, 63, 0, 0],
        [255, 255, 255, 255],
        [128, 0, 0, 0],
        [127, 0, 0, 0],
    ],
)
@pytest.mark.parametrize("zero", [0, 120, 127, 128, 129, 255])
@pytest.mark.parametrize("w", [[-128] * 4, [127] * 4, [-128, 127, 127, -128], [0, -128, -128, 0]])
def test_the_largest_sums_of_each_kind_of_group_are_exact(group: list[int], zero: int, w: list[int]) -> None:
    """Alone, and beside a group of zeros, so that both pairs and single groups are there."""
    shape = product(7, 4 * 34, 50)
    away = np.array([group, group, group, [0] * 4, *[[1, 0, 0, 0]] * 30]).reshape(-1)
    for sign in (1, -1):
        x = np.clip(sign * away + zero, 0, 255).astype(np.uint8)
        assert_exact(
            shape, np.broadcast_to(x, (1, 7, 1, len(x))).copy(), np.tile(np.array(w, np.int8), (50, 34)).reshape(50, -1, 1, 1), zero
        )


@pytest.mark.parametrize(
    ("rows", "depth", "columns"), [(1, 4, 1), (1, 768, 40), (2, 12, 8), (5, 8, 16), (11, 7, 33), (13, 130, 17), (197, 64, 24), (6, 68, 100)]
)
@AROUND
def test_products_of_odd_sizes(rows: int, depth: int, columns: int, dtype: DType, zero: int) -> None:
    rng = np.random.default_rng()
    shape = product(rows, depth, columns, dtype)
    assert_exact(shape, mixed(shape, zero, rng), operands(shape, rng)[1], zero)


@pytest.mark.parametrize("zero", [0, 120])
@pytest.mark.parametrize("shape", [product(23, 20, 50), SHAPES["two images"], SHAPES["strides"]], ids=["product", "images", "strides"])
def test_every_tile_of_the_space_computes_the_same(shape: ConvolutionShape, zero: int) -> None:
    rng = np.random.default_rng()
    x, w = mixed(shape, zero, rng), operands(shape, rng)[1]
    space = DotSpace(as_plane(shape), AVX2, magnitudes=True, around=around_of(zero))
    for tile in list(dict.fromkeys(t for t in space.candidates() if space.refusal(t) is None))[::16]:
        assert_exact(shape, x, w, zero, tile)


@pytest.mark.parametrize("zero", [0, 120])
@pytest.mark.parametrize("rest", range(5))
def test_a_smaller_last_tile_computes_the_same(rest: int, zero: int) -> None:
    rng = np.random.default_rng()
    for shape, merge in ((product(2 * (10 + rest), 20, 40), True), (sizes(8, 24, (4, 12 + rest), (3, 3), pads=(1, 1)), False)):
        tile = DotTile(5, 2, 1, 10 + rest if merge else 2, 2, merge)
        assert_exact(shape, mixed(shape, zero, rng), operands(shape, rng)[1], zero, tile)


def test_panels_that_come_from_behind_the_caches_are_fetched_the_same() -> None:
    rng = np.random.default_rng()
    shape = product(23, 1024, 800)
    space = DotSpace(shape, AVX2, magnitudes=True, around=0)
    assert space.plan(space.default()).fetched_bytes
    assert_exact(shape, mixed(shape, 0, rng), operands(shape, rng)[1], 0)


def listed(plan: DotPlan, scratch: Array, tile: int) -> tuple[list[int], list[int], list[int]]:
    """The groups of the three lists of a register tile."""
    nbytes = list_bytes(plan.depth, plan.is_one_run, plan.tile.pixels)
    numbers = scratch[plan.sums_bytes + tile * nbytes :][:nbytes].view(np.int32)
    starts = list_starts(plan.depth, plan.is_one_run, plan.tile.pixels)
    pairs, singles, words = (numbers[start : start + count] // 4 for start, count in zip(starts, numbers[:3], strict=False))
    return [each for first in pairs.tolist() for each in (first, first + 1)], singles.tolist(), words.tolist()


@pytest.mark.parametrize(("zero", "most"), [(0, 256), (100, 127)])
@pytest.mark.skipif(not runs(AVX2), reason="this machine has no AVX2")
def test_groups_are_listed_by_what_their_neighbours_sum_to(zero: int, most: int) -> None:
    rng = np.random.default_rng()
    shape = product(10, 4 * 45, 48)
    plan = DotSpace(shape, AVX2, magnitudes=True, around=around_of(zero)).plan(DotTile(5, 2, 1, 10, 3, True))
    x = np.clip(rng.normal(zero, 45, (10, 180)), 0, 255).astype(np.uint8)
    e, tasks = write_kernel(plan, zero)
    packed, y = pack_dots(plan, rng.integers(-128, 128, (48, 180, 1, 1)).astype(np.int8), zero), np.empty((10, 48), np.int32)
    scratch = np.empty(plan.scratch_bytes, np.uint8)
    Compiled(e, "dots", AVX2, plan.scratch_bytes).call([x, packed, y, y], 0, tasks, scratch.ctypes.data)
    away = np.abs(x.astype(int) - zero).reshape(2, 5, 45, 2, 2).sum(-1)
    large = away.max((1, 3))
    together = (away[:, :, 0:44:2] + away[:, :, 1:45:2]).max((1, 3)) <= most
    for tile in range(2):
        paired = [2 * n + i for n in range(22) if together[tile, n] for i in (0, 1)]
        alone = [n for n in range(45) if n not in paired and large[tile, n] <= most]
        assert listed(plan, scratch, tile) == (paired, alone, [n for n in range(45) if large[tile, n] > most])


@pytest.mark.parametrize("zero", [0, 120])
@pytest.mark.skipif(not runs(AVX2), reason="this machine has no AVX2")
def test_a_call_that_goes_on_uses_the_lists_of_the_one_before_and_another_makes_its_own(zero: int) -> None:
    """What is copied too (around 120), and then changes behind a call, is seen from the next part of the rows on."""
    rng = np.random.default_rng()
    shape = product(40, 64, 96)
    plan = DotSpace(shape, AVX2, magnitudes=True, around=around_of(zero)).plan(DotTile(5, 2, 1, 20, 1, True))
    first, w = mixed(shape, zero, rng), operands(shape, rng)[1]
    second = mixed(shape, zero, rng) if plan.copied else first
    e, tasks = write_kernel(plan, zero)
    kernel, packed = Compiled(e, "dots", AVX2, plan.scratch_bytes), pack_dots(plan, w, zero)
    before, behind = (naive(x, w, shape, zero).reshape(40, 96) for x in (first, second))
    assert tasks == 12  # six panels for each half of the rows
    for cut, goes_on in itertools.product(range(1, 12), (False, True)):
        x, y = first.copy(), np.full((40, 96), 77, np.int32)
        memory = np.full(plan.scratch_bytes + 64, 0xFF, np.uint8)
        at = memory.ctypes.data + -memory.ctypes.data % 64
        kernel.call([x, packed, y, y], 0, cut, at)
        x[...] = second
        kernel.call([x, packed, y, y], cut, tasks, at | goes_on)
        sorted_before = -(-cut // 6) * 6 if goes_on else cut
        for task in range(tasks):
            rows, columns = slice(task // 6 * 20, task // 6 * 20 + 20), slice(task % 6 * 16, task % 6 * 16 + 16)
            np.testing.assert_array_equal(y[rows, columns], (before if task < sorted_before else behind)[rows, columns])


def test_lists_of_windows_are_few_rows_so_that_they_stay_beside_the_copy() -> None:
    """With those of 28 rows 48 to 96 channels, 5 x 5 onto 56 x 56, took 6 MB of scratch memory and 1.02 to 1.19 of the time (Zen 3)."""
    space = DotSpace(sizes(48, 96, (56, 56), (5, 5), pads=(2, 2)), replace(AVX2, l2_bytes=512 << 10), magnitudes=True, around=0)
    plan = space.plan(space.default())
    assert plan.tile.image_rows < 14
    assert plan.lists_bytes < 3 << 20


def test_sorting_is_for_columns_and_depth_enough_and_one_group() -> None:
    def gains(shape: ConvolutionShape, magnitudes: bool = True, window: int = 0) -> bool:
        return gains_by_sorting(DotPlan(shape, AVX2, DotTile(1, 1, 1, 1, 1), magnitudes=magnitudes, window=window))

    assert gains(product(197, 768, 768))
    assert gains(sizes(64, 64, (9, 9), (3, 3), pads=(1, 1)))
    assert not gains(product(197, 768, 768), magnitudes=False)
    assert not gains(product(197, 768, 768), window=3)
    assert not gains(product(197, 768, 16))
    assert not gains(product(197, 32, 768))
    assert not gains(product(1, 768, 768))  # it waits for its weights
    assert not gains(sizes(128, 128, (9, 9), (3, 3), pads=(1, 1), group=2))
    far = as_plane(sizes(64, 64, (3, 1 << 12, 1 << 13), (2, 1, 1), (1, 1, 1), (0, 0, 0), (1, 1, 1)))
    assert not gains(far)  # two planes of 2 GiB: lists hold 32 bits


def test_kernels_compile_for_processors_that_are_not_here() -> None:
    for around in (0, 120):

        def write(target: Target, around: int = around) -> Emitter:
            space = DotSpace(product(11, 20, 40), target, magnitudes=True, around=around)
            return write_kernel(space.plan(space.default()), 3)[0]

        assert_compiles_everywhere(write, [target for target in NAMED.values() if may_take_magnitudes(target)])
