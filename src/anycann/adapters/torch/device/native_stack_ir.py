"""The generated code that looks at the values on torch's stack.

A value has 16 bytes: 8 of content, then its kind (`ATen/core/ivalue.h`).
"""

from __future__ import annotations

from anycann.adapters.torch.device.native_words import LIST_AT, Kind, Word, loads, word_of

TENSOR, DOUBLE, INT, BOOL, STRING, LIST, DEVICE, GENERATOR = 1, 3, 5, 10, 12, 14, 18, 26  # kinds of values
CPU_DEVICE = 0xFF00  # c10::Device in 16 bits: cpu, no index


def stack_ir() -> str:
    """`@usual`: whether code can take the arguments."""
    return "".join((_usual(), _merge(), _look_value(), _look_device(), _look_list(), _look_tensor()))


def _usual() -> str:
    """The npu of the arguments, or -1 if they are not tensors of one npu, numbers of the host, plain values and that npu as a device.

    A factory that is told no device makes its tensor on the current one. While a profiler records all calls pass through Python.
    """
    return f"""
define internal i64 @usual(ptr %table, ptr %words, ptr %first, i64 %count) {{
entry:
{word_of("kind", Word.BOXED_KIND)}
{loads("recordings")}
  %factory = icmp eq i64 %kind, {int(Kind.FACTORY)}
  %recordings.p = inttoptr i64 %recordings to ptr
  %recording = load i64, ptr %recordings.p
  %unseen = icmp eq i64 %recording, 0
  br i1 %unseen, label %next, label %unusual

next:
  %i = phi i64 [0, %entry], [%i.next, %passed]
  %index = phi i64 [-1, %entry], [%merged, %passed]
  %over = icmp eq i64 %i, %count
  br i1 %over, label %done, label %look

look:
  %value = getelementptr %value, ptr %first, i64 %i
  %where = call i64 @where_value(ptr %table, ptr %words, ptr %value, i64 %i)
  %merged = call i64 @merge(i64 %index, i64 %where)
  %bad = icmp eq i64 %merged, -2
  br i1 %bad, label %unusual, label %passed

passed:
  %i.next = add i64 %i, 1
  br label %next

unusual:
  ret i64 -1

done:
  %unsaid = icmp eq i64 %index, -1
  %anywhere = and i1 %unsaid, %factory
  br i1 %anywhere, label %by_current, label %said

by_current:
  %here = call i64 @current(ptr %words)
  ret i64 %here

said:
  ret i64 %index
}}
"""


def _merge() -> str:
    """The npu of two values by that of each: -1 for none, -2 for what code cannot take, as two npus."""
    return """
define internal i64 @merge(i64 %first, i64 %second) alwaysinline {
  %no_first = icmp eq i64 %first, -1
  %no_second = icmp eq i64 %second, -1
  %same = icmp eq i64 %first, %second
  %found = select i1 %no_first, i64 %second, i64 %first
  %one = or i1 %no_first, %no_second
  %agrees = or i1 %one, %same
  %answer = select i1 %agrees, i64 %found, i64 -2
  ret i64 %answer
}
"""


def _look_value() -> str:
    """The npu of the argument at a place; -1 for a plain value, -2 for what code cannot take."""
    cases = "\n".join(f"    i32 {kind}, label %nowhere" for kind in (0, DOUBLE, INT, STRING))
    return f"""
define internal i64 @where_value(ptr %table, ptr %words, ptr %value, i64 %i) alwaysinline {{
entry:
{word_of("kind", Word.BOXED_KIND)}
{word_of("place", Word.PLACE)}
{word_of("lists", Word.LISTS)}
  %named = icmp eq i64 %i, %place
  %object = load ptr, ptr %value
  %kind.p = call ptr @at(ptr %value, i64 8)
  %kind.value = load i32, ptr %kind.p
  switch i32 %kind.value, label %unusual [
{cases}
    i32 {TENSOR}, label %tensor
    i32 {BOOL}, label %truth
    i32 {DEVICE}, label %device
    i32 {LIST}, label %list
  ]

tensor:
  %in_place = icmp eq i64 %kind, {int(Kind.IN_PLACE)}
  %written = and i1 %in_place, %named
  %tensor.where = call i64 @where(ptr %table, ptr %words, ptr %object, i1 %written)
  ret i64 %tensor.where

truth:
  %factory = icmp eq i64 %kind, {int(Kind.FACTORY)}
  %pins = and i1 %factory, %named
  %byte = load i8, ptr %value
  %true = icmp ne i8 %byte, 0
  %pinned = and i1 %true, %pins
  br i1 %pinned, label %unusual, label %nowhere

device:
  %device.where = call i64 @where_device(ptr %words, ptr %value)
  ret i64 %device.where

list:
  %bit = shl i64 1, %i
  %has = and i64 %lists, %bit
  %of_others = icmp eq i64 %has, 0
  br i1 %of_others, label %nowhere, label %list.look

list.look:
  %list.where = call i64 @where_list(ptr %table, ptr %words, ptr %object)
  ret i64 %list.where

nowhere:
  ret i64 -1

unusual:
  ret i64 -2
}}
"""


