"""acl.rt: memory of devices and of the host, and moving it. Every address is looked up before it is touched."""

from __future__ import annotations

import ctypes

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.process import PROCESS
from anycann.acl.shown import SHOWN
from anycann.runtime.allocations import Allocation, MemoryKind, copy, copy_checked, copy_readable
from anycann.runtime.device import Device
from anycann.support.logging import get_logger

KINDS = {0: "host to host", 1: "host to device", 2: "device to host", 3: "device to device", 4: "default",
         5: "host to buffer to device", 6: "device to device", 7: "device to device"}  # fmt: skip
_TO_DEVICE, _FROM_DEVICE = (1, 3, 5, 6, 7), (2, 3, 6, 7)
_POLICIES = frozenset(range(8))
_POLICY_FLAGS = 0x0100 | 0x1000 | 0x100000  # bandwidth and access, which are alike here
_ATTRIBUTES, _OF_DEVICE = (1, 2, 3), 2  # aclrtMallocAttrType
_log = get_logger("acl")


# ---- taking and giving back
@value_and_status("acl.rt.malloc", returns="(dev_ptr, ret)")
def malloc(size: int, policy: int) -> int:
    """Memory of this context's device, aligned to 64. policy: 0 to 7 (huge pages or not: large memory has them where the system does)."""
    return take_device_memory(size, policy, "device")


@value_and_status("acl.rt.malloc_align32", returns="(dev_ptr, ret)")
def malloc_align32(size: int, policy: int) -> int:
    """As malloc; Ascend's malloc adds 32 bytes to the size, and this one does not. Neither does here."""
    return take_device_memory(size, policy, "device")


@value_and_status("acl.rt.malloc_cached", returns="(dev_ptr, ret)")
def malloc_cached(size: int, policy: int) -> int:
    """As malloc; what is written is seen without mem_flush."""
    return take_device_memory(size, policy, "device")


@value_and_status("acl.rt.malloc_with_cfg", returns="(dev_ptr, ret)")
def malloc_with_cfg(size: int, policy: int, configuration: object) -> int:
    """As malloc, with any policy. configuration: {} or {attrs: [{attr: 1 to 3, value: {...}}], numAttrs}.

    attr: 1 {moduleId}, for people who look for the owner; 2 {deviceId}, which must be that of this context; 3 {vaFlag}, of host memory.
    """
    check_configuration(configuration)
    return take_device_memory(size, policy if policy & ~_POLICY_FLAGS in _POLICIES else 0, "device")


@status("acl.rt.free")
def free(ptr: int) -> None:
    """Give memory of acl.rt.malloc back; also of acl.media.dvpp_malloc, as Ascend's runtime does and programs rely on."""
    give_back(ptr, ("device", "dvpp"), "acl.rt.malloc")


@value_and_status("acl.rt.malloc_host", returns="(host_ptr, ret)")
def malloc_host(size: int) -> int:
    """Memory of the host, aligned to 64."""
    if size <= 0:
        raise AclError(Code.INVALID_PARAM, f"size is {size} bytes; accepted: at least 1")
    return PROCESS.allocations.allocate(size, "host", -1).address


@status("acl.rt.free_host")
def free_host(ptr: int) -> None:
    """Give memory of acl.rt.malloc_host back."""
    give_back(ptr, ("host",), "acl.rt.malloc_host")


def check_configuration(given: object) -> None:
    """Raises AclError for a configuration of memory that is none, and for the number of a device that is not this context's."""
    if not given:
        return
    attributes = given.get("attrs", []) if isinstance(given, dict) else None
    if not isinstance(attributes, list) or any(not isinstance(each, dict) or each.get("attr") not in _ATTRIBUTES for each in attributes):
        raise AclError(
            Code.INVALID_PARAM, f"the configuration is {given!r:.120}; accepted: {{'attrs': [{{'attr': 1 to 3, 'value': ...}}]}}"
        )
    for each in attributes:
        value = each.get("value")
        device = value.get("deviceId") if isinstance(value, dict) else value
        if each["attr"] == _OF_DEVICE and device != PROCESS.context().device.number:
            raise AclError(Code.RT_PARAM_INVALID, f"memory of device {device}; accepted: {PROCESS.context().device.number}, this context's")


