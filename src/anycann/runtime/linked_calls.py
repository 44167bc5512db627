"""The native call of a program with regions: made when regions are known, tried before the steps, made anew when it stops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from anycann.om.plan import TensorSpec
from anycann.runtime import memory
from anycann.runtime.launches import Workspaces
from anycann.runtime.linking import link
from anycann.runtime.native_call import NativeCall
from anycann.runtime.results import Buffers, Results
from anycann.runtime.thread_pool import ThreadPool

if TYPE_CHECKING:
    from anycann.runtime.executor import CompiledProgram
    from anycann.runtime.region_cache import RegionCache

MOST_STOPS, STOP_SHARE = 8, 4  # more than these, and more than one call in four: what a stopped call did is done again by the steps


class LinkedCalls:
    """The native call of a program with regions, made anew when more of them are known. Safe in any thread.

    It belongs to the program and does not hold it, nor the regions it is told of: what nobody else holds goes at once.
    """

    def __init__(self, pool: ThreadPool, poison: bool):
        self._pool, self._poison = pool, poison
        self._now: tuple[NativeCall, tuple[TensorSpec, ...]] | None = None  # and its outputs
        self._tried_at: int | None = 0  # `regions.compiled` when this was made; None: it is not tried again
        self._calls = self._stops = 0

    def call(self, buffers: Buffers | None) -> NativeCall | None:
        """The call, if there is one and it can write into the arrays of the caller."""
        now = self._now
        if now is None:
            return None
        self._calls += 1
        call, outputs = now
        return call if buffers is None or _fit(buffers, outputs) else None

    @property
    def latest(self) -> NativeCall | None:
        """The call, if there is one."""
        return None if self._now is None else self._now[0]

    def update(self, compiled: CompiledProgram, regions: RegionCache, stopped: NativeCall | None) -> None:
        """After a run of `compiled` by steps. `stopped` is the call that was tried first: now it is known what it stopped at, or no row can
        do that."""
        known = regions.compiled
        if self._tried_at == known:
            now = self._now
            if stopped is not None and now is not None and now[0] is stopped:
                self._stops += 1
                if self._stops > MOST_STOPS and self._stops * STOP_SHARE > self._calls + stopped.direct_calls:
                    self._now = self._tried_at = None
        elif self._tried_at is not None:
            if self._now is not None:
                self._calls += self._now[0].direct_calls
            self._now = self._linked(compiled, regions)
            self._tried_at = known

    def _linked(self, compiled: CompiledProgram, regions: RegionCache) -> tuple[NativeCall, tuple[TensorSpec, ...]] | None:
        linked = link(compiled, regions.known)
        if linked is None:
            return None
        for part in linked.parts:
            part.forget_workspaces()
        workspaces = Workspaces(linked.launches, self._pool.threads, self._poison)
        results = Results(linked.outputs, [True] * len(linked.outputs), self._poison)
        others = [part for part in linked.parts if part is not compiled]
        return NativeCall(linked.launches, results, self._pool, workspaces, others), linked.outputs


def _fit(buffers: Buffers, specs: Sequence[TensorSpec]) -> bool:
    """Whether the caller's arrays have the types of these outputs; what is None is not given."""
    return len(buffers) == len(specs) and all(
        buffer is None or (isinstance(buffer, np.ndarray) and buffer.dtype == memory.numpy_dtype(spec.dtype) and buffer.shape == spec.shape)
        for buffer, spec in zip(buffers, specs, strict=True)
    )
