"""Inputs stored as half, bfloat16, double and integers: widened where they are loaded, exact where integers are summed."""

from __future__ import annotations

from dataclasses import replace

from convolution_harness import aligned, from_blocked, load, reference, runnable_targets, shape_of
import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution import emit_convolution, plain_writer
from anycann.codegen.kernels.convolution_method import reads_channels_last
from anycann.codegen.kernels.convolution_packing import pack_weights
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_tile import default_tile
from anycann.codegen.kernels.convolution_transposed import emit_transposed_convolution, pack_transposed_weights
from anycann.codegen.kernels.winograd import emit_winograd
from anycann.codegen.kernels.winograd_blocking import default_winograd_tile
from anycann.codegen.kernels.winograd_tile import winograd_algorithm, winograd_refusal
from anycann.codegen.kernels.winograd_transform import pack_winograd_weights
from anycann.codegen.objects import emit_object
from anycann.support.errors import UsageError
from anycann.target.target import NAMED, by_name
from anycann.te import dtypes

TARGETS = pytest.mark.parametrize("target", runnable_targets(), ids=lambda t: t.name)
SHAPES = {
    "padded": shape_of(9, 20, (5, 11), 3, pads=1),
    "depthwise": shape_of(20, 20, (5, 11), 3, pads=1, strides=2, group=20),
    "wide depthwise": shape_of(20, 20, (4, 45), 7, pads=3, group=20),
    "dilated depthwise": shape_of(17, 17, (9, 24), 5, pads=3, strides=2, dilations=2, group=17),
    "odd groups": shape_of(15, 9, (6, 9), 3, pads=1, group=3),
    "few outputs": shape_of(37, 2, (5, 7), 3, pads=1),
    "pointwise": shape_of(33, 17, (5, 5), 1),
}
STORED = (dtypes.float16, dtypes.bfloat16, dtypes.float64, dtypes.int8, dtypes.uint8)


def _random(shape: tuple[int, ...], dtype, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype.numpy)


