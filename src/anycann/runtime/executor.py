"""Running a compiled program: its steps in order, on memory of its own, from any number of threads at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import time
from typing import Literal, TypeAlias
import weakref

import numpy as np
from numpy.typing import NDArray

from anycann.om.plan import HostStep, NativeStep, Program, RegionStep, Task, TensorSpec
from anycann.runtime import memory
from anycann.runtime.deferred_calls import DeferredCall
from anycann.runtime.direct_call import Direct
from anycann.runtime.dispatch import ROW_BYTES
from anycann.runtime.feeds import Port
from anycann.runtime.host import HostCall, HostRunner
from anycann.runtime.launches import Loan, Patches, Workspace, Workspaces, plan_launches
from anycann.runtime.linked_calls import LinkedCalls
from anycann.runtime.linking import may_be_linked
from anycann.runtime.loader import LoadedCode
from anycann.runtime.native_call import NativeCall
from anycann.runtime.observe import Callback, Observation, Observer, StepEvent
from anycann.runtime.region_cache import RegionCache
from anycann.runtime.regions import Scope, run_region_step
from anycann.runtime.results import Buffers, Given, Results, written_in_place
from anycann.runtime.run_state import RunState
from anycann.runtime.thread_pool import ThreadPool
from anycann.support.errors import InternalError, UsageError
from anycann.support.records import dataclass


@dataclass(frozen=True)
class _Launch:
    """A native step: its tasks, whose rows in the table begin at `first`."""

    tasks: tuple[Task, ...]
    first: int

    @property
    def count(self) -> int:
        return len(self.tasks)


_RunStep: TypeAlias = HostCall | RegionStep | DeferredCall | _Launch


class CompiledProgram:
    """A program ready to run. Thread-safe: every run has a workspace of its own, kept for the next one.

    constants: the packed weights, uint8, aligned to 64 bytes with slack behind (else they are copied). `host` runs AiCpu nodes, `regions`
    compiles and keeps regions, and is kept by the caller: regions are programs that refer to it. A program without such steps needs
    neither. poison: fill the workspace and fresh outputs with 0xFF before each run, so that a kernel which reads what nobody wrote shows.
    """

    def __init__(
        self,
        program: Program,
        constants: NDArray[np.uint8] | memoryview,
        code: LoadedCode,
        pool: ThreadPool,
        host: HostRunner | None = None,
        regions: RegionCache | None = None,
        poison: bool = False,
    ):
        self.program = program
        self._constants = _aligned(constants)
        self._code = code  # keeps the machine code loaded
        self._pool = pool
        self._regions = None if regions is None else weakref.ref(regions)
        self._poison = poison
        self._inputs = [Port(spec, i, "input") for i, spec in enumerate(program.inputs)]
        self._results = Results(program.outputs, written_in_place(program), poison)
        self._launches = plan_launches(program, code, self._constants)
        self._workspaces = Workspaces(self._launches, pool.threads, poison)
        self._steps = _prepared(program, host)
        # Whether `run_at` may be called: kernels alone compute this program, and write every output where it belongs.
        self.takes_addresses = self._results.all_in_place and all(isinstance(step, _Launch) for step in self._steps)
        self._native = NativeCall(self._launches, self._results, pool, self._workspaces, (code, self._constants))
        self._linked = LinkedCalls(pool, poison) if regions is not None and may_be_linked(program) else None
        self._observers: tuple[Observer, ...] = ()
        self._watched = np.zeros(1, np.int64)  # how many they are, for native code

    def run(self, feeds: Sequence[object], outputs: Buffers | None = None) -> list[object]:
        """Compute the outputs for `feeds`, one value for each of `program.inputs` in order.

        A feed is a numpy array of the declared dtype and shape, read in place if it is row-major and aligned, else copied; or a host
        object. `outputs` may give an array for each output, or None; it is written in place if it is row-major, aligned and apart from the
        feeds, else by a copy. Results without such an array are fresh. Raises UsageError for a feed or buffer that does not fit.
        """
        return self._run(feeds, outputs, self._observers)

    def run_accepted(self, feeds: Sequence[object], outputs: Buffers | None = None) -> list[object]:
        """As `run`, for feeds that are known to fit: row-major aligned arrays of the declared dtypes and shapes, which is not checked."""
        return self._run_accepted(feeds, outputs, self._observers, False)

    def run_within(self, feeds: Sequence[object], observers: tuple[Observer, ...]) -> list[object]:
        """As `run`, of a region: its results may be feeds, or each other."""
        return self._run(feeds, None, observers, borrowed=True)

    def direct(self, names: Sequence[str], feeds: Sequence[object]) -> Direct | None:
        """This program as one function of the interpreter (`direct_call`), if kernels alone compute it; `feeds` are such as it takes.

        names: what a dictionary of feeds calls them, at every time the same.
        """
        call = self._native if self.takes_addresses else None if self._linked is None else self._linked.latest
        return None if call is None else call.direct(names, feeds, self._watched, (self._code, self._constants))

    def run_at(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Run on memory at these addresses, one for each input and output: row-major, of the declared types, outputs apart from all others.

        Nothing is checked. For callers that know what they own; it leaves out what `run` does to be sure. Observers see no such run.
        """
        self._native.run_at(inputs, outputs)

    # ---- for linking
    def kernel(self, symbol: str) -> int:
        """The address of a kernel of this program."""
        return self._code.address(symbol)

    @property
    def constants_address(self) -> int:
        """Where the constants lie."""
        return memory.address(self._constants)

    def lend(self, loan: Loan) -> Callable[[], None]:
        """Let one run at a time work in the caller's memory, `program.arena_bytes` at least; what is returned ends it, when no run does.

        Runs that begin meanwhile, and those of other threads than the loan's, take memory of their own.
        """
        self._workspaces.lend(loan)
        return lambda: self._workspaces.end(loan)

    def forget_workspaces(self) -> None:
        """Give back the memory of runs to come."""
        self._workspaces.forget()

    # ---- watching
    def observe(self, callback: Callback, tensors: bool = True) -> Observation:
        """Call `callback(StepEvent)` after each kernel, host node and region of every run, in the thread of the run, until closed.

        With `tensors` kernels are launched one by one and any tensor can be looked at. Without, a native step still runs as one call and
        its events come after it, with exact times; then a tensor may have been overwritten by a later kernel.
        """
        observer = Observer(callback, tensors)
        self._watch((*self._observers, observer))

        def end() -> None:
            self._watch(tuple(other for other in self._observers if other is not observer))

        return Observation(end)

    def _watch(self, observers: tuple[Observer, ...]) -> None:
        self._observers, self._watched[0] = observers, len(observers)

    def _run(
        self, feeds: Sequence[object], buffers: Buffers | None, observers: tuple[Observer, ...], borrowed: bool = False
    ) -> list[object]:
        if len(feeds) != len(self._inputs):
            names = ", ".join(port.name for port in self._inputs)
            raise UsageError(f"{len(feeds)} feeds; accepted: {len(self._inputs)} ({names})")
        accepted = [port.accept(feed) for port, feed in zip(self._inputs, feeds, strict=True)]
        return self._run_accepted(accepted, buffers, observers, borrowed)

    def _run_accepted(
        self, accepted: Sequence[object], buffers: Buffers | None, observers: tuple[Observer, ...], borrowed: bool
    ) -> list[object]:
        call = None if observers else self._call(buffers)
        found = None if call is None else call.run(accepted, buffers)
        if found is not None:
            return found
        values = self._run_steps(accepted, buffers, observers, borrowed)
        if self._linked is not None:
            self._linked.update(self, self._known_regions(), call)
        return values

    def _call(self, buffers: Buffers | None) -> NativeCall | None:
        """What computes this program without its steps, if there is something."""
        if self.takes_addresses:
            return self._native
        return None if self._linked is None else self._linked.call(buffers)

    def _run_steps(
        self, accepted: Sequence[object], buffers: Buffers | None, observers: tuple[Observer, ...], borrowed: bool
    ) -> list[object]:
        results = self._results.arrays(accepted, buffers)
        workspace = self._workspaces.take()
        try:
            _bind(workspace, self._launches.inputs, accepted)
            _bind(workspace, self._launches.outputs, results)
            state = RunState(self.program, self._constants, self._code.target.lanes, workspace, accepted, results, observers)
            for step in self._steps:
                self._run_step(step, state)
            return self._results.collect(state, accepted, results, buffers, borrowed)
        finally:
            self._workspaces.give_back(workspace)

    # ---- steps
    def _run_step(self, step: _RunStep, state: RunState) -> None:
        if isinstance(step, _Launch):
            if state.observers:
                self._run_observed(step, state)
            elif step.count:
                self._launch(step.first, step.count, state)
            return
        begin = time.monotonic_ns() if state.observers else 0
        if isinstance(step, HostCall):
            step.run(state)
        elif isinstance(step, DeferredCall):
            step.run(state, self._known_regions())
        else:
            self._run_region(step, state)
        if state.observers:
            _tell(state, _event_of(step if isinstance(step, RegionStep) else step.step, begin, state))

    def _launch(self, first: int, count: int, state: RunState, times_address: int = 0) -> None:
        space = state.workspace
        self._pool.run(space.table_address + first * ROW_BYTES, count, space.scratch_address, space.scratch_stride, times_address)

    def _run_observed(self, launch: _Launch, state: RunState) -> None:
        """One by one if somebody looks at tensors, else at once with the times written by the dispatcher."""
        times = np.zeros(launch.count + 1, np.int64)
        one_by_one = any(observer.tensors for observer in state.observers)
        if not one_by_one:
            self._launch(launch.first, launch.count, state, times.ctypes.data)
        for number, task in enumerate(launch.tasks):
            at = number
            if one_by_one:
                self._launch(launch.first + number, 1, state, times.ctypes.data)
                at = 0
            _tell(
                state,
                StepEvent(
                    "kernel",
                    task.symbol,
                    task.nodes,
                    task.op_types,
                    task.outputs,
                    int(times[at]),
                    int(times[at + 1]),
                    task.tasks,
                    task.flops,
                    state.value,
                    state.program,
                ),
            )

    def _known_regions(self) -> RegionCache:
        regions = None if self._regions is None else self._regions()
        if regions is None:
            raise InternalError("the program needs a compiler for its regions, but it was loaded without one, or that is gone")
        return regions

    def _run_region(self, step: RegionStep, state: RunState) -> None:
        regions = self._known_regions()
        once: Sequence[object] | None = None

        def call(region: str, names: Sequence[str], inputs: Sequence[object]) -> list[object]:
            nonlocal once
            once = inputs
            return regions.program(region, names, inputs).run_within(inputs, state.observers)

        def outputs(region: str, names: Sequence[str], inputs: Sequence[object]) -> tuple[TensorSpec, ...]:
            return regions.program(region, names, inputs).program.outputs

        # a body may hand on what it was given, such as a value carried through unchanged; what stays after the step is copied once
        results = run_region_step(step, Scope(state.value, call, outputs))
        given = Given(once if once is not None and step.kind == "if" else _given(step, state))
        state.store_all(step, [given.own(value) for value in results])


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


