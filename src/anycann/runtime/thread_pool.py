"""Threads that run kernels: Python threads parked in native code, so that a parallel row of a table costs a third of a microsecond."""

from __future__ import annotations

from array import array
import ctypes
from functools import lru_cache
from numbers import Integral
import os
import struct
import threading
import time
from types import TracebackType
import weakref

from anycann.codegen.kernel_cache import compile_kernels
from anycann.runtime.dispatch import dispatch_ir
from anycann.runtime.loader import LoadedCode
from anycann.runtime.pool_layout import LINE_BYTES, Field, pool_bytes
from anycann.support.errors import UsageError
from anycann.support.logging import get_logger
from anycann.support.processors import available_processors
from anycann.target.target import Target, host

SPIN_PAUSES = 4_000  # some 0.2 ms: longer than the gap between two runs, too short to heat an idle machine
SPIN_PAUSES_CROWDED = 50  # with more threads than processors the one waited for needs the processor
MOST_THREADS = 1024


class ThreadPool:
    """`threads` threads, the caller being one; the others start with the first run that can use them.

    One caller at a time has the workers; a table that another Python thread runs meanwhile runs on that thread alone. After `fork` the
    child starts workers of its own. Idle workers sleep. A context manager; a pool that is dropped or still open at exit closes itself.
    """

    def __init__(self, threads: int, spin_pauses: int | None = None):
        """`spin_pauses`: how long a waiting thread stays awake. Raises UsageError for a number of threads outside 1..1024."""
        if not 1 <= threads <= MOST_THREADS:
            raise UsageError(f"a thread pool of {threads} threads; accepted: 1 to {MOST_THREADS}")
        if spin_pauses is None:
            spin_pauses = SPIN_PAUSES if threads <= available_processors() else SPIN_PAUSES_CROWDED
        self.threads = threads
        self._workers = _Workers(threads, spin_pauses)
        self._run, self._call, self._calls = _native().run, _native().call, _native().calls
        self._starting = threading.Lock()
        self._set_ready(threads == 1)
        self._finalizer = weakref.finalize(self, _Workers.stop, self._workers)
        _open_pools.add(self)

    def run(self, table_address: int, rows: int, scratch_address: int, scratch_stride: int, times_address: int = 0) -> int:
        """Run `rows` rows of a dispatch table in one native call without the interpreter lock: the row it stopped at, or `rows`.

        Thread i works in the `scratch_stride` bytes at scratch_address + i * scratch_stride. If `times_address` is given, rows + 1
        int64 are written there: the monotonic clock in ns before each row and at the end. Raises UsageError after `close`.
        """
        if not self._ready:
            self._start()
        end: int = self._run(self._workers.address, table_address, rows, scratch_address, scratch_stride, times_address)
        return end

    def call(self, block_address: int) -> int:
        """As `run`, of what the block at this address says (`dispatch.Block`), whose arrays are bound first."""
        if not self._ready:
            self._start()
        end: int = self._call(self._workers.address, block_address)
        return end

    def calls(self, block_addresses: array[int]) -> None:
        """As `call` of each block, one after the other. The array is of type q."""
        if not self._ready:
            self._start()
        self._calls(self._workers.address, *block_addresses.buffer_info())

    def close(self) -> None:
        """End the workers; waits for a run in progress. Closing twice is fine."""
        self._set_ready(False)
        self._finalizer()

    def __enter__(self) -> ThreadPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _start(self) -> None:
        with self._starting:
            if not self._finalizer.alive:
                raise UsageError("the thread pool is closed")
            if not self._ready and self.threads > 1:
                self._workers.start()
            self._set_ready(True)

    def _set_ready(self, ready: bool) -> None:
        self._ready = ready
        self._workers.write(Field.READY, ready)

    @property
    def addresses(self) -> tuple[int, int, int]:
        """For `direct_call`: of its code, of the pool and of what says that the pool may be called. They stay as long as the pool."""
        return _native().direct, self._workers.address, self._workers.address + Field.READY

    def _forget_workers(self) -> None:
        """In the child of a fork: the threads are gone, and locks are as another thread may have left them."""
        self._starting = threading.Lock()
        self._workers.reset()
        self._set_ready(self.threads == 1)


