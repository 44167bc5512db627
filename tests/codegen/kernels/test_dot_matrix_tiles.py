"""Convolutions by matrix tiles: which tiles there are, how they lie beside each other and along k, and many channels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.dot_packing import pack_dots
from anycann.codegen.kernels.dot_plane import as_plane
from anycann.codegen.kernels.dot_shape import DotPlan, DotTile
from anycann.codegen.kernels.dot_space import DotSpace
from anycann.codegen.kernels.dot_tiles import has_tiles
from anycann.te import dtypes
from anycann.te.dtypes import DType
from tests.codegen.kernels.jit import Compiled
from tests.codegen.kernels.test_dot_convolution import (
    GROUPED,
    SHAPES,
    TILES,
    assert_right,
    assert_tile_is_right,
    here,
    operands,
    sizes,
    targets,
    write_kernel,
)

MANY = {
    "many channels": sizes(1536, 20, (5, 40), (3, 3), (1, 1), (1, 1)),
    "many channels in place": sizes(1600, 20, (5, 40), (3, 3)),
    "many channels and strides": sizes(1536, 17, (7, 40), (3, 3), (2, 2), (1, 1), batch=2),
    "many channels, dilated": sizes(1600, 20, (9, 36), (3, 3), (1, 1), (2, 2), (2, 2)),
    "many channels of volumes": sizes(512, 33, (3, 5, 20), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
}


@pytest.mark.parametrize(("rows", "dtype"), [(49, dtypes.uint8), (33, dtypes.bfloat16), (197, dtypes.bfloat16)], ids=str)
def test_parts_of_odd_rows_are_whole_register_tiles_of_matrix_tiles(rows: int, dtype: DType) -> None:
    """25 of 49 rows hold no 2 x 13, and all rows and columns in one task are one thread's."""
    depth, columns = (2048, 512) if rows == 49 else (768, 768)
    space = DotSpace(replace(sizes(depth, columns, (rows, 1)), dtype=dtype), replace(TILES, l1_bytes=48 << 10, l2_bytes=2 << 20))
    tile = space.default()
    plan = space.plan(tile)
    assert space.refusal(tile) is None
    assert plan.tasks > 1
    assert plan.row_chunks == 1 or tile.image_rows % tile.pixels == 0


@pytest.mark.parametrize(
    "shape", [sizes(768, 3072, (197, 1)), sizes(64, 64, (64, 64), (3, 3), (1, 1), (1, 1)), sizes(24, 96, (56, 56))], ids=str
)
def test_no_more_sums_at_once_than_leave_a_processor_tiles(shape: ConvolutionShape) -> None:
    """Four take 1.1 to 1.3 times as long as three or less (`python -m benchmarks.matrix_tiles`)."""
    space = DotSpace(as_plane(replace(shape, dtype=dtypes.bfloat16)), replace(TILES, l1_bytes=48 << 10, l2_bytes=2 << 20))
    assert space.refusal(replace(space.default(), rows=1, row_tiles=2, vectors=2)) is not None
    assert all(tile.row_tiles * tile.vectors <= 3 for tile in space.candidates())


@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.bfloat16], ids=str)
@pytest.mark.parametrize(("row_tiles", "vectors"), [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1)])
def test_matrix_tiles_side_by_side_and_below_each_other(row_tiles: int, vectors: int, dtype: DType) -> None:
    for target in targets():
        if not has_tiles(target, dtype):
            continue
        for shape in (sizes(24, 41, (9, 8), (3, 3), (1, 1), (1, 1), batch=2), sizes(64, 48, (37, 1)), sizes(132, 60, (7, 9))):
            space = DotSpace(as_plane(replace(shape, dtype=dtype)), target)
            fitting = [t for t in space.candidates() if (t.row_tiles, t.vectors) == (row_tiles, vectors) and space.refusal(t) is None]
            assert fitting, "no tile of this form"
            for tile in {min(fitting, key=space.estimate), max(fitting, key=lambda t: t.pixels)}:
                assert_tile_is_right(space.problem, target, tile, zero=0 if dtype is dtypes.bfloat16 else 5)


@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("groups", [17, 20, 31, 34, 47])
def test_the_last_tile_along_k_begins_earlier_where_groups_are_no_whole_tiles(groups: int, dtype: DType) -> None:
    shape = as_plane(replace(sizes(groups * 4 // dtype.nbytes, 20, (7, 9)), dtype=dtype))
    for target in here():
        plan = DotSpace(shape, target).plan(DotTile(5, 1, 1, 63, 1, True))
        steps = plan.depth // plan.steps if has_tiles(target, dtype) else -(-groups // 16)
        assert steps == -(-groups // 16)
        assert not plan.copied
        assert_right(shape, target, zero=0 if dtype is dtypes.bfloat16 else 7)


def test_infinity_stays_infinity_where_it_is_multiplied_twice() -> None:
    shape = as_plane(replace(sizes(68, 16, (4, 1)), dtype=dtypes.bfloat16))
    x, w = operands(shape, np.random.default_rng())
    x[0, 1, 0, 20], x[0, 2, 0, 30] = np.inf, -np.inf
    for target in here():
        plan = DotPlan(shape, target, DotTile(4, 1, 1, 4, 1, True))
        e, tasks = write_kernel(plan, 0)
        y = np.full((1, 4, 1, 16), 77, np.float32)
        Compiled(e, "dots", target, plan.scratch_bytes)([x, pack_dots(plan, w, 0), y], tasks)
        np.testing.assert_array_equal(y[0, 1, 0], np.sign(w[:, 20, 0, 0].astype(np.float32)) * np.inf)
        np.testing.assert_array_equal(y[0, 2, 0], -np.sign(w[:, 30, 0, 0].astype(np.float32)) * np.inf)
        assert np.isfinite(y[0, 0]).all()
        assert np.isfinite(y[0, 3]).all()


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.int8, dtypes.bfloat16], ids=str)
def test_many_channels_go_through_all_taps_by_chunks(name: str, dtype: DType) -> None:
    shape = replace(MANY[name], dtype=dtype)
    for target in here():
        space = DotSpace(as_plane(shape), target)
        tiles = [tile for tile in space.candidates() if space.refusal(tile) is None and space.plan(tile).by_chunks]
        assert bool(tiles) == has_tiles(target, dtype)
        for chosen in {min(part, key=space.estimate) for merge in (False, True) if (part := [t for t in tiles if t.merge == merge])}:
            assert_tile_is_right(space.problem, target, chosen, zero=0 if dtype is dtypes.bfloat16 else 7)


def test_what_fills_more_than_half_of_the_second_level_cache_is_not_there_for_the_next_rows() -> None:
    """256 channels onto 14 x 14, whose weights do: 14 parts took 1.4 times as long as 4 of the panels (a Xeon of the fifth generation)."""
    shape = as_plane(replace(sizes(256, 256, (14, 14), (3, 3), (1, 1), (1, 1)), dtype=dtypes.bfloat16))
    assert DotSpace(shape, replace(TILES, l1_bytes=48 << 10, l2_bytes=2 << 20)).default().image_rows == 14


@pytest.mark.parametrize("name", [*SHAPES, *GROUPED])
@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.bfloat16], ids=str)
def test_every_shape_has_a_tile_on_matrix_tiles(name: str, dtype: DType) -> None:
    space = DotSpace(as_plane(replace((SHAPES | GROUPED)[name], dtype=dtype)), TILES)
    assert space.refusal(space.default()) is None
