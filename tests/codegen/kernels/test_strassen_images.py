"""Pointwise convolutions by Strassen's algorithm against float64: images in NC1HWC0, odd numbers of pixels, several of them, in parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.matmul_packing import pack_columns
from anycann.codegen.kernels.matmul_writer import plain_writer
from anycann.codegen.kernels.strassen import emit_strassen
from anycann.codegen.kernels.strassen_images import image_gains, image_product, image_refusal
from anycann.codegen.kernels.strassen_space import ImageAlgorithmSpace, ImageStrassenSpace
from anycann.codegen.kernels.strassen_tile import StrassenSizes, StrassenTile
from anycann.target.target import NAMED, PROCESSORS, Target
from anycann.te import dtypes
from tests.codegen.kernels.jit import Compiled, assert_compiles_everywhere, assert_passes_in_child, guarded, runnable

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng()
TARGETS = pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)


def shape_of(inputs: int, outputs: int, *size: int, batch: int = 1) -> ConvolutionShape:
    ones, zeros = (1,) * len(size), (0,) * len(size)
    return ConvolutionShape(batch, inputs, outputs, 1, size, ones, ones, ones, zeros, size)


def write(shape: ConvolutionShape, target: Target, tile: StrassenTile) -> tuple[Emitter, int]:
    """The kernel, which writes its results as rows of channels [batch, pixels, channels]."""
    e = Emitter()
    a, b, y = (e.argument(i) for i in range(3))
    to = plain_writer(y, (shape.out_pixels * shape.out_channels,), shape.out_channels)
    return e, emit_strassen(e, image_product(shape, target.lanes), target, tile, a, b, to, images=True)


class Problem:
    """Operands, the kernel, and what float64 says."""

    def __init__(self, shape: ConvolutionShape, target: Target, tile: StrassenTile | None = None):
        space = ImageStrassenSpace(shape, target)
        tile = tile or space.default()
        assert space.refusal(tile) is None
        self.sizes = StrassenSizes.of(image_product(shape, target.lanes), tile, target.lanes)
        x = RNG.standard_normal((shape.batch, shape.out_pixels, shape.in_channels)).astype(np.float32)
        w = RNG.standard_normal((shape.in_channels, shape.out_channels)).astype(np.float32)
        self.want = x.astype(np.float64) @ w
        blocks = x.reshape(shape.batch, shape.out_pixels, -1, target.lanes)
        self.x, self.w = np.ascontiguousarray(blocks.transpose(0, 2, 1, 3)), pack_columns(w, self.sizes.width)
        e, self.tasks = write(shape, target, tile)
        self.kernel = Compiled(e, "strassen", target, self.sizes.scratch_bytes)

    def result(self, parts: int = 1) -> Array:
        y = np.full(self.want.shape, np.nan, np.float32)
        self.kernel([self.x, self.w, y], self.tasks, parts)
        return y

    def check(self, parts: int = 1) -> None:
        error = np.linalg.norm(self.result(parts) - self.want) / np.linalg.norm(self.want)
        assert error < 4e-6, (error, self.sizes)


@TARGETS
@pytest.mark.parametrize("size", [(2,), (1, 7), (7, 7), (3, 5, 7), (9, 11), (13, 15), (14, 14), (21, 25)], ids=str)
def test_any_number_of_pixels_gives_the_convolution(size: tuple[int, ...], target: Target) -> None:
    problem = Problem(shape_of(128, 6 * target.lanes, *size), target)
    problem.check()
    problem.check(parts=2)


@TARGETS
@pytest.mark.parametrize("inputs", [96, 192, 320, 1536, 2048])
def test_parts_of_the_channels_are_added_up(inputs: int, target: Target) -> None:
    for size in ((5, 9), (10, 20)):
        Problem(shape_of(inputs, 4 * target.lanes, *size), target).check()


@TARGETS
def test_every_tile_gives_the_convolution(target: Target) -> None:
    shape = shape_of(256, 24 * target.lanes, 6, 9)
    points = [
        [1, 3, 14],
        ImageStrassenSpace(shape, target).parameters()[1].choices,
        ImageStrassenSpace(shape, target).parameters()[2].choices,
    ]
    tiles = [StrassenTile(rows, vectors, depth) for rows in points[0] for vectors in points[1] for depth in points[2]]
    fitting = [tile for tile in tiles if ImageStrassenSpace(shape, target).refusal(tile) is None]
    assert len(fitting) > 10
    for tile in fitting:
        Problem(shape, target, tile).check()


@TARGETS
@pytest.mark.parametrize(("batch", "size"), [(3, (8, 8)), (2, (14, 15))])
def test_images_have_no_part_in_the_sums_of_others(batch: int, size: tuple[int, ...], target: Target) -> None:
    problem = Problem(shape_of(128, 4 * target.lanes, *size, batch=batch), target)
    problem.check()
    problem.check(parts=3)
    problem.x[1] = np.nan
    finite = np.isfinite(problem.result()).all(axis=(1, 2))
    assert finite.tolist() == [number != 1 for number in range(batch)]


@TARGETS
def test_calls_of_any_tasks_give_the_same_bits(target: Target) -> None:
    problem = Problem(shape_of(192, 12 * target.lanes, 15, 17), target)
    whole = problem.result()
    for parts in (2, 3, problem.tasks):
        np.testing.assert_array_equal(problem.result(parts), whole)


def guarded_cases() -> None:
    """Each operand and the result right before a page that must not be touched, and right behind one."""
    for target in runnable():
        for inputs, outputs, size in ((96, 2, (3, 5)), (320, 6, (10, 20))):
            problem = Problem(shape_of(inputs, outputs * target.lanes, *size), target)
            for x, w, y in guarded(problem.x, problem.w, np.full(problem.want.shape, np.nan, np.float32)):
                problem.kernel.run([x.address, w.address, y.address], problem.tasks)
                np.testing.assert_allclose(y.array, problem.want, rtol=1e-3, atol=1e-3)


def test_nothing_is_touched_around_the_operands_or_the_result() -> None:
    assert_passes_in_child("tests.codegen.kernels.test_strassen_images", "guarded_cases")


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_target_compiles(name: str) -> None:
    target = NAMED[name]
    shape = shape_of(128, 4 * target.lanes, 5, 7)
    assert_compiles_everywhere(lambda t: write(shape, t, ImageStrassenSpace(shape, t).default())[0], [target])


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (replace(shape_of(256, 256, 14, 14), dtype=dtypes.bfloat16), "stored as bfloat16"),
        (replace(shape_of(256, 256, 14, 14), group=2), "no product"),
        (replace(shape_of(256, 256, 14, 14), strides=(2, 2), out_size=(7, 7)), "no product"),
        (replace(shape_of(256, 256, 14, 14), pads_begin=(1, 0), out_size=(15, 14)), "no product"),
        (replace(shape_of(256, 256, 14, 14), kernel=(1, 2), out_size=(14, 13)), "no product"),
        (shape_of(250, 256, 14, 14), "no whole blocks"),
        (shape_of(256, 256, 0, 14), "no pixels"),
        (shape_of(256, 256, 7, 7, batch=2), "too few"),
        (shape_of(256, 240, 14, 14), "halves"),
        (shape_of(256, 256, 1), "no two"),
    ],
)
def test_other_convolutions_are_refused_with_the_reason(shape: ConvolutionShape, reason: str) -> None:
    target = NAMED["avx512"]
    assert reason in (image_refusal(shape, target) or "")
    assert not image_gains(shape, target)
    assert not ImageAlgorithmSpace(shape, target).default().strassen


def test_it_is_taken_where_it_was_measured_to_gain() -> None:
    halved = PROCESSORS["znver4"]
    assert image_gains(shape_of(256, 1024, 14, 14), halved)
    assert image_gains(shape_of(2048, 512, 7, 7), halved)
    assert not image_gains(shape_of(256, 1024, 5, 5), halved), "few pixels do not repay the sums of weights"
    assert not image_gains(shape_of(96, 576, 14, 14), halved), "few channels do not repay the sums of results"
    assert not image_gains(shape_of(256, 32, 28, 28), halved), "few outputs do not repay the sums of pixels"
    assert not image_gains(shape_of(256, 1024, 14, 14), NAMED["avx2"])
