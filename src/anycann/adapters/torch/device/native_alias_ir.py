"""The generated code that puts cpu tensors on the memory of npu tensors in their places on torch's stack."""

from __future__ import annotations

from anycann.adapters.torch.device.native_stack_ir import CPU_DEVICE, DEVICE, LIST, TENSOR
from anycann.adapters.torch.device.native_words import LIST_AT, Kind, Word, loads, word_of


def alias_ir() -> str:
    """`@save` and `@save_lists`, `@count_writes`, and `@finish_lists`, which undoes what was done to lists."""
    return "".join((_save(), _alias(), _save_lists(), _finish_lists(), _count_writes()))


def _save() -> str:
    """`@save`: the arguments move to `saved`, and cpu tensors on the memory of npu tensors take their places; others are in both."""
    return f"""
define internal void @save(ptr %table, ptr %first, ptr %saved, i64 %count) {{
entry:
{loads("undefined", "device_at")}
  br label %next

next:
  %i = phi i64 [0, %entry], [%i.next, %done]
  %over = icmp eq i64 %i, %count
  br i1 %over, label %return, label %one

return:
  ret void

one:
  %value = getelementptr %value, ptr %first, i64 %i
  %copy = getelementptr %value, ptr %saved, i64 %i
  %both = load %value, ptr %value
  store %value %both, ptr %copy
  %object = extractvalue %value %both, 0
  %kind.64 = extractvalue %value %both, 1
  %kind = trunc i64 %kind.64 to i32
  %is_tensor = icmp eq i32 %kind, {TENSOR}
  br i1 %is_tensor, label %tensor, label %no_tensor

no_tensor:
  %is_device = icmp eq i32 %kind, {DEVICE}
  br i1 %is_device, label %device.cpu, label %other

device.cpu:
  store i64 {CPU_DEVICE}, ptr %value
  br label %done

tensor:
  %device.p = call ptr @at(ptr %object, i64 %device_at)
  %object.i = ptrtoint ptr %object to i64
  %none = icmp eq i64 %object.i, %undefined
  br i1 %none, label %done, label %defined

defined:
  %device = load i8, ptr %device.p
  %npu = icmp eq i8 %device, 20
  br i1 %npu, label %alias, label %other

alias:
  %made = call ptr @alias(ptr %table, ptr %copy)
  store ptr %made, ptr %value
  br label %done

other:
  call void @hold(ptr %table, ptr %object, i32 %kind)
  br label %done

done:
  %i.next = add i64 %i, 1
  br label %next
}}
"""


def _alias() -> str:
    """`@alias`: a cpu tensor on the memory of an npu tensor.

    Its memory is a StorageImpl of its own, for views that a cpu kernel makes take the device of their memory. It holds the npu's memory by
    a tensor of torch's C interface on the heap: that is what torch deletes when the memory is let go.
    """
    return f"""
define internal ptr @alias(ptr %table, ptr %tensor) {{
entry:
  %made.p = alloca ptr
  %memory.p = alloca ptr
  %size.p = alloca i64
  %data.p = alloca [4 x i64]
{loads("alias_tensor", "make_storage", "delete_tensor", "allocate", "keys_at", "keys", "device_at")}
{loads("storage_at", "data_at", "context_at", "free_at", "bytes_at")}
  %alias_tensor.f = inttoptr i64 %alias_tensor to ptr
  call void %alias_tensor.f(ptr %made.p, ptr %tensor)
  %made = load ptr, ptr %made.p
  %storage.p = call ptr @at(ptr %made, i64 %storage_at)
  %storage = load ptr, ptr %storage.p
  %data = call ptr @pointer(ptr %storage, i64 %data_at)
  %bytes = call ptr @pointer(ptr %storage, i64 %bytes_at)
  %allocate.f = inttoptr i64 %allocate to ptr
  %holder = call ptr %allocate.f(i64 8)
  store ptr %storage, ptr %holder
  %context.at = sub i64 %context_at, %data_at
  %context.p = call ptr @at(ptr %data.p, i64 %context.at)
  %free.at = sub i64 %free_at, %data_at
  %free.p = call ptr @at(ptr %data.p, i64 %free.at)
  %device.last = getelementptr i64, ptr %data.p, i64 3
  store ptr %data, ptr %data.p
  store ptr %holder, ptr %context.p
  store i64 %delete_tensor, ptr %free.p
  store i64 {CPU_DEVICE}, ptr %device.last
  store ptr %bytes, ptr %size.p
  %make_storage.f = inttoptr i64 %make_storage to ptr
  call void %make_storage.f(ptr %memory.p, ptr %size.p, ptr %data.p, ptr null, i1 zeroext false, i32 {CPU_DEVICE | 1 << 16})
  %memory = load ptr, ptr %memory.p
  store ptr %memory, ptr %storage.p
  %keys.p = call ptr @at(ptr %made, i64 %keys_at)
  %old = load i64, ptr %keys.p
  %new = xor i64 %old, %keys
  store i64 %new, ptr %keys.p
  %device.p = call ptr @at(ptr %made, i64 %device_at)
  store i16 {CPU_DEVICE - 65536}, ptr %device.p
  ret ptr %made
}}
"""


