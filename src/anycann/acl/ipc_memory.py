"""acl.rt: memory of acl.rt.malloc that several processes of a user share by a key."""

from __future__ import annotations

import os
import struct
import threading

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.process import PROCESS
from anycann.runtime import virtual_memory
from anycann.runtime.allocations import Allocation
from anycann.runtime.memory import PAGE_BYTES, Bytes
from anycann.runtime.virtual_memory import PhysicalMemory
from anycann.support.errors import DeviceError
from anycann.support.records import dataclass

_PREFIX = "anycann"
_MOST_PROCESSES = PAGE_BYTES // 4 - 1
_EVERYBODY = -1
_CHECKED, _UNCHECKED = 0, 1  # flags of an export: whether the processes that may import are listed


@dataclass(frozen=True)
class _Key:
    """Where the memory is: a file that `process` has open. Its last page lists the processes that may take it.

    inode: of the file, for a descriptor that is closed comes again with other memory.
    """

    process: int
    descriptor: int
    nbytes: int
    inode: int

    def __str__(self) -> str:
        return f"{_PREFIX}-{self.process}-{self.descriptor}-{self.nbytes}-{self.inode}"

    def is_of(self, memory: PhysicalMemory) -> bool:
        """Whether `memory` is what had this key when it was made."""
        return self.inode == memory.inode and memory.nbytes == _whole(self.nbytes) + PAGE_BYTES


@dataclass(frozen=True)
class _Exported:
    """Memory of this process that others may take, and where it lies here."""

    memory: PhysicalMemory
    address: int

    def close(self) -> None:
        virtual_memory.keep(self.address, self.memory, self.memory.nbytes - PAGE_BYTES)
        self.memory.close()


_lock = threading.RLock()  # not that of the process: a callback may free while acl.finalize waits for it
_exported: dict[str, _Exported] = {}
_imported: dict[str, tuple[int, int]] = {}  # key -> address and bytes that are mapped


@value_and_status("acl.rt.ipc_mem_get_export_key", failed=("",), returns="(key, ret)")
def ipc_mem_get_export_key(ptr: int, size: int, length: int, flags: int) -> str:
    """A key for the first `size` bytes of memory of acl.rt.malloc, which nobody may write meanwhile.

    length: 65. flags: 0 only processes of acl.rt.ipc_mem_set_import_pid may take it, 1 any process of this user.
    """
    found = PROCESS.allocations.find(ptr)
    if found is None or found.kind != "device" or found.address != ptr or not 0 < size <= found.nbytes:
        raise AclError(Code.RT_PARAM_INVALID, f"{size} bytes at {ptr:#x} do not begin memory of acl.rt.malloc, or are more than it has")
    if flags not in (_CHECKED, _UNCHECKED):
        raise AclError(Code.RT_PARAM_INVALID, f"flags {flags}; accepted: 0 (processes are listed), 1 (any process)")
    with _lock:
        if any(exported.address == ptr for exported in _exported.values()):
            raise AclError(Code.RT_PARAM_INVALID, f"the memory at {ptr:#x} has a key already; acl.rt.ipc_mem_close comes first")
        shared = virtual_memory.share(ptr, _whole(size), PAGE_BYTES)
        try:
            key = key_of(shared, size, length, anybody=flags == _UNCHECKED)
        except AclError:
            _Exported(shared, ptr).close()
            raise
        _exported[key] = _Exported(shared, ptr)
    return key


@status("acl.rt.ipc_mem_set_import_pid")
def ipc_mem_set_import_pid(key: str, pids: list[int]) -> None:
    """The processes that may take the memory, by the numbers that acl.rt.device_get_bare_tgid tells them."""
    with _lock:
        if key not in _exported:
            raise AclError(Code.RT_PARAM_INVALID, f"{key!r} is no key of acl.rt.ipc_mem_get_export_key in this process")
        allow(_exported[key].memory, pids)


@value_and_status("acl.rt.ipc_mem_import_by_key", returns="(ptr, ret)")
def ipc_mem_import_by_key(key: str, flags: int) -> int:
    """The address of the memory in this process. flags: 1 lets the devices of both reach each other, which they do anyway."""
    device = PROCESS.context().device
    place = _read(key)
    with _lock:
        if key in _imported:
            raise AclError(Code.RT_PARAM_INVALID, f"{key!r} was imported before; acl.rt.ipc_mem_close comes first")
        memory = opened(key, "acl.rt.ipc_mem_set_import_pid")
        try:
            block = _put_somewhere(memory, memory.nbytes - PAGE_BYTES)
        finally:
            memory.close()
        made = PROCESS.allocations.adopt(block, "mapped", device.number, place.nbytes, filled=True)
        _imported[key] = made.address, block.nbytes
    return made.address


