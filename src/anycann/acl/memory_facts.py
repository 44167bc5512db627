"""acl.rt: more about memory: what an address is, host memory for devices, sums while copying, descriptions of copies."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from anycann.acl import types
from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.memory import check_configuration, check_copy, check_span, move, take_device_memory
from anycann.acl.process import PROCESS
from anycann.acl.util import check_readable, ptr_to_bytes, view_at

ON_HOST, ON_DEVICE, UNREGISTERED = 0, 1, 2  # where memory is
PAGE_BYTES = 4096
_REDUCTIONS: dict[int, Any] = {10: np.add, 11: np.maximum, 12: np.minimum}  # aclrtReduceKind
_registered: dict[int, int] = {}  # host memory that was registered: address -> bytes
_PREFETCH, _LINE_BYTES = 0, 64
_COPY = struct.Struct("<QQQ40x")  # a copy described in device memory: source, target, bytes
INNER_DEVICE = 6


@value_and_status("acl.rt.pointer_get_attributes", failed=(None,), returns="(dict, ret)")
def pointer_get_attributes(ptr: int) -> dict[str, object]:
    """Where an address lies: location {id: device, type: 0 host, 1 device, 2 not known here}, page_size."""
    if not ptr:
        raise AclError(Code.INVALID_PARAM, "the address is null")
    found = PROCESS.allocations.find(ptr)
    registered = any(start <= ptr < start + size for start, size in _registered.items())
    kind = ON_DEVICE if found is not None and found.device >= 0 else ON_HOST if found is not None or registered else UNREGISTERED
    location = {"id": found.device if found is not None and kind == ON_DEVICE else 0, "type": kind}
    return {"location": location, "page_size": PAGE_BYTES, "rsv": [0] * 4}


# ---- host memory
@value_and_status("acl.rt.host_register", returns="(dev_ptr, ret)")
def host_register(ptr: int, size: int, kind: int) -> int:
    """Let devices use host memory; they do under the same address. kind: 0 (mapped)."""
    if kind:
        raise AclError(Code.INVALID_PARAM, f"kind is {kind}; accepted: 0 (mapped)")
    _register(ptr, size)
    return ptr


@status("acl.rt.host_register_v2")
def host_register_v2(ptr: int, size: int, flag: int) -> None:
    """As host_register; host_get_device_pointer tells the address."""
    _register(ptr, size)


def _register(ptr: int, size: int) -> None:
    if size <= 0:
        raise AclError(Code.INVALID_PARAM, f"size is {size} bytes; accepted: at least 1")
    check_readable(ptr, size, "host_register")
    if ptr in _registered:
        raise AclError(Code.RT_PARAM_INVALID, f"{ptr:#x} is registered already")
    _registered[ptr] = size


@value_and_status("acl.rt.host_get_device_pointer", returns="(dev_ptr, ret)")
def host_get_device_pointer(ptr: int, flag: int) -> int:
    """Where devices find registered host memory: the same address."""
    _check_registered(ptr)
    return ptr


@status("acl.rt.host_unregister")
def host_unregister(ptr: int) -> None:
    """Take host_register back."""
    _check_registered(ptr)
    del _registered[ptr]


def _check_registered(ptr: int) -> None:
    if ptr not in _registered:
        raise AclError(Code.RT_PARAM_INVALID, f"{ptr:#x} was not registered with acl.rt.host_register")


PROCESS.ending.append(_registered.clear)


@value_and_status("acl.rt.malloc_host_with_cfg", returns="(host_ptr, ret)")
def malloc_host_with_cfg(size: int, configuration: dict) -> int:  # type: ignore[type-arg]
    """As acl.rt.malloc_host, with a configuration as acl.rt.malloc_with_cfg. The device reaches the memory at the same address."""
    check_configuration(configuration)
    if size <= 0:
        raise AclError(Code.INVALID_PARAM, f"size is {size} bytes; accepted: at least 1")
    return PROCESS.allocations.allocate(size, "host", -1).address


@value_and_status("acl.rt.malloc_for_task_scheduler", returns="(dev_ptr, ret)")
def malloc_for_task_scheduler(size: int, policy: int, configuration: dict) -> int:  # type: ignore[type-arg]
    """As acl.rt.malloc_with_cfg."""
    check_configuration(configuration)
    return take_device_memory(size, policy, "device")


# ---- copies that do more
@status("acl.rt.reduce_async")
def reduce_async(dst: int, src: int, count: int, kind: int, data_type: int, stream: int, reserve: int) -> None:
    """In order with the tasks of `stream`, `count` bytes at dst become dst op src. kind: 10 sum, 11 greatest, 12 least."""
    if kind not in _REDUCTIONS:
        raise AclError(Code.INVALID_PARAM, f"kind is {kind}; accepted: 10 (sum), 11 (max), 12 (min)")
    dtype = types.numpy_dtype_of(data_type)
    if count <= 0 or count % dtype.itemsize:
        raise AclError(Code.INVALID_PARAM, f"count is {count} bytes; accepted: a multiple of {dtype.itemsize}, the size of {dtype.name}")
    check_copy(dst, count, src, count, 3)

    def task() -> None:
        check_copy(dst, count, src, count, 3)
        target, source = (view_at(ptr, dtype, (count // dtype.itemsize,)) for ptr in (dst, src))
        _REDUCTIONS[kind](target, source, out=target)

    PROCESS.stream(stream).submit(task)


@status("acl.rt.memcpy_async_with_condition")
def memcpy_async_with_condition(dst: int, dst_max: int, src: int, count: int, kind: int, stream: int) -> None:
    """As acl.rt.memcpy_async."""
    check_copy(dst, dst_max, src, count, kind)

    def task() -> None:
        check_copy(dst, dst_max, src, count, kind)
        move(dst, src, count)

    PROCESS.stream(stream).submit(task)


@value_and_status("acl.rt.get_memcpy_desc_size", returns="(bytes, ret)")
def get_memcpy_desc_size(kind: int) -> int:
    """Bytes of device memory that the description of a copy needs."""
    _check_kind(kind)
    return _COPY.size


@value_and_status("acl.rt.set_memcpy_desc", returns="(desc, ret)")
def set_memcpy_desc(desc: int, kind: int, src: int, dst: int, count: int, config: int) -> int:
    """Describe a copy in device memory."""
    _check_kind(kind)
    check_span(desc, _COPY.size, _COPY.size, "desc")
    check_copy(dst, count, src, count, 3)
    check_readable(desc, _COPY.size, "desc")
    view_at(desc, np.dtype(np.uint8), (_COPY.size,))[:] = np.frombuffer(_COPY.pack(src, dst, count), np.uint8)
    return desc


@status("acl.rt.memcpy_async_with_desc")
def memcpy_async_with_desc(desc: int, kind: int, stream: int) -> None:
    """In order with the tasks of `stream`, do the copy that the memory at `desc` describes by then."""
    _check_kind(kind)
    check_readable(desc, _COPY.size, "desc")

    def task() -> None:
        data = ptr_to_bytes(desc, _COPY.size)
        if data is None:
            raise AclError(Code.RT_PARAM_INVALID, f"the description at {desc:#x} is gone")
        src, dst, count = _COPY.unpack(data)
        check_copy(dst, count, src, count, 3)
        move(dst, src, count)

    PROCESS.stream(stream).submit(task)


def _check_kind(kind: int) -> None:
    if kind != INNER_DEVICE:
        raise AclError(Code.INVALID_PARAM, f"kind is {kind}; accepted: 6 (inside a device)")


@status("acl.rt.cmo_async")
def cmo_async(src: int, size: int, kind: int, stream: int) -> None:
    """In order with the tasks of `stream`. kind: 0 bring memory into the caches; 1 write back, 2 invalidate, 3 flush: they are coherent."""
    if kind not in range(4):
        raise AclError(Code.INVALID_PARAM, f"kind is {kind}; accepted: 0 to 3")
    _check_device_memory(src, size)

    def task() -> None:
        _check_device_memory(src, size)  # it may have been freed since
        if kind == _PREFETCH:
            view_at(src, np.dtype(np.uint8), (size,))[::_LINE_BYTES].max(initial=0)

    PROCESS.stream(stream).submit(task)


def _check_device_memory(ptr: int, size: int) -> None:
    check_span(ptr, size, size, "src")
    if PROCESS.allocations.find(ptr) is None:
        raise AclError(Code.RT_PARAM_INVALID, f"src {ptr:#x} is no live device memory: freed before, or never given")


# ---- memory errors
@value_and_status("acl.rt.get_mem_uce_info", failed=(None,), returns="(list, ret)")
def get_mem_uce_info(device: int, most: int) -> list[object]:
    """Memory that the device cannot correct: none; the machine's own checks look after it."""
    PROCESS.device(device)
    return []


@status("acl.rt.mem_uce_repair")
def mem_uce_repair(device: int, places: list) -> None:  # type: ignore[type-arg]
    """Repair what get_mem_uce_info told: nothing."""
    PROCESS.device(device)
    if places:
        raise AclError(Code.INVALID_PARAM, f"{len(places)} places are given; accepted: those of acl.rt.get_mem_uce_info, which are none")
