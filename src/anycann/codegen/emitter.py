"""A writer of LLVM IR text: values, arithmetic, loops and memory. It only writes; every decision is its caller's.

Text, not `llvmlite.ir`: building objects for an unrolled kernel costs as much as optimising it, and the text is the key of the kernel
cache.

A kernel has the signature `void name(ptr args, i64 begin, i64 end, ptr scratch)`: `args` is an array of pointers (inputs, outputs),
`begin..end` the part of its task range, `scratch` memory of the calling thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
import hashlib
import struct

import numpy as np

INDEX = "i64"
POINTER = "ptr"


@dataclass(frozen=True)
class Value:
    """An SSA name or literal with its LLVM type."""

    text: str
    type: str

    @property
    def lanes(self) -> int:
        """Number of vector lanes; 1 for a scalar."""
        return int(self.type[1:].split(" x ")[0]) if self.type.startswith("<") else 1

    @property
    def element(self) -> str:
        """The scalar type."""
        return self.type[1:-1].split(" x ")[1] if self.type.startswith("<") else self.type


def vector_type(element: str, lanes: int) -> str:
    """`<16 x float>`; the scalar type itself for one lane."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def _float_literal(number: float, element: str) -> str:
    """LLVM writes float and double literals as the 64 bits of a double; half as its own 16 bits."""
    if element == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', number))[0]:04X}"
    if element == "float":
        with np.errstate(over="ignore"):
            number = float(np.float32(number))
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


def is_float(element: str) -> bool:
    """True for the scalar types float, double and half."""
    return element in ("float", "double", "half")


class Loop:
    """A counted loop being written: `index`, the carried `values`, and after the loop the same names hold the results."""

    def __init__(self, index: Value, values: list[Value]):
        self.index = index
        self.values = values
        self.next_values: list[Value] = list(values)

    def carry(self, values: Sequence[Value]) -> None:
        """Say what the carried values are at the end of this iteration."""
        self.next_values = list(values)


