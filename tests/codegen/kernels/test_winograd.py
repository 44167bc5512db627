"""Winograd's convolution against the definition in float64."""

from __future__ import annotations

from dataclasses import replace
import itertools

from convolution_harness import aligned, load, operands, runnable_targets, shape_of, to_blocked
import numpy as np
import pytest
from winograd_harness import emit, relative_error, results

from anycann.codegen.kernels.convolution_space import WinogradSpace
from anycann.codegen.kernels.winograd_algorithm import LineAlgorithm, WinogradAlgorithm
from anycann.codegen.kernels.winograd_blocking import default_winograd_tile, winograd_profitable, winograd_tiles
from anycann.codegen.kernels.winograd_bundles import bundled
from anycann.codegen.kernels.winograd_tile import (
    all_blocks,
    all_groups,
    all_tiles,
    channel_runs,
    first_block,
    first_group,
    run_groups,
    run_tasks,
    scratch_bytes,
    tile_sizes,
    winograd_algorithm,
    winograd_refusal,
)
from anycann.codegen.kernels.winograd_transform import pack_winograd_weights
from anycann.codegen.objects import emit_object
from anycann.support.errors import UsageError
from anycann.target.target import NAMED, by_name

TARGETS = pytest.mark.parametrize("target", runnable_targets(), ids=lambda t: t.name)
SHAPES = {
    "whole tiles": shape_of(16, 16, (8, 8), 3, pads=1),
    "partial tiles, blocks and batch": shape_of(17, 37, (9, 14), 3, pads=1, batch=2),
    "smaller than a patch": shape_of(40, 24, (5, 3), 3, pads=(2, 0)),
    "no padding": shape_of(20, 33, (23, 6), 3),
    "wide padding": shape_of(16, 16, (3, 4), 3, pads=7),
    "planes": shape_of(16, 35, (5, 9, 10), 3, pads=1, batch=2),
    "planes far apart, some of padding only": shape_of(19, 16, (7, 6, 5), (2, 3, 3), dilations=(3, 1, 1), pads=(5, 1, 0)),
    "planes that are read alone": shape_of(17, 16, (6, 5, 9), (1, 3, 3), pads=(0, 1, 1)),
}


@TARGETS
def test_points_of_4x4_results_are_those_of_a_small_error(target):
    """With the points 1 and 2 it was 1.6e-6."""
    shape = shape_of(64, 32, (17, 17), 3, pads=1)
    usual = next(tile for tile in winograd_tiles(shape, target) if tile.size == (4, 4))
    assert relative_error(shape, target, usual) < 1e-6


@TARGETS
@pytest.mark.parametrize("by_point", [False, True])
@pytest.mark.parametrize("splits", [1, 2, 4])
def test_calls_of_one_thread_that_go_on_give_the_same_bits(splits, by_point, target):
    shape = shape_of(3 * target.lanes, 5 * target.lanes, (15, 18), 3, pads=1)
    tile = next(tile for tile in winograd_tiles(shape, target) if tile.tiles < all_tiles(shape, tile.size))
    tile = replace(tile, blocks=1, splits=splits, by_point=by_point)
    e, launch = emit(shape, target, tile)
    native = load(e, target, launch.tasks, launch.scratch_bytes)
    x, w, _ = operands(shape, 5)
    packed = pack_winograd_weights(w, shape, target.lanes, winograd_algorithm(shape, tile))
    weights = aligned(packed.size)
    weights[:] = packed.ravel()
    bias, data = aligned(shape.out_blocks(target.lanes) * target.lanes), to_blocked(x, target.lanes)
    bias[:] = 0
    whole = aligned(shape.out_blocks(target.lanes) * target.lanes * shape.out_pixels)
    native(data, weights, whole, bias)
    for step in (1, 3, 5):
        got = aligned(whole.size)
        native(data, weights, got, bias, end=2)
        native.one_behind_the_other(data, weights, got, bias, step=step, begin=2)
        np.testing.assert_array_equal(got, whole)


