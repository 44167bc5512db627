"""Vectors of 256 bits as two halves that are computed alike: what does not cross from one half to the other is one instruction on x86."""

from __future__ import annotations

from collections.abc import Sequence

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value, vector_type
from anycann.target.target import Target

_WORDS, _BYTES = "<16 x i16>", "<32 x i8>"


class Halves:
    """Writes them with `e`: two vectors of 128 bits where the processor has no wider ones."""

    wide = "<8 x i32>"

    def __init__(self, e: Emitter, target: Target):
        self.e = e
        self._name = "" if not target.is_x86 else "avx2" if target.has("avx2") else "sse2"

    def joined(self, one: Value, other: Value) -> Value:
        """The two halves as one."""
        return self.e.shuffle(one, other, range(2 * one.lanes))

    def parts(self, both: Value) -> tuple[Value, Value]:
        """Each half."""
        count = both.lanes // 2
        return self.e.shuffle(both, both, range(count)), self.e.shuffle(both, both, range(count, 2 * count))

    def low(self, a: Value, b: Value) -> Value:
        """Of each half the lower elements, one of `a` and one of `b` in turn."""
        return self._in_turn(a, b, 0)

    def high(self, a: Value, b: Value) -> Value:
        """Of each half the upper elements, one of `a` and one of `b` in turn."""
        return self._in_turn(a, b, a.lanes // 4)

    def turned(self, a: Value) -> Value:
        """In each half the lower and the upper elements in turn."""
        count = a.lanes // 4
        return self.e.shuffle(a, a, [half + place for half in (0, 2 * count) for n in range(count) for place in (n, n + count)])

    def _in_turn(self, a: Value, b: Value, first: int) -> Value:
        count = a.lanes // 2
        places = [half + first + n for half in (0, count) for n in range(count // 2)]
        return self.e.shuffle(a, b, [each for place in places for each in (place, a.lanes + place)])

    def as_wide(self, pairs: Value) -> Value:
        """<16 x i16> as <8 x i32>, the first of each two neighbours being the lower bits."""
        return self.e.op(f"bitcast {pairs.type} {pairs.text} to {self.wide}", self.wide)

    def dot(self, pairs: Value, weights: tuple[int, int]) -> Value:
        """<16 x i16> to <8 x i32>: of each two neighbours the sum with these weights."""
        pattern = Value("<" + ", ".join(f"i16 {weights[n % 2]}" for n in range(16)) + ">", _WORDS)
        if self._name:
            return self._call("pmadd.wd", self.wide, [pairs, pattern])
        even, odd = (self.e.cast("sext", self.e.shuffle(pairs, pairs, range(first, 16, 2)), "i32") for first in (0, 1))
        return self.e.add(*(self.e.mul(each, self.e.const(weight, self.wide)) for each, weight in zip((even, odd), weights, strict=True)))

    def to_words(self, low: Value, high: Value) -> Value:
        """<8 x i32> twice to <16 x i16>: half by half those of `low` before those of `high`, limited to 16 bits."""
        if self._name:
            return self._call("packssdw", _WORDS, [low, high])
        return self._narrowed(low, high, "i16")

    def to_bytes(self, low: Value, high: Value) -> Value:
        """<16 x i16> twice to <32 x i8>: half by half those of `low` before those of `high`, limited to -128 and 127."""
        if self._name:
            return self._call("packsswb", _BYTES, [low, high])
        return self._narrowed(low, high, "i8")

    def _narrowed(self, low: Value, high: Value, element: str) -> Value:
        e, count, most = self.e, low.lanes // 2, (1 << (int(element[1:]) - 1)) - 1
        limits = e.const(-most - 1, low.type), e.const(most, low.type)
        a, b = (e.cast("trunc", e.smin(e.smax(each, limits[0]), limits[1]), element) for each in (low, high))
        return e.shuffle(a, b, [start + n for half in (0, count) for start in (half, low.lanes + half) for n in range(count)])

    def _call(self, name: str, result: str, operands: Sequence[Value]) -> Value:
        if self._name == "avx2":
            return self.e.call(f"llvm.x86.avx2.{name}", result, operands)
        function = f"llvm.x86.sse2.{name}" + (".128" if name.startswith("pack") else "")
        shape, sides = Value("", result), zip(*(self.parts(operand) for operand in operands), strict=True)
        half = vector_type(shape.element, shape.lanes // 2)
        return self.joined(*(self.e.call(function, half, side) for side in sides))
