"""Convolutions with lanes along the pixels of row-major planes, against the definition in float64."""

from __future__ import annotations

from dataclasses import replace

from convolution_harness import aligned, load, operands, reference, runnable_targets, shape_of
import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_planes import emit_planes, pack_planes_weights, planes_arrangement, planes_rows
from anycann.codegen.kernels.convolution_space import PlanesSpace
from anycann.codegen.kernels.planes_tile import PlanesTile, default_planes_tile, planes_profitable, planes_refusal, row_parts
from anycann.codegen.objects import emit_object
from anycann.target.target import NAMED, by_name
from anycann.te import dtypes

TARGETS = pytest.mark.parametrize("target", runnable_targets(), ids=lambda t: t.name)
SHAPES = {
    "padding at one end": shape_of(4, 24, (9, 37), (2, 2), pads=(0, 0), ends=(1, 1)),
    "stride 2, several images": shape_of(5, 7, (9, 75), 3, strides=2, pads=1, batch=2),
    "stride 2 without padding": shape_of(3, 5, (9, 64), (3, 2), strides=2),
    "far apart, padded more than it reaches": shape_of(5, 7, (4, 33), (3, 5), dilations=(2, 3), pads=(1, 14)),
    "stride 2, taps an odd distance apart": shape_of(2, 3, (5, 70), (1, 4), strides=(1, 2), dilations=(1, 3), pads=(0, 2)),
    "one output": shape_of(6, 1, (5, 50), 3, pads=1),
    "lines": shape_of(6, 13, (201,), 5, strides=2, pads=2),
    "volumes": shape_of(3, 4, (3, 4, 18), 3, pads=1),
    "narrower than a vector": shape_of(6, 4, (5, 3), 3, pads=2),
    "one pixel": shape_of(6, 20, (1, 1), 1),
    "pointwise": shape_of(6, 20, (5, 64), 1),
    "only the middle taps meet the image": shape_of(3, 4, (1, 2), (5, 9), pads=(2, 4)),
}


def _emit(shape, target, tile):
    e = Emitter()
    x, w, y = (e.argument(i) for i in range(3))

    def write(e, index, vector, mask):
        offset = e.add(e.mul(index[0], shape.out_channels), index[1])
        for size, position in zip(shape.out_size, index[2:], strict=True):
            offset = e.add(e.mul(offset, size), position)
        at = e.gep(y, offset, "float")
        if mask is None:
            e.store(vector, at, 4)
        else:
            e.masked_store(vector, at, 4, mask)

    return e, emit_planes(e, shape, target, tile, x, w, write)


def _relative_error(shape, target, tile, seed=0):
    """Of a result that is computed in three calls, between memory that must stay as it is."""
    x, w, _ = operands(shape, seed)
    e, tasks = _emit(shape, target, tile)
    native = load(e, target, tasks)
    data, packed = aligned(x.size), pack_planes_weights(w, shape, tile)
    data[:] = x.ravel()
    weights = aligned(packed.size)
    weights[:] = packed.ravel()
    size = shape.batch * shape.out_channels * shape.out_pixels
    y = aligned(size + 64)
    part = max(1, tasks // 3)
    for begin in range(0, tasks, part):
        native(data, weights, y, begin=begin, end=min(tasks, begin + part))
    assert np.isnan(y[size:]).all()
    want = reference(x, w, shape)
    return np.linalg.norm(y[:size].reshape(want.shape) - want) / np.linalg.norm(want)


@TARGETS
@pytest.mark.parametrize("name", SHAPES)
def test_equals_the_definition(name, target):
    shape = SHAPES[name]
    assert _relative_error(shape, target, default_planes_tile(shape, target), len(name)) < 3e-6


@TARGETS
def test_every_tile_gives_the_same_result(target):
    for shape in (shape_of(3, 5, (4, 83), 3, pads=1), shape_of(2, 6, (3, 91), 3, strides=2, pads=1)):
        space = PlanesSpace(shape, target)
        tiles = [PlanesTile(o, v) for v in space.parameters()[0].choices for o in space.parameters()[1].choices]
        allowed = [tile for tile in tiles if space.refusal(tile) is None]
        for tile in allowed[:: max(1, len(allowed) // 5)]:
            assert _relative_error(shape, target, tile) < 3e-6, tile


@pytest.mark.parametrize("name", NAMED)
def test_every_target_compiles_to_an_object(name):
    target, shape = by_name(name), SHAPES["stride 2, several images"]
    if planes_refusal(shape, target):
        pytest.skip(planes_refusal(shape, target))
    e, _ = _emit(shape, target, default_planes_tile(shape, target))
    assert emit_object(e.finish("planes")[1], target)[:4] == b"\x7fELF"


def test_the_parts_of_a_row_are_in_order_and_complete_and_no_inner_tile_reads_outside():
    target = by_name("avx512")
    for shape in SHAPES.values():
        for tile in (PlanesTile(1, 1), PlanesTile(2, 3), default_planes_tile(shape, target)):
            parts = row_parts(shape, target, tile)
            assert [part.first for part in parts] == [0, *(part.stop for part in parts[:-1])]
            assert parts[-1].stop == shape.out_size[-1]
            for part in parts:
                first, last = part.first * shape.strides[-1] - shape.pads_begin[-1], part.stop * shape.strides[-1] - 1
                reach = (shape.kernel[-1] - 1) * shape.dilations[-1] - shape.pads_begin[-1]
                assert part.edge or (first >= 0 and last + reach < shape.in_size[-1])


def test_packed_weights_say_where_each_weight_lies():
    for shape in (SHAPES["padding at one end"], SHAPES["volumes"], SHAPES["pointwise"]):
        _, w, _ = operands(shape, 3)
        tile = PlanesTile(5, 2)
        restored = planes_arrangement(shape, tile).restore(pack_planes_weights(w, shape, tile))
        np.testing.assert_array_equal(restored.reshape(w.shape), w)
    assert planes_arrangement(SHAPES["only the middle taps meet the image"], PlanesTile(1, 1)) is None


def test_it_pays_where_channels_do_not_fill_vectors():
    target = by_name("avx512")
    assert planes_profitable(shape_of(12, 24, (480, 368), 2), target)
    assert planes_profitable(shape_of(3, 4, (100, 100), 3, pads=1), target)
    assert not planes_profitable(shape_of(64, 64, (56, 56), 1), target)
    assert not planes_profitable(shape_of(24, 24, (7, 7), 1), target)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (replace(shape_of(4, 4, (9, 40), 3), dtype=dtypes.bfloat16), "stored|input is"),
        (shape_of(4, 4, (9, 40), 3, group=2), "2 groups"),
        (shape_of(4, 4, (9, 40), 3, strides=3), "3 apart"),
        (shape_of(4, 4, (9, 40), 3, batch=0), "nothing"),
    ],
)
def test_other_convolutions_are_refused_with_the_reason(shape, reason):
    target = by_name("avx512")
    assert any(word in planes_refusal(shape, target) for word in reason.split("|"))
    assert not planes_profitable(shape, target)


def test_rows_of_tasks_are_those_of_the_image():
    target = by_name("avx512")
    shape = shape_of(12, 24, (480, 368), 3, strides=2, pads=1)
    rows = planes_rows(shape, target, default_planes_tile(shape, target))
    assert (rows.rows, rows.inner, rows.in_rows, rows.stride, rows.first, rows.last) == (240, 1, 480, 2, -1, 1)
    assert planes_rows(SHAPES["lines"], target, PlanesTile(1, 1)) is None
