"""The recurrent product of bfloat16 by matrix tiles: each step the states of all sequences of a task times all weights.

Of few sequences a step takes as long as its weights take to come from the second-level cache: half as long as in float32.
"""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.dot_tiles import ROW_BYTES, TILE_GROUPS, TileRegisters, has_tiles
from anycann.codegen.kernels.recurrent_kernel import RecurrentKernel, panel_offset
from anycann.codegen.kernels.recurrent_packing import panel_depth
from anycann.codegen.kernels.recurrent_shape import RecurrentShape, RecurrentTile
from anycann.codegen.kernels.recurrent_state import Sequences
from anycann.codegen.values import Value
from anycann.target.target import Target
from anycann.te import dtypes

_LEAST_HIDDEN = 64  # with less, a tile has more room than there are cells
_PAIR = 2 * TILE_GROUPS  # cells of a step along k
_LANES = 16


def multiplies_by_tiles(shape: RecurrentShape, target: Target) -> bool:
    """True if the recurrent product of a layer in bfloat16 takes matrix tiles."""
    return has_tiles(target, dtypes.bfloat16) and target.has("avx512bf16") and shape.hidden >= _LEAST_HIDDEN


def tiles_of(tile: RecurrentTile) -> TileRegisters:
    """The tile registers of a kernel."""
    return TileRegisters(dtypes.bfloat16, tile.rows, TILE_GROUPS)


def emit_factors(e: Emitter, kernel: RecurrentKernel, sequences: Sequences, source: Value) -> None:
    """A state in bfloat16, with zeros up to whole tiles."""
    depth, type_ = panel_depth(kernel.shape, kernel.tile), kernel.vector
    with e.loop(0, sequences.count) as row:
        line = e.gep(source, e.mul(row.index, kernel.padded), "float")
        to = e.gep(kernel.memory.at(e, "factors"), e.mul(row.index, depth), "i16")
        with e.loop(0, kernel.padded - kernel.padded % _PAIR, _PAIR) as cell:
            low, high = (e.load(e.gep(line, e.add(cell.index, first), "float"), type_, 4) for first in (0, _LANES))
            _store_pair(e, low, high, e.gep(to, cell.index, "i16"))
        if kernel.padded % _PAIR:
            last = depth - _PAIR
            _store_pair(e, e.load(e.gep(line, last, "float"), type_, 4), e.zero(type_), e.gep(to, last, "i16"))


def _store_pair(e: Emitter, low: Value, high: Value, to: Value) -> None:
    e.store(e.call("llvm.x86.avx512bf16.cvtne2ps2bf16.512", "<32 x bfloat>", [high, low]), to, 2)


def emit_tile_sums(e: Emitter, kernel: RecurrentKernel, sequences: Sequences, phase: int, block: Value) -> None:
    """sums[row, gate, vector] = factors R of one block, into scratch."""
    tiles, depth = tiles_of(kernel.tile), panel_depth(kernel.shape, kernel.tile)
    columns = len(kernel.shape.phases[phase]) * kernel.tile.vectors
    panel = e.gep(kernel.pointers.panels, panel_offset(e, kernel, sequences, phase, block), "i16")
    for j in range(columns):
        tiles.clear(e, j)
    with e.loop(0, depth, _PAIR) as k:
        tiles.load_rows(e, 0, e.gep(kernel.memory.at(e, "factors"), k.index, "i16"), 2 * depth)
        for j in range(columns):
            at = e.add(e.mul(k.index, _LANES), j * depth * _LANES)
            tiles.load_columns(e, j % 2, e.gep(panel, at, "i16"), ROW_BYTES)
            tiles.multiply(e, j, 0, j % 2)
    for j in range(columns):
        place = e.gep(kernel.memory.at(e, "sums"), j * _LANES, "float")
        tiles.store(e, j, place, 4 * kernel.memory.sums_per_row)