@dataclass
class Emitter:
    """Writes one kernel function. `finish()` returns the module text."""

    lines: list[str] = field(default_factory=list)
    declarations: dict[str, str] = field(default_factory=dict)
    _counter: int = 0
    block: str = "entry"

    def __post_init__(self) -> None:
        self.args = Value("%args", POINTER)
        self.begin = Value("%begin", INDEX)
        self.end = Value("%end", INDEX)
        self.scratch = Value("%scratch", POINTER)

    # ---- names and constants
    def _name(self) -> str:
        self._counter += 1
        return f"%v{self._counter}"

    def label(self, hint: str) -> str:
        self._counter += 1
        return f"{hint}{self._counter}"

    def const(self, number: float, type_: str = INDEX) -> Value:
        """A literal of a scalar or vector type (splatted)."""
        lanes, element = (Value("", type_).lanes, Value("", type_).element)
        if is_float(element):
            text = _float_literal(number, element)
        elif element == "i1":
            text = "true" if number else "false"
        else:
            text = str(int(number))
        if lanes > 1:
            text = f"splat ({element} {text})"
        return Value(text, type_)

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
        if _is_int(a.text) and _is_int(b.text):
            return self.const(int(a.text) + int(b.text), a.type)
        return self.op(f"add nsw {a.type} {a.text}, {b.text}", a.type)

    def sub(self, a: Value, b: Value | int) -> Value:
        b = self.const(b, a.type) if isinstance(b, int) else b
        if b.text == "0":
            return a
        if _is_int(a.text) and _is_int(b.text):
            return self.const(int(a.text) - int(b.text), a.type)
        return self.op(f"sub nsw {a.type} {a.text}, {b.text}", a.type)

    def mul(self, a: Value, b: Value | int) -> Value:
        """Integer product; literal zero and one cost nothing."""
        b = self.const(b, a.type) if isinstance(b, int) else b
        if _is_int(a.text) and _is_int(b.text):
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

    def splat(self, scalar: Value, lanes: int) -> Value:
        """The same scalar in every lane."""
        if lanes == 1:
            return scalar
        type_ = vector_type(scalar.type, lanes)
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
        name = f"llvm.masked.load.{mangle(type_)}.p0"
        self.declarations[name] = f"declare {type_} @{name}(ptr, {mask.type}, {type_})"
        return self.op(f"call {type_} @{name}(ptr align {align} {pointer.text}, {mask.type} {mask.text}, {type_} {other.text})", type_)

    def masked_store(self, value: Value, pointer: Value, align: int, mask: Value) -> None:
        """Only lanes where `mask` is true are written. One known lane is a scalar store: LLVM 22 writes too much there after a trunc."""
        if mask.text.startswith("<") and mask.text.count("true") == 1:
            lane = ["true" in bit for bit in mask.text.split(",")].index(True)
            self.store(self.extract(value, lane), self.gep(pointer, lane, value.element), align)
            return
        name = f"llvm.masked.store.{mangle(value.type)}.p0"
        self.declarations[name] = f"declare void @{name}({value.type}, ptr, {mask.type})"
        self.do(f"call void @{name}({value.type} {value.text}, ptr align {align} {pointer.text}, {mask.type} {mask.text})")

    def argument(self, number: int) -> Value:
        """The pointer in slot `number` of the argument array."""
        return self.op(f"load ptr, ptr {self.gep(self.args, number, POINTER).text}, align 8, !noundef !0", POINTER)

    # ---- control
    def start_block(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def branch(self, label: str) -> None:
        self.do(f"br label %{label}")

    @contextmanager
    def loop(self, start: Value | int, stop: Value | int, step: int = 1, carried: Sequence[Value] = ()) -> Iterator[Loop]:
        """A loop that may run zero times. In the body call `loop.carry(values)`; after it `loop.values` are the results."""
        start = self.const(start) if isinstance(start, int) else start
        stop = self.const(stop) if isinstance(stop, int) else stop
        head, body, done = self.label("head"), self.label("body"), self.label("done")
        before = self.block
        self.branch(head)
        self.start_block(head)
        index = Value(self._name(), INDEX)
        phis = [Value(self._name(), value.type) for value in carried]
        at = len(self.lines)
        self.lines += [""] * (1 + len(phis))
        inside = self.compare("slt", index, stop)
        self.do(f"br i1 {inside.text}, label %{body}, label %{done}")
        self.start_block(body)
        loop = Loop(index, phis)
        yield loop
        following = self.op(f"add nuw nsw {INDEX} {index.text}, {step}", INDEX)
        last = self.block
        self.branch(head)
        rows = [(index, start, following), *zip(phis, carried, loop.next_values, strict=True)]
        for i, (phi, first, later) in enumerate(rows):
            self.lines[at + i] = f"  {phi.text} = phi {phi.type} [ {first.text}, %{before} ], [ {later.text}, %{last} ]"
        self.start_block(done)
        loop.values = phis

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Run the body only if the scalar i1 `condition` holds."""
        body, done = self.label("then"), self.label("endif")
        self.do(f"br i1 {condition.text}, label %{body}, label %{done}")
        self.start_block(body)
        yield
        self.branch(done)
        self.start_block(done)

    # ---- the module
    def finish(self, family: str) -> tuple[str, str]:
        """(symbol, module text): the symbol is `family` and a hash of the body, so that equal kernels are one."""
        body = "\n".join(self.lines)
        declarations = "\n".join(self.declarations[name] for name in sorted(self.declarations))
        symbol = f"{family}_{hashlib.sha256((declarations + body).encode()).hexdigest()[:20]}"
        head = f"define void @{symbol}(ptr noalias readonly %args, i64 %begin, i64 %end, ptr noalias %scratch) #0 {{\nentry:\n"
        return symbol, f"{declarations}\n{head}{body}\n  ret void\n}}\nattributes #0 = {{ nounwind }}\n!0 = !{{}}\n"


def _is_int(text: str) -> bool:
    return text.lstrip("-").isdigit()


def mangle(type_: str) -> str:
    """LLVM's suffix for an overloaded intrinsic: float -> f32, <16 x i8> -> v16i8."""
    names = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}
    value = Value("", type_)
    element = names.get(value.element, value.element)
    return element if value.lanes == 1 else f"v{value.lanes}{element}"