def take_device_memory(size: int, policy: int, kind: MemoryKind, device: Device | None = None, filled: bool = False) -> int:
    """Memory on the account of `device`, or of this context's; `filled` by the caller for the program. Raises AclError."""
    if size <= 0:
        raise AclError(Code.INVALID_PARAM, f"size is {size} bytes; accepted: at least 1")
    if policy & ~_POLICY_FLAGS not in _POLICIES:
        raise AclError(Code.INVALID_PARAM, f"memory policy is {policy}; accepted: 0 (HUGE_FIRST) to 7 (HUGE1G_ONLY_P2P)")
    device = device or PROCESS.context().device
    try:
        device.take(size)
    except Exception as error:
        raise AclError(Code.RT_MEMORY_ALLOCATION, str(error)) from error
    try:
        return PROCESS.allocations.allocate(size, kind, device.number, filled).address
    except Exception as error:
        device.give_back(size)
        raise AclError(Code.RT_MEMORY_ALLOCATION, str(error)) from error


def give_back(ptr: int, kinds: tuple[MemoryKind, ...], source: str) -> None:
    """End an allocation that begins at `ptr`. Raises AclError for null and for anything that `source` did not give."""
    if not ptr:
        raise AclError(Code.INVALID_PARAM, "the address is null")
    found = PROCESS.allocations.find(ptr)
    if found is None or found.address != ptr or found.kind not in kinds:
        raise AclError(Code.RT_PARAM_INVALID, f"{ptr:#x} {_what_it_is(ptr, found, source)}")
    PROCESS.allocations.release(ptr)
    if found.device >= 0:
        PROCESS.devices[found.device].give_back(found.nbytes)


def _what_it_is(ptr: int, found: Allocation | None, source: str) -> str:
    if found is None:
        return f"is not live memory of {source}: it was freed before, or never given"
    if found.address != ptr:
        return f"lies {ptr - found.address} bytes inside an allocation of {found.nbytes} bytes; accepted: the address that {source} gave"
    return f"is {found.kind} memory; accepted: an address that {source} gave"


# ---- setting and copying
@status("acl.rt.memset")
def memset(ptr: int, max_count: int, value: int, count: int) -> None:
    """Fill `count` bytes with `value` (its low byte)."""
    check_span(ptr, max_count, count, "ptr")
    _fill(ptr, value, count)


@status("acl.rt.memset_async")
def memset_async(ptr: int, max_count: int, value: int, count: int, stream: int) -> None:
    """As memset, in order with the tasks of `stream`."""
    check_span(ptr, max_count, count, "ptr")
    PROCESS.stream(stream).submit(lambda: _fill_live(ptr, max_count, value, count))


@status("acl.rt.memcpy")
def memcpy(dst: int, dst_max: int, src: int, count: int, kind: int) -> None:
    """Copy `count` bytes. kind: 0 host to host, 1 to device, 2 from device, 3 device to device, 4 whatever the addresses are."""
    check_copy(dst, dst_max, src, count, kind)
    move(dst, src, count)


@status("acl.rt.memcpy_async")
def memcpy_async(dst: int, dst_max: int, src: int, count: int, kind: int, stream: int) -> None:
    """As memcpy, in order with the tasks of `stream`; host memory must live until then."""
    check_copy(dst, dst_max, src, count, kind)

    def task() -> None:
        check_copy(dst, dst_max, src, count, kind)  # it may have been freed since
        move(dst, src, count)

    PROCESS.stream(stream).submit(task)


@status("acl.rt.memcpy2d")
def memcpy2d(dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int) -> None:
    """Copy `height` rows of `width` bytes that lie `dpitch` and `spitch` bytes apart."""
    _check_rows(dst, dpitch, src, spitch, width, height, kind)
    _move_rows(dst, dpitch, src, spitch, width, height)


@status("acl.rt.memcpy2d_async")
def memcpy2d_async(dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int, stream: int) -> None:
    """As memcpy2d, in order with the tasks of `stream`."""
    _check_rows(dst, dpitch, src, spitch, width, height, kind)

    def task() -> None:
        _check_rows(dst, dpitch, src, spitch, width, height, kind)
        _move_rows(dst, dpitch, src, spitch, width, height)

    PROCESS.stream(stream).submit(task)


