"""Sorting different integers in memory, the greatest first: small blocks by counting what is greater, then merging without branches."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value
from anycann.support.records import dataclass

BLOCK = 64  # integers that are put in order by comparing each with all
BLOCK_BITS = 6
UNROLLED = 16  # vectors of a block that are compared without a loop


@dataclass(frozen=True)
class Sorter:
    """Sorts integers of `type_` (i64, i128), compared `lanes` at a time."""

    e: Emitter
    type_: str
    lanes: int

    def sort(self, data: Value, count: Value, first: Value, second: Value) -> tuple[Value, Value]:
        """`count` integers at `data` in order, in `first` or `second` (the result, then the other one), which have room for as many.

        BLOCK integers behind the last are overwritten.
        """
        e = self.e
        self._pad(self._at(data, count))
        blocks = e.binary("lshr", e.add(count, BLOCK - 1), e.const(BLOCK_BITS))
        with e.loop(0, blocks) as block:
            start = e.mul(block.index, BLOCK)
            self._sort_block(self._at(data, start), e.smin(e.const(BLOCK), e.sub(count, start)), self._at(first, start))
        with e.loop(0, self._passes(blocks), carried=[first, second]) as turn:
            self._merge_runs(turn.values[0], turn.values[1], count, e.add(turn.index, BLOCK_BITS))
            turn.carry([turn.values[1], turn.values[0]])
        return turn.values[0], turn.values[1]

    def merge(self, a: tuple[Value, Value], b: tuple[Value, Value], to: Value, count: Value) -> None:
        """The first `count` of two sorted runs (where, how many) at `to`. One integer behind a run may be read."""
        e = self.e
        with e.loop(0, count, carried=[e.const(0), e.const(0)]) as place:
            i, j = place.values
            left, right = (e.load(self._at(run, at), self.type_, 8) for (run, _), at in ((a, i), (b, j)))
            left_wins = e.binary("or", e.compare("sge", j, b[1]), e.compare("sgt", left, right))
            take = e.binary("and", e.compare("slt", i, a[1]), left_wins)
            e.store(e.select(take, left, right), self._at(to, place.index), 8)
            step = e.cast("zext", take, "i64")
            place.carry([e.add(i, step), e.add(j, e.sub(e.const(1), step))])

    def _at(self, data: Value, place: Value | int) -> Value:
        return self.e.gep(data, place, self.type_)

    # ---- blocks
    def _pad(self, behind: Value) -> None:
        """The least integers, which are greater than none."""
        e, bits = self.e, int(self.type_[1:])
        type_ = self._vector()
        for at in range(0, BLOCK, self.lanes):
            e.store(e.const(-(1 << (bits - 1)), type_), self._at(behind, at), 8)

    def _vector(self) -> str:
        return f"<{self.lanes} x {self.type_}>" if self.lanes > 1 else self.type_

    def _sort_block(self, data: Value, count: Value, to: Value) -> None:
        e = self.e
        vectors = BLOCK // self.lanes
        unrolled = [e.load(self._at(data, n * self.lanes), self._vector(), 8) for n in range(vectors)] if vectors <= UNROLLED else []
        with e.loop(0, count) as each:
            own = e.load(self._at(data, each.index), self.type_, 8)
            e.store(own, self._at(to, self._rank(data, own, unrolled)), 8)

    def _rank(self, data: Value, own: Value, unrolled: list[Value]) -> Value:
        """How many integers of the block are greater than `own`."""
        e = self.e
        splat, total = e.splat(own, self.lanes), e.zero(f"<{self.lanes} x i64>" if self.lanes > 1 else "i64")
        for vector in unrolled:
            total = e.binary("add", total, e.cast("zext", e.compare("sgt", vector, splat), "i64"))
        if not unrolled:
            with e.loop(0, BLOCK // self.lanes, carried=[total]) as at:
                vector = e.load(self._at(data, e.mul(at.index, self.lanes)), self._vector(), 8)
                at.carry([e.binary("add", at.values[0], e.cast("zext", e.compare("sgt", vector, splat), "i64"))])
            total = at.values[0]
        return e.reduce("add", total)

    # ---- runs
    def _passes(self, blocks: Value) -> Value:
        """The binary logarithm of the number of blocks, rounded up."""
        e = self.e
        one_less = e.smax(e.sub(blocks, 1), e.const(0))
        zeros = e.op(f"call i64 @llvm.ctlz.i64(i64 {one_less.text}, i1 false)", "i64")
        e.declarations["llvm.ctlz.i64"] = "declare i64 @llvm.ctlz.i64(i64, i1)"
        return e.sub(e.const(64), zeros)

    def _merge_runs(self, source: Value, to: Value, count: Value, bits: Value) -> None:
        """Sorted runs of 2**bits integers in pairs."""
        e = self.e
        width, shift = e.binary("shl", e.const(1), bits), e.add(bits, 1)
        pair = e.binary("shl", e.const(1), shift)
        pairs = e.binary("lshr", e.add(count, e.sub(pair, 1)), shift)
        with e.loop(0, pairs) as run:
            first = e.binary("shl", run.index, shift)
            middle, end = e.smin(e.add(first, width), count), e.smin(e.add(first, pair), count)
            a, b = (self._at(source, first), e.sub(middle, first)), (self._at(source, middle), e.sub(end, middle))
            self.merge(a, b, self._at(to, first), e.sub(end, first))