def test_no_task_is_without_output_channels():
    shape, target = bundled(shape_of(16, 5 * 8, (15, 18), 3, pads=1), 8), by_name("avx2")
    tiles = [replace(default_winograd_tile(shape, target), blocks=1, splits=splits) for splits in range(1, 6)]
    assert [channel_runs(shape, 8, tile) for tile in tiles] == [1, 2, 3, 3, 5]
    assert [emit(shape, target, tile)[1].tasks // all_blocks(shape, tile) for tile in tiles] == [5, 4, 3, 3, 5]


def test_few_tasks_are_cut_into_groups_and_many_are_not():
    shape = bundled(shape_of(16, 8 * 8, (32, 32), 3, pads=1), 8)
    tile = replace(default_winograd_tile(shape, by_name("avx2")), blocks=1, splits=1)
    for tiles, each in ((64, 8), (16, 8), (8, 4), (3, 2), (2, 1), (1, 1)):
        assert run_tasks(shape, 8, replace(tile, tiles=tiles)) == each


@pytest.mark.parametrize("blocks", [5, 7, 16, 32, 33, 64])
def test_groups_differ_by_a_block_and_two_threads_have_half_of_them_each(blocks):
    shape = bundled(shape_of(16, blocks * 8, (7, 7), 3, pads=1), 8)
    for size in range(1, 9):
        tile = replace(default_winograd_tile(shape, by_name("avx2")), tiles=16, blocks=size, splits=8)
        groups, runs = all_groups(shape, 8, tile), channel_runs(shape, 8, tile)
        bounds = [first_block(blocks, group, groups) for group in range(groups + 1)]
        sizes = {stop - first for first, stop in itertools.pairwise(bounds)}
        assert bounds[0] == 0
        assert bounds[-1] == blocks
        assert 0 < min(sizes) <= max(sizes) <= min(size, min(sizes) + 1)
        parts = [first_group(groups, run, runs) for run in range(runs + 1)]
        assert all(0 < stop - first <= run_groups(shape, 8, tile) for first, stop in itertools.pairwise(parts))
        each = run_tasks(shape, 8, tile)
        finer = [first_group(groups, task, runs * each) for task in range(runs * each + 1)]
        assert finer[::each] == parts
        assert all(first < stop for first, stop in itertools.pairwise(finer))
        if runs < groups:
            assert runs % 2 == 0
            assert abs(2 * bounds[parts[runs // 2]] - blocks) <= size


@TARGETS
@pytest.mark.parametrize("by_point", [False, True])
@pytest.mark.parametrize(("blocks", "size"), [(7, 3), (5, 3), (10, 4)])
def test_groups_of_two_sizes_equal_the_definition(blocks, size, by_point, target):
    shape = shape_of(target.lanes + 1, blocks * target.lanes - 3, (7, 6), 3, pads=1)
    tile = replace(default_winograd_tile(shape, target), columns=2, blocks=size, splits=2, by_point=by_point)
    assert relative_error(shape, target, tile) < 5e-6


@TARGETS
@pytest.mark.parametrize("name", SHAPES)
def test_equals_the_definition_to_a_few_millionths(name, target):
    shape = SHAPES[name]
    assert relative_error(shape, target, default_winograd_tile(shape, target), len(name)) < 5e-6


KERNELS = {
    "3 x 3": ((3, 3), 1),
    "2 x 4": ((2, 4), 1),
    "5 x 5": ((5, 5), 1),
    "row of 3": ((1, 3), 1),
    "column of 7": ((7, 1), 1),
    "3 x 3 with stride 2": ((3, 3), 2),
    "4 x 5 with stride 2": ((4, 5), 2),
    "7 x 7 with stride 2": ((7, 7), 2),
    "3 x 3 with strides 1 and 2": ((3, 3), (1, 2)),
    "row of 3 with stride 2": ((1, 3), 2),
}


@TARGETS
@pytest.mark.parametrize("name", KERNELS)
def test_every_size_of_a_tile_is_as_exact_for_every_kernel(name, target):
    kernel, strides = KERNELS[name]
    shape = shape_of(2 * target.lanes + 3, target.lanes + 5, (13, 18), kernel, strides=strides, pads=tuple(n // 2 for n in kernel), batch=2)
    tiles = winograd_tiles(shape, target)
    for size in tile_sizes(shape):
        assert relative_error(shape, target, next(tile for tile in tiles if tile.size == size)) < 5e-6, size


@TARGETS
def test_all_output_channels_of_a_point_give_the_same_bits_as_all_points_of_some(target):
    for shape in (shape_of(17, 5 * target.lanes + 1, (15, 18), 3, pads=1), shape_of(16, 3 * target.lanes, (5, 9, 6), 3, pads=1)):
        tile = replace(default_winograd_tile(shape, target), blocks=2, columns=3, splits=2)
        both = [results(shape, target, replace(tile, by_point=by_point)) for by_point in (False, True)]
        np.testing.assert_array_equal(*both)


@TARGETS
def test_every_blocking_gives_the_same_result(target):
    images = shape_of(2 * target.lanes + 4, 5 * target.lanes, (15, 18), 3, pads=1)
    volumes = shape_of(target.lanes + 4, 2 * target.lanes, (5, 9, 6), 3, pads=1)
    tiles = {shape: winograd_tiles(shape, target) for shape in (images, volumes)}
    for shape, tile in [(shape, tile) for shape, space in tiles.items() for tile in space[:: max(1, len(space) // 4)]]:
        assert relative_error(shape, target, tile) < 5e-6, tile


@pytest.mark.parametrize("name", NAMED)
def test_every_target_compiles_to_an_object_that_calls_nothing(name):
    target, shape = by_name(name), SHAPES["partial tiles, blocks and batch"]
    e, _ = emit(shape, target, default_winograd_tile(shape, target))
    assert emit_object(e.finish("winograd")[1], target)[:4] == b"\x7fELF"


def test_scratch_stays_in_the_second_level_cache():
    target = by_name("avx512")
    for channels, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        shape = shape_of(channels, channels, (size, size), 3, pads=1)
        tile = default_winograd_tile(shape, target)
        assert scratch_bytes(bundled(shape, target.lanes), target.lanes, tile) <= target.l2_bytes
        assert tile.tiles <= all_tiles(shape, tile.size)


@pytest.mark.parametrize("name", ["avx512", "avx2", "sse"])
@pytest.mark.parametrize("shape", [shape_of(64, 64, (224, 224), 3, pads=1), shape_of(32, 32, (40, 52), 3, pads=1, batch=16)], ids=str)
def test_no_size_of_a_block_is_estimated_to_be_clearly_better_for_a_large_image(shape, name):
    target = by_name(name)
    space = WinogradSpace(shape, target)
    unasked = space.default()
    others = [replace(unasked, tiles=tiles, columns=6, blocks=blocks) for tiles in range(12, 61, 6) for blocks in (1, 2, 4)]
    estimates = [space.estimate(tile) for tile in others if space.refusal(tile) is None]
    assert len(estimates) > 8
    assert space.estimate(unasked) < 1.05 * min(estimates)


def test_it_pays_for_large_images_but_not_where_only_weights_are_moved():
    target = by_name("avx512")
    assert winograd_profitable(shape_of(64, 64, (56, 56), 3, pads=1), target)
    assert winograd_profitable(shape_of(256, 256, (14, 14), 3, pads=1), target)
    assert not winograd_profitable(shape_of(512, 512, (2, 2), 3, pads=1), target)
    assert not winograd_profitable(shape_of(64, 64, (56, 56), 3, pads=1, batch=0), target)
    assert winograd_profitable(shape_of(64, 64, (3, 10, 10), 3, pads=1), target)
    few = shape_of(192, 192, (7, 7), 3, pads=1)
    assert [default_winograd_tile(few, by_name("znver4"), held).size for held in (False, True)] == [(2, 2), (4, 4)], (
        "weights wait in the cache"
    )
    assert not winograd_profitable(shape_of(128, 128, (2, 7, 7), 3, pads=1), target)  # a third of the products are with padding


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (shape_of(64, 64, (9, 9), 1), "kernel is"),
        (shape_of(64, 64, (9, 9), 6), "no algorithm"),
        (shape_of(64, 64, (9, 9), 3, strides=3), "no algorithm"),
        (shape_of(64, 64, (9, 9), 3, dilations=2, strides=2), "no algorithm"),
        (shape_of(64, 64, (9, 9, 9), 3, strides=(2, 1, 1)), "no algorithm"),
        (shape_of(64, 64, (9, 9, 9), (3, 6, 1)), "no algorithm"),
        (shape_of(64, 64, (9,), 3), "kernel is"),
        (shape_of(64, 64, (9, 9, 9), (0, 3, 3), dilations=(3, 1, 1)), "kernel is"),
        (shape_of(64, 64, (9, 9), 3, group=16), "4 -> 4 channels are fewer than half a vector"),
        (shape_of(64, 256, (9, 9), 3, group=16), "4 -> 16 channels are fewer than half a vector"),
        (shape_of(3, 64, (9, 9), 3), "fewer than a vector"),
    ],
)
def test_other_convolutions_are_refused_with_the_reason(shape, reason):
    target = by_name("avx512")
    assert reason in winograd_refusal(shape, target)
    assert not winograd_profitable(shape, target)
    with pytest.raises(UsageError, match=reason):
        emit(shape, target, default_winograd_tile(SHAPES["whole tiles"], target))


@pytest.mark.parametrize(("results", "taps"), [(2, 3), (4, 3), (6, 3), (2, 5), (4, 5)])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_weights_are_transformed_by_products_too_small_for_a_blas_to_wake_its_threads(
    results: int, taps: int, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = LineAlgorithm(results, taps)
    algorithm = WinogradAlgorithm(line, line)
    shape = shape_of(300, 21, (16, 16), taps)
    w = np.random.default_rng(7).standard_normal((21, 300, taps, taps)).astype(np.float32)
    sizes, matmul = [], np.matmul

    def counted(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        sizes.append(a.size * b.shape[1])
        return matmul(a, b, out=out)

    monkeypatch.setattr(np, "matmul", counted)
    packed = pack_winograd_weights(w, shape, lanes, algorithm)
    assert 2**15 < max(sizes) < 2**18
    transformed = np.einsum("pi,ocij,qj->copq", line.weights, w.astype(np.float64), line.weights).reshape(300, 21, -1)
    outputs = np.zeros((300, packed.shape[0] * lanes, algorithm.points), np.float32)
    outputs[:, :21] = transformed
    np.testing.assert_allclose(packed.transpose(2, 0, 3, 1).reshape(outputs.shape), outputs, rtol=1e-6, atol=1e-7)
