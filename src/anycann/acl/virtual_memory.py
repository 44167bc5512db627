"""acl.rt: addresses and memory reserved apart, and memory that several processes share by handle."""

from __future__ import annotations

from dataclasses import field
import os
import struct
from typing import Any, ClassVar

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.ipc_memory import TICKET_BYTES, allow, check_allowed, new_ticket
from anycann.acl.process import PROCESS
from anycann.runtime import virtual_memory
from anycann.runtime.device import Device
from anycann.runtime.virtual_memory import GRANULARITY, PhysicalMemory
from anycann.support.records import dataclass

_PROCESS_BITS = 32  # of a handle that another process can take: its owner's number, and the number of a ticket there
_CHECKED, _UNCHECKED = 0, 1  # flags of an export: only processes that are named may take the memory, or any of this user
_PLACE = struct.Struct("<iQ")  # what a ticket begins with: the number of the file of the memory, and its inode


@dataclass(frozen=True)
class Physical:
    """What acl.rt.malloc_physical took, on the account of `device` (None: another process has the account)."""

    acl_word: ClassVar[str] = "handle of physical memory"
    memory: PhysicalMemory
    device: Device | None
    tickets: list[PhysicalMemory] = field(default_factory=list)  # what other processes read before they take it


@dataclass
class _Reserved:
    """Reserved addresses and what is mapped there: address -> bytes."""

    nbytes: int
    mapped: dict[int, int] = field(default_factory=dict)


_reserved: dict[int, _Reserved] = {}


@value_and_status("acl.rt.mem_get_allocation_granularity", returns="(bytes, ret)")
def mem_get_allocation_granularity(properties: dict[str, Any], option: int) -> int:
    """What sizes of physical memory are multiples of. option: 0 the least, 1 what is recommended."""
    if option not in (0, 1):
        raise AclError(Code.INVALID_PARAM, f"option is {option}; accepted: 0 (least), 1 (recommended)")
    return GRANULARITY


@value_and_status("acl.rt.reserve_mem_address", returns="(virt, ret)")
def reserve_mem_address(size: int, align: int, expect: int, flags: int) -> int:
    """Addresses for `size` bytes, without memory. align and expect: 0."""
    if size <= 0 or align or expect:
        raise AclError(
            Code.INVALID_PARAM, f"size {size}, align {align}, expect {expect}; accepted: a size of at least 1, and 0 for the others"
        )
    address = virtual_memory.reserve(_whole(size))
    _reserved[address] = _Reserved(_whole(size))
    return address


@status("acl.rt.release_mem_address")
def release_mem_address(virt: int) -> None:
    """Give reserved addresses back; nothing may be mapped there."""
    found = _reserved.get(virt)
    if found is None:
        raise AclError(Code.RT_PARAM_INVALID, f"{virt:#x} was not given by acl.rt.reserve_mem_address, or is released already")
    if found.mapped:
        raise AclError(Code.RT_PARAM_INVALID, f"memory is mapped at {next(iter(found.mapped)):#x}; acl.rt.unmap_mem comes first")
    del _reserved[virt]
    virtual_memory.release(virt, found.nbytes)


@value_and_status("acl.rt.malloc_physical", returns="(handle, ret)")
def malloc_physical(size: int, properties: dict[str, Any], flags: int) -> int:
    """Memory without an address. properties["location"]: {"id": device, "type": 1 (device), 0 (host)}."""
    if size <= 0:
        raise AclError(Code.INVALID_PARAM, f"size is {size} bytes; accepted: at least 1")
    location = properties.get("location") or {}
    device = PROCESS.device(int(location.get("id", 0)))
    nbytes = _whole(size)
    try:
        device.take(nbytes)
    except Exception as error:
        raise AclError(Code.RT_MEMORY_ALLOCATION, str(error)) from error
    try:
        return PROCESS.handles.add(Physical(PhysicalMemory.take(nbytes), device))
    except Exception:
        device.give_back(nbytes)
        raise


@status("acl.rt.free_physical")
def free_physical(handle: int) -> None:
    """Give physical memory back; what is mapped of it stays until it is unmapped."""
    gone = PROCESS.handles.remove(handle, Physical)
    for each in (gone.memory, *gone.tickets):
        each.close()
    if gone.device is not None:
        gone.device.give_back(gone.memory.nbytes)


