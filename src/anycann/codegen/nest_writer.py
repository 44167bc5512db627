"""A kernel around the stages of a nest: its pointers, and which of the outer loops are tasks that threads share."""

from __future__ import annotations

from collections.abc import Sequence
import math

from anycann.codegen.accesses import Stage
from anycann.codegen.interior import Interior
from anycann.codegen.kernel import Kernel, RowTasks
from anycann.codegen.lanes import Flat
from anycann.codegen.nest_stages import StageWriter
from anycann.codegen.vector_loop import EXPENSIVE, vector_cycles
from anycann.te.expression import Op, Var
from anycann.te.traversal import walk

SERIAL_WORK = 16_384  # element operations below which splitting costs more than it gains
PARALLEL_PARTS = 64
_TASK_CYCLES = 100  # that make the finding of a task's place nothing


class NestWriter(StageWriter):
    """Writes one kernel. parts: tasks that are enough for any number of threads."""

    parts = PARALLEL_PARTS
    aligned = True
    interior: Interior | None = None  # a part of the vector loop that is written for itself
    rows: Var | None = None  # a loop that tasks are apart for, in any case

    def write(self, family: str, inputs: Sequence[str], outputs: Sequence[str], rows: Sequence[Flat] = ()) -> Kernel:
        """The whole kernel; `rows` lie one behind the other in the thread's scratch memory."""
        e = self.e
        self.bind(inputs, len(outputs))
        offset = 0
        for row in rows:
            self.pointers[row.source.name] = e.gep(e.scratch, offset, row.dtype.storage)
            offset += row.size
        loops = self.task_loops()
        work = math.prod(v.extent for v in self.nest.outer) * sum(_work(stage) for stage in self.nest.stages)
        tasks = self._chunks(self.vector, work) if not loops and self.vector is not None else self._tasks(loops, work)
        symbol, ir = e.finish(family)
        return Kernel(symbol, ir, (*inputs, *outputs), tasks, flops=work)

    def bind(self, inputs: Sequence[str], outputs: int, first: int = 0) -> None:
        """Load the pointers of inputs and outputs from the argument slots `first` and up."""
        for number, name in enumerate(inputs):
            self.pointers[name] = self.e.argument(first + number)
        self.stores = [self.e.argument(first + len(inputs) + number) for number in range(outputs)]

    def task_loops(self) -> list[Var]:
        """The loops that may be shared out to threads."""
        return [v for v in self.nest.outer if v is not self.vector]

    def _chunks(self, variable: Var, work: int) -> int:
        """One long vector loop, cut into chunks of whole vectors. Returns how many tasks that makes."""
        e, lanes, extent = self.e, self.target.lanes * self.wide, variable.extent
        parts = 1 if work < SERIAL_WORK else min(self.parts, work // (SERIAL_WORK // 4) + 1)
        chunk = max(lanes, _round_up(_round_up(extent, parts) // parts, lanes))
        stop = e.smin(e.mul(e.end, chunk), e.const(extent))
        self._vector_loop(variable, e.mul(e.begin, chunk), stop, self.stages)
        return max(1, -(-extent // chunk))

    def row_tasks(self, images: int) -> RowTasks | None:
        """How the tasks lie along `rows`; so many images are the first loop."""
        if self.rows is None:
            return None
        loops = self.task_loops()
        before = math.prod(loop.extent for loop in loops[: loops.index(self.rows)])
        return RowTasks(before // images, self.rows.extent, 1, 0, images=images)

    def _tasks(self, loops: list[Var], work: int) -> int:
        """The leading loops are the parallel range; the rest run inside a task. Returns how many tasks that makes."""
        leading = 0 if self.rows is None else loops.index(self.rows) + 1
        tasks = math.prod(loop.extent for loop in loops[:leading])
        while self.rows is None and leading < len(loops) and self._is_worth_splitting(tasks, loops[leading].extent, work):
            tasks *= loops[leading].extent
            leading += 1
        with self.e.loop(self.e.begin, self.e.end) as task:
            rest = task.index
            for variable in reversed(loops[:leading]):
                first = variable is loops[0]
                self.values[variable] = rest if first else self.e.urem(rest, variable.extent)
                rest = rest if first else self.e.udiv(rest, variable.extent)
            self._loops(loops[leading:], self._inside)
        return tasks

    def _is_worth_splitting(self, tasks: int, extent: int, work: int) -> bool:
        """Whether tasks that are too few become `extent` times as many: not where that makes many of little work.

        Finding its place costs each task some divisions: with 56 tasks, and not 672, a pooling of 220 channels took 0.58 of the time, with
        22, and not 242, one of 28 channels onto 11 x 11 pixels 0.66.
        """
        if work < SERIAL_WORK or tasks >= self.parts:
            return False
        cycles = vector_cycles(self.nest, self.vector, self.target)
        return tasks < self.parts // 4 or cycles >= tasks * extent * _TASK_CYCLES

    def _inside(self) -> None:
        """What a task does at one point of the loops around it."""
        if self.vector is None:
            self.stages(1, None)
        elif self.interior is not None:
            self._around(self.vector, self.interior)
        else:
            self._vector_loop(self.vector, self.e.const(0), self.e.const(self.vector.extent), self.stages)

    def _around(self, whole: Var, inside: Interior) -> None:
        """The vector loop in three: its interior, and what comes before and behind it."""
        nest, vectors = self.nest, inside.vector.extent
        self._stretch(whole, 0, inside.first)
        self.nest, self.vector, self.aligned = inside.nest, inside.vector, inside.first == 0
        self._vector_loop(inside.vector, self.e.const(0), self.e.const(vectors), self.stages)
        self.nest, self.vector, self.aligned = nest, whole, False
        self._stretch(whole, inside.first + vectors, whole.extent)
        self.aligned = True

    def _stretch(self, variable: Var, first: int, stop: int) -> None:
        """Places first .. stop - 1: whole vectors, then the rest."""
        lanes = self.target.lanes
        behind = stop - (stop - first) % lanes
        if behind > first:
            with self.e.loop(first, behind, lanes) as loop:
                self.values[variable] = loop.index
                self.stages(lanes, None)
        if stop > behind:
            self.values[variable] = self.e.const(behind)
            self.stages(lanes, self._tail_mask(stop - behind))


def _work(stage: Stage) -> int:
    per_element = sum(8 if isinstance(x, Op) and x.name in EXPENSIVE else 1 for x in walk(stage.body))
    return per_element * math.prod(v.extent for v in stage.over)


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step