def _stored(x: np.ndarray, lanes: int, blocked: bool) -> np.ndarray:
    """`x` in its layout at an aligned address; absent lanes are NaN or the largest integer."""
    if blocked:
        n, c, *spatial = x.shape
        blocks = -(-c // lanes)
        poison = np.iinfo(x.dtype).max if x.dtype.kind in "iu" else np.nan
        full = np.full((n, blocks * lanes, *spatial), poison, x.dtype)
        full[:, :c] = x
        x = np.moveaxis(full.reshape(n, blocks, lanes, *spatial), 2, -1)
    result = aligned(x.size, np.uint16).view(np.uint16) if x.dtype.itemsize == 2 else aligned(x.size, x.dtype.type)
    result = result.view(x.dtype)
    result[:] = x.ravel()
    return result


def _emit(shape: ConvolutionShape, target, blocked: bool, zero_point: int | None, channels_last: bool = False):
    e = Emitter()
    x, w, y = (e.argument(i) for i in range(3))
    zero = None if zero_point is None else e.const(zero_point, shape.accumulator.register)
    tile, writer = default_tile(shape, target, blocked), plain_writer(y, shape, target.lanes)
    return e, emit_convolution(e, shape, target, tile, x, w, writer, blocked, zero_point=zero, channels_last=channels_last)


def _aligned_copy(data: np.ndarray) -> np.ndarray:
    result = aligned(data.size, data.dtype.type)
    result[:] = data.ravel()
    return result


@TARGETS
@pytest.mark.parametrize("dtype", STORED, ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_stored_inputs_give_the_sums_of_their_widened_values(name, dtype, target):
    shape, lanes = replace(SHAPES[name], dtype=dtype), target.lanes
    x = _random((1, shape.in_channels, *shape.in_size), dtype, 1)
    w = _random((shape.out_channels, shape.group_inputs, *shape.kernel), dtypes.int8 if not dtype.is_float else dtypes.float32, 2)
    zero_point = None if dtype.is_float else 3
    want = reference(x.astype(np.float64) - (zero_point or 0), w, shape)
    for blocked in (True, False):
        e, tasks = _emit(shape, target, blocked, zero_point)
        y = aligned(shape.out_blocks(lanes) * lanes * shape.out_pixels, shape.accumulator.numpy.type)
        load(e, target, tasks)(_stored(x, lanes, blocked), _aligned_copy(pack_weights(w, shape, lanes, blocked)), y)
        got = from_blocked(y, want.shape, lanes)
        if dtype.is_float:
            assert np.abs(got - want).max() <= (1e-14 if dtype is dtypes.float64 else 2e-6) * np.abs(want).max()
        else:
            assert np.array_equal(got, want)


CHANNELS_LAST = {
    "one block and a lane": shape_of(17, 17, (5, 11), 3, pads=1, group=17),
    "odd": shape_of(27, 27, (5, 11), 3, pads=1, strides=2, batch=2, group=27),
    "half a block": shape_of(40, 40, (4, 45), 7, pads=3, group=40),
    "whole blocks": shape_of(32, 32, (4, 9), 5, pads=4, dilations=2, group=32),
    "in pairs": shape_of(38, 38, (5, 6), 3, pads=1, group=19),
    "a volume": shape_of(42, 42, (3, 5, 6), 3, pads=1, group=21),
    "a row": shape_of(23, 23, (50,), 31, pads=15, group=23),
}


@TARGETS
@pytest.mark.parametrize("dtype", [dtypes.float32, *STORED], ids=str)
@pytest.mark.parametrize("name", CHANNELS_LAST)
def test_channels_that_lie_last_are_read_as_they_lie(name, dtype, target):
    shape, lanes = replace(CHANNELS_LAST[name], dtype=dtype), target.lanes
    assert reads_channels_last(shape, lanes)
    x = _random((shape.batch, shape.in_channels, *shape.in_size), dtype, 1)
    w = _random((shape.out_channels, shape.group_inputs, *shape.kernel), dtypes.int8 if not dtype.is_float else dtypes.float32, 2)
    zero_point = None if dtype.is_float else 3
    want = reference(x.astype(np.float64) - (zero_point or 0), w, shape)
    e, tasks = _emit(shape, target, True, zero_point, channels_last=True)
    y = aligned(shape.batch * shape.out_blocks(lanes) * lanes * shape.out_pixels, shape.accumulator.numpy.type)
    load(e, target, tasks)(_stored(np.moveaxis(x, 1, -1), lanes, False), _aligned_copy(pack_weights(w, shape, lanes)), y)
    got = from_blocked(y, want.shape, lanes)
    if dtype.is_float:
        assert np.abs(got - want).max() <= (1e-14 if dtype is dtypes.float64 else 2e-6) * np.abs(want).max()
    else:
        assert np.array_equal(got, want)


def test_neighbouring_pixels_of_a_depthwise_convolution_share_what_was_widened():
    """A row of seven taps over n pixels reads n + 6 inputs; every tap of every pixel would be seven times n."""
    shape = replace(shape_of(16, 16, (9, 64), 7, group=16), dtype=dtypes.bfloat16)
    e, _ = _emit(shape, by_name("avx512"), True, None)
    lines = e.finish("counted")[1].splitlines()
    widened, products = (sum(text in line for line in lines) for text in ("zext <16 x i16>", "call <16 x float> @llvm.fma"))
    assert 0 < 3 * widened < products


@TARGETS
def test_integers_are_summed_exactly_where_float_would_round(target):
    shape = replace(shape_of(600, 1, (1, 1), 3, pads=1), in_size=(3, 3), pads_begin=(0, 0), dtype=dtypes.uint8)
    x = np.full((1, 600, 3, 3), 255, np.uint8)
    w = np.full((1, 600, 3, 3), 127, np.int8)
    w[0, 0, 0, 0] = 126
    e, tasks = _emit(shape, target, True, None)
    y = aligned(target.lanes, np.int32)
    load(e, target, tasks)(_stored(x, target.lanes, True), _aligned_copy(pack_weights(w, shape, target.lanes)), y)
    assert y[0] == 255 * 127 * 5400 - 255


@TARGETS
def test_a_transposed_convolution_takes_integers_and_half(target):
    lanes = target.lanes
    for dtype in (dtypes.uint8, dtypes.float16):
        shape = ConvolutionShape(1, 5, 7, 1, (4, 5), (2, 2), (2, 2), (1, 1), (0, 0), (8, 10), dtype)
        x = _random((1, 5, 4, 5), dtype, 3)
        w = _random((5, 7, 2, 2), dtypes.int8, 4)
        e = Emitter()
        pointers = [e.argument(i) for i in range(3)]
        tasks = emit_transposed_convolution(e, shape, target, *pointers[:2], plain_writer(pointers[2], shape, lanes))
        y = aligned(shape.out_blocks(lanes) * lanes * 80, shape.accumulator.numpy.type)
        load(e, target, tasks)(_stored(x, lanes, True), _aligned_copy(pack_transposed_weights(w, shape, lanes)), y)
        want = np.einsum("ncij,cokl->noikjl", x.astype(np.float64), w.astype(np.float64)).reshape(1, 7, 8, 10)
        assert np.allclose(from_blocked(y, want.shape, lanes), want, rtol=1e-6, atol=1e-3)


@TARGETS
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_winograd_widens_its_patches(dtype, target):
    shape, lanes = replace(shape_of(18, 20, (7, 10), 3, pads=1), dtype=dtype), target.lanes
    x = _random((1, 18, 7, 10), dtype, 5)
    w = _random((20, 18, 3, 3), dtypes.float32, 6)
    e = Emitter()
    pointers = [e.argument(i) for i in range(3)]
    tile = default_winograd_tile(shape, target)
    launch = emit_winograd(e, shape, target, tile, *pointers[:2], plain_writer(pointers[2], shape, lanes))
    y = aligned(shape.out_blocks(lanes) * lanes * 70)
    native = load(e, target, launch.tasks, launch.scratch_bytes)
    native(_stored(x, lanes, True), _aligned_copy(pack_winograd_weights(w, shape, lanes, winograd_algorithm(shape, tile))), y)
    want = reference(x, w, shape)
    assert np.linalg.norm(from_blocked(y, want.shape, lanes) - want) <= 5e-6 * np.linalg.norm(want)


def test_winograd_refuses_what_is_not_summed_in_float32():
    shape = shape_of(64, 64, (9, 9), 3)
    assert "uint8" in winograd_refusal(replace(shape, dtype=dtypes.uint8), by_name("avx512"))
    assert "float64" in winograd_refusal(replace(shape, dtype=dtypes.float64), by_name("avx512"))


def test_bool_inputs_are_refused():
    with pytest.raises(UsageError, match="bool"):
        replace(SHAPES["padded"], dtype=dtypes.bool_)


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_every_target_compiles_every_storage(name, dtype):
    target = by_name(name)
    for kind in ("padded", "depthwise"):
        e, _ = _emit(replace(SHAPES[kind], dtype=dtype), target, True, None)
        assert emit_object(e.finish("convolution")[1], target)[:4] == b"\x7fELF"
