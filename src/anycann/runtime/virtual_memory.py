"""Addresses apart from memory: a range is reserved, memory is taken by itself, and the one is put behind the other. Linux only."""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np

from anycann.runtime import memory
from anycann.support.errors import DeviceError
from anycann.support.records import dataclass

GRANULARITY = 2 << 20  # of sizes, as Ascend's
_READ, _READ_WRITE = mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE  # vectors are loaded beyond the end of memory
_SHARED, _PRIVATE, _FIXED, _ANONYMOUS, _NO_RESERVE = 0x01, 0x02, 0x10, 0x20, 0x4000
_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True)
class PhysicalMemory:
    """Memory without an address: a file that lies nowhere, as long as `descriptor` or a mapping of it is open."""

    descriptor: int
    nbytes: int

    @classmethod
    def take(cls, nbytes: int) -> PhysicalMemory:
        """`nbytes` bytes, zero. Raises DeviceError if the system refuses."""
        try:
            descriptor = os.memfd_create("anycann", os.MFD_CLOEXEC)
        except (AttributeError, OSError) as error:
            raise DeviceError(f"{nbytes} bytes cannot be taken: {error}") from error
        try:
            os.ftruncate(descriptor, nbytes)
        except (OSError, OverflowError) as error:
            os.close(descriptor)
            raise DeviceError(f"{nbytes} bytes cannot be taken: {error}") from error
        return cls(descriptor, nbytes)

    @classmethod
    def of_process(cls, process: int, descriptor: int) -> PhysicalMemory:
        """The memory that another process of this user has. Raises DeviceError if it has none, or may not be asked."""
        try:
            opened = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise DeviceError(f"memory {descriptor} of process {process} cannot be opened: {error.strerror or error}") from error
        return cls(opened, os.fstat(opened).st_size)

    @property
    def inode(self) -> int:
        """What tells it from other memory that has the same descriptor later."""
        return os.fstat(self.descriptor).st_ino

    def close(self) -> None:
        """Give it back; mappings keep it until they end."""
        os.close(self.descriptor)


def reserve(nbytes: int) -> int:
    """Addresses for `nbytes` bytes with nothing but zeros behind them. Raises DeviceError."""
    return _mapped(None, nbytes + memory.SLACK_BYTES, _READ, _PRIVATE | _ANONYMOUS | _NO_RESERVE, -1, 0)


def put_behind(address: int, physical: PhysicalMemory, offset: int, nbytes: int) -> memory.Bytes:
    """Put bytes of `physical` behind reserved addresses; answers with them. Raises DeviceError."""
    _mapped(address, nbytes, _READ_WRITE, _SHARED | _FIXED, physical.descriptor, offset)
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def share(address: int, nbytes: int, more: int) -> PhysicalMemory:
    """Put memory with the same content, and `more` bytes that lie nowhere, behind pages that hold nothing else. Raises DeviceError."""
    physical = PhysicalMemory.take(nbytes + more)
    try:
        with mmap.mmap(physical.descriptor, nbytes) as view:
            view[:] = _content(address, nbytes)
        put_behind(address, physical, 0, nbytes)
    except (DeviceError, OSError) as error:
        physical.close()
        raise DeviceError(f"{nbytes} bytes cannot be shared: {error}") from error
    return physical


def keep(address: int, physical: PhysicalMemory, nbytes: int) -> None:
    """End what `share` began: the content stays, and is this process's own again."""
    with mmap.mmap(physical.descriptor, nbytes) as view, memoryview(view) as content:
        _mapped(address, nbytes, _READ_WRITE, _PRIVATE | _ANONYMOUS | _FIXED, -1, 0)
        _content(address, nbytes)[:] = content


def _content(address: int, nbytes: int) -> memoryview:
    return memoryview((ctypes.c_uint8 * nbytes).from_address(address)).cast("B")


def take_away(address: int, nbytes: int) -> None:
    """Leave the addresses reserved, with nothing but zeros behind them."""
    _mapped(address, nbytes, _READ, _PRIVATE | _ANONYMOUS | _NO_RESERVE | _FIXED, -1, 0)


def release(address: int, nbytes: int) -> None:
    """Give reserved addresses back."""
    _libc().munmap(ctypes.c_void_p(address), ctypes.c_size_t(nbytes + memory.SLACK_BYTES))


def _mapped(address: int | None, nbytes: int, protection: int, flags: int, descriptor: int, offset: int) -> int:
    found = _libc().mmap(address, nbytes, protection, flags, descriptor, offset)
    if found in (None, _FAILED):
        raise DeviceError(f"{nbytes} bytes of addresses: {os.strerror(ctypes.get_errno())}")
    return int(found)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    return libc
