"""More than one npu for torch's C++ code, which says that a device made in Python has one.

A C++ object is a pointer to a table of functions and its data. The tables of the two objects that torch made for us are copied, a few
entries replaced, and the objects given the copies. Which entry is which holds for one version of torch, and is tried before it is believed.
"""

from __future__ import annotations

from collections.abc import Callable
import ctypes
import mmap
from pathlib import Path
import platform
import struct
from typing import Any

import torch

from anycann.adapters.torch.device import devices

KNOWN_VERSIONS = ("2.13",)
_TYPE = 20  # c10::DeviceType::PrivateUse1
# Entries of c10::impl::DeviceGuardImplInterface and at::PrivateUse1HooksInterface in torch 2.13
_GUARD_ENTRIES, _HOOKS_ENTRIES = 26, 17
_EXCHANGE, _GET, _SET, _UNCHECKED_SET, _GET_STREAM, _DEFAULT_STREAM, _EXCHANGE_STREAM = 1, 2, 3, 4, 5, 6, 9
_COUNT, _SYNCHRONIZE_STREAM, _SYNCHRONIZE_DEVICE, _ELAPSED = 15, 20, 21, 23
_HOOKS_IS_READY = 4  # hasPrimaryContext, which a backward asks eight times
_HOOKS_COUNT, _HOOKS_SET, _HOOKS_GET, _HOOKS_EXCHANGE, _HOOKS_MAYBE_EXCHANGE = 6, 7, 8, 9, 10
_HOOKS_PINNED_ALLOCATOR, _HOOKS_DEVICE_OF_POINTER, _HOOKS_DEFAULT_GENERATOR, _HOOKS_NEW_GENERATOR = 12, 13, 14, 15

_kept: list[Any] = []
_current: int | None = None  # address of the function that tells it, if it is known
_count = ctypes.c_int32()  # what torch's C++ code is told


def current_device() -> int | None:
    """Address of generated code that answers the thread's current device as c10::Device does, 0 if there is one only; None if unknown."""
    return 0 if devices.count() == 1 else _current


def install() -> bool:
    """Give torch's C++ code all devices. Answers whether it has them; if not, there is one device from now on."""
    if devices.count() > 1 and torch.__version__.startswith(KNOWN_VERSIONS) and _replace_tables():
        _start_autograd()
        _count.value = devices.count()
        if _works():
            return True
    devices.limit_count(1)
    return False


def _start_autograd() -> None:
    """Run a backward while there are no devices: at its first one torch starts a thread for each, after which a process may not fork."""
    torch.ones((), requires_grad=True).backward()


def _replace_tables() -> bool:
    try:
        functions = _machine_code() if platform.machine() in ("x86_64", "AMD64") else _callbacks()
        libraries = Path(torch.__file__).parent / "lib"
        c10, cpu = ctypes.CDLL(str(libraries / "libc10.so")), ctypes.CDLL(str(libraries / "libtorch_cpu.so"))
        registry = ctypes.addressof(ctypes.c_void_p.in_dll(c10, "_ZN3c104impl26device_guard_impl_registryE"))
        guard = ctypes.c_void_p.from_address(registry + 8 * _TYPE).value
        hooks_of = cpu._ZN2at6detail19getPrivateUse1HooksEv
        hooks_of.restype = ctypes.c_void_p
        hooks = hooks_of()
        allocator, generator = _address(c10, "_ZN3c1015GetCPUAllocatorEv"), _address(cpu, "_ZN2at6detail22getDefaultCPUGeneratorEv")
        new_generator = _address(cpu, "_ZN2at6detail18createCPUGeneratorEm")
    except (OSError, AttributeError, ValueError):
        return False
    if not guard or not hooks:
        return False
    _swap_table(guard, _GUARD_ENTRIES, functions.guard)
    torch_functions = {_HOOKS_PINNED_ALLOCATOR: allocator, _HOOKS_DEFAULT_GENERATOR: generator, _HOOKS_NEW_GENERATOR: new_generator}
    _swap_table(hooks, _HOOKS_ENTRIES, functions.hooks | torch_functions)
    return True


def _works() -> bool:
    """Whether torch's C++ code sees the count, and the current device where it completes a device without an index."""
    before = devices.current()
    try:
        devices.make_current(devices.count() - 1)
        made = torch.empty(1).to(devices.NAME)
        return bool(made.get_device() == torch._C._accelerator_getDeviceIndex() == devices.count() - 1)
    except RuntimeError:
        return False
    finally:
        devices.make_current(before)


class _Functions:
    """Addresses by entry, for the two tables."""

    def __init__(self, guard: dict[int, int], hooks: dict[int, int]):
        self.guard, self.hooks = guard, hooks


