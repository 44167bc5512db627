"""Convolutions over bands of rows: any part of the range of tasks, in any order, gives what the kernels give one after the other."""

from __future__ import annotations

from dataclasses import replace

from convolution_harness import Native, aligned, packed, runnable_targets, shape_of, to_blocked
import numpy as np
import pytest

from anycann.codegen.bands import in_bands
from anycann.codegen.emitter import Emitter
from anycann.codegen.kernel import Kernel, RowTasks
from anycann.codegen.kernels.convolution import emit_convolution, plain_writer
from anycann.codegen.kernels.convolution_estimate import ConvolutionTile
from anycann.codegen.kernels.convolution_place import row_tasks
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_tile import default_tile, tiles
from anycann.codegen.objects import emit_object
from anycann.runtime.loader import LoadedCode
from anycann.target.target import NAMED, Target
from anycann.te import dtypes

CHAINS = {
    "widen, filter, narrow": [
        shape_of(20, 48, (33, 26), 1),
        shape_of(48, 48, (33, 26), 3, group=48, pads=1),
        shape_of(48, 17, (33, 26), 1),
    ],
    "strides": [shape_of(16, 40, (71, 64), 1), shape_of(40, 40, (71, 64), 3, group=40, pads=1, strides=2)],
    "wide padding before": [shape_of(24, 24, (31, 24), 1), shape_of(24, 24, (31, 24), 5, group=24, pads=(4, 2), ends=(0, 2))],
    "dilated, padding behind": [shape_of(24, 24, (38, 35), 1), shape_of(24, 24, (38, 35), 3, group=24, pads=0, ends=(4, 4), dilations=2)],
    "rows that nobody reads": [shape_of(16, 32, (41, 30), 1), shape_of(32, 32, (41, 30), 2, strides=3)],
    "rows in halves": [shape_of(36, 200, (29, 21), 1), shape_of(200, 200, (29, 21), 3, group=200, pads=1), shape_of(200, 200, (29, 21), 1)],
    "groups": [shape_of(32, 64, (28, 28), 1, group=2), shape_of(64, 64, (28, 28), (3, 1), pads=(1, 0), group=4)],
}


def kernel_of(shape: ConvolutionShape, target: Target, number: int) -> Kernel:
    e, tile = Emitter(), next(tile for tile in tiles(shape, target) if rows_of(shape, target, tile))
    x, w, y = (e.argument(i) for i in range(3))
    tasks = emit_convolution(e, shape, target, tile, x, w, plain_writer(y, shape, target.lanes))
    return Kernel(*e.finish("conv"), (f"x{number}", f"w{number}", f"x{number + 1}"), tasks, rows=rows_of(shape, target, tile))


def rows_of(shape: ConvolutionShape, target: Target, tile: ConvolutionTile) -> RowTasks | None:
    return row_tasks(shape, target, tile, blocked_input=True, channels_last=False)


def native(kernel: Kernel, target: Target) -> Native:
    code = LoadedCode({kernel.symbol: emit_object(kernel.ir, target)}, target)
    return Native(code, code.address(kernel.symbol), kernel.tasks)


