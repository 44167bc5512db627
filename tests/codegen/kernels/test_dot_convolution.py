"""Convolutions by dot products against sums in double precision: odd sizes, padding, strides, zero points, every way of computing them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.dot_convolution import emit_dot_convolution
from anycann.codegen.kernels.dot_packing import pack_dots
from anycann.codegen.kernels.dot_plane import as_plane, used_taps, with_taps
from anycann.codegen.kernels.dot_products import may_take_magnitudes
from anycann.codegen.kernels.dot_shape import DotPlan, DotTile
from anycann.codegen.kernels.dot_space import DotSpace
from anycann.codegen.kernels.dot_tiles import has_tiles
from anycann.codegen.values import Value
from anycann.target.target import Target, by_name, processor
from anycann.te import dtypes
from anycann.te.dtypes import DType
from tests.codegen.kernels.jit import Compiled, assert_compiles_everywhere, distinct, guarded, runnable

Array = np.ndarray[Any, Any]
TILES = by_name("avx512,+avx512vnni,+avx512bf16,+amx-tile,+amx-int8,+amx-bf16")


def targets() -> list[Target]:
    """This machine, itself without what makes it fast, and the named targets it runs."""
    vnni = replace(by_name("avx2"), features=by_name("avx2").features + ",+avxvnni")
    return distinct(*here(), *runnable(), *([vnni] if processor().has("avxvnni") else []))


def here() -> list[Target]:
    """This machine with and without its tiles."""
    plain = ",".join(f for f in processor().features.split(",") if not f.startswith("+amx"))
    return distinct(processor(), replace(processor(), features=plain))


def sizes(
    channels: int,
    outputs: int,
    image: tuple[int, ...],
    kernel: tuple[int, ...] = (1, 1),
    strides: tuple[int, ...] = (1, 1),
    pads: tuple[int, ...] = (0, 0),
    dilations: tuple[int, ...] = (1, 1),
    batch: int = 1,
    group: int = 1,
) -> ConvolutionShape:
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    out = tuple((s + 2 * p - w) // step + 1 for s, p, w, step in zip(image, pads, spans, strides, strict=True))
    return ConvolutionShape(batch, channels, outputs, group, image, kernel, strides, dilations, pads, out, dtypes.uint8)


SHAPES = {
    "pointwise": sizes(64, 64, (7, 9)),
    "channels that make no groups": sizes(17, 20, (5, 6)),
    "first layer": sizes(3, 20, (13, 12), (3, 3), (2, 2), (1, 1)),
    "two images": sizes(24, 40, (9, 8), (3, 3), (1, 1), (1, 1), batch=2),
    "asymmetric": sizes(16, 33, (9, 11), (3, 2), (2, 1), (1, 1), (1, 2)),
    "a row": sizes(5, 7, (6, 20), (1, 5), (1, 1), (0, 2)),
    "no padding": sizes(4, 16, (7, 7), (3, 3)),
    "one pixel": sizes(8, 100, (1, 1)),
    "stride of the window": sizes(132, 32, (5, 5), (2, 2), (2, 2)),
    "cropped": sizes(8, 16, (6, 6), (3, 3), (1, 1), (-1, -1)),
    "padded rows": sizes(24, 40, (7, 35), (3, 1), (1, 1), (1, 0), batch=2),
    "padded rows of windows": sizes(34, 20, (6, 9), (5, 3), (1, 1), (2, 0), (1, 2)),
    "padded rows, strides and dilations": sizes(68, 20, (11, 20), (3, 2), (2, 1), (3, 0), (2, 1)),
    "rows of padding": sizes(12, 20, (3, 9), (3, 1), (1, 1), (4, 0)),
    "nothing": sizes(16, 16, (0, 4)),
    "a column": sizes(1, 37, (700, 1), (64, 1), (32, 1), (0, 0)),
    "a padded column": sizes(3, 20, (61, 1), (6, 1), (2, 1), (2, 0), batch=2),
    "a dilated column": sizes(12, 20, (61, 1), (5, 1), (3, 1), (2, 0), (2, 1)),
    "odd channels in whole groups": sizes(3, 20, (13, 12), (4, 4), (4, 4), (0, 0)),
    "few outputs": sizes(12, 3, (30, 1), (3, 1), (1, 1), (1, 0)),
    "dilated": sizes(68, 70, (10, 10), (3, 3), (1, 1), (2, 2), (2, 2)),
    "wide dilations": sizes(34, 70, (9, 11), (3, 3), (1, 1), (6, 6), (6, 6), batch=2),
    "wide dilations, every second pixel": sizes(33, 20, (13, 12), (5, 3), (2, 2), (8, 3), (4, 4)),
    "taps that read padding only": sizes(12, 20, (5, 6), (3, 5), (1, 2), (6, 8), (6, 4)),
    "nothing but padding": sizes(12, 20, (2, 2), (1, 2), (9, 9), (4, 4)),
    "strides": sizes(64, 40, (9, 12), (3, 3), (2, 2), (1, 1), batch=2),
    "strides of one tap": sizes(64, 40, (11, 9), (1, 1), (2, 2)),
    "uneven strides": sizes(32, 20, (13, 14), (3, 5), (3, 2), (2, 0), (2, 3)),
    "strides and cropped": sizes(32, 20, (13, 14), (3, 2), (2, 4), (-1, -2)),
    "strides of volumes": sizes(40, 24, (4, 7, 6), (3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1)),
    "volumes": sizes(20, 24, (4, 5, 6), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), batch=2),
    "volumes in place": sizes(16, 20, (7, 6, 5), (2, 3, 2), (2, 1, 1), (0, 0, 0), (3, 1, 2)),
    "the first layer of volumes": sizes(3, 17, (5, 8, 9), (3, 4, 3), (2, 2, 1), (1, 1, 1), (1, 1, 1)),
    "planes of volumes": sizes(8, 18, (3, 6, 5), (1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1), batch=2),
    "lines of volumes": sizes(8, 18, (5, 3, 4), (3, 1, 1), (2, 1, 1), (1, 0, 0), (1, 1, 1), batch=2),
    "points of volumes": sizes(12, 20, (3, 2, 5), (1, 1, 1), (1, 1, 1), (0, 0, 0), (1, 1, 1), batch=2),
}
STRIDES = [name for name in SHAPES if "strides" in name]
GROUPED = {
    "groups of 4": sizes(128, 128, (6, 7), (3, 3), (1, 1), (1, 1), group=32, batch=2),
    "groups of 16": sizes(48, 48, (9, 8), (3, 3), (2, 2), (1, 1), group=3),
    "groups of odd sizes": sizes(5 * 7, 5 * 9, (6, 5), (3, 3), (1, 1), (1, 1), group=5),
    "groups across panels": sizes(3 * 24, 3 * 40, (5, 5), (2, 3), group=3),
    "wide groups": sizes(2 * 68, 2 * 64, (5, 7), (3, 3), (1, 1), (1, 1), group=2),
    "pointwise groups": sizes(6 * 8, 6 * 12, (5, 6), group=6, batch=2),
    "groups of one channel": sizes(21, 21, (6, 6), (3, 3), (1, 1), (1, 1), group=21),
    "groups of a column": sizes(40, 60, (30, 1), (5, 1), (2, 1), (2, 0), group=5),
    "groups of a column in place": sizes(40, 60, (30, 1), (5, 1), group=5),
    "groups of volumes": sizes(24, 32, (4, 5, 6), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), group=4),
    "groups in place": sizes(64, 64, (7, 9), (3, 3), (1, 1), (0, 0), (2, 2), group=16),
}


def operands(shape: ConvolutionShape, rng: np.random.Generator) -> tuple[Array, Array]:
    x_shape, w_shape = (shape.batch, *shape.in_size, shape.in_channels), (shape.out_channels, shape.group_inputs, *shape.kernel)
    if shape.dtype is dtypes.bfloat16:
        return rng.standard_normal(x_shape).astype(ml_dtypes.bfloat16), rng.standard_normal(w_shape).astype(ml_dtypes.bfloat16)
    low, high = (0, 256) if shape.dtype is dtypes.uint8 else (-128, 128)
    return rng.integers(low, high, x_shape).astype(shape.dtype.numpy), rng.integers(-128, 128, w_shape).astype(np.int8)


def naive(x: Array, w: Array, shape: ConvolutionShape, zero: int) -> Array:
    """[N, *size, O] in float64, tap by tap."""
    border = 40 if len(shape.in_size) < 3 else 8
    around = [(0, 0), *((border, border + size) for size in shape.in_size), (0, 0)]
    padded = np.pad(x.astype(np.float64) - zero, around)
    total = np.zeros((shape.batch, *shape.out_size, shape.group, shape.group_outputs))
    taps = w.transpose(*range(2, w.ndim), 0, 1)
    for tap in product(*(range(k) for k in shape.kernel)):
        read = padded
        for axis, (t, size) in enumerate(zip(tap, shape.out_size, strict=True)):
            first = border - shape.pads_begin[axis] + t * shape.dilations[axis]
            read = read.take(first + shape.strides[axis] * np.arange(size), axis + 1)
        grouped = read.reshape(*read.shape[:-1], shape.group, shape.group_inputs)
        weights = taps[tap].astype(np.float64).reshape(shape.group, shape.group_outputs, shape.group_inputs)
        total += np.einsum("...gi,goi->...go", grouped, weights)
    return total.reshape(shape.batch, *shape.out_size, shape.out_channels)


def write_kernel(plan: DotPlan, zero: int | None, joined: int = 1) -> tuple[Emitter, int]:
    """Sums as they are, [N, *size, O], by so many vectors at once; the zero point from argument 3 if it is None."""
    e, shape = Emitter(), plan.shape
    x, weights, y = (e.argument(n) for n in range(3))
    point = e.load(e.argument(3), "i32", 4) if zero is None else zero

    def write(e: Emitter, image: Value, channel: Value, row: Value, column: Value, sums: Value, mask: Value | None) -> None:
        at = e.add(e.mul(image, shape.out_size[-2]), row)
        at = e.add(e.mul(e.add(e.mul(at, shape.out_size[-1]), column), shape.out_channels), channel)
        if mask is None:
            e.store(sums, e.gep(y, at, "i32"), 4)
        else:
            e.masked_store(sums, e.gep(y, at, "i32"), 4, mask)

    return e, emit_dot_convolution(e, plan, x, weights, write, point, joined)


def assert_right(
    shape: ConvolutionShape, target: Target, zero: int = 0, known: bool = True, planar: bool = False, weight_zero: Array | None = None
) -> None:
    assert_tile_is_right(shape, target, None, zero, known, planar, weight_zero)


def assert_tile_is_right(
    shape: ConvolutionShape,
    target: Target,
    tile: DotTile | None,
    zero: int = 0,
    known: bool = True,
    planar: bool = False,
    weight_zero: Array | None = None,
) -> None:
    """Of a problem as it is, or without a tile of as few dimensions and taps as can be, with the tile that is chosen."""
    x, w = operands(shape, np.random.default_rng())
    want = naive(x, w if weight_zero is None else w - weight_zero.reshape(-1, *(1 for _ in w.shape[1:])), shape, zero)
    if tile is None:
        taps = used_taps(shape)
        shape, w = as_plane(with_taps(shape, taps)), w[(slice(None), slice(None), *taps)]
        tile = DotSpace(shape, target, planar).default()
    plan = DotPlan(shape, target, tile, planar, centred=weight_zero is None)
    lifted = zero + (128 if shape.dtype is dtypes.int8 else 0)
    e, tasks = write_kernel(plan, lifted if known else None)
    source = np.ascontiguousarray(np.moveaxis(x, -1, 1)) if planar else x
    packed = pack_dots(plan, w.reshape(*w.shape[:2], *shape.kernel), lifted if known else None, weight_zero)
    dtype = np.float32 if shape.dtype is dtypes.bfloat16 else np.int32
    point = np.array([lifted], np.int32)
    kernel = Compiled(e, "dots", target, plan.scratch_bytes)
    for memory in guarded(source, packed, np.full(want.shape, 77, dtype)):
        kernel.run([*(each.address for each in memory), point.ctypes.data], tasks, min(3, max(1, tasks)))
        if dtype is np.int32:
            np.testing.assert_array_equal(memory[2].array, want)
        else:
            np.testing.assert_allclose(memory[2].array, want, rtol=0, atol=1e-5 * float(np.abs(want).max(initial=1)))


@pytest.mark.parametrize("name", [*SHAPES, *GROUPED])
@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.int8, dtypes.bfloat16], ids=str)
def test_sums_are_those_of_the_definition(name: str, dtype: DType) -> None:
    for target in targets():
        assert_right(replace((SHAPES | GROUPED)[name], dtype=dtype), target)


@pytest.mark.parametrize("name", [*SHAPES, "groups of odd sizes"])
@pytest.mark.parametrize(("dtype", "zero", "known"), [(dtypes.uint8, 200, True), (dtypes.uint8, 7, False), (dtypes.int8, -3, False)])
def test_zero_points_count_in_the_padding_too(name: str, dtype: DType, zero: int, known: bool) -> None:
    for target in here():
        assert_right(replace((SHAPES | GROUPED)[name], dtype=dtype), target, zero, known)


@pytest.mark.parametrize("name", SHAPES)
def test_weights_may_have_zero_points(name: str) -> None:
    outputs = SHAPES[name].out_channels
    for target in targets():
        assert_right(SHAPES[name], target, 3, weight_zero=np.random.default_rng().integers(-128, 128, outputs).astype(np.int32))


def test_a_row_major_image_is_gathered_as_it_is_copied() -> None:
    for name, target, dtype in product(("first layer", "the first layer of volumes"), targets(), (dtypes.uint8, dtypes.int8)):
        assert_right(replace(SHAPES[name], dtype=dtype), target, zero=9, planar=True)


@pytest.mark.parametrize("name", ["two images", "volumes", "groups of 4", "groups across panels", "dilated"])
def test_every_tile_of_the_space_computes_the_same(name: str) -> None:
    shape = (SHAPES | GROUPED)[name]
    for target in here():
        space = DotSpace(shape, target)
        x, w = operands(shape, np.random.default_rng())
        want = naive(x, w, shape, 3)
        for tile in list(dict.fromkeys(t for t in space.candidates() if space.refusal(t) is None))[:: 4 if name == "two images" else 16]:
            plan = DotPlan(shape, target, tile)
            e, tasks = write_kernel(plan, 3)
            y, packed = np.full(want.shape, 77, np.int32), pack_dots(plan, w, 3)
            Compiled(e, "dots", target, plan.scratch_bytes)([x, packed, y, y], tasks, 2)
            np.testing.assert_array_equal(y, want, err_msg=str(tile))


def test_rows_of_taps_that_meet_padding_are_left_out_where_most_of_them_do() -> None:
    """DeepLab's 3 x 3 with a dilation of 12 on 16 x 16: half of the rows of taps, and of the time."""
    target = by_name("avx512,+avx512bf16")
    for dilation, share in ((12, 0.5), (3, 1.0)):
        shape = replace(sizes(64, 64, (16, 16), (3, 3), (1, 1), (dilation, dilation), (dilation, dilation)), dtype=dtypes.bfloat16)
        plan = DotPlan(shape, target, DotSpace(shape, target).default())
        assert plan.copied
        assert plan.mean_depth == share * plan.depth
        assert not DotPlan(replace(shape, dtype=dtypes.uint8), target, plan.tile).skips_rows, "padding may have a zero point"


