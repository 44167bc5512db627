"""A kernel around the stages of a nest: its pointers, and which of the outer loops are tasks that threads share."""

from __future__ import annotations

from collections.abc import Sequence
import math

from anycann.codegen.accesses import Stage
from anycann.codegen.halves import Turn, even_count, in_order
from anycann.codegen.interior import Interior
from anycann.codegen.kernel import Kernel, RowTasks
from anycann.codegen.lanes import Flat
from anycann.codegen.nest_stages import StageWriter
from anycann.codegen.values import Value
from anycann.codegen.vector_loop import EXPENSIVE, vector_cycles
from anycann.te.expression import Op, Var
from anycann.te.traversal import walk

SERIAL_WORK = 16_384  # element operations below which splitting costs more than it gains
PARALLEL_PARTS = 64
_TASK_CYCLES = 2000  # that are worth a task
_WRITTEN_OUT = 4  # turns of a loop that LLVM writes out in any case


class NestWriter(StageWriter):
    """Writes one kernel. parts: tasks that are enough for any number of threads."""

    parts = PARALLEL_PARTS
    aligned = True
    interior: Interior | None = None  # a part of the vector loop that is written for itself
    rows: Var | None = None  # a loop that tasks are apart for, in any case
    halved: Var | None = None  # a loop of which tasks pass one half, for all points of the loops around it, before the other

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
        """The leading loops are the parallel range, perhaps with pieces of the next; the rest run inside a task. Returns how many tasks."""
        leading, pieces = self._shared_out(loops, work)
        tasks = math.prod(loop.extent for loop in loops[:leading]) * pieces
        with self.e.loop(self.e.begin, self.e.end) as task:
            outer = self._outside_of_halves(loops)
            turn = self._turn(task.index, math.prod(loop.extent for loop in outer), tasks)
            number, inner = task.index, loops[:leading]
            if turn is not None:
                self._place(outer, turn.point)
                number, inner = turn.within, loops[len(outer) : leading]
            self._place(inner, number if pieces == 1 else self.e.udiv(number, pieces))
            if pieces == 1:
                self._loops(loops[leading:], self._inside)
            else:
                self._piece(loops[leading:], self.e.urem(number, pieces), pieces)
        return tasks

    def _outside_of_halves(self, loops: Sequence[Var]) -> Sequence[Var]:
        """The loops around `halved`."""
        return loops[: loops.index(self.halved)] if self.halved is not None and self.halved in loops else ()

    def _turn(self, task: Value, around: int, tasks: int) -> Turn | None:
        """The turn of a task where those of one half of `halved` come first, in `around` points; None where they lie as the loops do."""
        inside = tasks // around
        return in_order(self.e, task, around, inside, inside - inside // 2) if around > 1 and inside > 1 else None

    def _place(self, loops: Sequence[Var], number: Value) -> None:
        """Give loops, outer first, their values at a point of all of them."""
        for variable in reversed(loops[1:]):
            self.values[variable] = self.e.urem(number, variable.extent)
            number = self.e.udiv(number, variable.extent)
        for variable in loops[:1]:
            self.values[variable] = number

    def _shared_out(self, loops: list[Var], work: int) -> tuple[int, int]:
        """How many of the leading loops make a task of each of their points, and of how many pieces of the next each of those consists."""
        if self.rows is not None:
            return loops.index(self.rows) + 1, 1
        parts = 1 if work < SERIAL_WORK else min(self.parts, work // (SERIAL_WORK // 4) + 1)
        leading, tasks = 0, 1
        while leading < len(loops) and self._gains_tasks(tasks, parts, loops[leading].extent):
            extent = loops[leading].extent
            if leading and tasks * extent > parts:
                pieces = -(-extent // -(-extent * tasks // parts))
                return leading, min(extent, even_count(pieces)) if loops[leading] is self.halved else pieces
            tasks *= extent
            leading += 1
        return leading, 1

    def _gains_tasks(self, tasks: int, parts: int, extent: int) -> bool:
        """Whether so many tasks should become more, by a loop of `extent`; where they do for some threads, only if there is much to do.

        Finding its place costs a task some divisions, and a loop that is not cut may be written out, with what its borders leave out: with
        56 tasks, and not 672, a pooling of 220 channels took 0.58 of the time, with 20, and not 2220, one of 151 onto 3 x 37 pixels 0.62.
        """
        if tasks < max(1, parts // 4) or tasks >= parts:
            return tasks < parts
        return extent > _WRITTEN_OUT and vector_cycles(self.nest, self.vector, self.target) >= parts * _TASK_CYCLES

    def _piece(self, loops: Sequence[Var], number: Value, pieces: int) -> None:
        """Piece `number` of the first of the loops, all of the others."""
        size = -(-loops[0].extent // pieces)
        first = self.e.mul(number, size)
        with self.e.loop(first, self.e.smin(self.e.add(first, size), self.e.const(loops[0].extent))) as loop:
            self.values[loops[0]] = loop.index
            self._loops(loops[1:], self._inside)

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