def _look_device() -> str:
    """The npu that a factory is told, by number or as the current one; -2 for another device. `@current`: the thread's."""
    return f"""
define internal i64 @where_device(ptr %words, ptr %value) {{
entry:
{word_of("kind", Word.BOXED_KIND)}
{word_of("devices", Word.DEVICES)}
  %factory = icmp eq i64 %kind, {int(Kind.FACTORY)}
  %device.16 = load i16, ptr %value
  %type = and i16 %device.16, 255
  %number = ashr i16 %device.16, 8
  %index = sext i16 %number to i64
  %npu = icmp eq i16 %type, 20
  %there = icmp slt i64 %index, %devices
  %npu.there = and i1 %npu, %there
  %made = and i1 %npu.there, %factory
  br i1 %made, label %here, label %unusual

here:
  %unnamed = icmp slt i64 %index, 0
  br i1 %unnamed, label %by_current, label %named

by_current:
  %now = call i64 @current(ptr %words)
  ret i64 %now

named:
  ret i64 %index

unusual:
  ret i64 -2
}}

define internal i64 @current(ptr %words) {{
entry:
{word_of("current", Word.CURRENT)}
  %only = icmp eq i64 %current, 0
  br i1 %only, label %first, label %ask

first:
  ret i64 0

ask:
  %current.f = inttoptr i64 %current to ptr
  %device = call i64 %current.f(ptr null)
  %low = and i64 %device, 65535
  %index = lshr i64 %low, 8
  ret i64 %index
}}
"""


def _look_list() -> str:
    """The npu of the tensors in a list, of which some may be none; -2 for tensors of the host, and lists that others than callers hold."""
    return f"""
define internal i64 @where_list(ptr %table, ptr %words, ptr %list) {{
entry:
{word_of("holders", Word.HOLDERS)}
  %count.p = call ptr @at(ptr %list, i64 8)
  %references = load i32, ptr %count.p
  %references.64 = zext i32 %references to i64
  %alone = icmp ule i64 %references.64, %holders
  br i1 %alone, label %look, label %unusual

look:
  %list.first = call ptr @pointer(ptr %list, i64 {LIST_AT})
  %list.end = call ptr @pointer(ptr %list, i64 {LIST_AT + 8})
  br label %next

next:
  %value = phi ptr [%list.first, %look], [%value.next, %one], [%value.next, %agreed]
  %index = phi i64 [-1, %look], [%index, %one], [%merged, %agreed]
  %over = icmp eq ptr %value, %list.end
  br i1 %over, label %done, label %one

one:
  %value.next = getelementptr %value, ptr %value, i64 1
  %kind.p = call ptr @at(ptr %value, i64 8)
  %kind = load i32, ptr %kind.p
  switch i32 %kind, label %unusual [
    i32 0, label %next
    i32 {TENSOR}, label %tensor
  ]

tensor:
  %impl = load ptr, ptr %value
  %where = call i64 @where(ptr %table, ptr %words, ptr %impl, i1 false)
  %npu = icmp sge i64 %where, 0
  br i1 %npu, label %ours, label %unusual

ours:
  %merged = call i64 @merge(i64 %index, i64 %where)
  %same = icmp sge i64 %merged, 0
  br i1 %same, label %agreed, label %unusual

agreed:
  br label %next

unusual:
  ret i64 -2

done:
  ret i64 %index
}}
"""


def _look_tensor() -> str:
    """The npu of a plain tensor; -1 for none, for a number of the host that is read, and for its tensors if they are taken; else -2."""
    return f"""
define internal i64 @where(ptr %table, ptr %words, ptr %impl, i1 %written) {{
entry:
{loads("undefined", "keys_at", "npu_keys", "cpu_keys", "device_at", "storage_at", "dimensions_at", "dtype_at")}
{word_of("by_python", Word.BY_PYTHON)}
{word_of("hosts", Word.HOSTS)}
  %impl.i = ptrtoint ptr %impl to i64
  %none = icmp eq i64 %impl.i, %undefined
  br i1 %none, label %nowhere, label %defined

defined:
  %keys.p = call ptr @at(ptr %impl, i64 %keys_at)
  %keys = load i64, ptr %keys.p
  %device.p = call ptr @at(ptr %impl, i64 %device_at)
  %device.16 = load i16, ptr %device.p
  %device = zext i16 %device.16 to i64
  %device.type = and i64 %device, 255
  %index = lshr i64 %device, 8
  %npu = icmp eq i64 %device.type, 20
  br i1 %npu, label %ours, label %others

ours:
  %not.npu = xor i64 %npu_keys, -1
  %more = and i64 %keys, %not.npu
  %plain = icmp eq i64 %more, 0
  %storage = call ptr @pointer(ptr %impl, i64 %storage_at)
  %stored = icmp ne ptr %storage, null
  %dtype.p = call ptr @at(ptr %impl, i64 %dtype_at)
  %dtype = load i16, ptr %dtype.p
  %dtype.low = and i16 %dtype, 63
  %dtype.64 = zext i16 %dtype.low to i64
  %dtype.bit = shl i64 1, %dtype.64
  %by_python.bit = and i64 %by_python, %dtype.bit
  %exact = icmp eq i64 %by_python.bit, 0
  %plain.stored = and i1 %plain, %stored
  %usual = and i1 %plain.stored, %exact
  %answer = select i1 %usual, i64 %index, i64 -2
  ret i64 %answer

others:
  %not.cpu = xor i64 %cpu_keys, -1
  %more.cpu = and i64 %keys, %not.cpu
  %plain.cpu = icmp eq i64 %more.cpu, 0
  %cpu = icmp eq i64 %device, {CPU_DEVICE}
  %dimensions.p = call ptr @at(ptr %impl, i64 %dimensions_at)
  %dimensions = load i64, ptr %dimensions.p
  %number = icmp eq i64 %dimensions, 0
  %read = xor i1 %written, true
  %host = and i1 %plain.cpu, %cpu
  %number.read = and i1 %number, %read
  %any = icmp ne i64 %hosts, 0
  %taken = or i1 %any, %number.read
  %good = and i1 %host, %taken
  br i1 %good, label %nowhere, label %refuse

nowhere:
  ret i64 -1

refuse:
  ret i64 -2
}}
"""
