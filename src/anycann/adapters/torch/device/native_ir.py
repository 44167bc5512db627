"""The generated code of `native.py`, as text."""

from __future__ import annotations

from enum import IntEnum

from anycann.adapters.torch.device.accounts import ACCOUNT_WORDS, Field

GRANULE = 512  # bytes: Ascend's allocator rounds up to it
MOST_ARGUMENTS = 24
_TUPLE_AT = tuple.__basicsize__  # where a tuple has its items
_BYTES_AT = bytes.__basicsize__ - 1  # where a bytes object has its bytes

# The words of the table: offsets in objects of torch, and addresses in this process
TABLE = (
    "object_impl", "keys_at", "keys", "special_keys", "device_at", "storage_at", "storage_device_at", "data_at", "context_at", "free_at",
    "bytes_at", "none", "not_implemented", "as_long", "take_reference", "allocate", "free", "accounts", "release", "tensor_type",
    "parameter_type", "to_dlpack", "from_dlpack", "vectorcall", "drop_reference", "clear_error", "new_long", "tuple_type", "adopt",
    "float_type", "int_type", "fetch_error", "normalise_error", "set_error",
)  # fmt: skip


class Kind(IntEnum):
    """What an operator returns."""

    SLOW = 0  # not known yet, or nothing that generated code handles
    TENSOR = 1  # a new tensor
    IN_PLACE = 2  # an argument, which it wrote
    TUPLE = 3  # several new tensors


class Word(IntEnum):
    """The words of a `Fast` kernel."""

    KIND = 0
    WRITTEN = 1
    CALL = 2
    SLOW = 3
    TENSORS = 4
    TABLE = 5
    EXPLAIN = 6


def module_ir() -> str:
    """The module: `torch_npu_claim`, `torch_npu_account` and `torch_npu_call`, which Python calls, and `torch_npu_release`."""
    return "\n".join((_helpers_ir(), _release_ir(), _claim_ir(), _entries_ir(), _call_ir()))


def _table_word(name: str) -> str:
    return f"call i64 @word(ptr %table, i64 {TABLE.index(name)})"


def _loads(*names: str) -> str:
    return "\n".join(f"  %{name} = {_table_word(name)}" for name in names)


def _helpers_ir() -> str:
    return """
define internal i64 @word(ptr %table, i64 %at) alwaysinline {
  %place = getelementptr i64, ptr %table, i64 %at
  %value = load i64, ptr %place, align 1
  ret i64 %value
}

define internal ptr @at(ptr %base, i64 %offset) alwaysinline {
  %place = getelementptr i8, ptr %base, i64 %offset
  ret ptr %place
}

define internal ptr @pointer(ptr %base, i64 %offset) alwaysinline {
  %place = getelementptr i8, ptr %base, i64 %offset
  %value = load ptr, ptr %place
  ret ptr %value
}

define internal void @tell(i64 %function, ptr %object) alwaysinline {
  %f = inttoptr i64 %function to ptr
  call void %f(ptr %object)
  ret void
}

define internal void @count(ptr %account, i64 %field, i64 %amount) alwaysinline {
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
}
"""


def _release_ir() -> str:
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


def _claim_ir() -> str:
    """`@move`: 0 if the tensor is now the npu's, 1 if only Python can do it, 2 if the npu has no room."""
    return f"""
define internal i64 @move(ptr %table, ptr %tensor, i64 %index, i1 %change) {{
entry:
{_loads("object_impl", "keys_at", "keys", "special_keys", "device_at", "storage_at", "storage_device_at", "data_at", "context_at")}
{_loads("free_at", "bytes_at", "allocate", "free", "accounts", "release")}
  %impl = call ptr @pointer(ptr %tensor, i64 %object_impl)
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
}}
"""


