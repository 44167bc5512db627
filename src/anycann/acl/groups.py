"""acl.rt: groups of cores, of which there is one; how many cores work may use; and allocators that a program brings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
import threading
from typing import Any, ClassVar
from weakref import WeakKeyDictionary, ref

from anycann.acl.codes import Code
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.media_memory import device_bytes
from anycann.acl.process import PROCESS
from anycann.acl.runs import LENDERS
from anycann.runtime.executor import CompiledProgram
from anycann.runtime.launches import Loan
from anycann.runtime.memory import ALIGNMENT
from anycann.runtime.stream import Stream
from anycann.support.processors import available_processors
from anycann.support.records import dataclass

CUBE_CORES, VECTOR_CORES = 0, 1  # aclrtDevResLimitType
_ALL_CORES = "kept and told; there are no such cores, and models run on the threads that they were loaded with"
_stream_limits: WeakKeyDictionary[Stream, dict[int, int]] = WeakKeyDictionary()
_device_limits: dict[tuple[int, int], int] = {}
_thread = threading.local()  # used: the stream whose limits hold


def _limits_of(stream: int) -> dict[int, int]:
    return _stream_limits.setdefault(PROCESS.stream(stream), {})


@dataclass
class GroupInfo:
    """What is known of groups; filled by get_all_group_info."""

    acl_word: ClassVar[str] = "group info"
    attributes: dict[int, int] = field(default_factory=dict)


@status("acl.rt.set_group")
def set_group(group: int) -> None:
    """Work with a group of cores: 0, the only one."""
    PROCESS.context()
    if group:
        raise AclError(Code.RT_GROUP_NOT_CREATE, f"group {group} is not there; accepted: 0")


@value_and_status("acl.rt.get_group_count", returns="(count, ret)")
def get_group_count(unused: int = 0) -> int:
    """One group."""
    PROCESS.context()
    return 1


@value("acl.rt.create_group_info", returns="info")
def create_group_info() -> int:
    """Room for what is known of groups."""
    return PROCESS.handles.add(GroupInfo())


@status("acl.rt.destroy_group_info")
def destroy_group_info(info: int) -> None:
    """Forget it."""
    PROCESS.handles.remove(info, GroupInfo)


@status("acl.rt.get_all_group_info")
def get_all_group_info(info: int) -> None:
    """Fill it: cores of each kind are the processors, copy engines and queues there are none, the group is 0."""
    processors = available_processors()
    PROCESS.handles.get(info, GroupInfo).attributes = {0: processors, 1: processors, 2: processors, 3: 0, 4: 0, 5: 0}


@value_and_status("acl.rt.get_group_info_detail", failed=(None,), returns="(list, ret)")
def get_group_info_detail(info: int, group: int, attribute: int) -> list[int]:
    """One number of a group. attribute: 0 AI cores, 1 vector cores, 2 AI CPUs, 3 copy engines, 4 queues, 5 the group's number."""
    attributes = PROCESS.handles.get(info, GroupInfo).attributes
    if group or attribute not in attributes:
        raise AclError(Code.INVALID_PARAM, f"attribute {attribute} of group {group}; accepted: 0 to 5 of group 0, after get_all_group_info")
    return [attributes[attribute]]


# ---- how many cores
@value_and_status("acl.rt.get_device_res_limit", returns="(count, ret)")
def get_device_res_limit(device: int, kind: int) -> int:
    """Cores that a device may use: what set_device_res_limit set, else the processors there are. kind: 0 cube, 1 vector."""
    PROCESS.device(device)
    return _device_limits.get((device, _core_kind(kind)), available_processors())


@status("acl.rt.set_device_res_limit", limits=_ALL_CORES)
def set_device_res_limit(device: int, kind: int, count: int) -> None:
    """How many cores a device may use."""
    PROCESS.device(device)
    _device_limits[device, _core_kind(kind)] = _core_count(count)


@status("acl.rt.reset_device_res_limit")
def reset_device_res_limit(device: int) -> None:
    """Take set_device_res_limit back."""
    PROCESS.device(device)
    for kind in (CUBE_CORES, VECTOR_CORES):
        _device_limits.pop((device, kind), None)


@value_and_status("acl.rt.get_stream_res_limit", returns="(count, ret)")
def get_stream_res_limit(stream: int, kind: int) -> int:
    """Cores that a stream may use: what set_stream_res_limit set, else those of its device."""
    return _limits_of(stream).get(_core_kind(kind), get_res_limit_here(kind))


@status("acl.rt.set_stream_res_limit", limits=_ALL_CORES)
def set_stream_res_limit(stream: int, kind: int, count: int) -> None:
    """How many cores a stream may use."""
    _limits_of(stream)[_core_kind(kind)] = _core_count(count)


@status("acl.rt.reset_stream_res_limit")
def reset_stream_res_limit(stream: int) -> None:
    """Take set_stream_res_limit back."""
    _limits_of(stream).clear()


@status("acl.rt.use_stream_res_in_current_thread", limits=_ALL_CORES)
def use_stream_res_in_current_thread(stream: int) -> None:
    """This thread works with the cores of `stream`, instead of another's or the device's."""
    _thread.used = ref(PROCESS.stream(stream))


@status("acl.rt.unuse_stream_res_in_current_thread", limits=_ALL_CORES)
def unuse_stream_res_in_current_thread(stream: int) -> None:
    """Take use_stream_res_in_current_thread back; of a stream that is not used there is nothing to take back."""
    if PROCESS.stream(stream) is _used_stream():
        _thread.used = None


