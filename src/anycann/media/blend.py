"""A native loop over rows of bytes: blending rows and columns when a picture is scaled."""

from __future__ import annotations

from collections.abc import Callable

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value, mangle, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target

WEIGHT_BITS = 11  # of an interpolation weight, as in OpenCV
# The words of what the loop gets, int64: addresses of the source and the target; bytes between rows of the target; bytes of a row of it;
# bytes from a sample to its neighbour; the addresses of tables: int64[2, rows] where the upper and the lower row begin, int32[rows] the
# weight of the lower one, and for every byte of a row int32 where to read four bytes that begin with it or end the row, how many bits of
# them to skip, the same for its neighbour, and the neighbour's weight; the address of int32[2, row length]: a row length is the bytes of a
# row rounded up to whole vectors, which the tables have too.
SOURCE, TARGET, STRIDE, COLUMNS, DISTANCE, ROW_STARTS, ROW_WEIGHTS, STARTS, SHIFTS, NEXTS, NEXT_SHIFTS, WEIGHTS, SCRATCH = range(13)
NEAR_BYTES = 3  # the most that a neighbour may be away to come with the same four bytes


@dataclass(frozen=True)
class Blend:
    """near: the neighbour of a sample is within four bytes of it."""

    near: bool

    def ir(self, target: Target) -> tuple[str, str]:
        """(symbol, text) of `void(ptr words, i64 begin, i64 end, ptr)`: rows of the target.

        Each byte is blended of two rows, each of them of two neighbours. A row is spread over the columns once, however many rows of the
        result it is part of.
        """
        writer = _Writer(Emitter(), self.near, target.lanes)
        writer.rows()
        return writer.e.finish("blend_near" if self.near else "blend_far")


class _Writer:
    def __init__(self, e: Emitter, near: bool, lanes: int):
        self.e, self.near, self.lanes, self.wide = e, near, lanes, vector_type("i32", lanes)
        self.columns = self._word(COLUMNS)
        self.padded = e.mul(e.udiv(e.add(self.columns, lanes - 1), lanes), lanes)

    def _word(self, number: int) -> Value:
        return self.e.load(self.e.gep(self.e.args, number, "i64"), "i64", 8)

    def _table(self, number: int) -> Callable[[Value], Value]:
        """A vector of a table of int32 at some column."""
        e, table = self.e, self.e.argument(number)
        return lambda column: e.load(e.gep(table, column, "i32"), self.wide, 4)

    def rows(self) -> None:
        """The whole function."""
        e = self.e
        starts, source, one = e.argument(ROW_STARTS), e.argument(SOURCE), e.argument(SCRATCH)
        weights, target, stride = e.argument(ROW_WEIGHTS), e.argument(TARGET), self._word(STRIDE)
        nothing, other = e.const(-1), e.gep(one, self.padded, "i32")
        with e.loop(e.begin, e.end, carried=[nothing, nothing, one, other]) as row:
            upper_is, lower_is, upper, lower = row.values  # which rows are spread, and where
            wanted = [e.load(e.gep(starts, e.add(e.mul(row.index, 2), each), "i64"), "i64", 8) for each in (0, 1)]
            moved = e.compare("eq", wanted[0], lower_is)  # what was the lower row is the upper one now
            upper, lower = e.select(moved, lower, upper), e.select(moved, upper, lower)
            there = e.select(moved, lower_is, upper_is), e.select(moved, upper_is, lower_is)
            for begin, known, into in zip(wanted, there, (upper, lower), strict=True):
                with e.when(e.compare("ne", begin, known)):
                    self._spread(e.gep(source, begin, "i8"), into)
            weight = e.load(e.gep(weights, row.index, "i32"), "i32", 4)
            self._blend(upper, lower, e.splat(weight, self.lanes), e.gep(target, e.mul(row.index, stride), "i8"))
            row.carry([*wanted, upper, lower])

    def _spread(self, row: Value, into: Value) -> None:
        """Bytes of a row blended with their neighbours, times 2 ** WEIGHT_BITS."""
        e = self.e
        numbers = (STARTS, SHIFTS, WEIGHTS) if self.near else (STARTS, SHIFTS, WEIGHTS, NEXTS, NEXT_SHIFTS)
        starts, shifts, weights, *nexts = (self._table(number) for number in numbers)
        distance = e.splat(e.cast("trunc", e.mul(self._word(DISTANCE), 8), "i32"), self.lanes)
        byte = e.const(255, self.wide)
        with e.loop(0, self.padded, self.lanes) as column:
            four = e.binary("lshr", self._four_bytes(row, starts(column.index)), shifts(column.index))
            first = e.binary("and", four, byte)
            if nexts:
                four = self._four_bytes(row, nexts[0](column.index))
            second = e.binary("and", e.binary("lshr", four, nexts[1](column.index) if nexts else distance), byte)
            share = e.mul(e.sub(second, first), weights(column.index))
            e.store(e.add(e.binary("shl", first, e.const(WEIGHT_BITS, self.wide)), share), e.gep(into, column.index, "i32"), 4)

    def _four_bytes(self, row: Value, offsets: Value) -> Value:
        e, lanes = self.e, self.lanes
        pointers = e.op(f"getelementptr i8, ptr {row.text}, {offsets.type} {offsets.text}", f"<{lanes} x ptr>")
        name, mask = f"llvm.masked.gather.{mangle(self.wide)}.v{lanes}p0", vector_type("i1", lanes)
        e.declarations[name] = f"declare {self.wide} @{name}({pointers.type}, {mask}, {self.wide})"
        return e.op(
            f"call {self.wide} @{name}({pointers.type} align 1 {pointers.text}, {mask} splat (i1 true), {self.wide} poison)", self.wide
        )

    def _blend(self, upper: Value, lower: Value, weight: Value, target: Value) -> None:
        """A row of the target of two rows that are spread."""
        e, lanes = self.e, self.lanes
        whole = e.mul(e.udiv(self.columns, lanes), lanes)
        with e.loop(0, whole, lanes) as column:
            e.store(self._blended(upper, lower, weight, column.index), e.gep(target, column.index, "i8"), 1)
        with e.when(e.compare("slt", whole, self.columns)):
            last = self._blended(upper, lower, weight, whole)
            with e.loop(whole, self.columns) as column:
                e.store(e.extract(last, e.sub(column.index, whole)), e.gep(target, column.index, "i8"), 1)

    def _blended(self, upper: Value, lower: Value, weight: Value, column: Value) -> Value:
        e = self.e
        a, b = (e.load(e.gep(row, column, "i32"), self.wide, 4) for row in (upper, lower))
        share = e.mul(e.sub(b, a), weight)
        total = e.add(e.add(e.binary("shl", a, e.const(WEIGHT_BITS, self.wide)), share), e.const(1 << (2 * WEIGHT_BITS - 1), self.wide))
        return e.cast("trunc", e.binary("lshr", total, e.const(2 * WEIGHT_BITS, self.wide)), "i8")
