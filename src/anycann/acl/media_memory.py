"""acl.media: memory for pictures and streams, and looking at the addresses that descriptions carry."""

from __future__ import annotations

import ctypes

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.memory import check_configuration, give_back, take_device_memory
from anycann.acl.process import PROCESS
from anycann.acl.util import check_readable, view_at
from anycann.media.picture import Bytes
from anycann.runtime.allocations import copy_checked

_BYTE = np.dtype(np.uint8)


@value_and_status("acl.media.dvpp_malloc", returns="(ptr, ret)")
def dvpp_malloc(size: int) -> int:
    """Memory of this context's device for pictures and streams."""
    return take_device_memory(size, 0, "dvpp")


@value_and_status("acl.media.dvpp_malloc_with_cfg", returns="(ptr, ret)")
def dvpp_malloc_with_cfg(size: int, policy: int, configuration: dict) -> int:  # type: ignore[type-arg]
    """As dvpp_malloc, with a configuration as acl.rt.malloc_with_cfg."""
    check_configuration(configuration)
    return take_device_memory(size, policy, "dvpp")


@status("acl.media.dvpp_free")
def dvpp_free(ptr: int) -> None:
    """Give memory of dvpp_malloc back."""
    give_back(ptr, ("dvpp",), "acl.media.dvpp_malloc")


def device_bytes(ptr: int, nbytes: int, what: str) -> Bytes:
    """The `nbytes` bytes at `ptr`, in place. Raises AclError unless they are live memory of a device."""
    if not ptr:
        raise AclError(Code.INVALID_PARAM, f"the address of {what} is null")
    found = PROCESS.allocations.find(ptr)
    if found is None or found.kind == "host":
        where = "memory of the host" if found else "no live memory that AscendCL gave"
        raise AclError(Code.INVALID_PARAM, f"{ptr:#x}, the address of {what}, is {where}; accepted: memory of acl.media.dvpp_malloc")
    if ptr + nbytes > found.end:
        raise AclError(
            Code.INVALID_PARAM,
            f"{nbytes} bytes of {what} at {ptr:#x} end {ptr + nbytes - found.end} bytes behind the allocation of {found.nbytes} bytes",
        )
    return view_at(ptr, _BYTE, (nbytes,))


def any_bytes(ptr: int, nbytes: int, what: str) -> bytes:
    """A copy of `nbytes` bytes at `ptr`, which may be the host's. Raises AclError for memory that is not there."""
    if nbytes <= 0:
        raise AclError(Code.INVALID_PARAM, f"{what} has {nbytes} bytes; accepted: at least 1")
    check_readable(ptr, nbytes, what)
    if PROCESS.allocations.find(ptr) is not None:
        return ctypes.string_at(ptr, nbytes)
    copied = ctypes.create_string_buffer(nbytes)
    copy_checked(ctypes.addressof(copied), ptr, nbytes)
    return copied.raw
