"""Rows of a convolution that threads share out: each thread writes a part of the rows, all channels of them."""

from __future__ import annotations

from dataclasses import replace

from convolution_harness import aligned, build, from_blocked, operands, packed, run, runnable_targets, shape_of, to_blocked
import numpy as np
import pytest

from anycann.codegen.kernels.convolution_estimate import ConvolutionTile
from anycann.codegen.kernels.convolution_place import row_tasks
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.target.target import Target

TARGETS = pytest.mark.parametrize("target", runnable_targets(), ids=lambda t: t.name)
TILE = ConvolutionTile(5, 2, 1, False, False, 0)
HALVED = {
    "even": shape_of(40, 90, (14, 11), 1),
    "odd": shape_of(40, 90, (13, 11), 1),
    "two rows": shape_of(17, 120, (2, 90), 1),
    "rows in parts": shape_of(64, 80, (5, 200), 3, pads=1),
    "strided": shape_of(24, 90, (27, 23), 3, pads=1, strides=2),
    "a volume": shape_of(20, 70, (3, 8, 7), 3, pads=1),
}


@TARGETS
@pytest.mark.parametrize("name", HALVED)
def test_halves_of_the_rows_give_what_the_definition_says(name: str, target: Target) -> None:
    got, want = run(HALVED[name], target, TILE, bias=True, seed=len(name))
    assert np.isfinite(got).all()
    assert np.abs(got - want).max() <= 2e-6 * np.abs(want).max()


@TARGETS
def test_half_of_the_tasks_write_half_of_the_rows_and_nothing_else(target: Target) -> None:
    written = rows_written(HALVED["even"], target, TILE)
    assert (written == np.repeat([True, False], 7)[:, None]).all()


@TARGETS
@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        (shape_of(96, 96, (14, 11), 1, group=2), TILE),
        (shape_of(40, 90, (8, 11), 1), TILE),
        (HALVED["even"], replace(TILE, blocks_inner=True)),
    ],
    ids=["groups", "few pixels", "channels first"],
)
def test_other_tasks_keep_their_order(shape: ConvolutionShape, tile: ConvolutionTile, target: Target) -> None:
    """Groups are shared out as they are, weights for few pixels are not read twice, and rows may already be the outer loop."""
    rows = row_tasks(shape, target, tile, blocked_input=True, channels_last=False)
    assert rows is not None
    assert rows.first_rows == 0


def rows_written(shape: ConvolutionShape, target: Target, tile: ConvolutionTile) -> np.ndarray:
    """[rows, output channels]: what the first half of the tasks writes whole; it must leave the rest as it was."""
    x, w, _ = operands(shape, 1)
    native = build(shape, target, tile)
    y = aligned(shape.out_blocks(target.lanes) * target.lanes * shape.out_pixels)
    native(to_blocked(x, target.lanes), packed(w, shape, target.lanes), y, end=native.tasks // 2)
    result = from_blocked(y, (1, shape.out_channels, *shape.out_size), target.lanes)[0]
    assert (np.isnan(result).all(-1) | np.isfinite(result).all(-1)).all()
    return np.isfinite(result).all(-1).T
