"""A whole program as one native call: kernels alone compute it, and write every output where it belongs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.runtime.direct_call import Direct, Facts, direct_call, is_known
from anycann.runtime.dispatch import Block
from anycann.runtime.launches import Launches, Workspaces
from anycann.runtime.results import Buffers, Results
from anycann.runtime.thread_pool import ThreadPool
from anycann.support.records import dataclass

MOST_ARENA_BYTES = 4 << 20


@dataclass(frozen=True)
class OwnCall:
    """A block (`dispatch.Block`) that is filled in with the `id`s of arrays, inputs and then outputs, and run.

    makers: of arrays for outputs. keep: what the block points to.
    """

    block: memoryview
    address: int
    makers: Sequence[Callable[[], Any]]
    keep: object


class NativeCall:
    """Runs all rows of `launches`. Safe in any thread. keep: whose code and constants they point to, for as long as a run may last."""

    def __init__(self, launches: Launches, results: Results, pool: ThreadPool, workspaces: Workspaces, keep: object):
        self._keep = keep
        self._launches, self._results, self._pool, self._workspaces = launches, results, pool, workspaces
        self._rows = len(launches.rows)
        self._outputs_from = Block.ARRAYS + len(launches.inputs)
        self._direct: tuple[Direct, NDArray[np.int64]] | None = None

    def run(self, feeds: Sequence[object], buffers: Buffers | None = None) -> list[object] | None:
        """The outputs for `feeds`, which ports have accepted; None if it stopped at a row of kind STOP.

        `buffers` as for `CompiledProgram.run`. Raises UsageError for a buffer that cannot hold its output.
        """
        arrays = self._results.arrays(feeds, buffers)
        workspace = self._workspaces.take()
        try:
            block = workspace.block
            for number, feed in enumerate(feeds, Block.ARRAYS):
                block[number] = id(feed)
            for number, array in enumerate(arrays, self._outputs_from):
                block[number] = id(array)
            if self._pool.call(workspace.block_address) != self._rows:
                return None
        finally:
            self._workspaces.give_back(workspace)
        return self._results.handed(arrays, buffers)

    def own_call(self) -> OwnCall:
        """A call that is the caller's alone: its arrays are set, and then its block is run."""
        workspace = self._workspaces.take()
        return OwnCall(workspace.block, workspace.block_address, self._results.makers, (self._keep, workspace))

    def direct(self, names: Sequence[str], feeds: Sequence[object], watched: NDArray[np.int64], keep: object) -> Direct | None:
        """The call as a function of the interpreter (`direct_call`), made at the first time; `names` and the types of `feeds` never change.

        None where there is none: a large network would need the memory of one more run, and gain nothing; another interpreter or numpy may
        keep its objects otherwise. watched: counts observers, who see nothing of such a call. keep: what it needs beside what
        this call keeps.
        """
        if self._direct is None and is_known() and not self._results.poison and self._launches.arena_bytes <= MOST_ARENA_BYTES:
            code, pool, ready = self._pool.addresses
            workspace = self._workspaces.take()
            native = (pool, ready, workspace.block_address, self._rows)
            held = (self._keep, self._pool, workspace, keep)
            self._direct = direct_call(code, native, names, feeds, self._results.makers, watched, held)
        return None if self._direct is None else self._direct[0]

    @property
    def direct_calls(self) -> int:
        """How often the function has run it."""
        return 0 if self._direct is None else int(self._direct[1][Facts.CALLS])

    def run_at(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """As `CompiledProgram.run_at`."""
        workspace = self._workspaces.take()
        try:
            for where, address in zip(self._launches.inputs, inputs, strict=True):
                workspace.bind(where, address)
            for where, address in zip(self._launches.outputs, outputs, strict=True):
                workspace.bind(where, address)
            self._pool.run(workspace.table_address, self._rows, workspace.scratch_address, workspace.scratch_stride)
        finally:
            self._workspaces.give_back(workspace)
