"""Memory handed out by address: what is live, where, and on whose account; and copies that cannot crash the process."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
import ctypes
from dataclasses import field
from functools import cache
import os
import threading
from typing import Literal, TypeAlias

from anycann.runtime import memory
from anycann.support.errors import UsageError
from anycann.support.records import dataclass

MemoryKind: TypeAlias = Literal["device", "host", "dvpp", "mapped"]
_MOST_KEPT = 1 << 26  # bytes of host memory that stay what they are for a while after they were given back
_MOST_BLOCKS = 1024  # of it


@dataclass(frozen=True)
class Allocation:
    """`nbytes` bytes from `address` on, of device number `device` (-1: the host's)."""

    address: int
    nbytes: int
    kind: MemoryKind
    device: int
    block: memory.Bytes = field(repr=False, compare=False)
    filled: bool = False  # by who took it for the program

    @property
    def end(self) -> int:
        return self.address + self.nbytes


class Allocations:
    """The live allocations of a process, found by any address inside them. Thread-safe. `version` changes with each change.

    Memory of the host that was given back is kept for a while: addresses of the host are nobody's business, and a program that uses one too
    long (a public sample does) must meet old bytes, not memory that Python uses by now.
    """

    def __init__(self) -> None:
        self.version = 0
        self.created: list[Callable[[Allocation], None]] = []  # told of each that begins
        self.released: list[Callable[[Allocation], None]] = []  # and of each that ends
        self._by_address: dict[int, Allocation] = {}
        self._starts: list[int] = []
        self._kept: deque[Allocation] = deque()
        self._kept_bytes = 0
        self._lock = threading.Lock()

    def allocate(self, nbytes: int, kind: MemoryKind, device: int, filled: bool = False) -> Allocation:
        """`nbytes` > 0 bytes, aligned to 64, those of a device to pages; `filled` by the caller, at once.

        Raises DeviceError if the machine has not so much.
        """
        take = memory.allocate_pages if kind == "device" else memory.allocate
        return self.adopt(take(nbytes), kind, device, nbytes, filled)

    def adopt(self, block: memory.Bytes, kind: MemoryKind, device: int, nbytes: int | None = None, filled: bool = False) -> Allocation:
        """Memory that somebody else took; the first `nbytes` of it count."""
        made = Allocation(memory.address(block), block.nbytes if nbytes is None else nbytes, kind, device, block, filled)
        with self._lock:
            self._by_address[made.address] = made
            self._starts.insert(bisect_right(self._starts, made.address), made.address)
            self.version += 1
        for tell in self.created:
            tell(made)
        return made

    def release(self, address: int) -> Allocation | None:
        """Forget the allocation that begins at `address`; None if there is none. Its memory goes with its last user."""
        with self._lock:
            gone = self._by_address.pop(address, None)
            if gone is not None:
                del self._starts[bisect_right(self._starts, address) - 1]
                self.version += 1
                self._keep(gone)
        if gone is not None:
            for tell in self.released:
                tell(gone)
        return gone

    def _keep(self, gone: Allocation) -> None:
        if gone.kind != "host" or gone.nbytes > _MOST_KEPT:
            return
        self._kept.append(gone)
        self._kept_bytes += gone.nbytes
        while self._kept_bytes > _MOST_KEPT or len(self._kept) > _MOST_BLOCKS:
            self._kept_bytes -= self._kept.popleft().nbytes

    def find(self, address: int) -> Allocation | None:
        """The live allocation that `address` lies in, its end excluded."""
        with self._lock:
            at = bisect_right(self._starts, address) - 1
            if at < 0:
                return None
            found = self._by_address[self._starts[at]]
        return found if address < found.end else None

    def live(self) -> tuple[Allocation, ...]:
        """All of them, in order of address."""
        with self._lock:
            return tuple(self._by_address[start] for start in self._starts)


class _Range(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("nbytes", ctypes.c_size_t))


def copy(target: int, source: int, nbytes: int) -> None:
    """Copy between addresses that are known to be live; the ranges may overlap."""
    ctypes.memmove(target, source, nbytes)


def copy_checked(target: int, source: int, nbytes: int) -> None:
    """Copy where an address comes from the caller and nobody knows it: the system looks whether it may be touched.

    Raises UsageError if it may not. Where the system cannot tell, it is a plain copy.
    """
    done = copy_readable(target, source, nbytes)
    if done < nbytes:
        words = f"{nbytes - done} bytes cannot be copied from {source + done:#x} to {target + done:#x}"
        raise UsageError(f"{words}: not this process's memory")


def copy_readable(target: int, source: int, nbytes: int) -> int:
    """As copy_checked, but what cannot be touched ends it: how many bytes were copied."""
    read = _system_copy()
    if read is None:
        copy(target, source, nbytes)
        return nbytes
    done = 0
    while done < nbytes:
        moved = _moved(read, target + done, source + done, min(nbytes - done, _MOST_AT_ONCE))
        if moved <= 0:
            break
        done += moved
    return done


_MOST_AT_ONCE = 1 << 30  # one call moves less than 2 GiB
_SystemCopy: TypeAlias = Callable[..., int]


@cache
def _system_copy() -> _SystemCopy | None:
    """Linux's process_vm_readv if it is there and lets a process read itself (some sandboxes refuse it)."""
    try:
        call = ctypes.CDLL(None, use_errno=True).process_vm_readv
    except (AttributeError, OSError):
        return None
    call.restype = ctypes.c_ssize_t
    call.argtypes = [ctypes.c_int, ctypes.POINTER(_Range), ctypes.c_ulong, ctypes.POINTER(_Range), ctypes.c_ulong, ctypes.c_ulong]
    one, other = ctypes.c_char(b"a"), ctypes.c_char()
    moved = _moved(call, ctypes.addressof(other), ctypes.addressof(one), 1)
    return call if moved == 1 and other.value == b"a" else None


def _moved(call: _SystemCopy, target: int, source: int, count: int) -> int:
    return call(os.getpid(), ctypes.byref(_Range(target, count)), 1, ctypes.byref(_Range(source, count)), 1, 0)
