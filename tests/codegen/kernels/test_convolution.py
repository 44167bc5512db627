"""Direct convolution against its definition in float64, on every processor family this machine can run."""

from __future__ import annotations

import dataclasses

from convolution_harness import from_blocked, generate, load, packed, reference, run, runnable_targets, shape_of, to_blocked
import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution import emit_convolution, plain_writer
from anycann.codegen.kernels.convolution_estimate import ConvolutionTile
from anycann.codegen.kernels.convolution_method import last_lanes, method
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_tile import default_tile, tiles
from anycann.codegen.objects import emit_assembly, emit_object
from anycann.support.errors import InternalError, UsageError
from anycann.target.target import NAMED, by_name

TARGETS = pytest.mark.parametrize("target", runnable_targets(), ids=lambda t: t.name)
LAYOUTS = pytest.mark.parametrize("blocked", [True, False], ids=["blocked", "plain"])

SHAPES = {
    "padded 3x3": shape_of(16, 32, (5, 20), 3, pads=1),
    "first layer": shape_of(3, 20, (17, 23), 7, strides=2, pads=3),
    "pointwise": shape_of(40, 24, (7, 7), 1),
    "pointwise strided": shape_of(24, 40, (9, 8), 1, strides=2),
    "column kernel": shape_of(24, 17, (9, 8), (3, 1), pads=(1, 0)),
    "row kernel wider than a tile": shape_of(5, 7, (3, 200), (1, 25), pads=(0, 12)),
    "asymmetric pads": shape_of(8, 9, (6, 11), (2, 4), pads=(0, 2), ends=(1, 1)),
    "dilated": shape_of(12, 20, (15, 17), 3, pads=3, dilations=3),
    "dilated and strided": shape_of(12, 20, (15, 17), 3, pads=2, dilations=2, strides=(3, 2)),
    "stride beyond kernel": shape_of(6, 5, (11, 10), 2, strides=4, pads=1),
    "kernel larger than input": shape_of(5, 7, (2, 2), 3, pads=(5, 0), ends=(6, 3)),
    "one pixel": shape_of(70, 33, (1, 1), 3, pads=1),
    "one dimension": shape_of(8, 16, (50,), 5, pads=(2,), strides=(2,), ends=(3,)),
    "three dimensions": shape_of(4, 9, (5, 6, 7), 3, pads=1),
    "batch": shape_of(20, 18, (4, 4), 2, batch=3, strides=2),
    "depthwise": shape_of(37, 37, (14, 15), 3, pads=1, group=37),
    "depthwise strided 5x5": shape_of(32, 32, (13, 14), 5, pads=2, strides=2, group=32),
    "depthwise multiplier": shape_of(6, 18, (5, 9), 3, pads=1, group=6),
    "small groups": shape_of(32, 32, (9, 9), 3, pads=1, group=8, batch=2),
    "odd groups": shape_of(15, 9, (6, 9), 3, pads=1, group=3),
    "few outputs": shape_of(37, 2, (6, 9), 3, pads=1, batch=2),
    "one output": shape_of(64, 1, (9, 33), 5, pads=2, strides=2),
    "groups that share vectors": shape_of(30, 60, (6, 7), 3, pads=1, group=3),
    "full vectors a group": shape_of(48, 96, (6, 6), 3, pads=1, group=2),
    "unaligned inputs a group": shape_of(18, 96, (6, 6), 3, pads=1, group=3),
    "a column of an image": shape_of(20, 33, (19, 2), 1, strides=2, batch=2),
    "a column and rows around it": shape_of(20, 18, (21, 3), (3, 1), strides=(2, 3), pads=(1, 0), dilations=(2, 1)),
    "a column of a volume": shape_of(9, 40, (6, 11, 2), 1, strides=2),
    "a row of a volume": shape_of(9, 40, (2, 2, 23), 1, strides=(2, 2, 1)),
    "a column of an image, depthwise": shape_of(21, 21, (19, 2), (3, 1), strides=2, pads=(1, 0), group=21),
    "a column of an image, outputs": shape_of(37, 2, (19, 2), (3, 1), strides=2, pads=(1, 0)),
    "a column of an image, groups": shape_of(24, 36, (19, 3), (2, 1), strides=(1, 3), group=2),
    "grouped in one dimension": shape_of(12, 24, (31,), 4, group=4),
}


@TARGETS
@LAYOUTS
@pytest.mark.parametrize("name", SHAPES)
def test_equals_the_definition_with_poison_around_the_data(name, target, blocked):
    got, want = run(SHAPES[name], target, blocked=blocked, bias=True, seed=len(name))
    assert np.isfinite(got).all()
    assert np.abs(got - want).max() <= 2e-6 * np.abs(want).max()


