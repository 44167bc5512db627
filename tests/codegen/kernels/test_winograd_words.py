"""Winograd's convolution of bytes against sums in double precision: every bit, borders, odd sizes, zero points, the largest sums."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.winograd_words import emit_word_winograd
from anycann.codegen.kernels.winograd_words_lines import word_algorithm, word_tile_sizes
from anycann.codegen.kernels.winograd_words_space import WordAlgorithmSpace, WordWinogradSpace
from anycann.codegen.kernels.winograd_words_tile import WordTile, WordWinograd, word_winograd_refusal
from anycann.codegen.kernels.winograd_words_transform import pack_words, sums_fit
from anycann.codegen.values import Value
from anycann.target.target import Target, by_name
from anycann.te import dtypes
from tests.codegen.kernels.jit import Compiled, assert_compiles_everywhere, guarded, runnable
from tests.codegen.kernels.test_dot_convolution import naive, operands, sizes, targets

Array = np.ndarray[Any, Any]


def around(channels: int, outputs: int, image: tuple[int, int], pads: tuple[int, int] = (1, 1), batch: int = 1) -> ConvolutionShape:
    return sizes(channels, outputs, image, (3, 3), (1, 1), pads, batch=batch)


SHAPES = {
    "whole tiles": around(32, 16, (8, 8)),
    "parts of tiles": around(16, 40, (9, 7)),
    "a piece of a vector": around(8, 5, (6, 10), batch=2),
    "several pieces": around(56, 33, (5, 5)),
    "no padding": around(24, 20, (10, 11), (0, 0)),
    "more padding than it reads": around(8, 16, (3, 4), (3, 2)),
    "one pixel": around(40, 8, (1, 1)),
    "every second pixel": sizes(32, 24, (9, 12), (3, 3), (2, 2), (1, 1), batch=2),
    "every second pixel without padding": sizes(24, 17, (8, 11), (3, 3), (2, 2)),
    "every second pixel of a row": sizes(16, 8, (1, 7), (3, 3), (2, 2), (1, 1)),
}


def write_kernel(plan: WordWinograd, zero: int | None) -> tuple[Emitter, int]:
    """Sums as they are, [N, *size, O]; the zero point from argument 3 if it is None."""
    e, shape = Emitter(), plan.shape
    x, weights, y = (e.argument(n) for n in range(3))
    point = e.load(e.argument(3), "i32", 4) if zero is None else zero

    def write(e: Emitter, image: Value, channel: Value, row: Value, column: Value, sums: Value, mask: Value | None) -> None:
        at = e.add(e.mul(e.add(e.mul(image, shape.out_size[0]), row), shape.out_size[1]), column)
        place = e.gep(y, e.add(e.mul(at, shape.out_channels), channel), "i32")
        if mask is None:
            e.store(sums, place, 4)
        else:
            e.masked_store(sums, place, 4, mask)

    return e, emit_word_winograd(e, plan, x, weights, write, point)


def assert_right(
    shape: ConvolutionShape,
    target: Target,
    tile: WordTile | None = None,
    zero: int = 0,
    known: bool = True,
    given: tuple[Array, Array] | None = None,
) -> None:
    x, w = given or operands(shape, np.random.default_rng())
    want, lifted = naive(x, w, shape, zero), zero + (128 if shape.dtype is dtypes.int8 else 0)
    plan = WordWinograd(shape, target, tile or WordWinogradSpace(shape, target).default())
    e, tasks = write_kernel(plan, lifted if known else None)
    point = np.array([lifted], np.int32)
    kernel = Compiled(e, "words", target, plan.scratch_bytes)
    for source, packed, y in guarded(x, pack_words(plan, w.astype(np.int32)), np.full(want.shape, 77, np.int32)):
        kernel.run([source.address, packed.address, y.address, point.ctypes.data], tasks, min(3, tasks))
        np.testing.assert_array_equal(y.array, want)


@pytest.mark.parametrize("name", SHAPES)
def test_sums_are_exact_with_tiles_of_every_size(name):
    for size in word_tile_sizes(SHAPES[name]):
        space = WordWinogradSpace(SHAPES[name], runnable()[-1])
        assert_right(SHAPES[name], space.target, next(tile for tile in space.candidates() if tile.results == size))


@pytest.mark.parametrize("name", ["whole tiles", "every second pixel"])
def test_the_matrices_are_those_of_a_convolution(name):
    """A [(G g) * (B d)] in one dimension, less the factors of results."""
    shape, rng = SHAPES[name], np.random.default_rng()
    for size in word_tile_sizes(shape):
        line = word_algorithm(shape, size).rows
        d, g = rng.integers(-255, 256, line.patch), rng.integers(-255, 256, line.taps)
        found = np.array(line.outputs) @ ((np.array(line.weights) @ g) * (np.array(line.inputs) @ d))
        wanted = [(d[i * line.stride :][: line.taps] * g).sum() for i in range(line.results)]
        assert (found == wanted * (3**line.thirds << np.array(line.shifts))).all()
        most = [max(np.abs(row).sum() for row in matrix) ** 2 * 255 for matrix in (line.inputs, line.weights)]
        assert max(most) < 1 << 15, "patches and weights have 16 bits"


@pytest.mark.parametrize(("name", "dtype"), [("several pieces", dtypes.uint8), ("parts of tiles", dtypes.int8)])
def test_sums_are_exact_on_every_target(name, dtype):
    for target in targets():
        assert_right(replace(SHAPES[name], dtype=dtype), target)


@pytest.mark.parametrize(("dtype", "zero", "known"), [(dtypes.uint8, 200, True), (dtypes.uint8, 255, False), (dtypes.int8, -3, False)])
def test_padding_counts_as_the_zero_point(dtype, zero, known):
    assert_right(replace(SHAPES["more padding than it reads"], dtype=dtype), runnable()[-1], zero=zero, known=known)


def test_every_tile_of_the_space_computes_the_same():
    shape = around(24, 40, (14, 13), batch=2)
    space = WordWinogradSpace(shape, targets()[0])
    tiles = [tile for tile in dict.fromkeys(space.candidates()) if space.refusal(tile) is None]
    assert len(tiles) > 10
    assert {tile.results for tile in tiles} == {2, 4}
    for tile in tiles[:: len(tiles) // 8]:
        assert_right(shape, space.target, tile, zero=9)


@pytest.mark.parametrize("shape", [around(24, 40, (10, 9), batch=2), sizes(16, 41, (9, 14), (3, 3), (2, 2), (1, 1))])
def test_points_one_by_one_for_all_channels_of_a_task_compute_the_same(shape):
    """In blocks of tiles of which the last has fewer, in parts of groups of which the last has fewer."""
    for size in word_tile_sizes(shape):
        for splits in (1, 2):
            assert_right(shape, runnable()[-1], WordTile(5, 3, 1, splits, size, by_point=True), zero=7)


@pytest.mark.parametrize("by_point", [False, True])
@pytest.mark.parametrize("splits", [1, 2])
def test_calls_that_begin_within_a_run_and_go_on_compute_the_same(splits, by_point):
    shape, target = around(24, 6 * 8 - 3, (10, 9), batch=2), by_name("avx2")
    x, w = operands(shape, np.random.default_rng())
    want, plan = naive(x, w, shape, 5), WordWinograd(shape, target, WordTile(8, 3, 1, splits, by_point=by_point))
    e, tasks = write_kernel(plan, 5)
    assert plan.run_tasks == 6 // splits
    assert tasks == plan.blocks * 6 == 18
    weights, y, scratch = pack_words(plan, w.astype(np.int32)), np.empty(want.shape, np.int32), np.zeros(plan.scratch_bytes + 64, np.uint8)
    kernel, at = Compiled(e, "words", target, plan.scratch_bytes), scratch.ctypes.data + -scratch.ctypes.data % 64
    table = (ctypes.c_void_p * 3)(*(array.ctypes.data for array in (x, weights, y)))
    for step in (1, 2, 5):
        y.fill(77)
        for begin in range(0, tasks, step):
            kernel.entry(table, begin, min(tasks, begin + step), at + (begin > 0))
        np.testing.assert_array_equal(y, want)


def test_weights_that_stay_in_no_near_cache_are_fetched_ahead_and_blocks_of_many_channels_go_point_by_point():
    target = replace(by_name("avx2"), l2_bytes=512 << 10)
    few, many = (
        WordWinograd(shape, target, WordWinogradSpace(shape, target).default())
        for shape in (around(32, 32, (56, 56)), around(512, 512, (28, 28)))
    )
    assert (few.tile.by_point, few.fetched_bytes) == (False, 0)
    assert (many.tile.by_point, many.fetched_bytes > 0) == (True, True)
    fetches = ["@llvm.prefetch" in "\n".join(write_kernel(plan, 0)[0].lines) for plan in (few, many)]
    assert fetches == [False, True]


@pytest.mark.parametrize(("pixel", "zero"), [(255, 0), (0, 255)])
@pytest.mark.parametrize("weight", [127, -128])
@pytest.mark.parametrize(("size", "stride"), [(4, 1), (2, 1), (2, 2)])
def test_the_largest_sums_that_fit_come_back(size, stride, weight, pixel, zero):
    """All products of one sign, as many as `sums_fit` lets through; for tiles of 2x2 results 2048 channels are not too many."""
    bits = {(4, 1): 25, (2, 1): 29, (2, 2): 31}[size, stride]
    most = (1 << bits) // (255 * 9 * abs(weight)) // 8 * 8
    channels = min(most, 2048)
    shape = sizes(channels, 8, (6, 6), (3, 3), (stride, stride), (1, 1))
    x, w = np.full((1, 6, 6, channels), pixel, np.uint8), np.full((8, channels, 3, 3), weight, np.int8)
    algorithm = word_algorithm(shape, size)
    assert algorithm.sum_bits == bits
    assert sums_fit(w.astype(np.int32), algorithm)
    assert not sums_fit(np.full((1, most + 16, 3, 3), weight, np.int32), algorithm), "16 channels more do not fit"
    space = WordWinogradSpace(shape, runnable()[-1], size)
    assert_right(shape, space.target, space.default(), zero=zero, given=(x, w))


def test_what_it_cannot_compute_is_refused_with_a_reason():
    target = by_name("avx2")
    assert word_winograd_refusal(SHAPES["whole tiles"], target) is None
    assert "strides (2, 1)" in str(word_winograd_refusal(sizes(16, 16, (8, 8), (3, 3), (2, 1)), target))
    assert "strides (3, 3)" in str(word_winograd_refusal(sizes(16, 16, (8, 8), (3, 3), (3, 3)), target))
    assert "12 input channels" in str(word_winograd_refusal(around(12, 16, (8, 8)), target))
    assert "bfloat16" in str(word_winograd_refusal(replace(SHAPES["whole tiles"], dtype=dtypes.bfloat16), target))
    assert "aarch64" in str(word_winograd_refusal(SHAPES["whole tiles"], by_name("neon")))


def test_it_is_chosen_where_dot_products_need_several_instructions_and_not_beside_matrix_tiles():
    shape = around(128, 128, (28, 28))
    tiles = by_name("avx512,+avx512vnni,+amx-tile,+amx-int8")
    chosen = [WordAlgorithmSpace(shape, target).default().winograd for target in (by_name("sse"), by_name("avx2"), tiles)]
    assert chosen == [True, True, False]


def test_it_is_compared_with_the_dot_products_that_are_taken_else():
    """64 to 64 channels of 14 x 14 with stride 2 take 27 us, 35 as words, which zero points of weights ask for (Zen 3)."""
    shape = sizes(64, 64, (14, 14), (3, 3), (2, 2), (1, 1))
    spaces = [WordAlgorithmSpace(shape, by_name("avx2"), 2, magnitudes) for magnitudes in (False, True)]
    assert [space.default().winograd for space in spaces] == [True, False]
    assert len({str(space.context()) for space in spaces}) == 2


def test_sorted_dot_products_are_taken_where_pixels_are_few_and_strides_two():
    """512 channels of 14 x 14 with stride 2 take 1.21 of the time by Winograd, 64 of 56 x 56 with stride 1 0.44 (Zen 3)."""
    shapes = [sizes(512, 512, (14, 14), (3, 3), (2, 2), (1, 1)), around(64, 64, (56, 56))]
    spaces = [WordAlgorithmSpace(shape, by_name("avx2"), 4, True, middle) for shape in shapes for middle in (None, 0)]
    assert [space.default().winograd for space in spaces] == [True, False, True, True]
    assert len({str(space.context()) for space in spaces}) == 2


def test_kernels_compile_for_processors_that_are_not_here():
    shape = SHAPES["several pieces"]
    named = [by_name(name) for name in ("sse", "avx2", "avx2,+avxvnni", "avx512", "znver4")]
    assert_compiles_everywhere(
        lambda target: write_kernel(WordWinograd(shape, target, WordWinogradSpace(shape, target).default()), 3)[0], named
    )
    lines = write_kernel(WordWinograd(shape, named[-1], WordWinogradSpace(shape, named[-1]).default()), 3)[0].lines
    assert "vpdpwssd.512" in "\n".join(lines)
