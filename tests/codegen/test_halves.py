"""Tasks that keep to halves of the rows: every one is there once, and threads that share out the range write whole rows."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.halves import in_order
from anycann.codegen.nest_kernel import Output, generate
from anycann.codegen.objects import emit_object
from anycann.runtime.loader import LoadedCode
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te import tensor as te
from anycann.te.layout import NC1HWC0, ND, physical_shape
from tests.codegen.kernels.jit import ENTRY, Compiled, runnable

TARGETS = pytest.mark.parametrize("target", runnable(), ids=str)


def numbers(around: int, inside: int, first: int) -> np.ndarray:
    """[tasks, 3] int64: what `in_order` gives for each task."""
    e = Emitter()
    result = e.argument(0)
    with e.loop(e.begin, e.end) as task:
        turn = in_order(e, task.index, around, inside, first)
        for place, value in enumerate((turn.point, turn.within, e.select(turn.behind, e.const(1), e.const(0)))):
            e.store(value, e.gep(result, e.add(e.mul(task.index, 3), place), "i64"), 8)
    found = np.full((around * inside, 3), -1, np.int64)
    Compiled(e, "numbers", runnable()[0])([found], around * inside, parts=3)
    return found


@pytest.mark.parametrize(
    ("around", "inside", "first"), [(4, 6, 3), (5, 7, 4), (1, 9, 5), (3, 2, 1), (7, 1, 1), (6, 20, 15), (1500, 1001, 501)]
)
def test_tasks_of_the_first_half_of_every_point_come_first(around: int, inside: int, first: int) -> None:
    order = np.arange(around * inside).reshape(around, inside)
    wanted = np.concatenate([order[:, :first].ravel(), order[:, first:].ravel()])
    found = numbers(around, inside, first)
    np.testing.assert_array_equal(found[:, 0] * inside + found[:, 1], wanted)
    assert (found[:, 1] < inside).all()
    np.testing.assert_array_equal(found[:, 2], np.arange(around * inside) >= around * first)


def pooled(shape: tuple[int, ...], target: Target, layout: str, part: float) -> tuple[np.ndarray, np.ndarray]:
    """[images, channel blocks, rows, ...] as stored: where the first tasks of a pooling, this part of them, write; and where all do."""
    batch, channels, height, width = shape
    x = te.placeholder("x", (batch, channels, height + 2, width + 2), dtypes.float32)
    y = te.reduce("max", shape, (3, 3), lambda n, c, i, j, k, m: x[n, c, i + k, j + m])
    kernel = generate([Output("y", y, layout)], {"x": layout}, target)
    code = LoadedCode({kernel.symbol: emit_object(kernel.ir, target)}, target)
    lanes = target.lanes
    source = np.random.default_rng().standard_normal(physical_shape(layout, x.shape, lanes)).astype(np.float32)
    results = []
    for stop in (int(part * kernel.tasks), kernel.tasks):
        result = np.full(physical_shape(layout, shape, lanes), np.nan, np.float32)
        pointers = (ctypes.c_void_p * 2)(source.ctypes.data, result.ctypes.data)
        ENTRY(code.address(kernel.symbol))(pointers, 0, stop, None)
        results.append(result)
    windows = np.lib.stride_tricks.sliding_window_view(source, (3, 3), axis=(2, 3))
    np.testing.assert_array_equal(results[1], windows.max((-1, -2)))
    return np.isfinite(results[0]), np.isfinite(results[1])


@TARGETS
def test_half_of_the_tasks_of_a_pooling_write_half_of_the_rows(target: Target) -> None:
    """Of four channel blocks and 56 rows in pieces of four."""
    half, whole = pooled((1, 4 * target.lanes, 56, 30), target, NC1HWC0, 0.5)
    assert whole.all()
    assert half[:, :, :28].all()
    assert not half[:, :, 28:].any()


@TARGETS
@pytest.mark.parametrize(("shape", "layout"), [((2, 48, 56, 30), NC1HWC0), ((1, 48, 56, 30), ND), ((1, 240, 15, 8), NC1HWC0)])
def test_several_images_planes_and_few_pixels_are_shared_out_as_they_lie(shape: tuple[int, ...], layout: str, target: Target) -> None:
    half, whole = pooled(shape, target, layout, 0.5)
    assert whole.all()
    written = half.reshape(half.shape[0] * half.shape[1], -1).mean(1)
    assert (np.sort(written)[::-1] == written).all(), "channels one after the other"
    assert written[0] == 1
    assert written[-1] == 0


@TARGETS
def test_pixels_that_are_scaled_by_channels_are_shared_out_by_them(target: Target) -> None:
    """As after squeezing and exciting, which reads all pixels of a channel."""
    shape = (1, 4 * target.lanes, 32, 40)
    x, s = te.placeholder("x", shape, dtypes.float32), te.placeholder("s", shape[:2], dtypes.float32)
    product = te.compute(shape, lambda n, c, i, j: x[n, c, i, j] * s[n, c])
    kernel = generate([Output("y", product, NC1HWC0)], {"x": NC1HWC0}, target)
    code = LoadedCode({kernel.symbol: emit_object(kernel.ir, target)}, target)
    result = np.full((4, 32, 40, target.lanes), np.nan, np.float32)
    arrays = {"x": np.ones_like(result), "s": np.ones(shape[:2], np.float32), "y": result}
    pointers = (ctypes.c_void_p * 3)(*(arrays[name].ctypes.data for name in kernel.arguments))
    ENTRY(code.address(kernel.symbol))(pointers, 0, kernel.tasks // 2, None)
    assert (result[:2] == 1).all()
    assert np.isnan(result[2:]).all()
