"""Matrix products: everything a caller needs, and the choice between the two ways of computing one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_bytes import pack_quads, wants_quads
from anycann.codegen.kernels.matmul_default import default_tile, tiles
from anycann.codegen.kernels.matmul_dot import dot_scratch, emit_dots
from anycann.codegen.kernels.matmul_kernel import PanelKernel, panel_scratch
from anycann.codegen.kernels.matmul_narrow import k_group, narrow_arrangement, pack_narrow
from anycann.codegen.kernels.matmul_packed_rows import fetches_rows, packs_rows
from anycann.codegen.kernels.matmul_packing import columns_arrangement, pack_columns
from anycann.codegen.kernels.matmul_pairs import pack_pairs, wants_pairs
from anycann.codegen.kernels.matmul_panel import emit_panels
from anycann.codegen.kernels.matmul_parts import emit_parts
from anycann.codegen.kernels.matmul_rows import ROW_BLOCK
from anycann.codegen.kernels.matmul_shape import MatmulShape, Strides, contiguous, folded, lanes_of
from anycann.codegen.kernels.matmul_tile import (
    MatmulTile,
    fetches_soon,
    method,
    streams,
    unroll,
    wants_packing,
    writes_registers,
)
from anycann.codegen.kernels.matmul_writer import Fetch, MatmulIndex, Start, Write, plain_writer, unfolded
from anycann.codegen.values import Value
from anycann.support.arrangement import Arrangement
from anycann.target.target import Target

__all__ = [
    "MatmulIndex",
    "MatmulShape",
    "MatmulTile",
    "Start",
    "Strides",
    "Write",
    "b_arrangement",
    "contiguous",
    "default_tile",
    "emit_matmul",
    "keeps_rows",
    "pack_b",
    "pack_columns",
    "panel_width",
    "plain_writer",
    "scratch_bytes",
    "tiles",
    "wants_groups",
    "wants_packing",
    "writes_registers",
]


def emit_matmul(
    e: Emitter,
    shape: MatmulShape,
    target: Target,
    tile: MatmulTile,
    a: Value,
    b: Value,
    write: Write,
    *,
    start: Start | None = None,
    inline: bool = False,
    scales: Value | None = None,
    fetch: Fetch | None = None,
) -> int:
    """Write the kernel's loop over its tasks `e.begin..e.end` and return how many tasks there are (0 if there is nothing to write).

    write(e, index, sums, mask): consume a vector of finished sums, whose lanes run along n from `index.n` on; lanes outside `mask` are
    meaningless (None: all exist). With n == 1, `sums` may be a scalar. start(e, index): what the sums begin with, in place of zero.
    inline: call `write` once per register of the tile (saves a trip through scratch; for short k and short writers), not once in a loop.
    scales: those of a B of integers, in panels as `pack_columns` makes them of [rows of scales, N]. fetch(e, index): ask for the line of
    what `write` reads there beside the sums.
    """
    if 0 in (shape.batches, shape.m, shape.n):
        return 0
    inner = folded(shape)
    if inner.batch != shape.batch:
        sizes = (*shape.batch[len(inner.batch) :], shape.m)
        write, start = unfolded(write, sizes), unfolded(start, sizes) if start else None
        fetch = unfolded(fetch, sizes) if fetch else None
    lanes, group = lanes_of(shape.accumulator, target.lanes), k_group(inner, target) if inner.packed or tile.copy else 1
    packs, soon = packs_rows(inner, target, tile), fetches_soon(inner, target)
    ahead = packs and fetches_rows(inner, target, tile)
    steps, parts = ROW_BLOCK if packs else unroll(inner, target, tile), streams(inner, target, tile)
    kernel = PanelKernel(inner, tile, lanes, a, b, write, start, inline, parts, steps, group, scales, soon, packs, ahead, fetch)
    if method(inner) == "dot":
        return emit_dots(e, kernel)
    return emit_parts(e, kernel) if kernel.in_parts else emit_panels(e, kernel)


def scratch_bytes(shape: MatmulShape, target: Target, tile: MatmulTile) -> int:
    """Bytes of a thread's scratch memory that the kernel uses."""
    shape, lanes = folded(shape), lanes_of(shape.accumulator, target.lanes)
    if method(shape) == "dot":
        return dot_scratch(lanes, tile.rows, shape.accumulator.nbytes)
    return panel_scratch(shape, lanes, tile, packs_rows(shape, target, tile))


def keeps_rows(shape: MatmulShape, target: Target, tile: MatmulTile) -> bool:
    """True if the kernel leaves rows of A in scratch for a call that goes on where it ended (`codegen/resuming.py`)."""
    return packs_rows(folded(shape), target, tile)


def wants_groups(shape: MatmulShape, target: Target) -> bool:
    """True if a constant B is best packed for the processor's dot product instructions: set `grouped` beside `packed`."""
    return wants_quads(shape, target) or wants_pairs(shape, target)


def pack_b(
    shape: MatmulShape, target: Target, tile: MatmulTile, b: npt.NDArray[np.generic], start: npt.NDArray[np.int32] | None = None
) -> npt.NDArray[np.generic]:
    """B[..., K, N] as the kernel of this packed shape and tile reads it. `start`: integers that the sums of `grouped` bytes begin with."""
    width = panel_width(shape, target, tile)
    if not shape.grouped:
        group = k_group(shape, target)
        return pack_narrow(b, width, group) if group > 1 else pack_columns(b, width)
    return pack_quads(b, width, shape.a_dtype, start) if shape.b_dtype.nbytes == 1 else pack_pairs(b, width)


def b_arrangement(shape: MatmulShape, target: Target, tile: MatmulTile, stored: tuple[int, ...], transposed: bool) -> Arrangement | None:
    """Where the elements of B, of sizes `stored`, lie in what `pack_b` made; None for groups, which do not hold them as they were."""
    if shape.grouped:
        return None
    width, group = panel_width(shape, target, tile), k_group(shape, target)
    return narrow_arrangement(stored, width, group, transposed) if group > 1 else columns_arrangement(stored, width, transposed)


def panel_width(shape: MatmulShape, target: Target, tile: MatmulTile) -> int:
    """The `width` that `pack_columns` must be given for this tile."""
    return tile.vectors * lanes_of(shape.accumulator, target.lanes)
