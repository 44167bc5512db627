"""The estimate of matrix tiles: what it has to tell apart. How good its choices are is measured by `benchmarks.tuning`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anycann.codegen.kernels.dot_plane import as_plane
from anycann.codegen.kernels.dot_shape import DotPlan, DotTile
from anycann.codegen.kernels.dot_space import DotSpace
from anycann.codegen.kernels.dot_tile_cycles import of_two_threads, tile_cycles
from anycann.te import dtypes
from tests.codegen.kernels.test_dot_convolution import TILES, sizes

TARGET = replace(TILES, l1_bytes=48 << 10, l2_bytes=2 << 20)


def plan(channels: int, outputs: int, image: tuple[int, int], tile: DotTile, kernel: int = 1) -> DotPlan:
    shape = sizes(channels, outputs, image, (kernel, kernel), (1, 1), (kernel // 2, kernel // 2))
    return DotSpace(as_plane(replace(shape, dtype=dtypes.bfloat16)), TARGET).plan(tile)


def test_rows_across_two_cache_lines_take_longer_than_whole_ones_of_more() -> None:
    tile = DotTile(16, 1, 2, 196, 16, True)
    assert tile_cycles(plan(240, 256, (14, 14), tile)) > tile_cycles(plan(256, 256, (14, 14), tile))


def test_a_step_of_few_groups_takes_as_long_as_one_of_many() -> None:
    """272 channels are 136 groups: nine steps, not seventeen of eight."""
    tile = DotTile(16, 1, 2, 196, 16, True)
    odd, whole = (plan(channels, 256, (14, 14), tile) for channels in (272, 288))
    assert odd.depth // odd.steps == whole.depth // whole.steps == 9


def test_pixels_that_are_read_once_are_taken_by_two_tiles_not_three() -> None:
    """1 x 1 onto 16 channels: each of the tiles reads rows of its own; of 3 x 3 they share them."""
    two, three = (DotTile(16, 1, tiles, 480, 1, True) for tiles in (2, 3))
    assert tile_cycles(plan(360, 16, (48, 40), two)) < tile_cycles(plan(360, 16, (48, 40), three))
    assert tile_cycles(plan(64, 16, (48, 40), replace(two, rows=14), 3)) > tile_cycles(plan(64, 16, (48, 40), replace(three, rows=14), 3))


@pytest.mark.parametrize(("panels", "share"), [(4, 1.5), (2, 1.0), (3, 1.25), (1, 1.0)])
def test_two_threads_have_equal_parts_of_an_even_number_of_tasks(panels: int, share: float) -> None:
    four = plan(256, 64, (14, 14), DotTile(16, 1, 2, 196, panels, True))
    assert of_two_threads(four, 1000.0) == pytest.approx(1000 * share)


def test_each_of_two_threads_copies_what_panels_share() -> None:
    by_panels, by_rows = (plan(64, 64, (56, 56), tile, 3) for tile in (DotTile(16, 1, 2, 56, 2, True), DotTile(16, 1, 2, 28, 4, True)))
    assert by_panels.tasks == by_rows.tasks == 2
    assert of_two_threads(by_panels, 1e6) > of_two_threads(by_rows, 1e6) == 1e6


def test_few_microseconds_are_one_task() -> None:
    """80 to 144 channels along 14 positions take 2 us; in two tasks 1.35 times as long."""
    shape = as_plane(replace(sizes(80, 144, (1, 28), (1, 3), (1, 2), (0, 1)), dtype=dtypes.bfloat16))
    space = DotSpace(shape, TARGET)
    assert space.plan(space.default()).tasks == 1