def test_every_tile_leaves_the_same_rows_out() -> None:
    shape = replace(SHAPES["wide dilations"], dtype=dtypes.bfloat16)
    for target in targets():
        space = DotSpace(shape, target)
        tiles = list(dict.fromkeys(tile for tile in space.candidates() if space.refusal(tile) is None))[::12]
        assert {space.plan(tile).skips_rows for tile in tiles} == {False, True}
        for tile in tiles:
            assert_tile_is_right(shape, target, tile)


@pytest.mark.parametrize("outputs", [7, 16, 19, 24, 41, 48])
def test_neighbouring_vectors_are_written_together(outputs: int) -> None:
    shape = sizes(8, outputs, (3, 7), (3, 3), pads=(1, 1))
    x, w = operands(shape, np.random.default_rng())
    want = naive(x, w, shape, 3)
    for target, vectors in product((t for t in targets() if not has_tiles(t, shape.dtype)), range(1, 4)):
        plan = DotPlan(shape, target, DotTile(3, vectors, 1, 2, 1), magnitudes=may_take_magnitudes(target))
        e, tasks = write_kernel(plan, 3, joined=2)
        kernel = Compiled(e, "dots", target, plan.scratch_bytes)
        for source, packed, y in guarded(x, pack_dots(plan, w, 3), np.full(want.shape, 77, np.int32)):
            kernel.run([source.address, packed.address, y.address, y.address], tasks, tasks)
            np.testing.assert_array_equal(y.array, want)


