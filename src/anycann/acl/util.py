"""acl.util: addresses of numpy arrays and bytes, views of memory at an address, and threads that a stream may report to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
import ctypes
import math
import threading
import traceback
from typing import Any
import warnings

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.entries import value, value_and_status
from anycann.acl.errors import AclError, ProgramError
from anycann.acl.process import PROCESS
from anycann.acl.shown import SHOWN
from anycann.runtime.allocations import copy_checked

# numpy's own type numbers (NPY_TYPES), which pyACL uses
NUMPY_TYPES: dict[int, str] = {
    0: "bool", 1: "int8", 2: "uint8", 3: "int16", 4: "uint16", 5: "int32", 6: "uint32", 7: "int64", 8: "uint64", 9: "int64", 10: "uint64",
    11: "float32", 12: "float64", 14: "complex64", 15: "complex128", 23: "float16",
}  # fmt: skip


class LastBytes:
    """The last few objects whose address was given away: as many as have `limit_bytes`, and at least one."""

    def __init__(self, limit_bytes: int = 64 << 20, most: int = 64):
        self._limit_bytes = limit_bytes
        self._objects: deque[bytes] = deque(maxlen=most)
        self._lock = threading.Lock()

    def keep(self, data: bytes) -> None:
        """Keep `data`, and forget the oldest."""
        with self._lock:
            self._objects.append(data)
            while len(self._objects) > 1 and sum(map(len, self._objects)) > self._limit_bytes:
                self._objects.popleft()

    def count(self, data: object) -> int:
        """How often `data` is kept here."""
        with self._lock:
            return sum(kept is data for kept in self._objects)


LAST_BYTES = LastBytes()
PROCESS.ending.append(SHOWN.forget)


def bytes_address(data: bytes) -> int:
    """Where the bytes lie. `ctypes.cast` would keep them alive until the garbage collector comes by."""
    return ctypes.c_void_p.from_buffer(ctypes.c_char_p(data)).value or 0


@value("acl.util.bytes_to_ptr", returns="ptr")
def bytes_to_ptr(data: bytes) -> int:
    """The address of the bytes inside the object, which must be kept as long as the address is used.

    Programs (acllite) let go of it at once; the last few objects are kept for them.
    """
    LAST_BYTES.keep(data)
    return SHOWN.show(bytes_address(data), len(data))


@value("acl.util.numpy_to_ptr", returns="ptr")
def numpy_to_ptr(array: np.ndarray) -> int:
    """The address of the first element. Deprecated by Ascend; an array that is not contiguous gives a warning."""
    if not array.flags.c_contiguous:
        warnings.warn("acl.util.numpy_to_ptr: the array is not contiguous; use numpy_contiguous_to_ptr", stacklevel=4)
    return SHOWN.show(int(array.ctypes.data), array.nbytes)


@value("acl.util.numpy_contiguous_to_ptr", failed=(0, None), returns="(ptr, array)")
def numpy_contiguous_to_ptr(array: np.ndarray) -> tuple[int, np.ndarray]:
    """(address, array): the array itself if it is contiguous, else a copy, which must be kept."""
    contiguous = np.ascontiguousarray(array)
    return SHOWN.show(int(contiguous.ctypes.data), contiguous.nbytes), contiguous


@value("acl.util.ptr_to_numpy", failed=None, returns="array")
def ptr_to_numpy(ptr: int, shape: object, numpy_type: int) -> np.ndarray:
    """A writable view of the memory at `ptr`: nothing is copied, and it is valid as long as the memory is.

    Raises AclError for null, an unknown type, and a shape that reaches beyond the allocation that `ptr` lies in.
    """
    if numpy_type not in NUMPY_TYPES:
        raise AclError(Code.INVALID_PARAM, f"numpy type {numpy_type} is unknown; accepted: {', '.join(map(str, NUMPY_TYPES))}")
    dtype = np.dtype(NUMPY_TYPES[numpy_type])
    sizes = _sizes(shape)
    nbytes = math.prod(sizes) * dtype.itemsize
    check_readable(ptr, nbytes, "ptr_to_numpy")
    return view_at(ptr, dtype, sizes)


@value("acl.util.ptr_to_bytes", failed=None, returns="bytes")
def ptr_to_bytes(ptr: int, size: int) -> bytes:
    """A copy of `size` bytes at `ptr`. Raises AclError for memory that is not there."""
    check_readable(ptr, size, "ptr_to_bytes")
    return ctypes.string_at(ptr, size)


@value_and_status("acl.util.start_thread", returns="(thread_id, ret)")
def start_thread(function: Callable, arguments: object) -> int:  # type: ignore[type-arg]
    """Run `function(arguments)` (the list is one argument) in a thread and return its id."""
    thread = ReportThread(function, arguments)
    thread.start()
    thread.started.wait()
    with PROCESS.lock:
        _THREADS[thread.ident or 0] = thread
    return thread.ident or 0


@value("acl.util.stop_thread", failed=int(Code.INVALID_PARAM), returns="ret")
def stop_thread(thread_id: int) -> int:
    """Wait for the end of a thread of start_thread. Raises RuntimeError with what the thread raised."""
    with PROCESS.lock:
        thread = _THREADS.pop(thread_id, None)
    if thread is None:
        raise AclError(Code.INVALID_PARAM, f"thread {thread_id} was not started by acl.util.start_thread, or is stopped already")
    thread.join()
    if thread.error is not None:
        raise ProgramError(f"the thread raised {type(thread.error).__name__}: {thread.error}") from thread.error
    return 0


class ReportThread(threading.Thread):
    """A thread of start_thread. What its function raises is printed at once, for a program may never stop it."""

    def __init__(self, function: Callable[[object], object], arguments: object):
        super().__init__(daemon=True, name="acl.util.start_thread")
        self._function, self._arguments = function, arguments
        self.started = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        self.started.set()
        try:
            self._function(self._arguments)
        except SystemExit:
            pass  # it ends this thread
        except BaseException as error:
            self.error = error
            traceback.print_exception(error)
        finally:
            del self._function, self._arguments  # what they hold may have a destructor that the program waits for


_THREADS: dict[int, ReportThread] = {}


def _sizes(shape: object) -> tuple[int, ...]:
    if isinstance(shape, int | np.integer):
        return (int(shape),)
    if isinstance(shape, tuple | list) and all(isinstance(size, int | np.integer) and size >= 0 for size in shape):
        return tuple(int(size) for size in shape)
    raise AclError(Code.INVALID_PARAM, f"shape is {shape!r:.80}; accepted: a tuple of sizes")


def view_at(ptr: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """A writable view of memory that was looked at; if it is an allocation of ours, the view keeps it in memory."""
    nbytes = math.prod(shape) * dtype.itemsize
    if not nbytes:
        return np.empty(shape, dtype)
    found = PROCESS.allocations.find(ptr)
    if found is not None:
        start = ptr - found.address
        return found.block[start : start + nbytes].view(dtype).reshape(shape)
    foreign = np.frombuffer(memoryview((ctypes.c_char * nbytes).from_address(ptr)), np.uint8)
    return foreign.view(dtype).reshape(shape)


def check_readable(ptr: int, nbytes: int, where: str) -> None:
    """Raises AclError unless `nbytes` bytes at `ptr` may be read."""
    if not ptr or nbytes < 0:
        raise AclError(Code.INVALID_PARAM, f"{where}: address {ptr:#x}, {nbytes} bytes; accepted: an address that is not null")
    found = PROCESS.allocations.find(ptr)
    if found is None:
        _probe(ptr, nbytes)
    elif ptr + nbytes > found.end:
        raise AclError(
            Code.INVALID_PARAM,
            f"{where}: {nbytes} bytes from {ptr:#x} end {ptr + nbytes - found.end} bytes behind the allocation of {found.nbytes} bytes",
        )


def _probe(ptr: int, nbytes: int) -> None:
    """Read the first and the last byte of a range that nobody allocated through us."""
    byte = ctypes.create_string_buffer(1)
    for address in {ptr, ptr + max(nbytes, 1) - 1}:
        copy_checked(ctypes.addressof(byte), address, 1)
