"""Groups of channels by Winograd's algorithm, against the definition in float64."""

from __future__ import annotations

from dataclasses import replace

from convolution_harness import aligned, load, operands, runnable_targets, shape_of, to_blocked
import numpy as np
import pytest
from winograd_harness import emit, relative_error

from anycann.codegen.kernels.convolution_space import WinogradSpace
from anycann.codegen.kernels.winograd_blocking import default_winograd_tile, winograd_profitable, winograd_tiles
from anycann.codegen.kernels.winograd_bundles import bundled, channels_of, mean_channels, most_channels
from anycann.codegen.kernels.winograd_tile import all_tiles, tile_sizes, winograd_algorithm
from anycann.codegen.kernels.winograd_transform import pack_winograd_weights
from anycann.target.target import by_name

TARGETS = pytest.mark.parametrize("target", runnable_targets(), ids=lambda t: t.name)
SHAPES = {
    "groups of whole blocks": shape_of(96, 64, (9, 14), 3, group=2, pads=1, batch=2),
    "half a vector in AVX-512": shape_of(40, 40, (11, 7), 3, group=5, pads=1),
    "bundles of two groups in AVX-512": shape_of(96, 96, (13, 10), 3, group=4, pads=1, batch=2),
    "an odd number of such groups": shape_of(72, 72, (9, 9), 3, group=3, pads=1),
    "unequal inputs and outputs": shape_of(48, 80, (7, 12), 3, group=4, pads=(0, 1)),
    "blocks of three groups": shape_of(50, 90, (8, 9), 3, group=5, pads=1),
    "an odd number of channels": shape_of(27, 51, (10, 6), 3, group=3, pads=1, batch=3),
    "planes": shape_of(40, 40, (3, 9, 8), 3, group=2, pads=1, batch=2),
    "stride 2": shape_of(48, 48, (15, 18), 3, group=2, pads=1, strides=2),
    "dilated": shape_of(56, 48, (16, 11), 3, group=2, pads=2, dilations=2),
    "five taps": shape_of(40, 60, (9, 13), 5, group=2, pads=2),
    "a row": shape_of(32, 72, (4, 21), (1, 3), group=2, pads=(0, 1)),
}


@TARGETS
@pytest.mark.parametrize("name", SHAPES)
def test_every_size_of_a_tile_equals_the_definition(name, target):
    shape = SHAPES[name]
    tiles = winograd_tiles(shape, target)
    for size in tile_sizes(shape):
        assert relative_error(shape, target, next(tile for tile in tiles if tile.size == size), len(name)) < 5e-6, size


@TARGETS
@pytest.mark.parametrize("by_point", [False, True])
@pytest.mark.parametrize("name", ["groups of whole blocks", "bundles of two groups in AVX-512", "blocks of three groups", "planes"])
def test_every_blocking_equals_the_definition(name, by_point, target):
    shape = SHAPES[name]
    space = WinogradSpace(shape, target)
    tiles = [replace(tile, by_point=by_point) for tile in winograd_tiles(shape, target)]
    tiles = [tile for tile in tiles if space.refusal(tile) is None]
    for tile in tiles[:: max(1, len(tiles) // 4)]:
        assert relative_error(shape, target, tile) < 5e-6, tile


@TARGETS
@pytest.mark.parametrize("splits", [1, 2])
def test_calls_of_one_thread_that_go_on_give_the_same_bits(splits, target):
    """A bundle's inputs are not taken for those of the one before."""
    lanes, groups = target.lanes, 3
    shape = shape_of(groups * lanes, groups * 3 * lanes, (9, 10), 3, group=groups, pads=1)
    tile = replace(default_winograd_tile(shape, target), tiles=5, columns=5, blocks=1, splits=splits)
    e, launch = emit(shape, target, tile)
    native = load(e, target, launch.tasks, launch.scratch_bytes)
    x, w, _ = operands(shape, 5)
    packed = pack_winograd_weights(w, shape, lanes, winograd_algorithm(shape, tile))
    weights = aligned(packed.size)
    weights[:] = packed.ravel()
    bias, data = aligned(shape.out_channels), to_blocked(x, lanes)
    bias[:] = 0
    whole = aligned(shape.out_channels * shape.out_pixels)
    native(data, weights, whole, bias)
    assert np.isfinite(whole).all()
    for step in (1, 2, 5):
        got = aligned(whole.size)
        native.one_behind_the_other(data, weights, got, bias, step=step)
        np.testing.assert_array_equal(got, whole)


@pytest.mark.parametrize("groups", [1, 3, 4])
@pytest.mark.parametrize(("inputs", "outputs"), [(24, 24), (8, 16), (10, 6), (56, 40)])
def test_a_block_reads_the_channels_of_its_groups_and_no_others(inputs, outputs, groups):
    lanes, shape = 16, shape_of(groups * inputs, groups * outputs, (4, 4), 3, group=groups)
    bundle = bundled(shape, lanes)
    assert bundle.bundles * bundle.group == groups
    assert bundle.bundles == 1 or bundle.in_channels % lanes == bundle.out_channels % lanes == 0
    read = [channels_of(shape, lanes, block) for block in range(shape.out_blocks(lanes))]
    for channel in range(shape.out_channels):
        first = channel // outputs * inputs
        assert set(range(first, first + inputs)) <= set(read[channel // lanes])
    assert max(map(len, read)) == most_channels(shape, lanes) == most_channels(bundle, lanes)
    assert sum(map(len, read)) / len(read) == pytest.approx(mean_channels(bundle, lanes))


def test_fewer_groups_than_all_are_a_bundle_where_they_fill_blocks():
    found = {width: bundled(shape_of(12 * width, 12 * width, (4, 4), 3, group=12), 16).group for width in (8, 12, 16, 20, 24, 32, 56)}
    assert found == {8: 2, 12: 4, 16: 1, 20: 4, 24: 2, 32: 1, 56: 2}
    assert bundled(shape_of(3 * 24, 3 * 24, (4, 4), 3, group=3), 16).group == 3  # three are no number of pairs


def test_weights_of_other_groups_are_no_part_of_the_weights():
    """63 groups of 24 channels would be 329 MB."""
    shape = shape_of(63 * 24, 63 * 24, (7, 7), 3, group=63, pads=1)
    w = np.ones((63 * 24, 24, 3, 3), np.float32)
    tile = next(tile for tile in winograd_tiles(shape, by_name("avx512")) if tile.size == (4, 4))
    packed = pack_winograd_weights(w, shape, 16, winograd_algorithm(shape, tile))
    assert packed.shape == (95, 36, 48, 16)
    assert np.count_nonzero(packed[0].any(axis=(0, 2))) == 24


@pytest.mark.parametrize(("groups", "width", "size"), [(3, 24, 56), (9, 24, 28), (32, 8, 28), (4, 112, 28), (8, 56, 28)])
def test_it_pays_for_networks_of_wide_groups(groups, width, size):
    target = by_name("avx512")
    shape = shape_of(groups * width, groups * width, (size, size), 3, group=groups, pads=1)
    assert winograd_profitable(shape, target)
    assert default_winograd_tile(shape, target).tiles <= all_tiles(shape, default_winograd_tile(shape, target).size)