class _Workers:
    """The pool's native memory and its threads; apart from `ThreadPool` so that threads and finalizer do not keep that alive."""

    def __init__(self, threads: int, spin_pauses: int):
        self._wanted, self._spin_pauses = threads, spin_pauses
        self._memory = (ctypes.c_char * (pool_bytes(self._wanted) + LINE_BYTES))()
        start = ctypes.addressof(self._memory)
        self.address = start + -start % LINE_BYTES
        self.reset()

    def reset(self) -> None:
        """As new, in the same place: no thread, everything zero."""
        ctypes.memset(self._memory, 0, ctypes.sizeof(self._memory))
        self._threads: list[threading.Thread] = []
        self.write(Field.THREADS, 1)
        self.write(Field.SPIN, self._spin_pauses)

    def start(self) -> None:
        for number in range(1, self._wanted):
            arguments = (self.address, number, self._memory)
            thread = threading.Thread(target=_park, args=arguments, name=f"anycann-worker-{number}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                get_logger("runtime").warning("thread pool: %d of %d threads run, no more can be started (%s)", number, self._wanted, error)
                break
            self._threads.append(thread)
        self.write(Field.THREADS, 1 + len(self._threads))

    def stop(self) -> None:
        """End the threads, unless a run that never ends has them (a daemon thread at exit): then they end with the process."""
        deadline = time.monotonic() + 2.0
        while self._threads and not _native().stop(self.address):
            if time.monotonic() > deadline:
                return
            time.sleep(0.001)
        for thread in self._threads:
            thread.join(2.0)
        self._threads = []

    def write(self, offset: Field, number: int) -> None:
        """A field of 4 bytes."""
        struct.pack_into("<i", self._memory, self.address - ctypes.addressof(self._memory) + offset, number)


class _Native:
    """The dispatcher's entry points."""

    def __init__(self) -> None:
        target = host()
        code = self._code = LoadedCode(_dispatcher(target), target)
        self.worker = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address("anycann_worker"))
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self.run = ctypes.CFUNCTYPE(number, pointer, pointer, number, pointer, number, pointer)(code.address("anycann_run"))
        self.call = ctypes.CFUNCTYPE(number, pointer, pointer)(code.address("anycann_call"))
        self.calls = ctypes.CFUNCTYPE(None, pointer, pointer, number)(code.address("anycann_calls"))
        self.copy, self.direct = code.address("anycann_copy"), code.address("anycann_direct")
        self.join = code.address("anycann_join")
        self.turn = code.address("anycann_turn")
        self.read_part, self.write_part = code.address("anycann_read_part"), code.address("anycann_write_part")
        self.stop = ctypes.CFUNCTYPE(ctypes.c_int32, pointer)(code.address("anycann_stop"))


def copying_kernel() -> int:
    """The address of a kernel of two arguments that copies bytes from the second to the first, one a task."""
    return _native().copy


def joining_kernel() -> int:
    """The address of the kernel that writes arrays one behind the other (`join_ir.py`)."""
    return _native().join


def turning_kernel() -> int:
    """The address of the kernel that counts the turns of a loop (`turn_ir.py`)."""
    return _native().turn


def reading_kernel() -> int:
    """The address of a kernel that copies part number [2] of [1] to [0]."""
    return _native().read_part


def writing_kernel() -> int:
    """The address of a kernel that makes [1] part number [2] of [0]."""
    return _native().write_part


def prepare() -> None:
    """See to it that the dispatcher is in the kernel cache, so that a process which runs a model need not compile it."""
    _dispatcher(host())


def _dispatcher(target: Target) -> dict[str, bytes]:
    return compile_kernels({"anycann_run": dispatch_ir(target)}, target)


@lru_cache(maxsize=1)
def _native() -> _Native:
    return _Native()


def _park(address: int, number: int, memory: object) -> None:
    """The life of worker `number`; `memory` is held so that it outlives the thread."""
    _native().worker(address, number)


class _Shared:
    """The pools of this process by number of threads, while somebody uses them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pools: weakref.WeakValueDictionary[int, ThreadPool] = weakref.WeakValueDictionary()


_open_pools: weakref.WeakSet[ThreadPool] = weakref.WeakSet()
_shared = _Shared()


def shared_pool(threads: int) -> ThreadPool:
    """The pool of `threads` threads of this process; made when there is none, closed when nobody refers to it any more."""
    if not isinstance(threads, Integral):
        raise UsageError(f"num_threads is {threads!r}; accepted: a whole number from 1 to {MOST_THREADS}, or 0 for the default")
    with _shared.lock:
        pool = _shared.pools.get(threads)
        if pool is None or not pool._finalizer.alive:
            pool = _shared.pools[threads] = ThreadPool(threads)
        return pool


def _after_fork_in_child() -> None:
    _shared.lock = threading.Lock()
    for pool in list(_open_pools):
        pool._forget_workers()


os.register_at_fork(after_in_child=_after_fork_in_child)