@pytest.mark.parametrize("target", runnable_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("name", CHAINS)
def test_any_part_in_any_order_gives_the_same_bits(name: str, target: Target) -> None:
    shapes, lanes, rng = CHAINS[name], target.lanes, np.random.default_rng(len(name))
    kernels = [kernel_of(shape, target, number) for number, shape in enumerate(shapes)]
    assert all(kernel.rows is not None and kernel.rows.outer * kernel.rows.rows * kernel.rows.inner == kernel.tasks for kernel in kernels)
    first = shapes[0]
    x = to_blocked(rng.standard_normal((1, first.in_channels, *first.in_size)).astype(np.float32), lanes)
    x[np.isnan(x)] = 0  # between two of the kernels, lanes beyond the channels are numbers
    weights = [
        packed(rng.standard_normal((s.out_channels, s.group_inputs, *s.kernel)).astype(np.float32), s, lanes, blocked=True) for s in shapes
    ]

    def empty() -> list[np.ndarray]:
        return [aligned(s.out_blocks(lanes) * lanes * s.out_pixels) for s in shapes]

    def arguments(results: list[np.ndarray]) -> list[np.ndarray]:
        return [each for number, w in enumerate(weights) for each in ((x, *results)[number], w, results[number])]

    wanted = empty()
    for number, kernel in enumerate(kernels):
        native(kernel, target)(*arguments(wanted)[3 * number : 3 * number + 3])
    bands = in_bands(kernels, 3)
    run = native(bands, target)
    assert bands.tasks == -(-shapes[-1].out_size[0] // 3)
    for step in (1, 4, bands.tasks):
        got = empty()
        for begin in reversed(range(0, bands.tasks, step)):
            run(*arguments(got), begin=begin, end=min(begin + step, bands.tasks))
        np.testing.assert_array_equal(np.concatenate(got), np.concatenate(wanted))
    for step in (1, 2):
        got = empty()
        run(*arguments(got), end=bands.tasks // 2)
        run.one_behind_the_other(*arguments(got), step=step, begin=bands.tasks // 2)
        np.testing.assert_array_equal(np.concatenate(got), np.concatenate(wanted))


def test_rows_in_halves_are_among_the_chains() -> None:
    for target in runnable_targets():
        rows = [kernel_of(shape, target, 0).rows for shape in CHAINS["rows in halves"]]
        assert [each.first_rows for each in rows if each is not None] == [15, 15, 15]


@pytest.mark.parametrize(("goes_on", "untouched"), [(False, 29), (True, 31)])
def test_a_call_that_goes_on_computes_no_row_again(goes_on: bool, untouched: int) -> None:
    """The last band of three of 33 rows reads the rows from 29 on; the band before it read those up to 30."""
    target = runnable_targets()[0]
    shapes, lanes, rng = CHAINS["widen, filter, narrow"][:2], target.lanes, np.random.default_rng(3)
    bands = in_bands([kernel_of(shape, target, number) for number, shape in enumerate(shapes)], 3)
    x = to_blocked(rng.standard_normal((1, shapes[0].in_channels, *shapes[0].in_size)).astype(np.float32), lanes)
    x[np.isnan(x)] = 0
    filters = [rng.standard_normal((s.out_channels, s.group_inputs, *s.kernel)).astype(np.float32) for s in shapes]
    weights = [packed(w, s, lanes, blocked=True) for w, s in zip(filters, shapes, strict=True)]
    between, result = (aligned(s.out_blocks(lanes) * lanes * s.out_pixels) for s in shapes)
    between[:] = 7.0
    scratch = aligned(16)
    operands = (x, weights[0], between, between, weights[1], result)
    native(bands, target).call(operands, bands.tasks - 1, bands.tasks, scratch.ctypes.data + goes_on)
    kept = (between.reshape(shapes[0].out_blocks(lanes), *shapes[0].out_size, lanes) == 7.0).all(axis=(0, 2, 3))
    assert kept.tolist() == [row < untouched for row in range(33)]


def test_kernels_whose_tasks_are_no_rows_say_so() -> None:
    target = runnable_targets()[0]

    def rows(shape: ConvolutionShape) -> RowTasks | None:
        return rows_of(shape, target, default_tile(shape, target))

    assert rows(shape_of(32, 32, (30, 30), 3, pads=1)) is not None
    two = rows(shape_of(32, 32, (30, 30), 3, pads=1, batch=2))
    assert two is not None
    assert (two.images, two.rows) == (2, 30)
    assert rows(shape_of(32, 32, (900,), 3, pads=1)) is None
    assert rows(shape_of(4, 4, (2, 2), 1)) is None


def test_all_channels_of_a_row_of_bytes_go_before_the_next_row() -> None:
    """Bytes lie with their channels last: several blocks of a depthwise convolution share the lines of the cache."""
    for target in NAMED.values():
        depthwise = shape_of(96, 96, (30, 30), 3, pads=1, group=96)
        assert not default_tile(depthwise, target).blocks_inner
        assert default_tile(replace(depthwise, dtype=dtypes.uint8), target).blocks_inner
