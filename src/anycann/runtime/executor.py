"""Running a compiled program: its steps in order, on memory of its own, from any number of threads at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from anycann.om.plan import Program
from anycann.runtime import memory
from anycann.runtime.direct_call import Direct
from anycann.runtime.feeds import Port
from anycann.runtime.host import HostRunner
from anycann.runtime.launches import Loan, Patches, Workspace, Workspaces, plan_launches
from anycann.runtime.linked_calls import LinkedCalls
from anycann.runtime.linking import may_be_linked
from anycann.runtime.loader import LoadedCode
from anycann.runtime.native_call import NativeCall, OwnCall
from anycann.runtime.observe import Callback, Observation, Observer
from anycann.runtime.region_cache import RegionCache
from anycann.runtime.results import Buffers, Results, written_in_place
from anycann.runtime.run_state import RunState
from anycann.runtime.steps import Launch, held_by_others, prepared_steps, run_step
from anycann.runtime.thread_pool import ThreadPool
from anycann.support.errors import InternalError, UsageError


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
        self._regions = held_by_others(regions)
        self._inputs = [Port(spec, i, "input") for i, spec in enumerate(program.inputs)]
        self._results = Results(program.outputs, written_in_place(program), poison)
        self._launches = plan_launches(program, code, self._constants)
        self._workspaces = Workspaces(self._launches, pool.threads, poison)
        self._steps = prepared_steps(program, host, self._regions, pool)
        # Whether `run_at` may be called: kernels alone compute this program, and write every output where it belongs.
        self.takes_addresses = self._results.all_in_place and all(isinstance(step, Launch) for step in self._steps)
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

    def own_call(self) -> OwnCall | None:
        """A call of this program that is the caller's alone; None for one that is not kernels alone. Observers see no such call."""
        return self._native.own_call() if self.takes_addresses else None

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
            self._linked.update(self, self._regions(), call)
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
                run_step(step, state)
            return self._results.collect(state, accepted, results, buffers, borrowed)
        finally:
            self._workspaces.give_back(workspace)


def _bind(workspace: Workspace, patches: Sequence[Patches], arrays: Sequence[object]) -> None:
    """Point the kernels' arguments to the arrays of this run."""
    for where, array in zip(patches, arrays, strict=True):
        if where:
            if not isinstance(array, np.ndarray):
                raise InternalError(f"a kernel reads or writes a {type(array).__name__}, which has no memory")
            workspace.bind(where, memory.address(array))


def _aligned(constants: NDArray[np.uint8] | memoryview) -> memory.Bytes:
    data = np.frombuffer(constants, np.uint8) if isinstance(constants, memoryview) else constants
    if data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous:
        raise UsageError(f"constants are {data.dtype.name}{list(data.shape)}; accepted: one row of uint8")
    return data if data.ctypes.data % memory.ALIGNMENT == 0 else memory.aligned_copy(data)
