"""Deferred steps: one region that is called with all it is given, computed by the host or compiled for the types it meets.

What follows a list is small more often than not, and most of its time was Python's: where kernels alone compute the region, it is called as
one function of the interpreter (`direct_call`), which checks what it is given itself, and whose results are nobody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from anycann.om.plan import RegionStep
from anycann.runtime.direct_call import Direct
from anycann.runtime.region_cache import RegionCache
from anycann.runtime.results import Given
from anycann.runtime.run_state import RunState
from anycann.support.errors import context

if TYPE_CHECKING:
    from anycann.runtime.executor import CompiledProgram


class DeferredCall:
    """A deferred step, and the function for the types that it met last. Safe in any thread."""

    def __init__(self, step: RegionStep, regions: Callable[[], RegionCache]):
        self.step, self._regions = step, regions
        self._names = (*step.inputs, *step.captures[0])
        self._may_be_direct = "" not in self._names and len(set(self._names)) == len(self._names)
        self._direct: Direct | None = None

    def run(self, state: RunState) -> None:
        """Compute and keep the results. Raises what compiling the region for new types does."""
        values = [state.value(name) for name in self._names]
        may_be_direct = self._may_be_direct and not state.observers
        if not (may_be_direct and self._call(self._direct, values, state)):
            regions = self._regions()
            results = None if state.observers else regions.on_host(self.step.regions[0], self._names, values)
            if results is not None:
                state.store_all(self.step, results)
                return
            program = self._program(regions, values)
            if may_be_direct and program.takes_addresses and all(type(value) is np.ndarray for value in values):
                direct = self._direct = program.direct(self._names, values)
                if self._call(direct, values, state):
                    return
            self._run(program, values, state)

    def _call(self, direct: Direct | None, values: Sequence[object], state: RunState) -> bool:
        """As one function, if that takes these values."""
        found = None if direct is None else direct(dict(zip(self._names, values, strict=True)))
        if found is None:
            return False
        state.store_all(self.step, found)
        return True

    def _program(self, regions: RegionCache, values: Sequence[object]) -> CompiledProgram:
        with context(f"while running deferred {self.step.name!r}"):
            return regions.program(self.step.regions[0], self._names, values)

    def _run(self, program: CompiledProgram, values: Sequence[object], state: RunState) -> None:
        """By its steps. It may hand on what it was given; what stays after the step is copied once."""
        with context(f"while running deferred {self.step.name!r}"):
            results = program.run_within(values, state.observers)
            given = Given(values)
        state.store_all(self.step, [given.own(value) for value in results])
