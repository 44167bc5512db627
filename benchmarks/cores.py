"""Two threads on processors of their own: how long a flag takes from one to the other, and how long each takes to read or write lines."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
import ctypes
import os
from statistics import median
import time
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from anycann.codegen.emitter import Emitter
from anycann.codegen.objects import emit_object
from anycann.codegen.values import vector_type
from anycann.runtime import memory
from anycann.runtime.loader import LoadedCode
from anycann.support.errors import UsageError
from anycann.target.target import Target
from benchmarks.peak import KERNEL

LINE = 64
NBYTES = 256 << 10  # less than a second-level cache
TURNS, LOOKS = 2000, 9  # of the flag, and times it is measured for its usual way

Core: TypeAlias = int

# Each of two threads waits until the flag is its own number, then adds one, which makes it the other's.
_FLAG = """
define void @flag(ptr %args, i64 %me, i64 %turns, ptr %scratch) {
entry:
  %flag = load ptr, ptr %args
  br label %turn
turn:
  %count = phi i64 [ 0, %entry ], [ %next, %mine ]
  br label %wait
wait:
  %value = load atomic i64, ptr %flag acquire, align 8
  %whose = and i64 %value, 1
  %is_mine = icmp eq i64 %whose, %me
  br i1 %is_mine, label %mine, label %wait
mine:
  %after = add i64 %value, 1
  store atomic i64 %after, ptr %flag release, align 8
  %next = add i64 %count, 1
  %more = icmp ult i64 %next, %turns
  br i1 %more, label %turn, label %out
out:
  ret void
}
"""


def line_kernel(target: Target, writes: bool) -> tuple[str, str]:
    """Symbol and IR of a kernel that reads or writes the lines begin..end behind argument 0; argument 1 takes a sum."""
    e = Emitter()
    source, sums = e.argument(0), e.argument(1)
    type_ = vector_type("float", target.lanes)
    with e.loop(e.begin, e.end, carried=[e.zero(type_)]) as loop:
        line, total = e.gep(source, e.mul(loop.index, LINE // 4), "float"), loop.values[0]
        for part in range(0, LINE // 4, target.lanes):
            at = e.gep(line, part, "float")
            if writes:
                e.store(total, at, 4)
            else:
                total = e.binary("fadd", total, e.load(at, type_, 4))
        loop.carry([total])
    e.store(loop.values[0], sums, 4)
    return e.finish("lines")


class Cores:
    """Two threads, each on a processor of its own, and the lines that they share. Raises UsageError where there is only one processor."""

    def __init__(self, target: Target):
        processors = sorted(os.sched_getaffinity(0))
        if len(processors) < 2:
            raise UsageError(f"lines between cores: this process may use {len(processors)} processor; accepted: 2 and more")
        self._threads = [ThreadPoolExecutor(1) for _ in range(2)]
        for thread, processor in zip(self._threads, processors, strict=False):
            thread.submit(os.sched_setaffinity, 0, {processor}).result()
        texts = {name: line_kernel(target, name == "write") for name in ("read", "write")}
        objects = {symbol: emit_object(text, target) for symbol, text in (*texts.values(), ("flag", _FLAG))}
        self._code = LoadedCode(objects, target)
        self._kernels = {name: KERNEL(self._code.address(symbol)) for name, (symbol, _) in texts.items()}
        self._flag = KERNEL(self._code.address("flag"))
        self._memory = memory.allocate(NBYTES + 2 * LINE).view(np.float32)  # with a line in front and one behind
        self._lines = memory.address(self._memory) + LINE
        self._memory.fill(0)
        self._sums: NDArray[np.float32] = np.zeros((2, 64), np.float32)

    def line(self, core: Core, name: str) -> float:
        """Nanoseconds a line that a core takes to read or write all of them."""
        arguments = (ctypes.c_void_p * 2)(self._lines, self._sums[core].ctypes.data)

        def run() -> float:
            started = time.perf_counter_ns()
            self._kernels[name](arguments, 0, NBYTES // LINE, None)
            return (time.perf_counter_ns() - started) / (NBYTES // LINE)

        return self._threads[core].submit(run).result()

    def way(self) -> float:
        """Nanoseconds from one core's store until the other has seen it."""
        self._memory[LINE // 4 : LINE // 2] = 0
        arguments = (ctypes.c_void_p * 1)(self._lines)
        started = time.perf_counter_ns()
        for turn in [thread.submit(self._flag, arguments, me, TURNS, None) for me, thread in enumerate(self._threads)]:
            turn.result()
        return (time.perf_counter_ns() - started) / (2 * TURNS)


def usual_way(target: Target) -> float:
    """Nanoseconds of a flag's way at this time, the median of some; 0 where there is one processor."""
    try:
        cores = Cores(target)
    except UsageError:
        return 0.0
    return median(cores.way() for _ in range(LOOKS))