def _save_lists() -> str:
    """`@save_lists`: the tensors of lists move to memory of their own, whose address is in `elements`, and aliases take their places."""
    return f"""
define internal void @save_lists(ptr %table, ptr %first, ptr %elements, i64 %lists) {{
entry:
{loads("allocate")}
  %allocate.f = inttoptr i64 %allocate to ptr
  br label %next

next:
  %left = phi i64 [%lists, %entry], [%rest, %one], [%rest, %tensors]
  %over = icmp eq i64 %left, 0
  br i1 %over, label %done, label %one

done:
  ret void

one:
  %i = call i64 @llvm.cttz.i64(i64 %left, i1 true)
  %less = sub i64 %left, 1
  %rest = and i64 %left, %less
  %slot = getelementptr ptr, ptr %elements, i64 %i
  store ptr null, ptr %slot
  %argument = getelementptr %value, ptr %first, i64 %i
  %kind.p = call ptr @at(ptr %argument, i64 8)
  %kind = load i32, ptr %kind.p
  %is_list = icmp eq i32 %kind, {LIST}
  br i1 %is_list, label %list, label %next

list:
  %object = load ptr, ptr %argument
  %begin = call ptr @pointer(ptr %object, i64 {LIST_AT})
  %end = call ptr @pointer(ptr %object, i64 {LIST_AT + 8})
  %begin.i = ptrtoint ptr %begin to i64
  %end.i = ptrtoint ptr %end to i64
  %bytes = sub i64 %end.i, %begin.i
  %kept = call ptr %allocate.f(i64 %bytes)
  store ptr %kept, ptr %slot
  call void @llvm.memcpy.p0.p0.i64(ptr %kept, ptr %begin, i64 %bytes, i1 false)
  br label %tensors

tensors:
  %at = phi i64 [0, %list], [%at.next, %aliased]
  %ended = icmp eq i64 %at, %bytes
  br i1 %ended, label %next, label %tensor

tensor:
  %value = call ptr @at(ptr %begin, i64 %at)
  %original = call ptr @at(ptr %kept, i64 %at)
  %kind.value.p = call ptr @at(ptr %value, i64 8)
  %kind.value = load i32, ptr %kind.value.p
  %none = icmp eq i32 %kind.value, 0
  br i1 %none, label %aliased, label %alias

alias:
  %made = call ptr @alias(ptr %table, ptr %original)
  store ptr %made, ptr %value
  br label %aliased

aliased:
  %at.next = add i64 %at, 16
  br label %tensors
}}
"""


def _finish_lists() -> str:
    """`@finish_lists`: the tensors of lists come back, and the aliases go."""
    return f"""
define internal void @finish_lists(ptr %table, ptr %saved, ptr %elements, i64 %lists) {{
entry:
{loads("free")}
  %free.f = inttoptr i64 %free to ptr
  br label %next

next:
  %left = phi i64 [%lists, %entry], [%rest, %one], [%rest, %freed]
  %over = icmp eq i64 %left, 0
  br i1 %over, label %done, label %one

done:
  ret void

one:
  %i = call i64 @llvm.cttz.i64(i64 %left, i1 true)
  %less = sub i64 %left, 1
  %rest = and i64 %left, %less
  %slot = getelementptr ptr, ptr %elements, i64 %i
  %kept = load ptr, ptr %slot
  %none = icmp eq ptr %kept, null
  br i1 %none, label %next, label %list

list:
  %argument = getelementptr %value, ptr %saved, i64 %i
  %object = load ptr, ptr %argument
  %begin = call ptr @pointer(ptr %object, i64 {LIST_AT})
  %end = call ptr @pointer(ptr %object, i64 {LIST_AT + 8})
  %begin.i = ptrtoint ptr %begin to i64
  %end.i = ptrtoint ptr %end to i64
  %bytes = sub i64 %end.i, %begin.i
  %count = lshr i64 %bytes, 4
  call void @drop_values(ptr %table, ptr %begin, i64 %count)
  call void @llvm.memcpy.p0.p0.i64(ptr %begin, ptr %kept, i64 %bytes, i1 false)
  call void %free.f(ptr %kept)
  br label %freed

freed:
  br label %next
}}
"""


def _count_writes() -> str:
    """`@count_writes`: the tensors of the list that was written have another version, by which autograd knows. The kernel saw aliases."""
    return f"""
define internal void @count_writes(ptr %table, ptr %words, ptr %saved, ptr %elements) {{
entry:
{word_of("kind", Word.BOXED_KIND)}
{word_of("place", Word.PLACE)}
{loads("bump_version")}
  %bump_version.f = inttoptr i64 %bump_version to ptr
  %writes = icmp eq i64 %kind, {int(Kind.NOTHING)}
  %known = icmp sge i64 %place, 0
  %counts = and i1 %writes, %known
  br i1 %counts, label %list, label %done

list:
  %slot = getelementptr ptr, ptr %elements, i64 %place
  %kept = load ptr, ptr %slot
  %argument = getelementptr %value, ptr %saved, i64 %place
  %object = load ptr, ptr %argument
  %begin = call ptr @pointer(ptr %object, i64 {LIST_AT})
  %end = call ptr @pointer(ptr %object, i64 {LIST_AT + 8})
  %begin.i = ptrtoint ptr %begin to i64
  %end.i = ptrtoint ptr %end to i64
  %bytes = sub i64 %end.i, %begin.i
  br label %tensors

tensors:
  %at = phi i64 [0, %list], [%at.next, %tensor]
  %ended = icmp eq i64 %at, %bytes
  br i1 %ended, label %done, label %tensor

tensor:
  %original = call ptr @at(ptr %kept, i64 %at)
  call void %bump_version.f(ptr %original)
  %at.next = add i64 %at, 16
  br label %tensors

done:
  ret void
}}
"""
