"""Rows of A, copied by a task in the order in which register tiles read them: the innermost loop then reads one stream.

A tile of rows of a transposed A lies [k][row]. Stored transposed, A has the rows of a tile side by side for each k, and the next k far
away, often in the same set of the cache and always on another page. Rows that lie along k are copied by blocks of neighbours:
[k / ROW_BLOCK][row][ROW_BLOCK].
"""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_shape import Operand
from anycann.codegen.values import Value, first_lanes
from anycann.support.records import dataclass

ROW_BLOCK = 8  # steps of k in a turn of the innermost loop: where in a block they read is said by their instructions


def emit_blocks(e: Emitter, source: Value, row: int, part: tuple[Value, Value, int], rows: int, height: int, to: Value) -> None:
    """to[k / ROW_BLOCK][height][ROW_BLOCK] from `rows` rows of float32 at `source`, `row` apart; zeros behind the last k.

    part: the k at `source`, the first one behind the part, and the number of all k.
    """
    begin, end, k = part
    vector, whole = f"<{ROW_BLOCK} x float>", k - k % ROW_BLOCK

    def block(start: Value, mask: Value | None) -> None:
        place = e.gep(to, e.mul(start, height), "float")
        for i in range(rows):
            at = e.gep(e.gep(source, start, "float"), i * row, "float")
            value = e.load(at, vector, 4) if mask is None else e.masked_load(at, vector, 4, mask, e.zero(vector))
            e.store(value, e.gep(place, i * ROW_BLOCK, "float"), 4)

    with e.loop(0, e.sub(e.smin(end, e.const(whole)), begin), ROW_BLOCK) as turn:
        block(turn.index, None)
    if whole < k:
        with e.when(e.compare("eq", end, e.const(k))):
            block(e.sub(e.const(whole), begin), first_lanes(k - whole, ROW_BLOCK))


@dataclass(frozen=True)
class RowGather:
    """How rows are copied: the operand, elements between neighbours along k, how many of these, rows of a tile, lanes of a register."""

    operand: Operand
    column: int
    k: int
    rows: int
    lanes: int


def emit_gather(e: Emitter, gather: RowGather, source: Value, count: Value, to: Value) -> None:
    """to[tile][k][row] from the `count` rows at `source`; rows of the last tile that do not exist are left as they are or zero."""
    whole = e.udiv(count, gather.rows)
    rest = e.sub(count, e.mul(whole, gather.rows))
    with e.loop(0, gather.k) as k:
        line = gather.operand.step(e, source, e.mul(k.index, gather.column))
        first = e.gep(to, e.mul(k.index, gather.rows), _element(gather))
        with e.loop(0, whole) as tile:
            _move(e, gather, line, first, tile.index, None)
        with e.when(e.compare("sgt", rest, e.const(0))):
            _move(e, gather, line, first, whole, rest)


def _element(gather: RowGather) -> str:
    return gather.operand.accumulator.register


def _move(e: Emitter, gather: RowGather, line: Value, first: Value, tile: Value, count: Value | None) -> None:
    """The rows of one tile for one k; `count` of them if the tile is not whole."""
    nbytes = gather.operand.accumulator.nbytes
    source = gather.operand.step(e, line, e.mul(tile, gather.rows))
    place = e.gep(first, e.mul(tile, gather.k * gather.rows), _element(gather))
    for start in range(0, gather.rows, gather.lanes):
        size = min(gather.lanes, gather.rows - start)
        exists = first_lanes(size, gather.lanes)
        mask = exists
        if count is not None:
            present = e.compare("slt", e.add(e.lane_numbers(gather.lanes), start), e.splat(count, gather.lanes))
            mask = present if exists is None else e.binary("and", present, exists)
        value = gather.operand.load(e, gather.operand.step(e, source, start), gather.lanes, mask)
        to = e.gep(place, start, _element(gather))
        if exists is None:
            e.store(value, to, nbytes)
        else:
            e.masked_store(value, to, nbytes, exists)
