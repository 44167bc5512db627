"""Machine code for what every operator does: a new tensor becomes the npu's, and its memory is accounted for until it is freed.

`claim(tensor, index)` is a function of Python made of generated code. It changes device and keys of the tensor in place (`layout.py`), and
puts a record of ours between its memory and the function that frees it: the record takes the bytes off the npu's account when that happens,
in whatever thread. All that the code must know of this process (offsets, addresses) is in a table that is its `self`.
"""

from __future__ import annotations

from collections.abc import Callable
import ctypes
from dataclasses import dataclass
from typing import Any

import torch

from anycann.adapters.torch.device.accounts import ACCOUNT_WORDS, ACCOUNTS, Field
from anycann.adapters.torch.device.layout import Layout

GRANULE = 512  # bytes: Ascend's allocator rounds up to it
_FAST_CALL = 0x0080  # METH_FASTCALL
_kept: list[Any] = []

# The words of the table
_TABLE = (
    "object_impl", "keys_at", "keys", "special_keys", "device_at", "storage_at", "storage_device_at", "data_at", "context_at", "free_at",
    "bytes_at", "none", "not_implemented", "as_long", "take_reference", "allocate", "free", "accounts", "release",
)  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """`call(tensor, index)`: the tensor, now of npu `index`; None if only Python can do it (conjugates, no memory); NotImplemented if the
    npu has no room for it. `account(tensor, index)` does the same for memory that a tensor which is the npu's got anew."""

    call: Callable[[Any, int], Any]
    account: Callable[[Any, int], Any]


def make_claim(layout: Layout) -> Claim | None:
    """The function for tensors as `layout` says, or None if this torch keeps memory in another way or generated code cannot run."""
    memory = _memory_offsets(layout)
    if memory is None:
        return None
    try:
        code = _load()
    except Exception:  # no place for code, or LLVM does not know the processor: Python does it
        return None
    table = _table(layout, memory, code.address("torch_npu_release"))
    functions = (_python_function(name, code.address(f"torch_npu_{name}"), table) for name in ("claim", "account"))
    return Claim(*functions)


def _load() -> Any:
    from anycann.codegen.kernel_cache import compile_kernels
    from anycann.runtime.loader import LoadedCode
    from anycann.target.target import host

    code = LoadedCode(compile_kernels({"torch_npu_claim": claim_ir()}, host(), 1), host())
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))  # tensors are freed after everything else, when the process ends
    return code


def _memory_offsets(layout: Layout) -> dict[str, int] | None:
    """Where a StorageImpl keeps its data, the context and the function that free it, and its size; None if it is not as expected."""
    tensor = torch.empty(1237, dtype=torch.uint8)
    storage = tensor.untyped_storage()
    words = (ctypes.c_uint64 * 10).from_address(storage._cdata)
    data = [at for at in range(10) if words[at] == storage.data_ptr()]
    sizes = [at for at in range(10) if words[at] == 1237]
    if len(data) != 2 or data[1] != data[0] + 2 or len(sizes) != 1:
        return None
    return {"data_at": 8 * data[0], "free_at": 8 * (data[0] + 1), "context_at": 8 * data[1], "bytes_at": 8 * sizes[0]}


def _table(layout: Layout, memory: dict[str, int], release: int) -> bytes:
    tensor = torch.empty(1, dtype=torch.complex64)
    conjugate, negative = torch._C._dispatch_keys(tensor.conj()), torch._C._dispatch_keys(torch._neg_view(tensor))
    plain = torch._C._dispatch_keys(tensor).raw_repr()
    words = {
        "object_impl": _offset_of_impl(tensor),
        "keys_at": layout.keys_at,
        "keys": layout.keys,
        "special_keys": (conjugate.raw_repr() | negative.raw_repr()) & ~plain,
        "device_at": layout.device_at,
        "storage_at": layout.storage_at,
        "storage_device_at": layout.storage_device_at,
        "none": id(None),
        "not_implemented": id(NotImplemented),
        "as_long": _address(ctypes.pythonapi.PyLong_AsLong),
        "take_reference": _address(ctypes.pythonapi.Py_IncRef),
        "allocate": _address(ctypes.CDLL(None).malloc),
        "free": _address(ctypes.CDLL(None).free),
        "accounts": ctypes.addressof(ACCOUNTS),
        "release": release,
        **memory,
    }
    return b"".join(words[name].to_bytes(8, "little") for name in _TABLE)