@status("acl.rt.mem_flush")
def mem_flush(ptr: int, size: int) -> None:
    """Caches are coherent: nothing has to be done but to look at the address."""
    check_span(ptr, size, size, "ptr")


@status("acl.rt.mem_invalidate")
def mem_invalidate(ptr: int, size: int) -> None:
    """Caches are coherent: nothing has to be done but to look at the address."""
    check_span(ptr, size, size, "ptr")


def check_span(ptr: int, most: int, count: int, role: str) -> None:
    """Raises AclError if `ptr` is null, `count` exceeds `most`, or `count` bytes reach beyond the allocation that `ptr` lies in."""
    if not ptr:
        raise AclError(Code.INVALID_PARAM, f"{role} is null")
    if not 0 <= count <= most:
        raise AclError(Code.INVALID_PARAM, f"{count} bytes for {role}, which has room for {most}")
    found = PROCESS.allocations.find(ptr)
    if found is not None and ptr + count > found.end:
        beyond = ptr + count - found.end
        raise AclError(
            Code.RT_PARAM_INVALID, f"{count} bytes from {role} {ptr:#x} end {beyond} bytes behind its allocation of {found.nbytes} bytes"
        )


def check_copy(dst: int, dst_max: int, src: int, count: int, kind: int) -> None:
    """Raises AclError for a copy that may not be done: an unknown kind, a span as in `check_span`, a device address that is not live."""
    if kind not in KINDS:
        raise AclError(Code.INVALID_PARAM, f"kind is {kind}; accepted: 0 to 7 (1 host to device, 2 device to host, 3 device to device)")
    if count <= 0:
        raise AclError(Code.INVALID_PARAM, f"count is {count} bytes; accepted: at least 1")
    check_span(dst, dst_max, count, "dst")
    check_span(src, count, count, "src")
    for ptr, role, kinds in ((dst, "dst", _TO_DEVICE), (src, "src", _FROM_DEVICE)):
        if kind in kinds and PROCESS.allocations.find(ptr) is None and not SHOWN.holds(ptr, count):
            raise AclError(
                Code.RT_PARAM_INVALID,
                f"{role} {ptr:#x} is no live device memory, as a copy {KINDS[kind]} wants: freed before, or never given",
            )


def move(dst: int, src: int, count: int) -> None:
    """Copy between addresses that passed `check_copy`; the system looks at those which nobody allocated here.

    Programs (a public sample for sizes that change) copy a whole buffer from a shorter picture: where the process has no memory behind the
    picture, the buffer gets zeros.
    """
    target, source = PROCESS.allocations.find(dst), PROCESS.allocations.find(src)
    if target is not None and source is not None:
        copy(dst, src, count)
    elif target is not None and (copied := copy_readable(dst, src, count)):
        if copied < count:
            _log.warning("a copy of %d bytes from %#x finds memory for %d of them; the rest is zero", count, src, copied)
            ctypes.memset(dst + copied, 0, count - copied)
    else:
        copy_checked(dst, src, count)


def _fill(ptr: int, value: int, count: int) -> None:
    if PROCESS.allocations.find(ptr) is not None:
        ctypes.memset(ptr, value & 0xFF, count)
    elif count:
        pattern = ctypes.create_string_buffer(bytes([value & 0xFF]) * min(count, 1 << 20), min(count, 1 << 20))
        for start in range(0, count, 1 << 20):
            copy_checked(ptr + start, ctypes.addressof(pattern), min(count - start, 1 << 20))


def _fill_live(ptr: int, max_count: int, value: int, count: int) -> None:
    check_span(ptr, max_count, count, "ptr")
    _fill(ptr, value, count)


def _check_rows(dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int) -> None:
    if not 0 < width <= min(dpitch, spitch) or height <= 0:
        raise AclError(
            Code.INVALID_PARAM,
            f"{height} rows of {width} bytes with pitches {dpitch} and {spitch}; accepted: 0 < width <= both, height > 0",
        )
    check_copy(dst, (height - 1) * dpitch + width, src, (height - 1) * min(spitch, dpitch) + width, kind)
    check_span(src, (height - 1) * spitch + width, (height - 1) * spitch + width, "src")


def _move_rows(dst: int, dpitch: int, src: int, spitch: int, width: int, height: int) -> None:
    for row in range(height):
        move(dst + row * dpitch, src + row * spitch, width)
