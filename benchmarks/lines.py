"""What a line of memory costs one core, by which of two cores had it before, and how far apart the two are.

python -m benchmarks.lines                 for some seconds
python -m benchmarks.lines --seconds 300   until a virtual machine has had its cores near each other and far

A host may run two virtual cores on real ones with a common third-level cache or without, and change that within seconds. It shows in the
way of a flag from one to the other; what was measured while that was short, and while it was long, stands in columns of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
import ctypes
from dataclasses import dataclass
import os
from statistics import median
import time
from typing import TypeAlias

import click
import numpy as np
from numpy.typing import NDArray

from anycann.codegen.emitter import Emitter
from anycann.codegen.objects import emit_object
from anycann.codegen.values import vector_type
from anycann.runtime.loader import LoadedCode
from anycann.support.errors import UsageError
from anycann.target.target import Target, host
from benchmarks.peak import KERNEL
from benchmarks.report import markdown

LINE = 64
NBYTES = 256 << 10  # less than a second-level cache
TURNS, MEASURED = 2000, 4  # of the flag, and times that every history is measured between two looks at it
APART = 1.5  # ways of the flag that differ by this are two states

Core: TypeAlias = int
Steps: TypeAlias = Sequence[tuple[Core, str]]
# Who read and wrote the lines before core 0 does
HISTORIES: Mapping[str, Steps] = {
    "written here": [(0, "write")],
    "written there": [(1, "write")],
    "written here, then read there": [(0, "write"), (1, "read")],
    "written there, then read here": [(1, "write"), (0, "read")],
}

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


@dataclass(frozen=True)
class Sample:
    """The way of the flag and, by (history, "read" or "write"), what a line cost, all in nanoseconds."""

    way: float
    lines: Mapping[tuple[str, str], float]


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
        self._memory: NDArray[np.float32] = np.zeros((NBYTES + 2 * LINE) // 4, np.float32)
        self._sums: NDArray[np.float32] = np.zeros((2, 64), np.float32)

    def line(self, core: Core, name: str) -> float:
        """Nanoseconds a line that a core takes to read or write all of them."""
        arguments = (ctypes.c_void_p * 2)(self._aligned, self._sums[core].ctypes.data)

        def run() -> float:
            started = time.perf_counter_ns()
            self._kernels[name](arguments, 0, NBYTES // LINE, None)
            return (time.perf_counter_ns() - started) / (NBYTES // LINE)

        return self._threads[core].submit(run).result()

    def way(self) -> float:
        """Nanoseconds from one core's store until the other has seen it."""
        self._memory[:2] = 0
        arguments = (ctypes.c_void_p * 1)(self._aligned)
        started = time.perf_counter_ns()
        for turn in [thread.submit(self._flag, arguments, me, TURNS, None) for me, thread in enumerate(self._threads)]:
            turn.result()
        return (time.perf_counter_ns() - started) / (2 * TURNS)

    @property
    def _aligned(self) -> int:
        return self._memory.ctypes.data + -self._memory.ctypes.data % LINE


def sample(cores: Cores) -> Sample:
    """Every history once, between two looks at the flag; the longer way counts."""
    before, found = cores.way(), dict[tuple[str, str], list[float]]()
    for _ in range(MEASURED):
        for history, steps in HISTORIES.items():
            for name in ("read", "write"):
                for core, step in steps:
                    cores.line(core, step)
                found.setdefault((history, name), []).append(cores.line(0, name))
    return Sample(max(before, cores.way()), {key: median(times) for key, times in found.items()})


def states(samples: Sequence[Sample]) -> list[list[Sample]]:
    """The samples of a short and of a long way of the flag, or all where the ways are alike."""
    ways = sorted(each.way for each in samples)
    near, far = ways[len(ways) // 20], ways[-1 - len(ways) // 20]
    if far < APART * near:
        return [list(samples)]
    border = (near * far) ** 0.5
    return [[each for each in samples if (each.way < border) is short] for short in (True, False)]


def table(samples: Sequence[Sample]) -> list[str]:
    """A table of Markdown: nanoseconds to read and to write a line, a column for each state."""
    found = states(samples)

    def text(number: Callable[[Sample], float]) -> str:
        return " / ".join(f"{median(map(number, each)):.1f}" for each in found)

    def cost(history: str, name: str) -> str:
        return text(lambda each: each.lines[history, name])

    rows = [[history, cost(history, "read"), cost(history, "write")] for history in HISTORIES]
    counts = " / ".join(str(len(each)) for each in found)
    return [f"a flag's way from one core to the other: {text(lambda each: each.way)} ns ({counts} samples)", ""] + markdown(
        ["ns for a line", "to read", "to write"], rows
    )


@click.command
@click.option("--seconds", default=10.0, show_default=True, help="How long to measure.")
def main(seconds: float) -> None:
    """Say what a line costs a core, by which of two had it before; in two columns if their distance changed meanwhile."""
    try:
        cores = Cores(host())
    except UsageError as error:
        raise click.ClickException(str(error)) from None
    found, end = list[Sample](), time.monotonic() + seconds
    while time.monotonic() < end or not found:
        found.append(sample(cores))
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
