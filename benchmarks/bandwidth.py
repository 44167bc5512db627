"""How fast this processor reads, again and again, working sets that its second cache holds, its third may hold, and no cache does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
import ctypes
from dataclasses import dataclass
import time

import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.objects import emit_object
from anycann.codegen.values import vector_type
from anycann.runtime.loader import LoadedCode
from anycann.target.target import Target, host
from anycann.tools.output import format_bytes
from benchmarks.peak import KERNEL

STREAMS = 8  # vectors read in one iteration, each added to a sum of its own
SETS = (32 << 20, 512 << 20)  # bytes of the larger working sets, of all threads together
LEAST_SECONDS = 0.05
REPEATS = 3


@dataclass(frozen=True)
class Bandwidth:
    """Bytes a second that all threads read together, for working sets of up to so many bytes of all threads: (bytes, rate), rising."""

    levels: tuple[tuple[int, float], ...]

    def rate(self, working_set: int) -> float:
        """Of the smallest measured working set that is as large, or of the largest."""
        return next((rate for nbytes, rate in self.levels if working_set <= nbytes), self.levels[-1][1])


def reading_kernel(target: Target) -> tuple[str, str, int]:
    """Symbol, IR and bytes of one task."""
    e = Emitter()
    source, sums = e.argument(0), e.argument(1)
    type_ = vector_type("float", target.lanes)
    with e.loop(e.begin, e.end, carried=[e.zero(type_)] * STREAMS) as loop:
        at = e.binary("mul", loop.index, e.const(STREAMS * target.lanes))
        vectors = [e.load(e.gep(e.gep(source, at, "float"), i * target.lanes, "float"), type_, 4) for i in range(STREAMS)]
        loop.carry([e.binary("fadd", total, vector) for total, vector in zip(loop.values, vectors, strict=True)])
    total = loop.values[0]
    for value in loop.values[1:]:
        total = e.binary("fadd", total, value)
    e.store(total, sums, 4)
    symbol, text = e.finish("read")
    return symbol, text, STREAMS * target.lanes * 4


def bandwidth(threads: int, target: Target | None = None) -> Bandwidth:
    """Measured here; takes about a second."""
    target = target or host()
    near = target.l2_bytes * threads  # a set that just fits is read over others' lines, so half of it is measured
    return Bandwidth(((near, _rate(target, threads, near // 2)), *((nbytes, _rate(target, threads, nbytes)) for nbytes in SETS)))


def _rate(target: Target, threads: int, nbytes: int) -> float:
    """The best of some runs; every thread reads its part of `nbytes` again and again."""
    nbytes //= threads
    symbol, text, task_bytes = reading_kernel(target)
    code = LoadedCode({symbol: emit_object(text, target)}, target)
    kernel, tasks = KERNEL(code.address(symbol)), nbytes // task_bytes
    memory = [np.zeros(nbytes // 4 + 16, np.float32) for _ in range(threads)]
    for block in memory:
        block.fill(0.5)  # zeros alone may all be one page
    sums = [np.zeros(64, np.float32) for _ in range(threads)]
    arguments = [(ctypes.c_void_p * 2)(block.ctypes.data, total.ctypes.data) for block, total in zip(memory, sums, strict=True)]

    def read(argument: object) -> int:
        """Bytes that were read; a thread goes on for LEAST_SECONDS."""
        done, started = 0, time.perf_counter()
        rounds = max(1, (1 << 24) // nbytes)
        while time.perf_counter() - started < LEAST_SECONDS:
            for _ in range(rounds):
                kernel(argument, 0, tasks, None)
            done += rounds * tasks * task_bytes
        return done

    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(REPEATS):
            started = time.perf_counter()
            total = sum(pool.map(read, arguments))
            best = max(best, total / (time.perf_counter() - started))
    return best


if __name__ == "__main__":
    for count in (1, 2):
        levels = (f"{format_bytes(nbytes)} {rate / 1e9:.1f} GB/s" for nbytes, rate in bandwidth(count).levels)
        print(f"{count} thread(s): {', '.join(levels)}")
