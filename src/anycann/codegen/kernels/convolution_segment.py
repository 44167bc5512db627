"""The sums of one register tile, wherever in a row it lies, and which weights are fetched while they are computed."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_columns import Segment, TapSpan, TileKind, tile_count
from anycann.codegen.kernels.convolution_sums import (
    Window,
    accumulate,
    added_lanes,
    initial_sums,
    later_weights,
    valid_taps,
    widened_block,
    zero_sums,
)
from anycann.codegen.values import Value


def segment_sums(e: Emitter, window: Window, segment: Segment, column: Value, start_sums: list[Value] | None = None) -> list[Value]:
    """The results [pixel][block] of the tile of a segment that begins at `column`; of one pixel in a segment without a kind.

    They are added to `start_sums`, by default to what `kernel.initial` says.
    """
    kernel = window.kernel
    axis = kernel.axes[-1]
    _fetch_later(e, window, segment, column)
    kind = segment.kind or TileKind(1, (TapSpan(0, axis.kernel, 0, 1),))
    start = e.sub(e.mul(column, axis.stride), axis.pad)
    taps = None if segment.kind else valid_taps(e, axis, start)
    spatial = e.add(window.spatial, e.mul(start, axis.in_stride * kernel.layout.pixel))
    if kernel.how == "inner":
        return added_lanes(e, window, accumulate(e, window, kind, taps, spatial, zero_sums(e, window) * kind.pixels))
    sums = accumulate(e, window, kind, taps, spatial, start_sums or initial_sums(e, window) * kind.pixels)
    return [widened_block(e, window, vector) for vector in sums]


def _fetch_later(e: Emitter, window: Window, segment: Segment, column: Value) -> None:
    ahead = window.kernel.fetches_ahead and segment.kind
    window.later = later_weights(e, window, _tile_number(e, window, column)) if ahead else None


def _tile_number(e: Emitter, window: Window, column: Value) -> Value:
    """The number of the tile at `column` among those that read the same weights one after the other."""
    kernel, axis = window.kernel, window.kernel.axes[-1]
    number, tiles = e.udiv(column, kernel.tile.columns), tile_count(axis, kernel.tile.columns)
    if kernel.tile.blocks_inner and not kernel.tile.depth:
        return e.sub(number, e.mul(window.place.part, -(-tiles // kernel.parts)))
    row = e.const(0)
    for outer, position in zip(kernel.axes[:-1], window.place.rows, strict=True):
        row = e.add(e.mul(row, outer.out_size), position)
    return e.add(e.mul(e.sub(row, window.place.before), tiles), number)
