"""The native part of a program as tables: every pointer a kernel gets, every launch, and what one run needs of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
import threading

import numpy as np
from numpy.typing import NDArray

from anycann.om.plan import Buffer, NativeStep, Program, Task
from anycann.runtime import memory
from anycann.runtime.dispatch import KIND_BITS, ROW_BYTES, Block, Row, split
from anycann.runtime.fork_join import LETS_SLEEP_BIT, MOST_UNITS_WANTED, UNITS_BIT
from anycann.runtime.loader import LoadedCode
from anycann.support.records import dataclass

Patches = tuple[tuple[int, int], ...]  # (position among the pointers, offset in bytes)
MOST_IDLE = 16  # workspaces kept for later runs; as many more as there are runs at once are made and dropped


@dataclass(frozen=True)
class Launches:
    """The launches of all native steps, one after the other, as data that each run copies.

    rows: [launches, 4] int64: function, offset of its first pointer in bytes, tasks, kind. pointers: int64, addresses for constants and
    offsets for the arena (where `in_arena`); input and output pointers are filled in run by run at `inputs[i]` and `outputs[i]`.
    """

    rows: NDArray[np.int64]
    pointers: NDArray[np.int64]
    in_arena: NDArray[np.bool_]
    inputs: tuple[Patches, ...]
    outputs: tuple[Patches, ...]
    scratch_bytes: int
    arena_bytes: int

    @cached_property
    def patches(self) -> NDArray[np.int64]:
        """All of `inputs` and then `outputs` in one table, [patches, 3]: number of the array, position, offset in bytes."""
        found = [(number, *patch) for number, where in enumerate((*self.inputs, *self.outputs)) for patch in where]
        return np.array(found, np.int64).reshape(-1, 3)


def plan_launches(program: Program, code: LoadedCode, constants: memory.Bytes) -> Launches:
    """Resolve symbols and constants of `program`. Raises InternalError for a symbol that is not loaded."""
    tasks = [task for step in program.steps if isinstance(step, NativeStep) for task in step.tasks]
    arguments = [argument for task in tasks for argument in task.arguments]
    scratch = max((task.scratch_bytes for task in tasks), default=0)
    return launches_of(_rows(tasks, code), arguments, program, scratch, constants.ctypes.data)


def launches_of(
    rows: NDArray[np.int64], arguments: Sequence[Buffer], program: Program, scratch_bytes: int, constants_address: int
) -> Launches:
    """Rows that name their first argument by its number, as data. program: its inputs, outputs and size of the arena."""
    pointers = [a.offset_bytes + (constants_address if a.space == "constants" else 0) for a in arguments]
    return Launches(
        rows=letting_sleep(rows) * (1, 8, 1, 1),
        pointers=np.array(pointers, np.int64),
        in_arena=np.array([a.space == "arena" for a in arguments], np.bool_),
        inputs=_patches(arguments, "input", len(program.inputs)),
        outputs=_patches(arguments, "output", len(program.outputs)),
        scratch_bytes=-(-scratch_bytes // memory.ALIGNMENT) * memory.ALIGNMENT,
        arena_bytes=program.arena_bytes,
    )


def _rows(tasks: Sequence[Task], code: LoadedCode) -> NDArray[np.int64]:
    rows = np.zeros((len(tasks), ROW_BYTES // 8), np.int64)
    first = 0
    for row, task in zip(rows, tasks, strict=True):
        row[:] = code.address(task.symbol), first, task.tasks, split_kind(task)
        first += len(task.arguments)
    return rows


# What a unit of a row should take at least: some hundred times what it costs to take it. Small kernels are so left to one unit a thread.
_UNIT_US = 4
_FLOPS_PER_US, _BYTES_PER_US = 100_000, 20_000

# What a call reads first takes by the line where another thread wrote it, counting that it waits as long to write there again: 7 ns with a
# common third-level cache and 28 without (Zen 4, docs/decisions.md). Half of what is left is taken, so it should be twice as much.
_BEGIN_US_PER_BYTE = 0.014 / 64

# What a row should take to be split at all; little memory is in the cache. A second thread costs half a microsecond, and as much again
# where the next kernel finds half of the result in the other's cache: 61 rows of small networks below it took 55 us alone, 133 by two.
_SPLIT_US, _CACHED_BYTES_PER_US = 1, 100_000

# What the rows to be split should take, from one on, for it to wake sleeping workers; so guessed, some 30 us in truth. The first call of a
# small network after a pause took 70 to 80 us by two threads, one of them woken, where it takes 55 to 60 by one.
_WAKE_US = 64


def split_kind(task: Task) -> int:
    """The kind of the row of a kernel: whether and into how many units it is worth splitting, guessed from its arithmetic and its memory.

    A kernel of no known arithmetic may have much, such as one that sorts, and counts as work that is worth waking workers for.
    """
    arithmetic, nbytes = task.flops / _FLOPS_PER_US, sum(argument.nbytes for argument in task.arguments)
    if task.flops and max(arithmetic, nbytes / _CACHED_BYTES_PER_US) < _SPLIT_US:
        return Row.INLINE
    known = max(arithmetic, nbytes / _BYTES_PER_US)
    units = int((known if task.flops else max(known, _WAKE_US)) / _UNIT_US)
    return split(units, task.resumes, kept=int(2 * _BEGIN_US_PER_BYTE * task.begin_bytes / _UNIT_US))


def letting_sleep(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of a table, marked where no worker is woken any more: too little is left to split, and no loop comes back."""
    tasks, kinds, places = rows[:, 2], rows[:, 3], np.arange(len(rows))
    splits = (kinds & KIND_BITS == Row.SPLIT) & (tasks > 1)
    units = kinds >> UNITS_BIT & MOST_UNITS_WANTED
    left = np.where(splits, _UNIT_US * units + _UNIT_US // 2, 0)[::-1].cumsum()[::-1]
    turns = places[(kinds & KIND_BITS == Row.JUMP) & (tasks <= places)]
    sleeps = splits & (left < _WAKE_US) & (places > turns.max(initial=-1))
    marked = rows.copy()
    marked[:, 3] |= np.where(sleeps, 1 << LETS_SLEEP_BIT, 0)
    return marked


def _patches(arguments: Sequence[Buffer], space: str, count: int) -> tuple[Patches, ...]:
    found: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for position, argument in enumerate(arguments):
        if argument.space == space:
            found[argument.index].append((position, argument.offset_bytes))
    return tuple(tuple(patches) for patches in found)


class Loan:
    """Memory of a caller's in which one run at a time may work, of whichever program it is lent to: aligned to 64 bytes, with slack behind.

    thread: the one whose runs may work there; None: those of any.
    """

    def __init__(self, arena: memory.Bytes, thread: int | None = None):
        self.arena, self._thread = arena, thread
        self._taken = threading.Lock()

    def take(self) -> bool:
        """True if the run of this thread may work there, until `give_back`."""
        return self._thread in (None, threading.get_ident()) and self._taken.acquire(blocking=False)

    def give_back(self) -> None:
        """Its run is over."""
        self._taken.release()


class Workspace:
    """What one run at a time owns: an arena, new or lent, scratch for each thread, and its own copy of the tables that point there."""

    def __init__(self, launches: Launches, threads: int, loan: Loan | None = None):
        self.loan = loan
        self.arena = memory.allocate(launches.arena_bytes) if loan is None else loan.arena[: launches.arena_bytes]
        self.scratch_stride = launches.scratch_bytes
        self._scratch = memory.allocate(launches.scratch_bytes * threads)
        self.scratch_address = memory.address(self._scratch)
        self._pointers = launches.pointers + np.where(launches.in_arena, self.arena.ctypes.data, 0)
        self._rows = launches.rows.copy()
        self._rows[:, 1] += self._pointers.ctypes.data
        self.table_address = self._rows.ctypes.data
        self._slots = self._pointers.data  # an item is set three times faster than an array's
        self._patches = launches.patches
        block = np.zeros(Block.ARRAYS + len(launches.inputs) + len(launches.outputs), np.int64)
        block[Block.TABLE], block[Block.ROWS] = self.table_address, len(self._rows)
        block[Block.SCRATCH], block[Block.STRIDE] = self.scratch_address, self.scratch_stride
        block[Block.POINTERS], block[Block.PATCHES] = self._pointers.ctypes.data, self._patches.ctypes.data
        block[Block.PATCH_COUNT] = len(self._patches)
        self.block = block.data  # for `ThreadPool.call`: who fills in the arrays has them
        self.block_address = block.ctypes.data
        self.views: dict[str, np.ndarray] = {}  # values that lie here or among the constants, as read-only arrays
        self.places: dict[str, np.ndarray] = {}  # values that host and region steps put here, as arrays to write

    def bind(self, patches: Patches, address: int) -> None:
        """Point the arguments at `patches` to the array at `address`."""
        for position, offset in patches:
            self._slots[position] = address + offset

    def poison(self) -> None:
        """Fill arena and scratch so that reading what was not written shows."""
        self.arena[:] = memory.POISON
        self._scratch[:] = memory.POISON


class Workspaces:
    """The workspaces of one table that are not in use. Safe in any thread."""

    def __init__(self, launches: Launches, threads: int, poison: bool):
        self._launches, self._threads, self._poison = launches, threads, poison
        self._idle: list[Workspace] = []  # append and pop are atomic
        self._lent: dict[Loan, Workspace] = {}

    def take(self) -> Workspace:
        """One for a run that begins; its content is that of an earlier one."""
        workspace = self._take_lent() if self._lent else None
        if workspace is None:
            try:
                workspace = self._idle.pop()
            except IndexError:
                workspace = Workspace(self._launches, self._threads)
        if self._poison:
            workspace.poison()
        return workspace

    def _take_lent(self) -> Workspace | None:
        return next((workspace for loan, workspace in tuple(self._lent.items()) if loan.take()), None)

    def lend(self, loan: Loan) -> None:
        """Let runs work in memory of a caller's, at least as large as the arena must be, whenever no other does."""
        self._lent[loan] = Workspace(self._launches, self._threads, loan)

    def end(self, loan: Loan) -> None:
        """Later runs work elsewhere."""
        del self._lent[loan]

    def give_back(self, workspace: Workspace) -> None:
        """For later runs."""
        if workspace.loan is not None:
            workspace.loan.give_back()
        elif len(self._idle) < MOST_IDLE:
            self._idle.append(workspace)

    def forget(self) -> None:
        """Give the memory of those not in use back to the system."""
        self._idle.clear()
