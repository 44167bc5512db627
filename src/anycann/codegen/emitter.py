"""A writer of LLVM IR text: values, arithmetic, loops and memory. It only writes; every decision is its caller's.

Text, not `llvmlite.ir`: building objects for an unrolled kernel costs as much as optimising it, and the text is the key of the kernel
cache.

A kernel has the signature `void name(ptr args, i64 begin, i64 end, ptr scratch)`: `args` is an array of pointers (inputs, outputs),
`begin..end` the part of its task range, `scratch` memory of the calling thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
import hashlib

from anycann.codegen.instructions import Instructions
from anycann.codegen.values import INDEX, POINTER, Value
from anycann.support.records import dataclass


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
class Emitter(Instructions):
    """Writes one kernel function. `finish()` returns the module text.

    scales: one instruction multiplies vectors by powers of two. masks: reading and writing some lanes of a vector costs what the whole one
    does, and lanes that lie apart have an instruction. flushes: denormal numbers are zero. fuses: `fma` is an instruction.
    """

    block: str = "entry"
    scales: bool = False
    masks: bool = True
    flushes: bool = False
    fuses: bool = False

    def __post_init__(self) -> None:
        self.args = Value("%args", POINTER)
        self.begin = Value("%begin", INDEX)
        self.end = Value("%end", INDEX)
        self.scratch = Value("%scratch", POINTER)

    def prefetch(self, pointer: Value, level: int = 1) -> None:
        """Ask for the cache line at any address, into the cache of a level; an address that is not mapped does nothing."""
        self.declarations["llvm.prefetch.p0"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
        self.do(f"call void @llvm.prefetch.p0(ptr {pointer.text}, i32 0, i32 {4 - level}, i32 1)")

    def keep_order(self) -> None:
        """Let the compiler move no load or store across this place; the processor gets no instruction."""
        self.do('fence syncscope("singlethread") seq_cst')

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

    def either(self, condition: Value, then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
        """What `then` or `otherwise` gives, of which only one runs; the scalar i1 `condition` decides."""
        first, second, done = self.label("then"), self.label("else"), self.label("endif")
        self.do(f"br i1 {condition.text}, label %{first}, label %{second}")
        found = []
        for label, value in ((first, then), (second, otherwise)):
            self.start_block(label)
            found.append((value(), self.block))
            self.branch(done)
        self.start_block(done)
        arms = ", ".join(f"[ {value.text}, %{block} ]" for value, block in found)
        return self.op(f"phi {found[0][0].type} {arms}", found[0][0].type)

    # ---- the module
    def finish(self, family: str) -> tuple[str, str]:
        """(symbol, module text): the symbol is `family` and a hash of the body, so that equal kernels are one."""
        body = "\n".join(self.lines)
        declarations = "\n".join(self.declarations[name] for name in sorted(self.declarations))
        symbol = f"{family}_{hashlib.sha256((declarations + body).encode()).hexdigest()[:20]}"
        head = f"define void @{symbol}(ptr noalias readonly %args, i64 %begin, i64 %end, ptr noalias %scratch) #0 {{\nentry:\n"
        return symbol, f"{declarations}\n{head}{body}\n  ret void\n}}\nattributes #0 = {{ nounwind }}\n!0 = !{{}}\n"