def _bind(workspace: Workspace, patches: Sequence[Patches], arrays: Sequence[object]) -> None:
    """Point the kernels' arguments to the arrays of this run."""
    for where, array in zip(patches, arrays, strict=True):
        if where:
            if not isinstance(array, np.ndarray):
                raise InternalError(f"a kernel reads or writes a {type(array).__name__}, which has no memory")
            workspace.bind(where, memory.address(array))


def _prepared(program: Program, host: HostRunner | None) -> tuple[_RunStep, ...]:
    """The steps with what they keep from run to run; native ones with the numbers of their rows in the table."""
    steps: list[_RunStep] = []
    first = 0
    for step in program.steps:
        if isinstance(step, NativeStep):
            steps.append(_Launch(step.tasks, first))
            first += len(step.tasks)
        elif isinstance(step, HostStep):
            steps.append(HostCall(step, host))
        else:
            steps.append(DeferredCall(step) if step.kind == "deferred" else step)
    return tuple(steps)


def _aligned(constants: NDArray[np.uint8] | memoryview) -> memory.Bytes:
    data = np.frombuffer(constants, np.uint8) if isinstance(constants, memoryview) else constants
    if data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous:
        raise UsageError(f"constants are {data.dtype.name}{list(data.shape)}; accepted: one row of uint8")
    return data if data.ctypes.data % memory.ALIGNMENT == 0 else memory.aligned_copy(data)