@status("acl.rt.ipc_mem_close")
def ipc_mem_close(key: str) -> None:
    """End sharing: where it was imported the address goes; where it was exported nobody can take it any more."""
    with _lock:
        if key in _imported:
            _close_imported(key)
        elif key in _exported:
            _exported.pop(key).close()
        else:
            raise AclError(Code.RT_PARAM_INVALID, f"{key!r} is no key that is open in this process")


def _close_imported(key: str) -> None:
    address, nbytes = _imported.pop(key)
    PROCESS.allocations.release(address)
    virtual_memory.release(address, nbytes)


def _put_somewhere(memory: PhysicalMemory, nbytes: int) -> Bytes:
    address = virtual_memory.reserve(nbytes)
    try:
        return virtual_memory.put_behind(address, memory, 0, nbytes)
    except DeviceError:
        virtual_memory.release(address, nbytes)
        raise


def _whole(nbytes: int) -> int:
    return -(-nbytes // PAGE_BYTES) * PAGE_BYTES


def key_of(memory: PhysicalMemory, nbytes: int, length: int, anybody: bool) -> str:
    """A key for `nbytes` bytes of memory with a page more. Raises AclError if it is not shorter than `length`."""
    key = str(_Key(os.getpid(), memory.descriptor, nbytes, memory.inode))
    if len(key) >= length:
        raise AclError(Code.RT_PARAM_INVALID, f"the key has {len(key)} characters; there is room for {length - 1}")
    _list(memory, [_EVERYBODY] if anybody else [])
    return key


def opened(key: str, naming: str) -> PhysicalMemory:
    """The memory of a key, for this process. Raises AclError where it is gone or not for this process, which `naming` would change."""
    place = _read(key)
    try:
        memory = PhysicalMemory.of_process(place.process, place.descriptor)
    except DeviceError as error:
        raise AclError(Code.RT_PARAM_INVALID, f"{key!r}: {error}") from error
    try:
        if not place.is_of(memory):
            raise AclError(Code.RT_PARAM_INVALID, f"the memory of {key!r} cannot be opened: it is shared no more")
        check_allowed(memory, key, naming)
    except AclError:
        memory.close()
        raise
    return memory


def allow(memory: PhysicalMemory, pids: list[int]) -> None:
    """The processes that may open it. Raises AclError for what are no numbers of processes."""
    if len(pids) > _MOST_PROCESSES or not all(isinstance(pid, int) and 0 < pid < 1 << 31 for pid in pids):
        raise AclError(Code.RT_PARAM_INVALID, f"{len(pids)} processes, {pids!r:.80}; accepted: numbers of at most {_MOST_PROCESSES}")
    _list(memory, pids)


def _list(memory: PhysicalMemory, pids: list[int]) -> None:
    os.pwrite(memory.descriptor, struct.pack(f"<{len(pids) + 1}i", len(pids), *pids), memory.nbytes - PAGE_BYTES)


TICKET_BYTES = 2 * PAGE_BYTES


def new_ticket(content: bytes, anybody: bool) -> PhysicalMemory:
    """Memory for other processes to read: `content`, and who of them may. Raises DeviceError."""
    ticket = PhysicalMemory.take(TICKET_BYTES)
    os.pwrite(ticket.descriptor, content, 0)
    _list(ticket, [_EVERYBODY] if anybody else [])
    return ticket


def check_allowed(memory: PhysicalMemory, key: str, naming: str) -> None:
    """Raises AclError unless this process, or every one, may open the memory; else its owner has to name it by `naming`."""
    page = os.pread(memory.descriptor, PAGE_BYTES, memory.nbytes - PAGE_BYTES)
    (count,) = struct.unpack_from("<i", page)
    pids = struct.unpack_from(f"<{min(count, _MOST_PROCESSES)}i", page, 4)
    if _EVERYBODY not in pids and os.getpid() not in pids:
        words = f"{key!r} is not for process {os.getpid()}; its owner names it by {naming}, or exports with flag 1"
        raise AclError(Code.RT_PARAM_INVALID, words)


def _read(key: str) -> _Key:
    prefix, *numbers = key.split("-")
    if prefix != _PREFIX or len(numbers) != 4 or not all(number.isdecimal() for number in numbers):
        raise AclError(Code.RT_PARAM_INVALID, f"{key!r} is no key of shared memory")
    return _Key(*map(int, numbers))


def _freed(gone: Allocation) -> None:
    """Memory that is freed is shared no more."""
    if _exported:
        with _lock:
            for key in [key for key, exported in _exported.items() if exported.address == gone.address]:
                _exported.pop(key).close()


def _forget() -> None:
    """At the end of AscendCL nothing is shared any more."""
    with _lock:
        for key in tuple(_imported):
            _close_imported(key)
        while _exported:
            _exported.popitem()[1].close()


PROCESS.allocations.released.append(_freed)
PROCESS.ending.append(_forget)
