"""Operands of a product of bytes as 16-bit words less their zero points: rows of A one behind the other, B in panels of pairs along k.

A panel is [pairs of k][column][2]: the instruction that multiplies words adds two neighbours of k in every lane.
"""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.dot_copy import pieces
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass
from anycann.te.dtypes import DType

PAIR, WORD_BYTES = 2, 2
_LOADED = 16  # bytes at a time


@dataclass(frozen=True)
class Bytes:
    """A matrix of bytes in memory: its type, elements from one row to the next, and the zero point, i8."""

    pointer: Value
    dtype: DType
    row: int
    zero: Value

    def at(self, e: Emitter, row: Value | int, column: Value | int) -> Value:
        """The address of an element."""
        start = e.mul(row, self.row) if isinstance(row, Value) else e.const(row * self.row)
        return e.gep(self.pointer, e.add(start, column), "i8")

    def words(self, e: Emitter, raw: Value) -> Value:
        """Loaded bytes less the zero point."""
        wide, zero = (e.cast("sext" if self.dtype.is_signed else "zext", each, "i16") for each in (raw, self.zero))
        return wide if self.zero.text == "0" else e.binary("sub", wide, e.splat(zero, wide.lanes))


def emit_word_rows(e: Emitter, a: Bytes, first: Value, stop: Value, k: int, step: int, to: Value) -> None:
    """to[row][step] words from rows `first` to `stop` of A, of `k` bytes each; what lies behind the last word of a row stays as it is."""
    whole, rest = k - k % _LOADED, k % _LOADED
    with e.loop(0, e.sub(stop, first)) as row:
        source, place = a.at(e, e.add(first, row.index), 0), e.gep(to, e.mul(row.index, step), "i16")
        with e.loop(0, whole, _LOADED) as part:
            _move(e, a, source, place, part.index, _LOADED)
        last = [(k - _LOADED, _LOADED)] if rest and whole else [(whole + at, count) for at, count in pieces(rest, _LOADED)]
        for at, count in last:  # of a long row some words again
            _move(e, a, source, place, at, count)


def _move(e: Emitter, a: Bytes, source: Value, place: Value, at: Value | int, count: int) -> None:
    """`count` bytes of a row, from element `at` on."""
    raw = e.load(e.gep(source, at, "i8"), vector_type("i8", count), 1)
    e.store(a.words(e, raw), e.gep(place, at, "i16"), WORD_BYTES)


def emit_word_panel(e: Emitter, b: Bytes, k: int, n: int, first: Value, columns: int, lanes: int, to: Value) -> None:
    """to[k / 2][column][2] from `columns` columns of B [k, n] from `first` on, in whole vectors; an odd last row goes with zeros."""
    width = -(-columns // lanes) * lanes
    row_words = width * PAIR

    def store(top: Value, bottom: Value, place: Value) -> None:
        count = top.lanes
        together = e.shuffle(top, bottom, [count * half + lane for lane in range(count) for half in range(PAIR)])
        e.store(b.words(e, together), place, WORD_BYTES)

    def row(number: Value | int) -> Value:
        return columns_of(e, b, number, first, n, columns, width)

    with e.loop(0, k // PAIR) as pair:
        top = e.mul(pair.index, PAIR)
        store(row(top), row(e.add(top, 1)), e.gep(to, e.mul(pair.index, row_words), "i16"))
    if k % PAIR:
        last = row(k - 1)
        store(last, e.splat(b.zero, last.lanes), e.gep(to, k // PAIR * row_words, "i16"))


def columns_of(e: Emitter, b: Bytes, row: Value | int, first: Value, n: int, columns: int, lanes: int) -> Value:
    """Neighbours of a row in so many lanes, of which the first `columns` exist; only bytes of the row are read."""
    if columns == lanes:
        return e.load(b.at(e, row, first), vector_type("i8", lanes), 1)
    if n >= lanes:
        ending = e.load(b.at(e, row, n - lanes), vector_type("i8", lanes), 1)
        return e.shuffle(ending, ending, [min(lanes - columns + lane, lanes - 1) for lane in range(lanes)])
    found = e.zero(vector_type("i8", lanes))
    for at, count in pieces(columns, lanes):
        part = e.load(e.gep(b.at(e, row, first), at, "i8"), vector_type("i8", count), 1)
        part = part if count > 1 else e.insert(e.zero("<1 x i8>"), part, 0)
        spread = e.shuffle(part, part, [min(max(lane - at, 0), count - 1) for lane in range(lanes)])
        found = e.shuffle(found, spread, [lanes + lane if at <= lane < at + count else lane for lane in range(lanes)])
    return found