def _entries_ir() -> str:
    """`claim` and `account` with Python's arguments and results: the tensor, None or NotImplemented."""
    return "".join(
        f"""
define ptr @torch_npu_{name}(ptr %self, ptr %args, i64 %count) {{
  %table = call ptr @at(ptr %self, i64 {_BYTES_AT})
{_loads("none", "not_implemented", "as_long", "take_reference")}
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


def _word_of(name: str, word: Word) -> str:
    return f"  %{name} = call i64 @word(ptr %words, i64 {int(word)})"


def _call_ir() -> str:
    """`torch_npu_call`: aliases (`convert`), the call, the results. `slow` is taken only if the operator did nothing yet."""
    return f"""
define ptr @torch_npu_call(ptr %self, ptr %args, i64 %count, ptr %names) {{
entry:
  %given = alloca [{MOST_ARGUMENTS + 1} x ptr]
  %error.type.p = alloca ptr
  %error.p = alloca ptr
  %error.trace.p = alloca ptr
  %words = call ptr @pointer(ptr %self, i64 {_BYTES_AT})
{_word_of("kind", Word.KIND)}
{_word_of("written", Word.WRITTEN)}
{_word_of("call.i", Word.CALL)}
{_word_of("tensors", Word.TENSORS)}
{_word_of("table.i", Word.TABLE)}
  %table = inttoptr i64 %table.i to ptr
  %unnamed = icmp eq ptr %names, null
  br i1 %unnamed, label %begin, label %named

named:
  %names.p = call ptr @at(ptr %names, i64 16)
  %named.count = load i64, ptr %names.p
  br label %begin

begin:
  %more = phi i64 [0, %entry], [%named.count, %named]
  %all = add i64 %count, %more
  %never = icmp eq i64 %kind, 0
  %many = icmp ugt i64 %all, {MOST_ARGUMENTS}
  %not_here = or i1 %never, %many
  br i1 %not_here, label %slow, label %ready

ready:
{_loads("object_impl", "keys_at", "special_keys", "device_at", "none", "tensor_type", "parameter_type", "to_dlpack", "from_dlpack")}
{_loads("vectorcall", "drop_reference", "clear_error", "take_reference", "tuple_type", "adopt", "new_long")}
{_loads("float_type", "int_type")}
  %vectorcall.f = inttoptr i64 %vectorcall to ptr
  %drop = inttoptr i64 %drop_reference to ptr
  br label %convert

convert:
  %i = phi i64 [0, %ready], [%i.next, %pass], [%i.next2, %aliased]
  %index = phi i64 [-1, %ready], [%index, %pass], [%where, %aliased]
  %owned = phi i64 [0, %ready], [%owned, %pass], [%owned.next, %aliased]
  %over = icmp eq i64 %i, %all
  br i1 %over, label %converted, label %next

next:
  %arg.p = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg.p
  %slot = getelementptr ptr, ptr %given, i64 %i
  %bit = shl i64 1, %i
  %bit.set = and i64 %tensors, %bit
  %is_tensor = icmp ne i64 %bit.set, 0
  %arg.i = ptrtoint ptr %arg to i64
  %is_none = icmp eq i64 %arg.i, %none
  %not_none = xor i1 %is_none, true
  %to_alias = and i1 %is_tensor, %not_none
  br i1 %to_alias, label %look, label %pass

pass:
  store ptr %arg, ptr %slot
  %i.next = add i64 %i, 1
  br label %convert

look:
  %type.p = call ptr @at(ptr %arg, i64 8)
  %type = load i64, ptr %type.p
  %plain = icmp eq i64 %type, %tensor_type
  %parameter = icmp eq i64 %type, %parameter_type
  %known = or i1 %plain, %parameter
  br i1 %known, label %look2, label %number

number:
  %is_float = icmp eq i64 %type, %float_type
  %is_int = icmp eq i64 %type, %int_type
  %is_number = or i1 %is_float, %is_int
  br i1 %is_number, label %pass, label %bail

look2:
  %impl = call ptr @pointer(ptr %arg, i64 %object_impl)
  %keys.p = call ptr @at(ptr %impl, i64 %keys_at)
  %keys = load i64, ptr %keys.p
  %masked = and i64 %keys, %special_keys
  %usual = icmp eq i64 %masked, 0
  %device.p = call ptr @at(ptr %impl, i64 %device_at)
  %device.16 = load i16, ptr %device.p
  %device = zext i16 %device.16 to i64
  %device.type = and i64 %device, 255
  %where = lshr i64 %device, 8
  %npu = icmp eq i64 %device.type, 20
  %first = icmp eq i64 %index, -1
  %same = icmp eq i64 %index, %where
  %agrees = or i1 %first, %same
  %fine = and i1 %usual, %npu
  %all_fine = and i1 %fine, %agrees
  br i1 %all_fine, label %alias, label %bail

alias:
  %to_dlpack.o = inttoptr i64 %to_dlpack to ptr
  store ptr %arg, ptr %slot
  %capsule = call ptr %vectorcall.f(ptr %to_dlpack.o, ptr %slot, i64 1, ptr null)
  %no_capsule = icmp eq ptr %capsule, null
  br i1 %no_capsule, label %failed, label %exported

exported:
  %managed = call ptr @pointer(ptr %capsule, i64 16)
  %managed.device = call ptr @at(ptr %managed, i64 8)
  store i64 1, ptr %managed.device
  store ptr %capsule, ptr %slot
  %from_dlpack.o = inttoptr i64 %from_dlpack to ptr
  %made = call ptr %vectorcall.f(ptr %from_dlpack.o, ptr %slot, i64 1, ptr null)
  call void %drop(ptr %capsule)
  %not_made = icmp eq ptr %made, null
  br i1 %not_made, label %failed, label %aliased

aliased:
  store ptr %made, ptr %slot
  %owned.next = or i64 %owned, %bit
  %i.next2 = add i64 %i, 1
  br label %convert

failed:
  %clear_error.f = inttoptr i64 %clear_error to ptr
  call void %clear_error.f()
  br label %bail

bail:
  call void @drop_aliases(ptr %drop, ptr %given, i64 %owned)
  br label %slow

converted:
  %nowhere = icmp eq i64 %index, -1
  br i1 %nowhere, label %slow, label %compute

compute:
  %call.o = inttoptr i64 %call.i to ptr
  %result = call ptr %vectorcall.f(ptr %call.o, ptr %given, i64 %count, ptr %names)
  call void @drop_aliases(ptr %drop, ptr %given, i64 %owned)
  %wrong = icmp eq ptr %result, null
  br i1 %wrong, label %error, label %computed

error:
{_loads("fetch_error", "normalise_error", "set_error")}
{_word_of("explain", Word.EXPLAIN)}
  %fetch_error.f = inttoptr i64 %fetch_error to ptr
  call void %fetch_error.f(ptr %error.type.p, ptr %error.p, ptr %error.trace.p)
  %normalise_error.f = inttoptr i64 %normalise_error to ptr
  call void %normalise_error.f(ptr %error.type.p, ptr %error.p, ptr %error.trace.p)
  %error.type = load ptr, ptr %error.type.p
  %error.o = load ptr, ptr %error.p
  %error.trace = load ptr, ptr %error.trace.p
  store ptr %error.o, ptr %given
  %given.args = getelementptr ptr, ptr %given, i64 1
  %count.bytes = shl i64 %count, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %given.args, ptr %args, i64 %count.bytes, i1 false)
  %count.more = add i64 %count, 1
  %explain.o = inttoptr i64 %explain to ptr
  %said = call ptr %vectorcall.f(ptr %explain.o, ptr %given, i64 %count.more, ptr null)
  call void @drop_if_any(ptr %drop, ptr %error.type)
  call void @drop_if_any(ptr %drop, ptr %error.o)
  call void @drop_if_any(ptr %drop, ptr %error.trace)
  %silent = icmp eq ptr %said, null
  br i1 %silent, label %raise, label %explained

explained:
  %said.i = ptrtoint ptr %said to i64
  %not_run = icmp eq i64 %said.i, %none
  br i1 %not_run, label %again, label %set

again:
  call void %drop(ptr %said)
  br label %slow

set:
  %said.type = call ptr @pointer(ptr %said, i64 8)
  %set_error.f = inttoptr i64 %set_error to ptr
  call void %set_error.f(ptr %said.type, ptr %said)
  call void %drop(ptr %said)
  br label %raise

raise:
  ret ptr null

computed:
  switch i64 %kind, label %several [
    i64 {int(Kind.TENSOR)}, label %one
    i64 {int(Kind.IN_PLACE)}, label %in_place
  ]

in_place:
  call void %drop(ptr %result)
  %written.p = getelementptr ptr, ptr %args, i64 %written
  %target = load ptr, ptr %written.p
  call void @tell(i64 %take_reference, ptr %target)
  ret ptr %target

one:
  %code = call i64 @move(ptr %table, ptr %result, i64 %index, i1 true)
  %well = icmp eq i64 %code, 0
  br i1 %well, label %return, label %by_python

several:
  %result.type.p = call ptr @at(ptr %result, i64 8)
  %result.type = load i64, ptr %result.type.p
  %is_tuple = icmp eq i64 %result.type, %tuple_type
  br i1 %is_tuple, label %items, label %by_python

items:
  %size.p = call ptr @at(ptr %result, i64 16)
  %size = load i64, ptr %size.p
  br label %item

item:
  %n = phi i64 [0, %items], [%n.next, %item.done]
  %items.over = icmp eq i64 %n, %size
  br i1 %items.over, label %return, label %item.look

item.look:
  %n.8 = shl i64 %n, 3
  %n.at = add i64 %n.8, {_TUPLE_AT}
  %member = call ptr @pointer(ptr %result, i64 %n.at)
  %member.type.p = call ptr @at(ptr %member, i64 8)
  %member.type = load i64, ptr %member.type.p
  %member.tensor = icmp eq i64 %member.type, %tensor_type
  br i1 %member.tensor, label %item.move, label %item.done

item.move:
  %member.code = call i64 @move(ptr %table, ptr %member, i64 %index, i1 true)
  %member.well = icmp eq i64 %member.code, 0
  br i1 %member.well, label %item.done, label %by_python

item.done:
  %n.next = add i64 %n, 1
  br label %item

return:
  ret ptr %result

by_python:
  %new_long.f = inttoptr i64 %new_long to ptr
  %index.o = call ptr %new_long.f(i64 %index)
  store ptr %result, ptr %given
  %second = getelementptr ptr, ptr %given, i64 1
  store ptr %index.o, ptr %second
  %adopt.o = inttoptr i64 %adopt to ptr
  %adopted = call ptr %vectorcall.f(ptr %adopt.o, ptr %given, i64 2, ptr null)
  call void %drop(ptr %index.o)
  call void %drop(ptr %result)
  ret ptr %adopted

slow:
{_word_of("slow.i", Word.SLOW)}
  %slow.o = inttoptr i64 %slow.i to ptr
  %slow.vectorcall = {_table_word("vectorcall")}
  %slow.f = inttoptr i64 %slow.vectorcall to ptr
  %slow.result = call ptr %slow.f(ptr %slow.o, ptr %args, i64 %count, ptr %names)
  ret ptr %slow.result
}}

define internal void @drop_aliases(ptr %drop, ptr %given, i64 %owned) {{
entry:
  br label %next

next:
  %left = phi i64 [%owned, %entry], [%rest, %take]
  %none = icmp eq i64 %left, 0
  br i1 %none, label %done, label %take

take:
  %at = call i64 @llvm.cttz.i64(i64 %left, i1 true)
  %less = sub i64 %left, 1
  %rest = and i64 %left, %less
  %slot = getelementptr ptr, ptr %given, i64 %at
  %alias = load ptr, ptr %slot
  call void %drop(ptr %alias)
  br label %next

done:
  ret void
}}

define internal void @drop_if_any(ptr %drop, ptr %object) alwaysinline {{
entry:
  %none = icmp eq ptr %object, null
  br i1 %none, label %done, label %take

take:
  call void %drop(ptr %object)
  br label %done

done:
  ret void
}}

declare i64 @llvm.cttz.i64(i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""
