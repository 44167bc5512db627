"""Operands of products by matrix tiles that are known only when the kernel runs, copied to where and how tiles are loaded."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.dot_tiles import ROW_BYTES, TILE_GROUPS
from anycann.codegen.kernels.matmul_packing import transpose
from anycann.codegen.values import Value, first_lanes, vector_type
from anycann.support.records import dataclass

_COLUMNS, _PAIRS = 16, TILE_GROUPS
_LINE = 2 * _PAIRS  # elements of a row of a tile


@dataclass(frozen=True)
class TileSource:
    """16-bit elements [k, n] of a second operand: where the first is, the elements to the next k and to the next n, one of which is 1.

    depth, columns: how many of each there are; None if there are as many as are copied.
    """

    pointer: Value
    k_step: int
    n_step: int
    depth: Value | None
    columns: Value | None


def emit_row(e: Emitter, source: Value, count: int, to: Value) -> None:
    """`count` 16-bit elements that lie side by side, and zeros up to whole rows of tiles."""
    for first in range(0, count, _LINE):
        value = _load(e, e.gep(source, first, "i16"), first_lanes(min(_LINE, count - first), _LINE), _LINE)
        e.store(value, e.gep(to, first, "i16"), 2)


def emit_column_tiles(e: Emitter, source: TileSource, columns: int, depth: int, to: Value) -> None:
    """[tile of 16 columns, pair of k, column, k of the pair]: so many columns and so much depth, in whole tiles; what is not there is zero.

    Nothing is read beyond `source`.
    """
    with e.loop(0, columns, _COLUMNS) as n, e.loop(0, depth, _LINE) as k:
        place = e.add(e.mul(n.index, depth), e.mul(k.index, _COLUMNS))
        at = e.add(e.mul(k.index, source.k_step), e.mul(n.index, source.n_step))
        left = [None if size is None else e.sub(size, i.index) for size, i in ((source.depth, k), (source.columns, n))]
        tile = TileSource(e.gep(source.pointer, at, "i16"), source.k_step, source.n_step, *left)
        for number, row in enumerate(_from_rows(e, tile) if source.k_step == 1 else _from_pairs(e, tile)):
            e.store(row, e.gep(e.gep(to, place, "i16"), number * ROW_BYTES, "i8"), 2)


def _from_rows(e: Emitter, tile: TileSource) -> list[Value]:
    """A tile whose k lie side by side: a square of pairs, transposed."""
    along, rows = None if tile.depth is None else lanes_below(e, tile.depth, _LINE), []
    for n in range(_COLUMNS):
        mask = _both(e, along, tile.columns, n, _LINE)
        rows.append(e.bitcast(_load(e, e.gep(tile.pointer, n * tile.n_step, "i16"), mask, _LINE), vector_type("i32", _PAIRS)))
    return transpose(e, rows)


def _from_pairs(e: Emitter, tile: TileSource) -> list[Value]:
    """A tile whose columns lie side by side: two rows, element by element in turn."""
    along, pairs = None if tile.columns is None else lanes_below(e, tile.columns, _COLUMNS), []
    for k in range(0, _LINE, 2):
        two = []
        for number in (k, k + 1):
            mask = _both(e, along, tile.depth, number, _COLUMNS)
            two.append(_load(e, e.gep(tile.pointer, number * tile.k_step, "i16"), mask, _COLUMNS))
        pairs.append(e.shuffle(two[0], two[1], [lane // 2 + lane % 2 * _COLUMNS for lane in range(_LINE)]))
    return pairs


def lanes_below(e: Emitter, count: Value, lanes: int) -> Value:
    """A mask of the first `count` lanes; any number will do."""
    return e.compare("slt", e.lane_numbers(lanes, "i32"), e.splat(e.cast("trunc", count, "i32"), lanes))


def _both(e: Emitter, along: Value | None, count: Value | None, number: int, lanes: int) -> Value | None:
    """The lanes of a row that exist, if row `number` of `count` does."""
    if count is None:
        return along
    exists = e.splat(e.compare("slt", e.const(number), count), lanes)
    return exists if along is None else e.binary("and", exists, along)


def _load(e: Emitter, place: Value, mask: Value | None, lanes: int) -> Value:
    type_ = vector_type("i16", lanes)
    return e.load(place, type_, 2) if mask is None else e.masked_load(place, type_, 2, mask, e.zero(type_))