@status("acl.rt.map_mem")
def map_mem(virt: int, size: int, offset: int, handle: int, flags: int) -> None:
    """Put the first `size` bytes of physical memory behind reserved addresses. offset: 0."""
    physical = PROCESS.handles.get(handle, Physical)
    start = next((start for start, found in _reserved.items() if start <= virt and virt + size <= start + found.nbytes), None)
    if start is None or size <= 0 or (virt - start) % GRANULARITY:
        raise AclError(Code.RT_PARAM_INVALID, f"{size} bytes at {virt:#x} are not within addresses of acl.rt.reserve_mem_address")
    if offset or size > physical.memory.nbytes:
        words = f"{size} bytes from {offset} of physical memory of {physical.memory.nbytes} bytes"
        raise AclError(Code.RT_PARAM_INVALID, f"{words}; accepted: offset 0, and no more than there is")
    mapped = _reserved[start].mapped
    if any(at < virt + size and virt < at + nbytes for at, nbytes in mapped.items()):
        raise AclError(Code.RT_PARAM_INVALID, f"memory is mapped already within {size} bytes from {virt:#x}; acl.rt.unmap_mem comes first")
    block = virtual_memory.put_behind(virt, physical.memory, offset, size)
    PROCESS.allocations.adopt(block, "mapped", 0 if physical.device is None else physical.device.number, filled=True)
    mapped[virt] = size


@status("acl.rt.unmap_mem")
def unmap_mem(virt: int) -> None:
    """Take the memory away again that map_mem put there."""
    found = next((found for found in _reserved.values() if virt in found.mapped), None)
    if found is None:
        raise AclError(Code.RT_PARAM_INVALID, f"nothing is mapped at {virt:#x}; accepted: an address that acl.rt.map_mem was given")
    PROCESS.allocations.release(virt)
    virtual_memory.take_away(virt, found.mapped.pop(virt))


# ---- between processes
@value_and_status("acl.rt.mem_export_to_shareable_handle", returns="(shareable, ret)")
def mem_export_to_shareable_handle(handle: int, kind: int, flags: int) -> int:
    """A number by which another process of this user can take the memory, while this one has it.

    flags: 0 only processes of acl.rt.mem_set_pid_to_shareable_handle may take it, 1 any process of this user.
    """
    if flags not in (_CHECKED, _UNCHECKED):
        raise AclError(Code.RT_PARAM_INVALID, f"flags {flags}; accepted: 0 (processes are listed), 1 (any process)")
    found = PROCESS.handles.get(handle, Physical)
    ticket = new_ticket(_PLACE.pack(found.memory.descriptor, found.memory.inode), anybody=flags == _UNCHECKED)
    found.tickets.append(ticket)
    return os.getpid() << _PROCESS_BITS | ticket.descriptor


@status("acl.rt.mem_set_pid_to_shareable_handle")
def mem_set_pid_to_shareable_handle(handle: int, pids: list[int]) -> None:
    """The processes that may take the memory, by the numbers that acl.rt.device_get_bare_tgid tells them."""
    tickets = [ticket for each in PROCESS.handles.live(Physical).values() for ticket in each.tickets]
    own = next((ticket for ticket in tickets if os.getpid() << _PROCESS_BITS | ticket.descriptor == handle), None)
    if own is None:
        raise AclError(Code.RT_PARAM_INVALID, f"{handle:#x} was not given by acl.rt.mem_export_to_shareable_handle of this process")
    allow(own, pids)


@value_and_status("acl.rt.mem_import_from_shareable_handle", returns="(handle, ret)")
def mem_import_from_shareable_handle(shareable: int, device: int) -> int:
    """A handle for the memory of another process."""
    PROCESS.device(device)
    process, number = shareable >> _PROCESS_BITS, shareable & (1 << _PROCESS_BITS) - 1
    ticket = PhysicalMemory.of_process(process, number)
    try:
        if ticket.nbytes != TICKET_BYTES:
            raise AclError(Code.RT_PARAM_INVALID, f"{shareable:#x} was not given by acl.rt.mem_export_to_shareable_handle")
        check_allowed(ticket, hex(shareable), "acl.rt.mem_set_pid_to_shareable_handle")
        descriptor, inode = _PLACE.unpack(os.pread(ticket.descriptor, _PLACE.size, 0))
    finally:
        ticket.close()
    memory = PhysicalMemory.of_process(process, descriptor)
    if memory.inode != inode:
        memory.close()
        raise AclError(Code.RT_PARAM_INVALID, f"the memory of {shareable:#x} is gone: its owner gave it back")
    return PROCESS.handles.add(Physical(memory, None))


def _whole(size: int) -> int:
    return -(-size // GRANULARITY) * GRANULARITY


def _forget() -> None:
    """At the end of AscendCL what is mapped goes."""
    for start, found in list(_reserved.items()):
        for address in list(found.mapped):
            unmap_mem(address)
        virtual_memory.release(start, found.nbytes)
    _reserved.clear()


PROCESS.ending.append(_forget)
