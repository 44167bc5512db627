"""Small kernels written by hand for the tests of the runtime, and the tables that launch them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.objects import emit_object
from anycann.codegen.values import Value
from anycann.runtime.dispatch import split
from anycann.runtime.loader import LoadedCode
from anycann.runtime.thread_pool import ThreadPool
from anycann.target.target import host


def count_kernel() -> tuple[str, str]:
    """counts[i] += 1 for each task i."""
    e = Emitter()
    counts = e.argument(0)
    with e.loop(e.begin, e.end) as loop:
        at = e.gep(counts, loop.index, "i64")
        e.store(e.add(e.load(at, "i64", 8), 1), at, 8)
    return e.finish("count")


def scratch_kernel() -> tuple[str, str]:
    """out[i] = address of this thread's scratch, and its first 8 bytes are set to i: wrong if two threads share it."""
    e = Emitter()
    out = e.argument(0)
    with e.loop(e.begin, e.end) as loop:
        e.store(loop.index, e.scratch, 8)
        e.store(e.cast("ptrtoint", e.scratch, "i64"), e.gep(out, loop.index, "i64"), 8)
    return e.finish("scratch")


def busy_kernel(rounds: int) -> tuple[str, str]:
    """counts[i] += 1 after `rounds` dependent multiplications a task."""
    e = Emitter()
    counts = e.argument(0)
    with e.loop(e.begin, e.end) as loop:
        with e.loop(0, rounds, carried=[loop.index]) as inner:
            inner.carry([e.add(e.op(f"mul i64 {inner.values[0].text}, 6364136223846793005", "i64"), 1)])
        odd = e.cast("zext", e.compare("eq", inner.values[0], e.const(0x5DEECE66D)), "i64")  # never, but the compiler can't know
        at = e.gep(counts, loop.index, "i64")
        e.store(e.add(e.add(e.load(at, "i64", 8), 1), odd), at, 8)
    return e.finish("busy")


def waiting_kernel() -> tuple[str, str]:
    """started[begin] = 1, then nothing until go[0] is not zero."""
    text = """
define void @waiting(ptr %args, i64 %begin, i64 %end, ptr %scratch) {
  %started = load ptr, ptr %args
  %second = getelementptr ptr, ptr %args, i64 1
  %go = load ptr, ptr %second
  %mine = getelementptr i64, ptr %started, i64 %begin
  store volatile i64 1, ptr %mine
  br label %again
again:
  %flag = load volatile i64, ptr %go
  %waits = icmp eq i64 %flag, 0
  br i1 %waits, label %again, label %done
done:
  ret void
}
"""
    return "waiting", text


def calls_kernel() -> tuple[str, str]:
    """calls[begin] = the address of the scratch memory as it is given, and end."""
    e = Emitter()
    call = e.gep(e.argument(0), e.mul(e.begin, 2), "i64")
    e.store(e.cast("ptrtoint", e.scratch, "i64"), call, 8)
    e.store(e.end, e.gep(call, 1, "i64"), 8)
    return e.finish("calls")


def needs_others_kernel() -> tuple[str, str]:
    """done[i] = 1 for each of eight tasks; who has task 0 stays until 2 to 7 are done, or give_up[0] is not zero."""
    text = """
define void @needs_others(ptr %args, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %done = load ptr, ptr %args
  %second = getelementptr ptr, ptr %args, i64 1
  %give_up = load ptr, ptr %second
  br label %mark
mark:
  %i = phi i64 [ %begin, %entry ], [ %next, %mark ]
  %mine = getelementptr i64, ptr %done, i64 %i
  store volatile i64 1, ptr %mine
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %mark, label %first
first:
  %has_first = icmp eq i64 %begin, 0
  br i1 %has_first, label %wait, label %out
wait:
  %k = phi i64 [ 2, %first ], [ %k, %again ], [ %k_next, %there ]
  %other = getelementptr i64, ptr %done, i64 %k
  %flag = load volatile i64, ptr %other
  %is_done = icmp ne i64 %flag, 0
  br i1 %is_done, label %there, label %again
there:
  %k_next = add i64 %k, 1
  %left = icmp slt i64 %k_next, 8
  br i1 %left, label %wait, label %out
again:
  %stop = load volatile i64, ptr %give_up
  %stops = icmp ne i64 %stop, 0
  br i1 %stops, label %out, label %wait
out:
  ret void
}
"""
    return "needs_others", text


def binary_kernel(opcode: str, length: int, element: str = "float") -> tuple[str, str]:
    """out[i] = a[i] `opcode` b[i], 0 <= i < length, one element a task."""
    e = Emitter()
    a, b, out = (e.argument(i) for i in range(3))
    size = {"float": 4, "i64": 8}[element]

    def at(base: Value, index: Value) -> Value:
        return e.gep(base, index, element)

    with e.loop(e.begin, e.end) as loop:
        value = e.binary(opcode, e.load(at(a, loop.index), element, size), e.load(at(b, loop.index), element, size))
        e.store(value, at(out, loop.index), size)
    return e.finish(f"{opcode}{length}")


def load(*kernels: tuple[str, str]) -> LoadedCode:
    return LoadedCode({symbol: emit_object(text, host()) for symbol, text in kernels})


@dataclass
class Table:
    """A dispatch table and what its rows point to."""

    rows: np.ndarray
    keep: list[np.ndarray]

    def run(self, pool: ThreadPool, scratch: np.ndarray | None = None, times: np.ndarray | None = None) -> None:
        address, stride = (scratch.ctypes.data, scratch.strides[0]) if scratch is not None else (0, 0)
        pool.run(self.rows.ctypes.data, len(self.rows), address, stride, times.ctypes.data if times is not None else 0)


def table(
    code: LoadedCode, *launches: tuple[str, tuple[np.ndarray, ...], int], units: int = 0, resumes: bool = False, kept: int = 0
) -> Table:
    """Rows of (symbol, arguments, tasks), split into as many units as there are threads, or `units`, of which threads keep `kept`; of
    kernels that resume or do not.
    """
    rows = np.zeros((len(launches), 4), np.int64)
    keep: list[np.ndarray] = []
    for row, (symbol, arguments, tasks) in zip(rows, launches, strict=True):
        pointers = np.array([a.ctypes.data for a in arguments], np.int64)
        keep += [pointers, *arguments]
        row[:] = code.address(symbol), pointers.ctypes.data, tasks, split(units, resumes, kept)
    return Table(rows, keep)
