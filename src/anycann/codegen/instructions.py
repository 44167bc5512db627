"""LLVM's instructions as methods that append a line and return its value: arithmetic, vectors, intrinsics, memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from anycann.codegen.values import INDEX, POINTER, Value, is_float, is_integer_literal, literal, mangle, vector_type
from anycann.support.records import dataclass

# The first lanes of vectors of so many are stored in pieces of 4, 2 and 1. Those are AVX2's vectors or narrower ones, without masks for
# bytes, and AMD takes a dozen cycles for a masked store of floats: softmax of 5 numbers takes 0.56 of the time, layer normalisation 0.45.
_FEW_LANES = 8


def _known_lanes(mask: Value) -> list[bool]:
    """Which lanes a mask that is known while compiling lets through; none for another mask."""
    return ["true" in bit for bit in mask.text.split(",")] if mask.text.startswith("<") else []


def _leading(known: Sequence[bool]) -> int:
    """How many lanes a known mask lets through, where those are the first, and not all; else 0.

    A power of two of them is a shorter vector: what comes next may lie in the lanes behind it, and a load there waits for a masked store,
    of which it takes nothing, until that is in the cache. 8 channels of 1152 pixels times a factor, in place: 33 us, and 5 by shorter ones.
    """
    count = sum(known)
    return count if 0 < count < len(known) and all(known[:count]) else 0


@dataclass
class Instructions:
    """The lines of a function and the declarations they need, in the order they are written."""

    lines: list[str] = field(default_factory=list)
    declarations: dict[str, str] = field(default_factory=dict)
    _counter: int = 0

    # ---- names and constants
    def _name(self) -> str:
        self._counter += 1
        return f"%v{self._counter}"

    def label(self, hint: str) -> str:
        self._counter += 1
        return f"{hint}{self._counter}"

    def const(self, number: float, type_: str = INDEX) -> Value:
        """A literal of a scalar or vector type (splatted)."""
        return literal(number, type_)

    def zero(self, type_: str) -> Value:
        return Value("zeroinitializer" if type_.startswith("<") else self.const(0, type_).text, type_)

    def poison(self, type_: str) -> Value:
        return Value("poison", type_)

    # ---- instructions
    def op(self, text: str, type_: str) -> Value:
        """Append `%new = text` and return it with `type_`."""
        name = self._name()
        self.lines.append(f"  {name} = {text}")
        return Value(name, type_)

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {text}")

    def binary(self, opcode: str, a: Value, b: Value) -> Value:
        """`add`, `fmul`, `and`, `shl` ... on two values of one type."""
        assert a.type == b.type, (opcode, a, b)
        return self.op(f"{opcode} {a.type} {a.text}, {b.text}", a.type)

    def add(self, a: Value, b: Value | int) -> Value:
        """Integer addition; a literal zero costs nothing."""
        b = self.const(b, a.type) if isinstance(b, int) else b
        if b.text == "0":
            return a
        if a.text == "0":
            return b
        if is_integer_literal(a) and is_integer_literal(b):
            return self.const(int(a.text) + int(b.text), a.type)
        return self.op(f"add nsw {a.type} {a.text}, {b.text}", a.type)

    def sub(self, a: Value, b: Value | int) -> Value:
        b = self.const(b, a.type) if isinstance(b, int) else b
        if b.text == "0":
            return a
        if is_integer_literal(a) and is_integer_literal(b):
            return self.const(int(a.text) - int(b.text), a.type)
        return self.op(f"sub nsw {a.type} {a.text}, {b.text}", a.type)

    def mul(self, a: Value, b: Value | int) -> Value:
        """Integer product; literal zero and one cost nothing."""
        b = self.const(b, a.type) if isinstance(b, int) else b
        if is_integer_literal(a) and is_integer_literal(b):
            return self.const(int(a.text) * int(b.text), a.type)
        for x, y in ((a, b), (b, a)):
            if y.text == "1":
                return x
            if y.text == "0":
                return y
        return self.op(f"mul nsw {a.type} {a.text}, {b.text}", a.type)

    def udiv(self, a: Value, b: int) -> Value:
        """Quotient of a non-negative index by a positive literal."""
        return a if b == 1 else self.op(f"udiv {a.type} {a.text}, {b}", a.type)

    def urem(self, a: Value, b: int) -> Value:
        """Remainder of a non-negative index by a positive literal."""
        return self.const(0, a.type) if b == 1 else self.op(f"urem {a.type} {a.text}, {b}", a.type)

    def smin(self, a: Value, b: Value) -> Value:
        return self.intrinsic("smin", [a, b])

    def smax(self, a: Value, b: Value) -> Value:
        return self.intrinsic("smax", [a, b])

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        """`icmp`/`fcmp`, chosen by the operand type; predicate as LLVM writes it ("slt", "ult", "olt", "une")."""
        opcode = "fcmp" if is_float(a.element) else "icmp"
        return self.op(f"{opcode} {predicate} {a.type} {a.text}, {b.text}", vector_type("i1", a.lanes))

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        return self.op(f"select {condition.type} {condition.text}, {a.type} {a.text}, {b.type} {b.text}", a.type)

    def cast(self, opcode: str, a: Value, element: str) -> Value:
        """`sitofp`, `fpext`, `zext`, `trunc`, `bitcast` ... to `element`, lane by lane."""
        type_ = vector_type(element, a.lanes)
        return self.op(f"{opcode} {a.type} {a.text} to {type_}", type_)

    # ---- vectors
    def bitcast(self, value: Value, type_: str) -> Value:
        """The same bits as a vector or a number of another type."""
        return self.op(f"bitcast {value.type} {value.text} to {type_}", type_)

    def splat(self, scalar: Value, lanes: int) -> Value:
        """The same scalar in every lane."""
        if lanes == 1:
            return scalar
        type_ = vector_type(scalar.type, lanes)
        if not scalar.text.startswith(("%", "@")):
            return Value(f"splat ({scalar.type} {scalar.text})", type_)
        first = self.op(f"insertelement {type_} poison, {scalar.type} {scalar.text}, i64 0", type_)
        return self.op(f"shufflevector {type_} {first.text}, {type_} poison, <{lanes} x i32> zeroinitializer", type_)

    def extract(self, vector: Value, lane: int | Value) -> Value:
        lane_text = str(lane) if isinstance(lane, int) else lane.text
        return self.op(f"extractelement {vector.type} {vector.text}, i64 {lane_text}", vector.element)

    def insert(self, vector: Value, scalar: Value, lane: int) -> Value:
        return self.op(f"insertelement {vector.type} {vector.text}, {scalar.type} {scalar.text}, i64 {lane}", vector.type)

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """Lanes of `a` then `b` by number."""
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.op(
            f"shufflevector {a.type} {a.text}, {b.type} {b.text}, <{len(lanes)} x i32> <{mask}>", vector_type(a.element, len(lanes))
        )

    def join(self, vectors: Sequence[Value]) -> Value:
        """The lanes of vectors of one type, one behind the other."""
        if len(vectors) == 1:
            return vectors[0]
        half = (len(vectors) + 1) // 2
        first, second = self.join(vectors[:half]), self.join(vectors[half:])
        count = second.lanes
        if count < first.lanes:  # a shuffle takes two of one type
            second = self.shuffle(second, self.poison(second.type), [min(lane, count) for lane in range(first.lanes)])
        return self.shuffle(first, second, range(first.lanes + count))

    def lane_numbers(self, lanes: int, element: str = "i64") -> Value:
        """<0, 1, 2, ...>."""
        if lanes == 1:
            return self.const(0, element)
        return Value("<" + ", ".join(f"{element} {i}" for i in range(lanes)) + ">", vector_type(element, lanes))

    # ---- intrinsics
    def call(self, name: str, result: str, operands: Sequence[Value], variadic: str | None = None) -> Value:
        """Call an external or intrinsic function, declaring it once. `result` "void" returns a meaningless Value."""
        types = ", ".join(v.type for v in operands)
        self.declarations[name] = f"declare {result} @{name}({variadic or types})"
        text = f"call {result} @{name}({', '.join(f'{v.type} {v.text}' for v in operands)})"
        if result == "void":
            self.do(text)
            return Value("", "void")
        return self.op(text, result)

    def intrinsic(self, name: str, operands: Sequence[Value], result: str | None = None) -> Value:
        """`llvm.<name>.<type of the first operand>`; integer and float names are LLVM's (`smax`, `fma`, `maxnum`, `floor`)."""
        return self.call(f"llvm.{name}.{mangle(operands[0].type)}", result or operands[0].type, operands)

    def extreme(self, name: str, a: Value, b: Value) -> Value:
        """`maximum` or `minimum`: NaN if either is NaN, any of two zeros. Best with an accumulator as `b`, for `a` is what is compared."""
        full = f"llvm.{name}.{mangle(a.type)}"
        self.declarations[full] = f"declare {a.type} @{full}({a.type}, {a.type})"
        return self.op(f"call nsz {a.type} @{full}({a.type} {a.text}, {b.type} {b.text})", a.type)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c with one rounding."""
        return self.intrinsic("fma", [a, b, c])

    def reduce(self, kind: str, vector: Value) -> Value:
        """One scalar from all lanes. kind: fadd, fmul, fmax, fmin, fmaximum, fminimum, add, mul, smax, smin, umax, umin, and, or."""
        if vector.lanes == 1:
            return vector
        name = f"llvm.vector.reduce.{kind}.{mangle(vector.type)}"
        if kind not in ("fadd", "fmul"):
            return self.call(name, vector.element, [vector])
        start = self.const(0.0 if kind == "fadd" else 1.0, vector.element)
        self.declarations[name] = f"declare {vector.element} @{name}({start.type}, {vector.type})"
        return self.op(f"call reassoc {vector.element} @{name}({start.type} {start.text}, {vector.type} {vector.text})", vector.element)

    # ---- memory
    def gep(self, base: Value, offset: Value | int, element: str) -> Value:
        """base + offset elements."""
        offset = self.const(offset) if isinstance(offset, int) else offset
        if offset.text == "0":
            return base
        return self.op(f"getelementptr inbounds {element}, ptr {base.text}, i64 {offset.text}", POINTER)

    def load(self, pointer: Value, type_: str, align: int) -> Value:
        """Load a scalar or vector. `align` in bytes: give the element size unless more is proved."""
        return self.op(f"load {type_}, ptr {pointer.text}, align {align}", type_)

    def store(self, value: Value, pointer: Value, align: int) -> None:
        self.do(f"store {value.type} {value.text}, ptr {pointer.text}, align {align}")

    def masked_load(self, pointer: Value, type_: str, align: int, mask: Value, other: Value) -> Value:
        """Lanes where `mask` is false are not read; they get `other`."""
        count = _leading(_known_lanes(mask))
        if count == 1:
            return self.insert(other, self.load(pointer, other.element, align), 0)
        if count and not count & (count - 1) and other.text == "zeroinitializer":
            part = self.load(pointer, vector_type(other.element, count), align)
            return self.shuffle(part, self.zero(part.type), [*range(count), *[count] * (mask.lanes - count)])
        name = f"llvm.masked.load.{mangle(type_)}.p0"
        self.declarations[name] = f"declare {type_} @{name}(ptr, {mask.type}, {type_})"
        return self.op(f"call {type_} @{name}(ptr align {align} {pointer.text}, {mask.type} {mask.text}, {type_} {other.text})", type_)

    def masked_store(self, value: Value, pointer: Value, align: int, mask: Value) -> None:
        """Only lanes where `mask` is true are written. One known lane is a scalar store: LLVM 22 writes too much there after a trunc."""
        known = _known_lanes(mask)
        if sum(known) == 1:
            lane = known.index(True)
            self.store(self.extract(value, lane), self.gep(pointer, lane, value.element), align)
            return
        count = _leading(known)
        if count and (len(known) <= _FEW_LANES or not count & (count - 1)):
            self._store_first(value, pointer, align, count)
            return
        name = f"llvm.masked.store.{mangle(value.type)}.p0"
        self.declarations[name] = f"declare void @{name}({value.type}, ptr, {mask.type})"
        self.do(f"call void @{name}({value.type} {value.text}, ptr align {align} {pointer.text}, {mask.type} {mask.text})")

    def _store_first(self, value: Value, pointer: Value, align: int, count: int) -> None:
        """The first `count` lanes, fewer than 64."""
        start = 0
        for size in (n for n in (32, 16, 8, 4, 2, 1) if count & n):
            lanes = range(start, start + size)
            piece = self.extract(value, start) if size == 1 else self.shuffle(value, value, lanes)
            self.store(piece, self.gep(pointer, start, value.element), align)
            start += size

    def gather(self, pointer: Value, offsets: Value, element: str, align: int) -> Value:
        """The elements at `offsets` elements from a pointer, lane by lane."""
        type_, places, mask = self._apart(pointer, offsets, element)
        name = f"llvm.masked.gather.{mangle(type_)}.{mangle(places.type)}"
        self.declarations[name] = f"declare {type_} @{name}({places.type}, {mask.type}, {type_})"
        text = f"call {type_} @{name}({places.type} align {align} {places.text}, {mask.type} {mask.text}, {type_} poison)"
        return self.op(text, type_)

    def scatter(self, value: Value, pointer: Value, offsets: Value, align: int, mask: Value | None = None) -> None:
        """Store each lane at `offsets` elements from a pointer, the lanes where `mask` is true if there is one."""
        type_, places, every = self._apart(pointer, offsets, value.element)
        name, mask = f"llvm.masked.scatter.{mangle(type_)}.{mangle(places.type)}", mask or every
        self.declarations[name] = f"declare void @{name}({type_}, {places.type}, {mask.type})"
        self.do(f"call void @{name}({type_} {value.text}, {places.type} align {align} {places.text}, {mask.type} {mask.text})")

    def _apart(self, pointer: Value, offsets: Value, element: str) -> tuple[str, Value, Value]:
        """The vector type, the pointers, and a mask of all lanes."""
        lanes = offsets.lanes
        text = f"getelementptr inbounds {element}, ptr {pointer.text}, {offsets.type} {offsets.text}"
        return vector_type(element, lanes), self.op(text, vector_type(POINTER, lanes)), self.const(1, vector_type("i1", lanes))
