"""Bytes multiplied by magnitudes: exact where sums of pairs would not fit 16 bits, in every shape, with signs in the first operand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels import dot_shape
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.dot_magnitudes import lift, split_weights
from anycann.codegen.kernels.dot_packing import pack_dots
from anycann.codegen.kernels.dot_plane import as_plane, used_taps, with_taps
from anycann.codegen.kernels.dot_products import DotProducts, may_take_magnitudes
from anycann.codegen.kernels.dot_shape import DotPlan, DotTile
from anycann.codegen.kernels.dot_sorted import around_of
from anycann.codegen.kernels.dot_space import DotSpace
from anycann.target.target import NAMED, Target, by_name
from anycann.te import dtypes
from anycann.te.dtypes import DType
from tests.codegen.kernels.jit import Compiled, assert_compiles_everywhere, guarded, runnable
from tests.codegen.kernels.test_dot_convolution import GROUPED, SHAPES, Array, naive, operands, sizes, write_kernel

TARGETS = [target for target in runnable() if may_take_magnitudes(target)]


def product(rows: int, depth: int, columns: int, dtype: DType = dtypes.uint8) -> ConvolutionShape:
    """A matrix product as a column of pixels."""
    return replace(sizes(depth, columns, (rows, 1)), dtype=dtype)


def assert_exact(
    shape: ConvolutionShape, x: Array, w: Array, zero: int, tile: DotTile | None = None, direct: bool = False, sorts: bool = False
) -> None:
    """Of every target that takes magnitudes. direct: of groups of weights; sorts: groups of the input are sorted by their size."""
    want = naive(x, w, shape, zero)
    taps = used_taps(shape)
    plane = as_plane(with_taps(shape, taps))
    kept = w[(slice(None), slice(None), *taps)].reshape(*w.shape[:2], *plane.kernel)
    lifted = zero + (128 if shape.dtype is dtypes.int8 else 0)
    for target in TARGETS:
        space = DotSpace(plane, target, magnitudes=True, around=around_of(lifted) if sorts else None)
        plan = replace(space.plan(tile or space.default()), direct=direct)
        e, tasks = write_kernel(plan, lifted)
        kernel = Compiled(e, "dots", target, plan.scratch_bytes)
        for source, packed, y in guarded(x, pack_dots(plan, kept, lifted), np.full(want.shape, 77, np.int32)):
            kernel.run([source.address, packed.address, y.address, y.address], tasks, min(3, max(1, tasks)))
            np.testing.assert_array_equal(y.array, want, err_msg=str(plan.tile))


def test_processors_without_instructions_for_bytes_take_magnitudes_where_lanes_are_eight() -> None:
    taking = {name for name in NAMED if may_take_magnitudes(by_name(name))}
    assert "avx2" in taking
    vnni = replace(by_name("avx2"), features=by_name("avx2").features + ",+avxvnni")
    assert not may_take_magnitudes(vnni)
    assert not any(by_name(name).lanes != 8 for name in taking)
    assert not DotProducts(dtypes.uint8, by_name("avx2"), magnitudes=True).widens


def test_weights_are_split_into_magnitudes_and_signs() -> None:
    weights = np.zeros((8, 4), np.int8)
    weights[0] = [-128, 127, -1, 0]
    magnitudes, signs = split_weights(weights)[0]
    assert magnitudes[0].tolist() == [128, 127, 1, 0]
    assert signs[0].tolist() == [0x7F, 0x80, 0x7F, 0x80]
    x = np.array([255, 0, 3, 9], np.uint8)
    turned = (x ^ signs[0]).view(np.int8).astype(int)
    assert turned @ magnitudes[0].astype(int) + lift(weights, 1)[0] == x.astype(int) @ weights[0].astype(int)


@pytest.mark.parametrize("name", [*SHAPES, *GROUPED])
@pytest.mark.parametrize(("dtype", "zero"), [(dtypes.uint8, 0), (dtypes.uint8, 200), (dtypes.int8, -3)])
def test_sums_are_those_of_the_definition(name: str, dtype: DType, zero: int) -> None:
    shape = replace((SHAPES | GROUPED)[name], dtype=dtype)
    assert_exact(shape, *operands(shape, np.random.default_rng()), zero)


@pytest.mark.parametrize("x", [0, 127, 128, 255])
@pytest.mark.parametrize("w", [-128, -127, -1, 127])
@pytest.mark.parametrize("rows", [1, 7])
def test_the_largest_pairs_do_not_saturate(x: int, w: int, rows: int) -> None:
    shape = product(rows, 68, 19)
    assert_exact(shape, np.full((1, rows, 1, 68), x, np.uint8), np.full((19, 68, 1, 1), w, np.int8), 0)


@pytest.mark.parametrize(
    ("rows", "depth", "columns"), [(1, 4, 1), (1, 768, 40), (2, 12, 8), (5, 8, 16), (11, 7, 33), (13, 130, 17), (197, 64, 24)]
)
@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.int8], ids=str)
def test_products_of_odd_sizes(rows: int, depth: int, columns: int, dtype: DType) -> None:
    shape = product(rows, depth, columns, dtype)
    assert_exact(shape, *operands(shape, np.random.default_rng()), 3)


@pytest.mark.parametrize(
    "shape", [product(23, 20, 50), SHAPES["two images"], GROUPED["groups across panels"]], ids=["product", "images", "groups"]
)
def test_every_tile_of_the_space_computes_the_same(shape: ConvolutionShape) -> None:
    x, w = operands(shape, np.random.default_rng())
    space = DotSpace(shape, by_name("avx2"), magnitudes=True)
    for tile in list(dict.fromkeys(t for t in space.candidates() if space.refusal(t) is None))[::8]:
        assert_exact(shape, x, w, 3, tile)


def test_a_product_is_read_in_place_by_tiles_that_leave_registers_for_what_turns_signs() -> None:
    space = DotSpace(product(197, 768, 768), by_name("avx2"), magnitudes=True)
    tile = space.default()
    assert (tile.rows, tile.vectors) == (5, 2)
    assert not space.plan(tile).copied
    assert DotPlan(space.problem, space.target, tile).copied
    assert space.context() != DotSpace(space.problem, space.target).context()


def test_the_last_register_tile_of_a_line_is_as_small_as_what_is_left() -> None:
    target = by_name("avx2")

    def rest(rows: int, tile: DotTile, magnitudes: bool = True, named: Target = target) -> int:
        return DotPlan(product(rows, 16, 16), named, tile, magnitudes=magnitudes).rest

    by_fives = DotTile(5, 2, 1, 197, 1, True)
    assert rest(197, by_fives) == rest(197, by_fives, magnitudes=False) == 2
    assert rest(197, replace(by_fives, image_rows=99)) == 0  # 99 rows and 98
    assert rest(200, replace(by_fives, image_rows=50)) == 0
    assert rest(204, replace(by_fives, image_rows=102)) == 2
    assert rest(3136, replace(by_fives, image_rows=3136)) == 0  # one tile of 628
    assert rest(3, replace(by_fives, image_rows=3)) == 0
    assert rest(197, by_fives, False, by_name("znver4")) == 0  # one instruction: as before


@pytest.mark.parametrize("rest", range(5))
@pytest.mark.parametrize("chunks", [1, 3])
def test_a_smaller_last_tile_computes_the_same(rest: int, chunks: int) -> None:
    shape = product(chunks * (10 + rest), 20, 40)
    x, w = operands(shape, np.random.default_rng())
    assert_exact(shape, x, w, 3, DotTile(5, 2, 1, 10 + rest, 2, True))
    beside = replace(sizes(8, 24, (4, 12 + rest), (3, 3), pads=(1, 1)), dtype=dtypes.uint8)
    for merge in (False, True):
        assert_exact(beside, *operands(beside, np.random.default_rng()), 200, DotTile(5, 2, 1, 2, 1, merge))


def test_few_rows_that_wait_for_weights_read_them_as_signed_bytes() -> None:
    def is_narrow(rows: int, depth: int, columns: int, magnitudes: bool = True) -> bool:
        tile = DotTile(1, 2, 1, rows, 1, True)
        plan = DotPlan(product(rows, depth, columns), by_name("avx2"), tile, magnitudes=magnitudes)
        assert plan.panel_bytes == plan.width * (4 + depth * (1 if plan.is_narrow else 2))
        return plan.is_narrow

    assert is_narrow(1, 64, 32)
    assert not is_narrow(1, 64, 32, magnitudes=False)
    assert not is_narrow(2, 768, 3072)
    assert is_narrow(4, 4096, 11008)
    assert not is_narrow(5, 4096, 11008)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize(("depth", "columns"), [(4, 9), (12, 8), (68, 100), (130, 33)])
@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.int8], ids=str)
def test_few_rows_are_exact(rows: int, depth: int, columns: int, dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dot_shape, "_FAR", 0)
    shape = product(rows, depth, columns, dtype)
    x, w = operands(shape, np.random.default_rng())
    w[:, ::3], w[:, 1::5] = -128, 127
    assert_exact(shape, x, w, 3)
    assert_exact(shape, x, w, 3, direct=True)


def test_a_column_of_few_pixels_is_a_few_tasks_that_fetch_the_weights() -> None:
    shape = replace(sizes(16, 240, (16, 3), (3, 3)), dtype=dtypes.uint8)
    space = DotSpace(shape, by_name("avx2"), magnitudes=True)
    assert space.default().image_rows > 1  # 14 tasks, a pixel each, take 1.3 times as long


def test_kernels_compile_for_processors_that_are_not_here() -> None:
    def write(target: Target) -> Emitter:
        space = DotSpace(product(11, 20, 40), target, magnitudes=True)
        return write_kernel(space.plan(space.default()), 3)[0]

    assert_compiles_everywhere(write, [target for target in NAMED.values() if may_take_magnitudes(target)])