@value_and_status("acl.rt.get_res_in_current_thread", returns="(count, ret)")
def get_res_in_current_thread(kind: int) -> int:
    """Cores that this thread's work may use: those of the stream of use_stream_res_in_current_thread, else those of its device."""
    used, device = _used_stream(), get_res_limit_here(kind)
    return device if used is None else _stream_limits.get(used, {}).get(kind, device)


def _used_stream() -> Stream | None:
    used = getattr(_thread, "used", None)
    return None if used is None else used()


def get_res_limit_here(kind: int) -> int:
    """The cores of this context's device."""
    return _device_limits.get((PROCESS.context().device.number, _core_kind(kind)), available_processors())


def _core_kind(kind: int) -> int:
    if kind not in (CUBE_CORES, VECTOR_CORES):
        raise AclError(Code.INVALID_PARAM, f"kind of cores is {kind}; accepted: 0 (cube), 1 (vector)")
    return kind


def _core_count(count: int) -> int:
    if not 0 < count <= available_processors():
        raise AclError(Code.INVALID_PARAM, f"{count} cores; accepted: 1 to {available_processors()}")
    return count


# ---- allocators
@dataclass
class AllocatorDesc:
    """The functions that a program would have take its memory."""

    acl_word: ClassVar[str] = "allocator description"
    settings: dict[str, object] = field(default_factory=dict)


@value("acl.rt.allocator_create_desc", returns="desc")
def allocator_create_desc() -> int:
    """An empty description."""
    return PROCESS.handles.add(AllocatorDesc())


@status("acl.rt.allocator_destroy_desc")
def allocator_destroy_desc(desc: int) -> None:
    """Forget it."""
    PROCESS.handles.remove(desc, AllocatorDesc)


@status("acl.rt.allocator_set_obj_to_desc")
def allocator_set_obj_to_desc(desc: int, allocator: int) -> None:
    """What the functions get as their first argument."""
    PROCESS.handles.get(desc, AllocatorDesc).settings["obj"] = allocator


@status("acl.rt.allocator_set_alloc_func_to_desc")
def allocator_set_alloc_func_to_desc(desc: int, function: Callable) -> None:  # type: ignore[type-arg]
    """What takes memory."""
    PROCESS.handles.get(desc, AllocatorDesc).settings["alloc"] = function


@status("acl.rt.allocator_set_free_func_to_desc")
def allocator_set_free_func_to_desc(desc: int, function: Callable) -> None:  # type: ignore[type-arg]
    """What gives memory back."""
    PROCESS.handles.get(desc, AllocatorDesc).settings["free"] = function


@status("acl.rt.allocator_set_alloc_advise_func_to_desc")
def allocator_set_alloc_advise_func_to_desc(desc: int, function: Callable) -> None:  # type: ignore[type-arg]
    """What takes memory near an address, advise(object, bytes, address) -> block: no run here asks for it."""
    PROCESS.handles.get(desc, AllocatorDesc).settings["advise"] = function


@status("acl.rt.allocator_set_get_addr_from_block_func_to_desc")
def allocator_set_get_addr_from_block_func_to_desc(desc: int, function: Callable) -> None:  # type: ignore[type-arg]
    """What tells the address of a block."""
    PROCESS.handles.get(desc, AllocatorDesc).settings["address"] = function


@status("acl.rt.allocator_register")
def allocator_register(stream: int, desc: int) -> None:
    """What models and operators need while they run in `stream` is taken by the functions of an allocator, and given back after the run.

    It must have functions that take, alloc(object, bytes) -> block, give back, free(object, block), and tell: address(block). They are
    called in this thread's context, whichever thread the run is in.
    """
    found = PROCESS.handles.get(desc, AllocatorDesc)
    missing = [name for name in ("alloc", "free", "address") if name not in found.settings]
    if missing:
        raise AclError(Code.INVALID_PARAM, f"the allocator has no function to {missing[0]}")
    allocator = _Allocator(dict(found.settings), PROCESS.thread.context)
    LENDERS[PROCESS.stream(stream)] = allocator.lend


@status("acl.rt.allocator_unregister")
def allocator_unregister(stream: int) -> None:
    """Take allocator_register back."""
    if LENDERS.pop(PROCESS.stream(stream), None) is None:
        raise AclError(Code.INVALID_PARAM, f"stream {stream:#x} has no allocator")


@dataclass(frozen=True)
class _Allocator:
    """The functions of a program, as they were when it registered them, and the context they are called in."""

    functions: dict[str, Any]
    context: int

    def _call(self, name: str, *arguments: object) -> Any:
        before, PROCESS.thread.context = PROCESS.thread.context, self.context or PROCESS.thread.context
        try:
            return self.functions[name](*arguments)
        finally:
            PROCESS.thread.context = before

    @contextmanager
    def lend(self, program: CompiledProgram) -> Iterator[None]:
        """Meanwhile `program` works in a block that the program's function gave. Raises AclError for one that is none."""
        given, nbytes = self.functions.get("obj", 0), program.program.arena_bytes
        if not nbytes:
            yield
            return
        block = self._call("alloc", given, nbytes + ALIGNMENT)
        if not isinstance(block, int) or not block:
            raise AclError(Code.RT_MEMORY_ALLOCATION, f"the program's allocator gave {block!r:.60} for {nbytes + ALIGNMENT} bytes")
        try:
            address = self._call("address", block)
            memory = device_bytes(address, nbytes + ALIGNMENT, "the block of the program's allocator")
            end = program.lend(Loan(memory[-address % ALIGNMENT :], threading.get_ident()))
            try:
                yield
            finally:
                end()
        finally:
            self._call("free", given, block)


PROCESS.ending.append(LENDERS.clear)