def test_a_tile_that_reads_in_place_is_no_longer_than_the_rows_of_a_task() -> None:
    """That of the first task would begin before the input: with the end of a page there, the process ended."""
    for target in (by_name("avx2"), by_name("znver4")):
        space = DotSpace(sizes(12, 33, (7, 1)), target, magnitudes=may_take_magnitudes(target))
        tile = DotTile(4, 1, 1, 4, 1, merge=True)
        assert not space.plan(tile).copied
        assert space.refusal(tile) is None
        assert space.refusal(replace(tile, image_rows=3)) == "4 pixels; a row has 3"
        assert space.refusal(replace(tile, rows=7, image_rows=9)) is None  # there are no more rows
        assert space.refusal(replace(tile, rows=8, image_rows=9)) == "8 pixels; a row has 7"


@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.bfloat16], ids=str)
def test_a_call_that_goes_on_uses_the_copy_of_the_one_before_and_another_makes_its_own(dtype: DType) -> None:
    rng = np.random.default_rng()
    shape = replace(sizes(24, 96, (8, 9), (3, 3), (1, 1), (1, 1)), dtype=dtype)
    first, w = operands(shape, rng)
    second = operands(shape, rng)[0]
    before, behind = (naive(x, w, shape, 0) for x in (first, second))
    for target in targets():
        panels = 96 // target.lanes
        plan = DotPlan(shape, target, DotTile(4, 1, 1, 4, 1))
        (e, tasks), packed = write_kernel(plan, 0), pack_dots(plan, w, 0)
        assert plan.resumes
        assert tasks == 2 * panels  # every panel for each half of the rows
        kernel = Compiled(e, "dots", target, plan.scratch_bytes)
        for cut, goes_on in product(range(1, tasks), (False, True)):
            x, y = first.copy(), np.full(before.shape, 77, np.float32 if dtype is dtypes.bfloat16 else np.int32)
            memory = np.full(plan.scratch_bytes + 64, 0xFF, np.uint8)
            at = memory.ctypes.data + -memory.ctypes.data % 64
            kernel.call([x, packed, y], 0, cut, at)
            x[...] = second
            kernel.call([x, packed, y], cut, tasks, at | goes_on)
            copied_before = -(-cut // panels) * panels if goes_on else cut
            for task in range(tasks):
                part = slice(0, 1), slice(task // panels * 4, task // panels * 4 + 4), slice(0, 9)
                columns = slice(task % panels * target.lanes, (task % panels + 1) * target.lanes)
                want = (before if task < copied_before else behind)[(*part, columns)]
                np.testing.assert_allclose(y[(*part, columns)], want, rtol=0, atol=1e-5 * float(np.abs(want).max()))


def test_rows_read_in_place_are_not_cut_for_the_cache_but_where_weights_are_few() -> None:
    """A task that fetches all weights again has to gain by it: rows that stay while every panel passes."""

    def parts(pixels: int, channels: int, outputs: int) -> int:
        shape = as_plane(replace(sizes(channels, outputs, (pixels, 1)), dtype=dtypes.bfloat16))
        tile = DotSpace(shape, by_name("znver4")).default()
        return -(-pixels // tile.image_rows)

    assert parts(128, 3072, 768) == 1
    assert 1 < parts(4096, 1024, 256) <= 32


FEW = {  # whose channels make no whole groups
    "one channel": sizes(1, 9, (7, 10), (5, 5), (1, 1), (2, 2), batch=2),
    "a picture": sizes(3, 20, (15, 17), (7, 7), (2, 2), (3, 3)),
    "a picture of patches": sizes(3, 17, (9, 12), (3, 3), (3, 3)),
    "six channels": sizes(6, 8, (5, 6), (3, 3), (1, 1), (1, 1)),
    "seven channels, dilated": sizes(7, 8, (9, 9), (3, 3), (1, 1), (2, 2), (2, 2)),
    "one pixel": sizes(5, 8, (1, 1)),
    "a volume": sizes(3, 8, (4, 5, 6), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
}


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize(("dtype", "zero", "known"), [(dtypes.uint8, 0, True), (dtypes.uint8, 255, False), (dtypes.int8, -128, True)])
def test_few_channels_lie_densely_where_words_are_multiplied(name: str, dtype: DType, zero: int, known: bool) -> None:
    shape = replace(FEW[name], dtype=dtype)
    for target in targets():
        assert_right(shape, target, zero=zero, known=known)
        assert_right(shape, target, zero=zero, weight_zero=np.full((), 5, np.int32))


def test_a_picture_has_no_fourth_channel_where_words_are_multiplied() -> None:
    shape, target = as_plane(FEW["a picture"]), by_name("avx2")
    dense, counted = (DotPlan(shape, target, DotSpace(shape, target).default(), centred=centred) for centred in (True, False))
    assert (dense.channels, dense.depth) == (3, 7 * 11)
    assert (counted.channels, counted.depth) == (4, 7 * 14), "sums of the input would count what is read behind a row"


def test_rows_of_which_few_pixels_are_copied_stay_together() -> None:
    """A quarter of 1x1 with stride 2: in two parts all weights came twice."""
    shape = as_plane(sizes(1024, 2048, (14, 14), (1, 1), (2, 2)))
    assert DotSpace(shape, replace(by_name("avx2"), l2_bytes=512 << 10)).default().image_rows == 7


def test_weights_of_no_near_cache_are_fetched_while_those_before_them_are_multiplied() -> None:
    target = by_name("avx2")
    shapes = {"far": sizes(512, 2048, (7, 7)), "near": sizes(64, 64, (7, 7)), "one tile": sizes(1280, 1000, (1, 1))}
    plans = {name: DotPlan(as_plane(shape), target, DotSpace(as_plane(shape), target).default()) for name, shape in shapes.items()}
    assert [name for name, plan in plans.items() if plan.fetched_bytes] == ["far"]
    assert [name for name, plan in plans.items() if "@llvm.prefetch" in "\n".join(write_kernel(plan, 0)[0].lines)] == ["far"]


@pytest.mark.parametrize("name", STRIDES)
@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.int8, dtypes.bfloat16], ids=str)
def test_rows_with_strides_may_be_one_long_row(name: str, dtype: DType) -> None:
    shape = replace(SHAPES[name], dtype=dtype)
    for target in targets():
        space = DotSpace(shape, target)
        merged = [tile for tile in space.candidates() if tile.merge and space.refusal(tile) is None]
        assert merged, "no rows are merged"
        assert_tile_is_right(shape, target, min(merged, key=space.estimate), zero=0 if dtype is dtypes.bfloat16 else 5)


@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.bfloat16], ids=str)
def test_kernels_compile_for_processors_that_are_not_here(dtype: DType) -> None:
    neon = by_name("neon")
    dots = replace(neon, features=neon.features + ",+dotprod,+i8mm")
    shape = replace(SHAPES["two images"], dtype=dtype)

    def write(target: Target) -> Emitter:
        return write_kernel(DotPlan(shape, target, DotSpace(shape, target).default()), 3)[0]

    assert_compiles_everywhere(write)
    assert_compiles_everywhere(write, [dots, TILES])
    assert "tdpb" in "\n".join(write(TILES).lines)
    if dtype is dtypes.uint8:
        assert "usdot" in "\n".join(write(dots).lines)