@TARGETS
def test_every_tile_of_the_search_space_gives_the_same_result(target):
    shape = shape_of(9, 5 * target.lanes, (3, 11), 3, pads=1)
    space = tiles(shape, target)
    assert len(space) > 10
    for tile in space[:: max(1, len(space) // 6)]:
        got, want = run(shape, target, tile, bias=True)
        assert np.abs(got - want).max() <= 2e-6 * np.abs(want).max(), tile


DEEP = {
    "padded": shape_of(70, 52, (7, 7), 3, pads=1, batch=2),
    "strided": shape_of(48, 100, (13, 12), 1, strides=2),
    "grouped": shape_of(96, 64, (5, 6), 3, pads=1, group=2),
    "one dimension": shape_of(64, 40, (9,), 3, pads=(1,)),
    "three dimensions": shape_of(33, 17, (3, 2, 5), 2, pads=1),
    "a border pixel by pixel": shape_of(33, 16, (3, 9), (1, 25), pads=(0, 12)),
    "two tiles": shape_of(40, 50, (2, 4), 3, pads=1),
}


@TARGETS
@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("merge", [False, True])
def test_sums_that_wait_in_memory_for_more_input_channels_are_the_same(name, target, merge):
    shape = DEEP[name]
    for tile in (ConvolutionTile(4, 2, 1, merge, False, 1), ConvolutionTile(3, 1, 1, merge, False, 2)):
        got, want = run(shape, target, tile, bias=True, seed=len(name))
        assert np.isfinite(got).all()
        assert np.abs(got - want).max() <= 2e-6 * np.abs(want).max()


@pytest.mark.parametrize(
    ("shape", "columns", "blocks"),
    [
        (shape_of(64, 128, (80, 80), 3, strides=2, pads=1), 5, 2),
        (shape_of(128, 128, (56, 56), 3, strides=2, pads=1), 6, 2),
        (shape_of(256, 512, (28, 28), 1), 6, 2),
        (shape_of(64, 192, (27, 27), 5, pads=2), 4, 3),
    ],
    ids=lambda value: str(value.kernel) if isinstance(value, ConvolutionShape) else str(value),
)
def test_sixteen_registers_hold_the_sums_of_a_whole_block_of_input_channels(shape, columns, blocks):
    """With the loads where LLVM wants them, these had up to 46 spills in the loop, or room for two channels."""
    target = NAMED["avx2"]
    tile = default_tile(shape, target)
    assert (tile.columns, tile.blocks, tile.unroll) == (columns, blocks, 8)
    e = Emitter()
    pointers = [e.argument(i) for i in range(3)]
    emit_convolution(e, shape, target, tile, *pointers[:2], plain_writer(pointers[2], shape, target.lanes))
    loops = [block for block in emit_assembly(e.finish("convolution")[1], target).split("\n.L") if block.count("vfmadd") >= 40]
    assert max(loop.count("vfmadd") for loop in loops) >= 8 * columns * blocks
    assert not [line for loop in loops for line in loop.splitlines() if "mm" in line and "(%rsp)" in line]


def test_taps_of_a_border_one_by_one_keep_their_sums_in_registers():
    """Each valid for other pixels, all written out behind each other they had 22 spills, a sum among them that each product waited for."""
    target, shape = NAMED["avx2"], shape_of(96, 471, (7,), 3, strides=2, pads=1)
    tile = ConvolutionTile(4, 3, 8)
    assert tile == default_tile(shape, target)
    e = Emitter()
    pointers = [e.argument(i) for i in range(3)]
    emit_convolution(e, shape, target, tile, *pointers[:2], plain_writer(pointers[2], shape, target.lanes))
    loops = [block for block in emit_assembly(e.finish("convolution")[1], target).split("\n.L") if block.count("vfmadd") >= 30]
    assert loops
    assert not [line for loop in loops for line in loop.splitlines() if "mm" in line and "(%rsp)" in line]


def test_half_vectors_are_computed_beside_whole_ones_only_where_a_whole_one_is_two_halves():
    shape = shape_of(144, 24, (56, 56), 1)
    zen4, xeon = dataclasses.replace(by_name("avx512"), cpu="znver4"), by_name("avx512")
    assert [last_lanes(shape, target, "dense", 2) for target in (zen4, xeon)] == [8, 16]
    assert [last_lanes(shape_of(96, 8, (56, 56), 1), target, "dense", 1) for target in (zen4, xeon)] == [8, 8]


def test_few_pixels_with_many_weights_are_computed_deep():
    target = by_name("avx512")
    assert default_tile(shape_of(512, 512, (7, 7), 3, pads=1), target).depth > 0
    assert default_tile(shape_of(64, 64, (56, 56), 3, pads=1), target).depth == 0
    assert default_tile(shape_of(200, 328, (3, 3), 3, pads=1), NAMED["avx2"]).depth > 0  # three tiles
    assert default_tile(shape_of(512, 512, (1, 1), 1), NAMED["avx2"]).depth == 0


def test_few_tiles_of_few_pixels_share_weights_that_are_far_with_32_registers_too() -> None:
    target = NAMED["avx512"]
    assert default_tile(shape_of(384, 384, (6, 6), 3, pads=1, strides=2), target).depth > 0  # three tiles
    assert default_tile(shape_of(232, 343, (26, 2), 3, pads=1, strides=2), target).depth > 0  # 13 tiles of one pixel
    assert default_tile(shape_of(512, 1024, (14, 14), 1, strides=2), target).depth == 0  # seven pixels hide what is loaded


def test_one_tile_of_few_pixels_takes_weights_that_are_far_a_part_at_a_time() -> None:
    target = dataclasses.replace(NAMED["avx512"], l1_bytes=48 << 10, l2_bytes=2 << 20)
    far, near = shape_of(2048, 512, (2, 3), 1), shape_of(320, 512, (2, 3), 1)
    assert [default_tile(shape, target).depth > 0 for shape in (far, near)] == [True, False]
    assert default_tile(shape_of(256, 256, (3, 3), 3), target).depth > 0


def test_a_part_of_a_row_stays_in_the_cache_while_all_channel_blocks_read_it():
    target = by_name("avx512")
    shape = shape_of(1024, 256, (64, 64), 1)
    tile = default_tile(shape, target)
    assert tile.blocks_inner
    assert tile.merge
    _, tasks = generate(shape, target)
    parts = tasks // -(-shape.out_blocks(target.lanes) // tile.blocks)
    assert 4 * shape.in_channels * shape.in_pixels / parts <= target.l2_bytes // 2


@pytest.mark.parametrize("name", ["avx512", "avx2"])
def test_planes_of_a_few_channels_are_written_one_after_the_other(name: str) -> None:
    """Reading the image again is little beside what is written: 0.65 and 0.72 of the time."""
    assert not default_tile(shape_of(8, 288, (226, 140), 1), by_name(name)).blocks_inner


def test_two_channels_stay_a_loop_where_registers_are_few() -> None:
    assert [default_tile(shape_of(n, 250, (129, 85), 1), by_name("avx2")).unroll for n in (2, 4)] == [1, 4]


@TARGETS
def test_an_empty_batch_or_image_has_no_tasks(target):
    assert generate(shape_of(8, 8, (4, 4), 1, batch=0), target)[1] == 0
    assert generate(shape_of(8, 8, (0, 3), 1), target)[1] == 0


@TARGETS
def test_infinite_inputs_do_not_reach_other_groups(target):
    lanes = target.lanes
    shape = shape_of(6, 6, (3, 3), 1, group=3)
    native = load(*_with_target(shape, target))
    x = np.ones((1, 6, 3, 3), np.float32)
    x[:, 2:4] = np.inf
    w = np.ones((6, 2, 1, 1), np.float32)
    y = to_blocked(np.full((1, 6, 3, 3), np.nan, np.float32), lanes)
    native(to_blocked(x, lanes), packed(w, shape, lanes), y)
    got = from_blocked(y, (1, 6, 3, 3), lanes)
    assert (got[:, :2] == 2).all()
    assert np.isinf(got[:, 2:4]).all()
    assert (got[:, 4:] == 2).all()


def _with_target(shape, target):
    e, tasks = generate(shape, target)
    return e, target, tasks


@TARGETS
def test_a_long_tail_is_written_once_and_gets_every_index(target):
    """A tail of hundreds of lines that adds a function of the whole index."""
    shape = shape_of(5, 2 * target.lanes + 3, (5, 9), 3, pads=1, batch=2)
    lanes, type_ = target.lanes, f"<{target.lanes} x float>"
    e = Emitter()
    x, w, y = (e.argument(i) for i in range(3))
    written = 0

    def write(e, index, vector):
        nonlocal written
        written += 1
        for value, scale in zip(index, (1000.0, 100.0, 10.0, 1.0), strict=True):
            number = e.cast("sitofp", value, "float")
            vector = e.fma(e.splat(number, lanes), e.const(scale, type_), vector) if target.has("fma") else _added(e, number, scale, vector)
        for _ in range(400):
            vector = e.binary("fadd", vector, e.const(0.0, type_))
        offset = e.add(e.mul(index[0], shape.out_blocks(lanes)), e.udiv(index[1], lanes))
        for size, position in zip(shape.out_size, index[2:], strict=True):
            offset = e.add(e.mul(offset, size), position)
        e.store(vector, e.gep(y, e.mul(offset, lanes), "float"), 4)

    tasks = emit_convolution(e, shape, target, default_tile(shape, target), x, w, write)
    assert written <= 3
    rng = np.random.default_rng(5)
    data = rng.standard_normal((2, 5, 5, 9), np.float32)
    weights = rng.standard_normal((shape.out_channels, 5, 3, 3), np.float32)
    out_shape = (2, shape.out_channels, 5, 9)
    result = to_blocked(np.zeros(out_shape, np.float32), lanes)
    load(e, target, tasks)(to_blocked(data, lanes), packed(weights, shape, lanes), result)
    n, c, h, w_ = np.indices(out_shape)
    expected = reference(data, weights, shape) + 1000 * n + 100 * (c // lanes * lanes) + 10 * h + w_
    assert np.allclose(from_blocked(result, out_shape, lanes), expected, atol=1e-3)


def _added(e, number, scale, vector):
    return e.binary("fadd", e.binary("fmul", e.splat(number, vector.lanes), e.const(scale, vector.type)), vector)


KINDS = [name for name in SHAPES if "group" in name or name in ("padded 3x3", "first layer", "column kernel", "depthwise", "few outputs")]


ELSEWHERE = [target for target in NAMED.values() if target not in runnable_targets()]


@pytest.mark.parametrize("target", ELSEWHERE, ids=lambda t: t.name)
@pytest.mark.parametrize("kind", KINDS)
def test_what_other_processors_run_compiles_to_objects_that_call_nothing(target, kind):
    """What this one runs is compiled, and looked at for calls, where it is run."""
    for blocked in (True, False):
        e, tasks = generate(SHAPES[kind], target, blocked=blocked)
        assert tasks >= 1
        assert emit_object(e.finish("convolution")[1], target)[:4] == b"\x7fELF"


def test_text_is_short():
    """So that it is built in milliseconds: about 2 us a line."""
    shapes = [
        shape_of(64, 64, (56, 56), 3, pads=1),
        shape_of(3, 64, (224, 224), 7, strides=2, pads=3),
        shape_of(96, 96, (24, 160), 5, pads=2, group=96),
    ]
    for shape in shapes:
        target = by_name("avx512")
        e, _ = generate(shape, target, default_tile(shape, target))
        assert e.finish("convolution")[1].count("\n") < 5000


def test_contradicting_sizes_are_refused_with_a_sentence():
    with pytest.raises(UsageError, match="group 3 does not divide 8 -> 9 channels"):
        ConvolutionShape(1, 8, 9, 3, (4,), (1,), (1,), (1,), (0,), (4,))
    with pytest.raises(UsageError, match="ranks"):
        ConvolutionShape(1, 8, 9, 1, (4, 4), (1,), (1,), (1,), (0,), (4,))


def test_work_that_is_too_small_to_share_is_one_task():
    target = by_name("avx2")
    assert generate(shape_of(8, 8, (6, 6), 1), target)[1] == 1
    assert generate(shape_of(64, 64, (56, 56), 3, pads=1), target)[1] >= 56
    assert generate(shape_of(64, 64, (30000,), 3), target, ConvolutionTile(6, 2, 4))[1] >= 32


@pytest.mark.parametrize(
    ("tile", "window", "said"),
    [(ConvolutionTile(4, 2, 3), 0, "3 input channels"), (ConvolutionTile(4, 2, merge=True), 5, "a window of 5 rows")],
    ids=["unroll", "window"],
)
def test_a_tile_that_would_leave_its_input_is_refused(tile: ConvolutionTile, window: int, said: str) -> None:
    e, shape, target = Emitter(), shape_of(16, 32, (7, 7), 1), by_name("avx2")
    x, w, y = (e.argument(i) for i in range(3))
    with pytest.raises(InternalError, match=said):
        emit_convolution(e, shape, target, tile, x, w, plain_writer(y, shape, target.lanes), not window, window=window)


@pytest.mark.parametrize(("outputs", "name", "by_one"), [(8, "avx2", True), (6, "avx2", True), (24, "avx2", False), (16, "avx512", False)])
def test_a_single_channel_block_takes_channels_one_by_one_where_llvm_would_spill(outputs: int, name: str, by_one: bool) -> None:
    tile = default_tile(shape_of(128, outputs, (55, 57), 3, pads=1), NAMED[name])
    assert (tile.unroll == 1) == by_one, tile


@pytest.mark.parametrize(
    ("outputs", "lanes", "how"), [(4, 8, "inner"), (5, 8, "dense"), (5, 16, "inner"), (8, 16, "inner"), (16, 16, "dense")]
)
def test_few_outputs_are_lanes_where_registers_leave_room_for_one_pixel(outputs: int, lanes: int, how: str) -> None:
    assert method(shape_of(256, outputs, (30, 30), 3, pads=1), lanes, blocked_input=True) == how
