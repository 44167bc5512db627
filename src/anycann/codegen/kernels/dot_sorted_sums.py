"""The sums of a register tile whose groups are sorted by the size of its input (`dot_sorted.py`): pairs, single groups, then words."""

from __future__ import annotations

from collections.abc import Sequence

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.dot_direct_sums import add_as_they_are, read_number
from anycann.codegen.kernels.dot_lists import COUNTS, NUMBER_BYTES, WORD_NUMBERS, entry_numbers, list_starts
from anycann.codegen.kernels.dot_magnitudes import add_direct
from anycann.codegen.kernels.dot_products import GROUP_BYTES, add_word_pairs
from anycann.codegen.kernels.dot_sorted import tile_lists
from anycann.codegen.kernels.dot_sums import LINE_BYTES, Reads, VectorSums, later_panel
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass

_HIGH, _LOW = 8, 0x00FF00FF  # of two bytes in a word: how far the upper one is shifted, and the lower ones


@dataclass(frozen=True)
class _Entry:
    """A group, or the first of two: what the first pixel reads, its words if it is large, and its weights."""

    rows: Value
    words: Value
    weights: Value


class SortedSums(VectorSums):
    """Sums in vector registers of groups that lists name."""

    def emit(self, e: Emitter, pixels: int, vectors: int, reads: Reads) -> None:
        plan, rows, weights = self.plan, reads.rows, reads.weights
        lists = tile_lists(e, plan, reads.place)
        self._fetch_later(e, weights, reads.number)
        *starts, words = (e.gep(lists, start, "i32") for start in list_starts(plan.depth, plan.is_one_run, plan.tile.pixels))
        totals = self._totals(e, pixels, vectors, weights, lists)
        for kind, (entries, multiply) in enumerate(zip(starts, (self._pair, self._single, self._words), strict=True)):
            with e.loop(0, read_number(e, lists, kind), carried=totals) as loop:
                at, weights_at = self._places(e, entries, loop.index)
                own = e.gep(words, e.mul(loop.index, pixels * WORD_NUMBERS), "i32")
                entry = _Entry(e.gep(rows, at, "i8"), own, e.gep(weights, weights_at, "i8"))
                loop.carry(multiply(e, pixels, entry, loop.values))
            totals = list(loop.values)
        self.keep(e, vectors, totals)

    def _totals(self, e: Emitter, pixels: int, vectors: int, weights: Value, lists: Value) -> list[Value]:
        """What the sums of [pixel, vector] start from."""
        start = self.starts(e, pixels, vectors, weights)
        if not self.plan.around:
            return start
        own = [e.splat(e.load(e.gep(lists, COUNTS + i, "i32"), "i32", NUMBER_BYTES), self.plan.target.lanes) for i in range(pixels)]
        return [e.binary("add", total, own[number // vectors]) for number, total in enumerate(start)]

    def _fetch_later(self, e: Emitter, weights: Value, number: Value) -> None:
        """Ask for a part of the next panel."""
        nbytes = self.plan.fetched_bytes * self.plan.depth
        if nbytes:
            later = later_panel(e, self.plan, weights, number)
            with e.loop(0, nbytes, LINE_BYTES) as line:
                e.prefetch(e.gep(later, line.index, "i8"), level=2)

    def _places(self, e: Emitter, entries: Value, number: Value) -> tuple[Value, Value]:
        """Bytes to the input and to the weights of an entry."""
        size = entry_numbers(self.plan.is_one_run)
        entry = e.gep(entries, e.mul(number, size), "i32")
        at = read_number(e, entry, 0)
        return at, e.mul(at, self.plan.width) if size == 1 else read_number(e, entry, 1)

    def _pair(self, e: Emitter, pixels: int, entry: _Entry, totals: Sequence[Value]) -> list[Value]:
        return self._as_they_are(e, pixels, [entry.rows, e.gep(entry.rows, GROUP_BYTES, "i8")], entry.weights, totals)

    def _single(self, e: Emitter, pixels: int, entry: _Entry, totals: Sequence[Value]) -> list[Value]:
        return self._as_they_are(e, pixels, [entry.rows], entry.weights, totals)

    def _as_they_are(self, e: Emitter, pixels: int, rows: Sequence[Value], place: Value, totals: Sequence[Value]) -> list[Value]:
        """totals + the products of one group or two neighbours, each with what the first pixel reads at its row."""
        if not self.plan.around:
            return add_as_they_are(e, self.plan, pixels, rows, place, totals)
        return self._signed(e, pixels, rows, place, totals)

    def _signed(self, e: Emitter, pixels: int, rows: Sequence[Value], place: Value, totals: Sequence[Value]) -> list[Value]:
        """The same for signed input and unsigned weights, which no instruction reads that multiplies them."""
        plan = self.plan
        vectors, lanes = len(totals) // pixels, plan.target.lanes
        groups, result = vector_type("i32", lanes), list(totals)
        turns = [[j] for j in range(vectors)] if len(rows) > 1 else [list(range(vectors))]
        for columns in turns:  # there are registers for two vectors of weights
            e.keep_order()
            at = [[e.gep(place, (step * plan.width + j * lanes) * GROUP_BYTES, "i8") for step in range(len(rows))] for j in columns]
            weights = [[e.load(each, groups, GROUP_BYTES) for each in own] for own in at]
            for i in range(pixels):
                if len(columns) > 1:
                    e.keep_order()
                x = [e.splat(e.load(e.gep(row, i * plan.pixel_stride, "i8"), "i32", 1), lanes) for row in rows]
                for j, own in zip(columns, weights, strict=True):
                    result[i * vectors + j] = add_direct(e, result[i * vectors + j], list(zip(own, x, strict=True)))
        return result

    def _words(self, e: Emitter, pixels: int, entry: _Entry, totals: Sequence[Value]) -> list[Value]:
        """totals + the products of a group as words."""
        plan, lanes, vectors = self.plan, self.plan.target.lanes, len(totals) // pixels
        groups = vector_type("i32", lanes)
        columns = [e.load(e.gep(entry.weights, j * lanes * GROUP_BYTES, "i8"), groups, GROUP_BYTES) for j in range(vectors)]
        halves = [_halves(e, column, signed=not plan.around) for column in columns]
        result = []
        for i in range(pixels):
            e.keep_order()
            place = e.gep(entry.words, i * WORD_NUMBERS, "i32")
            x = [e.splat(e.load(e.gep(place, half, "i32"), "i32", NUMBER_BYTES), lanes) for half in range(WORD_NUMBERS)]
            for j in range(vectors):
                total = totals[i * vectors + j]
                for a, b in zip(x, halves[j], strict=True):
                    total = add_word_pairs(e, plan.target, total, a, b)
                result.append(total)
        return result


def _halves(e: Emitter, groups: Value, signed: bool) -> list[Value]:
    """The lower and the upper bytes of the words in each lane, as words."""
    words = vector_type("i16", 2 * groups.lanes)
    value, eight = e.bitcast(groups, words), e.const(_HIGH, words)
    if signed:
        low = e.binary("ashr", e.binary("shl", value, eight), eight)
        return [e.bitcast(half, groups.type) for half in (low, e.binary("ashr", value, eight))]
    low = e.binary("and", groups, e.const(_LOW, groups.type))
    return [low, e.bitcast(e.binary("lshr", value, eight), groups.type)]