def _address(library: Any, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def _swap_table(instance: int, entries: int, replaced: dict[int, int]) -> None:
    """Give the C++ object at `instance` a copy of its table (two words about its type, then `entries` addresses) with some replaced."""
    pointer = ctypes.c_void_p.from_address(instance)
    words = (ctypes.c_void_p * (entries + 2)).from_address((pointer.value or 0) - 16)
    table = (ctypes.c_void_p * (entries + 2))(*words)
    for entry, address in replaced.items():
        table[entry + 2] = address
    _kept.append(table)
    pointer.value = ctypes.addressof(table) + 16


def _machine_code() -> _Functions:
    """The functions for x86-64; the current device of a thread lies in a pthread key, as its index times 256."""
    global _current
    threads = ctypes.CDLL(None)
    key = ctypes.c_uint()
    if threads.pthread_key_create(ctypes.byref(key), None):
        raise OSError("no pthread key is left")
    threads.pthread_setspecific.argtypes = [ctypes.c_uint, ctypes.c_void_p]
    devices.listeners.append(lambda index: threads.pthread_setspecific(key, index << 8) and None)
    get = b"\x48\x83\xec\x08\xbf" + struct.pack("<I", key.value) + b"\x48\xb8"  # sub rsp, 8; mov edi, key; mov rax, ...
    get += struct.pack("<Q", _address(threads, "pthread_getspecific")) + b"\xff\xd0\x48\x83\xc4\x08"  # call rax; add rsp, 8
    device = _current = _executable(get + b"\x83\xc8\x14\xc3")  # or eax, 20; ret
    index = _executable(get + b"\xc1\xe8\x08\xc3")  # shr eax, 8; ret
    count = _executable(b"\x48\xb8" + struct.pack("<Q", ctypes.addressof(_count)) + b"\x8b\x00\xc3")  # mov rax, ...; mov eax, [rax]; ret
    nothing = _executable(b"\xc3")
    stream = _executable(b"\x0f\xb7\xc6\x31\xd2\xc3")  # Stream{the given device, number 0}
    same_stream = _executable(b"\x0f\xb7\xc6\xc3")
    zero = _executable(b"\x0f\x57\xc0\xc3")
    guard = {_EXCHANGE: device, _GET: device, _SET: nothing, _UNCHECKED_SET: nothing, _GET_STREAM: stream, _DEFAULT_STREAM: stream}
    guard |= {_EXCHANGE_STREAM: same_stream, _COUNT: count, _SYNCHRONIZE_STREAM: nothing, _SYNCHRONIZE_DEVICE: nothing, _ELAPSED: zero}
    hooks = {_HOOKS_COUNT: count, _HOOKS_SET: nothing, _HOOKS_GET: index, _HOOKS_EXCHANGE: index, _HOOKS_MAYBE_EXCHANGE: index}
    yes = _executable(b"\xb8\x01\x00\x00\x00\xc3")  # mov eax, 1; ret
    return _Functions(guard, hooks | {_HOOKS_DEVICE_OF_POINTER: device, _HOOKS_IS_READY: yes})


def _executable(code: bytes) -> int:
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    _kept.append(page)
    return ctypes.addressof(ctypes.c_char.from_buffer(page))


def _callbacks() -> _Functions:
    """The functions for other processors, as calls of Python."""
    pointer, device_bits, small = ctypes.c_void_p, ctypes.c_uint16, ctypes.c_int8
    device = _callback(ctypes.CFUNCTYPE(device_bits, pointer), lambda this: _TYPE | devices.current() << 8)
    exchange = _callback(ctypes.CFUNCTYPE(device_bits, pointer, device_bits), lambda this, new: _TYPE | devices.current() << 8)
    index = _callback(ctypes.CFUNCTYPE(small, pointer), lambda this: devices.current())
    count = _callback(ctypes.CFUNCTYPE(small, pointer), lambda this: _count.value)
    nothing = _callback(ctypes.CFUNCTYPE(None, pointer, pointer), lambda this, argument: None)
    guard = {_EXCHANGE: exchange, _GET: device, _SET: nothing, _UNCHECKED_SET: nothing, _COUNT: count}
    guard |= {_SYNCHRONIZE_STREAM: nothing, _SYNCHRONIZE_DEVICE: nothing}
    hooks = {_HOOKS_COUNT: count, _HOOKS_SET: nothing, _HOOKS_GET: index, _HOOKS_EXCHANGE: index, _HOOKS_MAYBE_EXCHANGE: index}
    return _Functions(guard, hooks | {_HOOKS_DEVICE_OF_POINTER: device})


def _callback(kind: Callable[..., Any], function: Callable[..., Any]) -> int:
    made = kind(function)
    _kept.append(made)
    return ctypes.cast(made, ctypes.c_void_p).value or 0
