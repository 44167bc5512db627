"""The generated code that makes a tensor the npu's, accounts for its memory, and frees it."""

from __future__ import annotations

from anycann.adapters.torch.device.accounts import ACCOUNT_WORDS, Field
from anycann.adapters.torch.device.native_words import BYTES_AT, GRANULE, loads


def release_ir() -> str:
    """What frees memory. A record is six words: the function and context that free it, the account, its bytes rounded and not, `free`."""
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
}}
"""


def _store_record(*values: tuple[str, str]) -> str:
    lines = []
    for at, (value, kind) in enumerate(values):
        lines += [f"%record.{at} = getelementptr i64, ptr %record, i64 {at}", f"store {kind} {value}, ptr %record.{at}"]
    return "\n  ".join(lines)


def claim_ir() -> str:
    """`@move_impl`, and `@move` of a tensor's Python object.

    0 if the tensor is now the npu's, 1 if only Python can do it, 2 if the npu has no room.
    """
    return "".join((_inspect(), _account(), _change()))


def _inspect() -> str:
    """What is the npu's already is `done`; what has no memory of its own, or special keys, Python must do; else `memory`."""
    return f"""
define internal i64 @move(ptr %table, ptr %tensor, i64 %index, i1 %change) alwaysinline {{
{loads("object_impl")}
  %impl = call ptr @pointer(ptr %tensor, i64 %object_impl)
  %code = call i64 @move_impl(ptr %table, ptr %impl, i64 %index, i1 %change)
  ret i64 %code
}}

define internal i64 @move_impl(ptr %table, ptr %impl, i64 %index, i1 %change) {{
entry:
{loads("keys_at", "keys", "special_keys", "device_at", "storage_at", "storage_device_at", "data_at", "context_at")}
{loads("free_at", "bytes_at", "allocate", "free", "accounts", "release")}
  %device.p = call ptr @at(ptr %impl, i64 %device_at)
  %keys.p = call ptr @at(ptr %impl, i64 %keys_at)
  %old = load i64, ptr %keys.p
  %place = load i8, ptr %device.p
  %there = icmp eq i8 %place, 20
  %again = and i1 %there, %change
  br i1 %again, label %done, label %inspect

inspect:
  %masked = and i64 %old, %special_keys
  %special = icmp ne i64 %masked, 0
  %storage = call ptr @pointer(ptr %impl, i64 %storage_at)
  %empty = icmp eq ptr %storage, null
  %python = or i1 %special, %empty
  br i1 %python, label %refuse, label %memory

refuse:
  ret i64 1
"""


def _account() -> str:
    """Memory that the tensor alone has is entered in the account of the npu, and a record put before what frees it."""
    return f"""
memory:
  %data = call ptr @pointer(ptr %storage, i64 %data_at)
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
  ret i64 2

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
"""


def _change() -> str:
    """The tensor and its memory change their device."""
    return """
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
  store i16 %device.16, ptr %device.p
  br label %done

done:
  ret i64 0
}
"""


def entries_ir() -> str:
    """`claim` and `account` with Python's arguments and results: the tensor, None or NotImplemented."""
    return "".join(
        f"""
define ptr @torch_npu_{name}(ptr %self, ptr %args, i64 %count) {{
  %table = call ptr @at(ptr %self, i64 {BYTES_AT})
{loads("none", "not_implemented", "as_long", "take_reference")}
  %tensor = load ptr, ptr %args
  %number = call ptr @pointer(ptr %args, i64 8)
  %as_long.f = inttoptr i64 %as_long to ptr
  %index = call i64 %as_long.f(ptr %number)
  %code = call i64 @move(ptr %table, ptr %tensor, i64 %index, i1 {change})
  %tensor.i = ptrtoint ptr %tensor to i64
  %well = icmp eq i64 %code, 0
  %python = icmp eq i64 %code, 1
  %refused = select i1 %python, i64 %none, i64 %not_implemented
  %result.i = select i1 %well, i64 %tensor.i, i64 %refused
  %result = inttoptr i64 %result.i to ptr
  call void @tell(i64 %take_reference, ptr %result)
  ret ptr %result
}}
"""
        for name, change in (("claim", "true"), ("account", "false"))
    )
