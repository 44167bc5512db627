"""A heap of 64-bit integers in memory, the greatest on top. Places nobody uses hold the least integer, so that no bound is checked."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value

LEAST = -(1 << 63)
CELL_BYTES = 64  # the count, in front of the integers


class Heap:
    """Room for `capacity` integers at `memory`, of `bytes_for(capacity)` bytes. `append` some, then `order` them, then `pop`."""

    def __init__(self, e: Emitter, memory: Value, capacity: int, lanes: int):
        self.e, self.levels = e, max(1, capacity.bit_length())
        self._lanes = min(lanes, 1 << self.levels)
        self._count, self._data = memory, e.gep(memory, CELL_BYTES, "i8")

    @staticmethod
    def bytes_for(capacity: int) -> int:
        """A whole tree of all levels."""
        return CELL_BYTES + (8 << max(1, capacity.bit_length()))

    def count(self) -> Value:
        """How many integers there are."""
        return self.e.load(self._count, "i64", 8)

    def clear(self) -> None:
        """Take all out."""
        e = self.e
        e.store(e.const(0), self._count, 8)
        with e.loop(0, 1 << self.levels, self._lanes) as place:
            type_ = f"<{self._lanes} x i64>"
            e.store(e.const(LEAST, type_), e.gep(self._data, place.index, "i64"), 8)

    def append(self, value: Value, condition: Value) -> None:
        """Put `value` behind the others if the condition holds."""
        e, count = self.e, self.count()
        e.store(e.select(condition, value, e.const(LEAST)), self._at(count), 8)
        e.store(e.add(count, e.cast("zext", condition, "i64")), self._count, 8)

    def order(self) -> None:
        """Make a heap of what was appended: the lowest level that has children first."""
        e = self.e
        with e.loop(1, self.levels) as height:
            first = e.sub(e.binary("shl", e.const(1), e.sub(e.const(self.levels - 1), height.index)), 1)
            last = e.smin(e.add(e.mul(first, 2), 1), self.count())
            with e.loop(first, last) as place:
                self._sink(place.index, e.load(self._at(place.index), "i64", 8), height.index)

    def pop(self) -> Value:
        """The greatest, taken out. There must be one."""
        e = self.e
        left, top = e.sub(self.count(), 1), e.load(self._data, "i64", 8)
        last = e.load(self._at(left), "i64", 8)
        e.store(e.const(LEAST), self._at(left), 8)
        e.store(left, self._count, 8)
        self._sink(e.const(0), e.select(e.compare("eq", left, e.const(0)), e.const(LEAST), last), e.const(self.levels - 1))
        return top

    def _sink(self, place: Value, value: Value, levels: Value) -> None:
        """Put `value` at `place`, or below it where greater ones move up; there are `levels` levels below."""
        e = self.e
        with e.loop(0, levels, carried=[place]) as step:
            at = step.values[0]
            left = e.add(e.mul(at, 2), 1)
            a, b = e.load(self._at(left), "i64", 8), e.load(self._at(e.add(left, 1)), "i64", 8)
            is_right = e.compare("sgt", b, a)
            greater = e.select(is_right, b, a)
            down = e.compare("sgt", greater, value)
            e.store(e.select(down, greater, value), self._at(at), 8)
            step.carry([e.select(down, e.add(left, e.cast("zext", is_right, "i64")), at)])
        e.store(value, self._at(step.values[0]), 8)

    def _at(self, place: Value) -> Value:
        return self.e.gep(self._data, place, "i64")
