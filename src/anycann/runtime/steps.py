"""The steps of a program, ready to run: kernels, nodes of the host, control flow and deferred regions; and what observers are told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import time
from typing import Literal, TypeAlias
import weakref

import numpy as np

from anycann.om.plan import HostStep, NativeStep, Program, RegionStep, Task, TensorSpec
from anycann.runtime.deferred_calls import DeferredCall
from anycann.runtime.dispatch import ROW_BYTES
from anycann.runtime.host import HostCall, HostRunner
from anycann.runtime.observe import StepEvent
from anycann.runtime.region_cache import RegionCache
from anycann.runtime.regions import Scope, run_region_step
from anycann.runtime.results import Given
from anycann.runtime.run_state import RunState
from anycann.runtime.thread_pool import ThreadPool
from anycann.support.errors import InternalError
from anycann.support.records import dataclass

Regions: TypeAlias = Callable[[], RegionCache]


@dataclass(frozen=True)
class Launch:
    """A native step: its tasks, whose rows in the table begin at `first`."""

    tasks: tuple[Task, ...]
    first: int
    pool: ThreadPool

    def run(self, state: RunState) -> None:
        """All of its kernels in one native call."""
        if self.tasks:
            self._launch(0, len(self.tasks), state)

    def run_observed(self, state: RunState) -> None:
        """One by one if somebody looks at tensors, else at once with the times written by the dispatcher."""
        times = np.zeros(len(self.tasks) + 1, np.int64)
        one_by_one = any(observer.tensors for observer in state.observers)
        if not one_by_one:
            self._launch(0, len(self.tasks), state, times.ctypes.data)
        for number, task in enumerate(self.tasks):
            at = number
            if one_by_one:
                self._launch(number, 1, state, times.ctypes.data)
                at = 0
            source = (task.symbol, task.nodes, task.op_types, task.outputs)
            begin_ns, end_ns = int(times[at]), int(times[at + 1])
            _tell(state, StepEvent("kernel", *source, begin_ns, end_ns, task.tasks, task.flops, state.value, state.program))

    def _launch(self, number: int, count: int, state: RunState, times_address: int = 0) -> None:
        space = state.workspace
        row = space.table_address + (self.first + number) * ROW_BYTES
        self.pool.run(row, count, space.scratch_address, space.scratch_stride, times_address)


class ControlFlow:
    """An If, a Loop or a Scan, whose bodies are programs that `regions` has or compiles."""

    def __init__(self, step: RegionStep, regions: Regions):
        self.step, self._regions = step, regions

    def run(self, state: RunState) -> None:
        """Compute and keep the results. A body may hand on what it was given; what stays after the step is copied once."""
        step, regions = self.step, self._regions()
        once: Sequence[object] | None = None

        def call(region: str, names: Sequence[str], inputs: Sequence[object]) -> list[object]:
            nonlocal once
            once = inputs
            return regions.program(region, names, inputs).run_within(inputs, state.observers)

        def outputs(region: str, names: Sequence[str], inputs: Sequence[object]) -> tuple[TensorSpec, ...]:
            return regions.program(region, names, inputs).program.outputs

        results = run_region_step(step, Scope(state.value, call, outputs))
        given = Given(once if once is not None and step.kind == "if" else _given(step, state))
        state.store_all(step, [given.own(value) for value in results])


Step: TypeAlias = Launch | HostCall | DeferredCall | ControlFlow


def run_step(step: Step, state: RunState) -> None:
    """Run a step, and tell the observers of `state`."""
    if not state.observers:
        step.run(state)
    elif isinstance(step, Launch):
        step.run_observed(state)
    else:
        begin_ns = time.monotonic_ns()
        step.run(state)
        _tell(state, _event_of(step.step, begin_ns, state))


def prepared_steps(program: Program, host: HostRunner | None, regions: Regions, pool: ThreadPool) -> tuple[Step, ...]:
    """The steps with what they keep from run to run; native ones with the numbers of their rows in the table."""
    steps: list[Step] = []
    first = 0
    for step in program.steps:
        if isinstance(step, NativeStep):
            steps.append(Launch(step.tasks, first, pool))
            first += len(step.tasks)
        elif isinstance(step, HostStep):
            steps.append(HostCall(step, host))
        else:
            steps.append((DeferredCall if step.kind == "deferred" else ControlFlow)(step, regions))
    return tuple(steps)


def held_by_others(regions: RegionCache | None) -> Regions:
    """`regions` while somebody else keeps them. Raises InternalError when there are none, or none any more."""
    weak = None if regions is None else weakref.ref(regions)

    def known() -> RegionCache:
        found = None if weak is None else weak()
        if found is None:
            raise InternalError("the program needs a compiler for its regions, but it was loaded without one, or that is gone")
        return found

    return known


def _given(step: RegionStep, state: RunState) -> list[object]:
    """What the regions of a step begin with."""
    return [state.value(name) for name in dict.fromkeys((*step.inputs, *(n for names in step.captures for n in names))) if name]


def _tell(state: RunState, event: StepEvent) -> None:
    for observer in state.observers:
        observer.callback(event)


def _event_of(step: HostStep | RegionStep, begin_ns: int, state: RunState) -> StepEvent:
    kind: Literal["host", "region"] = "host" if isinstance(step, HostStep) else "region"
    op_type = step.op_type if isinstance(step, HostStep) else step.kind
    written = tuple(name for name in step.outputs if name)
    return StepEvent(kind, step.name, (step.name,), (op_type,), written, begin_ns, time.monotonic_ns(), 1, 0, state.value, state.program)