def _offset_of_impl(tensor: Any) -> int:
    """Where a tensor's Python object points to its TensorImpl."""
    words = (ctypes.c_uint64 * 8).from_address(id(tensor))
    (at,) = (at for at in range(8) if words[at] == tensor._cdata)
    return 8 * at


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class _MethodDef(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


def _python_function(name: str, address: int, table: bytes) -> Callable[[Any, int], Any]:
    """A builtin function of Python that calls the code at `address` with `table` as its self."""
    definition = _MethodDef(name.encode(), address, _FAST_CALL, None)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.POINTER(_MethodDef), ctypes.py_object, ctypes.c_void_p]
    _kept.extend((definition, table))  # both are pointed to
    return make(ctypes.byref(definition), table, None)


def claim_ir() -> str:
    """The module: `torch_npu_claim` and `torch_npu_account`, which Python calls, and `torch_npu_release`, which frees memory.

    A record is six words: the function and context that free the memory, the account, the bytes rounded up and as asked for, and `free`.
    """
    loads = "\n".join(f"  %{name} = {_word(at)}" for at, name in enumerate(_TABLE))
    return f"""
{_release_ir()}

define ptr @torch_npu_claim(ptr %self, ptr %args, i64 %count) {{
  %result = call ptr @move(ptr %self, ptr %args, i1 true)
  ret ptr %result
}}

define ptr @torch_npu_account(ptr %self, ptr %args, i64 %count) {{
  %result = call ptr @move(ptr %self, ptr %args, i1 false)
  ret ptr %result
}}

define internal i64 @word(ptr %self, i64 %at) alwaysinline {{
  %from = getelementptr i8, ptr %self, i64 {bytes.__basicsize__ - 1}
  %place = getelementptr i64, ptr %from, i64 %at
  %value = load i64, ptr %place, align 1
  ret i64 %value
}}

define internal ptr @at(ptr %base, i64 %offset) alwaysinline {{
  %place = getelementptr i8, ptr %base, i64 %offset
  ret ptr %place
}}

define internal ptr @move(ptr %self, ptr %args, i1 %change) alwaysinline {{
entry:
{loads}
  %tensor = load ptr, ptr %args
  %second = getelementptr ptr, ptr %args, i64 1
  %number = load ptr, ptr %second
  %as_long.f = inttoptr i64 %as_long to ptr
  %index = call i64 %as_long.f(ptr %number)
  %impl.p = call ptr @at(ptr %tensor, i64 %object_impl)
  %impl = load ptr, ptr %impl.p
  %keys.p = call ptr @at(ptr %impl, i64 %keys_at)
  %old = load i64, ptr %keys.p
  %masked = and i64 %old, %special_keys
  %special = icmp ne i64 %masked, 0
  %storage.p = call ptr @at(ptr %impl, i64 %storage_at)
  %storage = load ptr, ptr %storage.p
  %empty = icmp eq ptr %storage, null
  %python = or i1 %special, %empty
  br i1 %python, label %refuse, label %memory

refuse:
  %none.o = inttoptr i64 %none to ptr
  call void @give(i64 %take_reference, ptr %none.o)
  ret ptr %none.o

memory:
  %data.p = call ptr @at(ptr %storage, i64 %data_at)
  %data = load ptr, ptr %data.p
  %context.p = call ptr @at(ptr %storage, i64 %context_at)
  %context = load ptr, ptr %context.p
  %bytes.p = call ptr @at(ptr %storage, i64 %bytes_at)
  %bytes = load i64, ptr %bytes.p
  %own = icmp eq ptr %data, %context
  %some = icmp sgt i64 %bytes, 0
  %countable = and i1 %own, %some
  br i1 %countable, label %counting, label %change_device

counting:
  %more = add i64 %bytes, {GRANULE - 1}
  %rounded = and i64 %more, {-GRANULE}
  %offset = mul i64 %index, {8 * ACCOUNT_WORDS}
  %accounts.p = inttoptr i64 %accounts to ptr
  %account = call ptr @at(ptr %accounts.p, i64 %offset)
  %now = load i64, ptr %account
  %then = add i64 %now, %rounded
  %limit.p = getelementptr i64, ptr %account, i64 {Field.LIMIT}
  %limit = load i64, ptr %limit.p
  %over = icmp ugt i64 %then, %limit
  br i1 %over, label %full, label %enter

full:
  %not.o = inttoptr i64 %not_implemented to ptr
  call void @give(i64 %take_reference, ptr %not.o)
  ret ptr %not.o

enter:
  %allocate.f = inttoptr i64 %allocate to ptr
  %record = call ptr %allocate.f(i64 48)
  %free.p = call ptr @at(ptr %storage, i64 %free_at)
  %freeing = load ptr, ptr %free.p
  {_store_record(("%freeing", "ptr"), ("%context", "ptr"), ("%account", "ptr"), ("%rounded", "i64"), ("%bytes", "i64"), ("%free", "i64"))}
  %release.f = inttoptr i64 %release to ptr
  store ptr %release.f, ptr %free.p
  store ptr %record, ptr %context.p
  call void @count(ptr %account, i64 {Field.ALLOCATED}, i64 %rounded)
  call void @count(ptr %account, i64 {Field.REQUESTED}, i64 %bytes)
  call void @count(ptr %account, i64 {Field.BLOCKS}, i64 1)
  br label %change_device

change_device:
  %high = shl i64 %index, 8
  %device = or i64 %high, 20
  %device.16 = trunc i64 %device to i16
  %storage_device.p = call ptr @at(ptr %storage, i64 %storage_device_at)
  store i16 %device.16, ptr %storage_device.p
  br i1 %change, label %change_keys, label %done

change_keys:
  %new = xor i64 %old, %keys
  store i64 %new, ptr %keys.p
  %device.p = call ptr @at(ptr %impl, i64 %device_at)
  store i16 %device.16, ptr %device.p
  br label %done

done:
  call void @give(i64 %take_reference, ptr %tensor)
  ret ptr %tensor
}}

define internal void @give(i64 %take_reference, ptr %object) alwaysinline {{
  %f = inttoptr i64 %take_reference to ptr
  call void %f(ptr %object)
  ret void
}}

define internal void @count(ptr %account, i64 %field, i64 %amount) alwaysinline {{
  %now.p = getelementptr i64, ptr %account, i64 %field
  %before = atomicrmw add ptr %now.p, i64 %amount seq_cst
  %now = add i64 %before, %amount
  %peak.p = getelementptr i64, ptr %now.p, i64 1
  %peak = load i64, ptr %peak.p
  %higher = icmp sgt i64 %now, %peak
  %kept = select i1 %higher, i64 %now, i64 %peak
  store i64 %kept, ptr %peak.p
  %total.p = getelementptr i64, ptr %now.p, i64 2
  %total = load i64, ptr %total.p
  %sum = add i64 %total, %amount
  store i64 %sum, ptr %total.p
  ret void
}}
"""


def _word(at: int) -> str:
    return f"call i64 @word(ptr %self, i64 {at})"


def _store_record(*values: tuple[str, str]) -> str:
    lines = []
    for at, (value, kind) in enumerate(values):
        lines += [f"%record.{at} = getelementptr i64, ptr %record, i64 {at}", f"store {kind} {value}, ptr %record.{at}"]
    return "\n  ".join(lines)


def _release_ir() -> str:
    kinds = ("ptr", "ptr", "ptr", "i64", "i64", "ptr")
    loads = "\n".join(
        f"  %p{at} = getelementptr i64, ptr %record, i64 {at}\n  %v{at} = load {kind}, ptr %p{at}" for at, kind in enumerate(kinds)
    )
    takes = "\n".join(
        f"  %f{field} = getelementptr i64, ptr %v2, i64 {int(field)}\n  %b{field} = atomicrmw sub ptr %f{field}, i64 {amount} seq_cst"
        for field, amount in ((Field.ALLOCATED, "%v3"), (Field.REQUESTED, "%v4"), (Field.BLOCKS, "1"))
    )
    return f"""
define void @torch_npu_release(ptr %record) {{
{loads}
{takes}
  call void %v0(ptr %v1)
  call void %v5(ptr %record)
  ret void
}}"""
