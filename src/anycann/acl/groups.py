"""acl.rt: groups of cores, of which there is one; and allocators that a program brings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from anycann.acl.codes import Code
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.process import PROCESS
from anycann.support.processors import available_processors


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


# ---- allocators
@dataclass
class AllocatorDesc:
    """The functions that a program would have take its memory."""

    acl_word: ClassVar[str] = "allocator description"
    settings: dict[str, object] = field(default_factory=dict)


_registered: dict[int, AllocatorDesc] = {}
_KEPT = "kept; a run takes its memory itself"


@value("acl.rt.allocator_create_desc", returns="desc")
def allocator_create_desc() -> int:
    """An empty description."""
    return PROCESS.handles.add(AllocatorDesc())


@status("acl.rt.allocator_destroy_desc")
def allocator_destroy_desc(desc: int) -> None:
    """Forget it."""
    PROCESS.handles.remove(desc, AllocatorDesc)


@status("acl.rt.allocator_set_obj_to_desc", limits=_KEPT)
def allocator_set_obj_to_desc(desc: int, allocator: int) -> None:
    """What the functions get as their first argument."""
    PROCESS.handles.get(desc, AllocatorDesc).settings["obj"] = allocator


@status("acl.rt.allocator_set_alloc_func_to_desc", limits=_KEPT)
def allocator_set_alloc_func_to_desc(desc: int, function: Callable) -> None:  # type: ignore[type-arg]
    """What takes memory."""
    PROCESS.handles.get(desc, AllocatorDesc).settings["alloc"] = function


@status("acl.rt.allocator_set_free_func_to_desc", limits=_KEPT)
def allocator_set_free_func_to_desc(desc: int, function: Callable) -> None:  # type: ignore[type-arg]
    """What gives memory back."""
    PROCESS.handles.get(desc, AllocatorDesc).settings["free"] = function


@status("acl.rt.allocator_set_alloc_advise_func_to_desc", limits=_KEPT)
def allocator_set_alloc_advise_func_to_desc(desc: int, function: Callable) -> None:  # type: ignore[type-arg]
    """What takes memory near an address."""
    PROCESS.handles.get(desc, AllocatorDesc).settings["advise"] = function


@status("acl.rt.allocator_set_get_addr_from_block_func_to_desc", limits=_KEPT)
def allocator_set_get_addr_from_block_func_to_desc(desc: int, function: Callable) -> None:  # type: ignore[type-arg]
    """What tells the address of a block."""
    PROCESS.handles.get(desc, AllocatorDesc).settings["address"] = function


@status("acl.rt.allocator_register", limits=_KEPT)
def allocator_register(stream: int, desc: int) -> None:
    """Use an allocator for a stream; it must have functions that take, give back and tell addresses."""
    found = PROCESS.handles.get(desc, AllocatorDesc)
    missing = [name for name in ("alloc", "free", "address") if name not in found.settings]
    if missing:
        raise AclError(Code.INVALID_PARAM, f"the allocator has no function to {missing[0]}")
    PROCESS.stream(stream)
    _registered[stream] = found


@status("acl.rt.allocator_unregister")
def allocator_unregister(stream: int) -> None:
    """Take allocator_register back."""
    if _registered.pop(stream, None) is None:
        raise AclError(Code.INVALID_PARAM, f"stream {stream:#x} has no allocator")


PROCESS.ending.append(_registered.clear)
