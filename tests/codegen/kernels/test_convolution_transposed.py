"""Transposed convolution against its definition: every input adds its products where they fall."""

from __future__ import annotations

from itertools import product

from convolution_harness import aligned, from_blocked, load, runnable_targets, to_blocked
import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution import plain_writer
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_transposed import (
    emit_transposed_convolution,
    pack_transposed_weights,
    phase_runs,
    transposed_flops,
)
from anycann.codegen.objects import emit_object
from anycann.target.target import NAMED, by_name


def transposed(in_channels, out_channels, size, kernel, *, batch=1, group=1, strides=1, dilations=1, pads=0, extra=0):
    """The sizes of a ConvTranspose; `extra` is output_padding."""
    rank = len(size)
    kernel, strides, dilations, pads, extra = (
        v if isinstance(v, tuple) else (v,) * rank for v in (kernel, strides, dilations, pads, extra)
    )
    out = tuple((size[i] - 1) * strides[i] - 2 * pads[i] + dilations[i] * (kernel[i] - 1) + extra[i] + 1 for i in range(rank))
    return ConvolutionShape(batch, in_channels, out_channels, group, tuple(size), kernel, strides, dilations, pads, out)


def scattered(x, w, shape):
    """The definition, in float64."""
    y = np.zeros((shape.batch, shape.out_channels, *shape.out_size))
    ig, og = shape.group_inputs, shape.group_outputs
    for tap in product(*(range(k) for k in shape.kernel)):
        for position in product(*(range(n) for n in shape.in_size)):
            at = tuple(
                i * s + t * d - p for i, s, t, d, p in zip(position, shape.strides, tap, shape.dilations, shape.pads_begin, strict=True)
            )
            if any(not 0 <= a < n for a, n in zip(at, shape.out_size, strict=True)):
                continue
            for g in range(shape.group):
                part = w[(slice(g * ig, (g + 1) * ig), slice(None), *tap)].astype(np.float64)
                y[(slice(None), slice(g * og, (g + 1) * og), *at)] += x[(slice(None), slice(g * ig, (g + 1) * ig), *position)] @ part
    return y


SHAPES = {
    "doubling 2x2": transposed(8, 16, (5, 7), 2, strides=2),
    "3x3 with output padding": transposed(20, 24, (6, 5), 3, strides=2, pads=1, extra=1),
    "one dimension": transposed(16, 16, (9,), 16, strides=8, pads=4),
    "dilated against the stride": transposed(4, 6, (4, 5), 4, strides=3, pads=2, dilations=2, extra=(1, 0)),
    "dilation shares a factor with the stride": transposed(4, 5, (4, 5), 3, strides=4, dilations=2),
    "depthwise": transposed(32, 32, (6, 6), 4, strides=2, pads=1, group=32),
    "one output": transposed(24, 1, (6, 7), 2, strides=2),
    "one output, phases of different methods": transposed(8, 1, (3, 4), (1, 3), batch=2, strides=(4, 2)),
    "three dimensions": transposed(3, 5, (2, 3, 2), 3, strides=2, batch=2),
    "phases without a tap": transposed(6, 9, (7, 3), 1, strides=3, extra=2, group=3),
    "large stride": transposed(2, 3, (3, 2), (64, 3), strides=(32, 1), pads=(16, 0)),
    "stride 1": transposed(5, 6, (4, 4), 3, pads=1),
    "enough work for many tasks": transposed(24, 40, (9, 9), 4, strides=2, pads=1),
}


def _emit(shape, target, blocked):
    e = Emitter()
    x, w, y, bias = (e.argument(i) for i in range(4))
    vector = f"<{target.lanes} x float>"
    tasks = emit_transposed_convolution(
        e, shape, target, x, w, plain_writer(y, shape, target.lanes), blocked, lambda e, c: e.load(e.gep(bias, c, "float"), vector, 4)
    )
    return e, tasks


@pytest.mark.parametrize("target", runnable_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("name", SHAPES)
def test_equals_the_scattered_sum(name, target):
    shape, lanes = SHAPES[name], target.lanes
    rng = np.random.default_rng(len(name))
    x = rng.standard_normal((shape.batch, shape.in_channels, *shape.in_size), np.float32)
    w = rng.standard_normal((shape.in_channels, shape.group_outputs, *shape.kernel), np.float32)
    bias = rng.standard_normal(shape.out_blocks(lanes) * lanes).astype(np.float32)
    want = scattered(x, w, shape) + bias[: shape.out_channels].reshape(1, -1, *[1] * len(shape.kernel))
    for blocked in (True, False):
        packed = pack_transposed_weights(w, shape, lanes, blocked)
        weights = aligned(packed.size)
        weights[:] = packed
        e, tasks = _emit(shape, target, blocked)
        data = to_blocked(x, lanes) if blocked else x
        y = aligned(shape.batch * shape.out_blocks(lanes) * lanes * shape.out_pixels)
        native = load(e, target, tasks)
        part = max(1, -(-tasks // 3))
        for begin in range(0, tasks, part):
            native(data, weights, y, bias, begin=begin, end=min(tasks, begin + part))
        got = from_blocked(y, want.shape, lanes)
        assert np.abs(got - want).max() <= 2e-6 * np.abs(want).max()


def test_phases_with_the_same_taps_share_one_run():
    assert [(r.first, r.count, r.kernel) for r in phase_runs(SHAPES["large stride"], 0)] == [(0, 16, 2), (16, 16, 2)]
    assert [(r.first, r.count, r.kernel) for r in phase_runs(SHAPES["phases without a tap"], 0)] == [(0, 1, 1), (1, 2, 0)]


def test_packed_weights_do_not_depend_on_the_image():
    w = np.random.default_rng(0).standard_normal((4, 6, 3, 3)).astype(np.float32)
    small, large = (transposed(4, 6, (n, n + 1), 3, strides=2, pads=1) for n in (3, 30))
    assert np.array_equal(pack_transposed_weights(w, small, 8), pack_transposed_weights(w, large, 8))


def test_flops_count_every_input_and_tap():
    assert transposed_flops(transposed(2, 3, (4, 5), 2, strides=2)) == 2 * 2 * 3 * 20 * 4


@pytest.mark.parametrize("name", NAMED)
def test_every_target_compiles(name):
    for kind in ("doubling 2x2", "depthwise", "one output"):
        e, tasks = _emit(SHAPES[kind], by_name(name), True)
        assert tasks >= 1
        assert emit_object(e.finish("transposed")[1], by_name(name))[:4] == b"\x7fELF"


def test_an_empty_batch_has_no_tasks():
    assert _emit(transposed(4, 4, (3, 3), 2, batch=0, strides=2), by_name("avx2"), True)[1] == 0
