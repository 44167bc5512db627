"""The generated code of a kernel: aliases, the cpu operator, and the claim of its results."""

from __future__ import annotations

from anycann.adapters.torch.device.native_words import BYTES_AT, MOST_ARGUMENTS, TUPLE_AT, Kind, Word, loads, table_word, word_of


def call_ir() -> str:
    """`torch_npu_call`: aliases, the call, the results. `slow` is taken only if the operator did nothing yet."""
    stages = (_enter(), _arguments(), _alias(), _compute(), _error(), _results(), _slow(), _helpers())
    return "".join(stages)


def _enter() -> str:
    """The words of the kernel, and whether it can be run here: `slow` or `ready`."""
    return f"""\
define ptr @torch_npu_call(ptr %self, ptr %args, i64 %count, ptr %names) {{
entry:
  %given = alloca [{MOST_ARGUMENTS + 1} x ptr]
  %error.type.p = alloca ptr
  %error.p = alloca ptr
  %error.trace.p = alloca ptr
  %words = call ptr @pointer(ptr %self, i64 {BYTES_AT})
{word_of("kind", Word.KIND)}
{word_of("written", Word.WRITTEN)}
{word_of("call.i", Word.CALL)}
{word_of("tensors", Word.TENSORS)}
{word_of("table.i", Word.TABLE)}
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
{loads("object_impl", "keys_at", "special_keys", "device_at", "none", "tensor_type", "parameter_type", "to_dlpack", "from_dlpack")}
{loads("vectorcall", "drop_reference", "clear_error", "take_reference", "tuple_type", "adopt", "new_long")}
{loads("float_type", "int_type")}
  %vectorcall.f = inttoptr i64 %vectorcall to ptr
  %drop = inttoptr i64 %drop_reference to ptr
  br label %convert

"""


def _arguments() -> str:
    """A loop over the arguments: what is no tensor passes as it is, a plain tensor of the one npu goes to `alias`, all else to `bail`."""
    return """\
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

"""


def _alias() -> str:
    """A cpu tensor on the memory of an npu tensor, then the next argument; or `bail`, which drops the aliases."""
    return """\
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

"""


def _compute() -> str:
    """The cpu operator on the aliases: `computed` or `error`."""
    return """\
converted:
  %nowhere = icmp eq i64 %index, -1
  br i1 %nowhere, label %slow, label %compute

compute:
  %call.o = inttoptr i64 %call.i to ptr
  %result = call ptr %vectorcall.f(ptr %call.o, ptr %given, i64 %count, ptr %names)
  call void @drop_aliases(ptr %drop, ptr %given, i64 %owned)
  %wrong = icmp eq ptr %result, null
  br i1 %wrong, label %error, label %computed

"""


def _error() -> str:
    """What is raised for an error of the operator; if it did nothing yet, the whole operator runs again in `slow`."""
    return f"""\
error:
{loads("fetch_error", "normalise_error", "set_error")}
{word_of("explain", Word.EXPLAIN)}
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

"""


def _results() -> str:
    """The results become the npu's: one tensor, the argument that was written, or a tuple; what code cannot claim Python does."""
    return f"""\
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
  %n.at = add i64 %n.8, {TUPLE_AT}
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

"""


def _slow() -> str:
    """The kernel of Python, with the arguments as they came."""
    return f"""\
slow:
{word_of("slow.i", Word.SLOW)}
  %slow.o = inttoptr i64 %slow.i to ptr
  %slow.vectorcall = {table_word("vectorcall")}
  %slow.f = inttoptr i64 %slow.vectorcall to ptr
  %slow.result = call ptr %slow.f(ptr %slow.o, ptr %args, i64 %count, ptr %names)
  ret ptr %slow.result
}}

"""


def _helpers() -> str:
    """References that are given back: of aliases, by the bits of their places, and of what may be null."""
    return """\
define internal void @drop_aliases(ptr %drop, ptr %given, i64 %owned) {
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
}

define internal void @drop_if_any(ptr %drop, ptr %object) alwaysinline {
entry:
  %none = icmp eq ptr %object, null
  br i1 %none, label %done, label %take

take:
  call void %drop(ptr %object)
  br label %done

done:
  ret void
}

declare i64 @llvm.cttz.i64(i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""
