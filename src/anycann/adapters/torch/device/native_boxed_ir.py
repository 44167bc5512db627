"""The generated code of a kernel that torch's dispatcher calls itself: arguments and results on torch's stack, no Python object anywhere.

The dispatcher keeps a kernel as an object and a function `(object, operator, keys, stack)`. For a kernel of Python the object holds it,
and the function turns the stack into Python objects and back. `torch_npu_boxed` stands in that function's place and does what
`torch_npu_call` does with the values on the stack; whatever is unusual it leaves to the function that was there (`python`), with the
arguments as they came. What fails after it may have written some tensors of a list is not tried again: its error goes on. A stack is a
vector of values of 16 bytes: 8 of content, then the kind (`ATen/core/ivalue.h`).
"""

from __future__ import annotations

from anycann.adapters.torch.device.native_alias_ir import alias_ir
from anycann.adapters.torch.device.native_references_ir import references_ir
from anycann.adapters.torch.device.native_stack_ir import GENERATOR, stack_ir
from anycann.adapters.torch.device.native_words import BYTES_AT, FUNCTION_AT, LIST_AT, MOST_ARGUMENTS, SELF_AT, Kind, Word, loads, word_of


def boxed_ir() -> str:
    """`torch_npu_boxed`. Exceptions of the operator end in `@try`, or go on when the references are given back; those of `python` pass."""
    return "".join((_boxed(), _generator(), _try(), _results(), _back(), stack_ir(), references_ir(), alias_ir()))


def _boxed() -> str:
    return f"""
%value = type {{ptr, i64}}

declare i32 @__gxx_personality_v0(...)
declare ptr @__cxa_begin_catch(ptr)
declare void @__cxa_end_catch()

define void @torch_npu_boxed(ptr %functor, ptr %operator, i64 %keys, ptr %stack) uwtable {{
entry:
  %saved = alloca [{MOST_ARGUMENTS} x %value]
  %elements = alloca [{MOST_ARGUMENTS} x ptr]
  %thrown.p = alloca ptr
  %held = call ptr @pointer(ptr %functor, i64 {FUNCTION_AT})
  %self = call ptr @pointer(ptr %held, i64 {SELF_AT})
  %words = call ptr @pointer(ptr %self, i64 {BYTES_AT})
{word_of("table.i", Word.TABLE)}
{word_of("count", Word.COUNT)}
{word_of("python", Word.PYTHON)}
{word_of("lists", Word.LISTS)}
  %table = inttoptr i64 %table.i to ptr
  %end.p = call ptr @at(ptr %stack, i64 8)
  %end = load ptr, ptr %end.p
  %back = mul i64 %count, -16
  %first = call ptr @at(ptr %end, i64 %back)
  %begin = load ptr, ptr %stack
  %begin.i = ptrtoint ptr %begin to i64
  %first.i = ptrtoint ptr %first to i64
  %place = sub i64 %first.i, %begin.i
  %index = call i64 @usual(ptr %table, ptr %words, ptr %first, i64 %count)
  %here = icmp sge i64 %index, 0
  br i1 %here, label %generator.look, label %there

generator.look:
  %generator = call ptr @generator(ptr %table, ptr %words, i64 %index)
  %seeded = icmp ne ptr %generator, inttoptr (i64 -1 to ptr)
  br i1 %seeded, label %here.1, label %there

here.1:
  call void @save(ptr %table, ptr %first, ptr %saved, i64 %count)
  call void @save_lists(ptr %table, ptr %first, ptr %elements, i64 %lists)
  call void @give_generator(ptr %table, ptr %words, ptr %first, ptr %generator)
  %done = call i1 @try(ptr %table, ptr %words, ptr %operator, ptr %stack, i64 %place, ptr %saved, i64 %index, ptr %thrown.p)
  br i1 %done, label %over, label %restore

over:
  call void @count_writes(ptr %table, ptr %words, ptr %saved, ptr %elements)
  call void @finish_lists(ptr %table, ptr %saved, ptr %elements, i64 %lists)
  call void @drop_values(ptr %table, ptr %saved, i64 %count)
  ret void

restore:
  call void @finish_lists(ptr %table, ptr %saved, ptr %elements, i64 %lists)
  call void @put_back(ptr %table, ptr %stack, i64 %place, ptr %saved, i64 %count)
  %thrown = load ptr, ptr %thrown.p
  %again = icmp eq ptr %thrown, null
  br i1 %again, label %there, label %throw_on

throw_on:
{loads("throw")}
  %throw.f = inttoptr i64 %throw to ptr
  call void %throw.f(ptr %thrown)
  unreachable

there:
  %python.f = inttoptr i64 %python to ptr
  call void %python.f(ptr %functor, ptr %operator, i64 %keys, ptr %stack)
  ret void
}}
"""


def _generator() -> str:
    """`@generator`: that of an npu, null for an operator that draws nothing, -1 if Python must make it; `@give_generator` it."""
    return f"""
define internal ptr @generator(ptr %table, ptr %words, i64 %index) {{
entry:
{word_of("place", Word.GENERATOR)}
{loads("generators")}
  %without = icmp eq i64 %place, {MOST_ARGUMENTS}
  br i1 %without, label %none, label %look

none:
  ret ptr null

look:
  %generators.p = inttoptr i64 %generators to ptr
  %one.p = getelementptr ptr, ptr %generators.p, i64 %index
  %one = load ptr, ptr %one.p
  %made = icmp ne ptr %one, null
  %answer = select i1 %made, ptr %one, ptr inttoptr (i64 -1 to ptr)
  ret ptr %answer
}}

define internal void @give_generator(ptr %table, ptr %words, ptr %first, ptr %generator) {{
entry:
{word_of("place", Word.GENERATOR)}
  %without = icmp eq ptr %generator, null
  br i1 %without, label %done, label %give

give:
  %value = getelementptr %value, ptr %first, i64 %place
  %kind.p = call ptr @at(ptr %value, i64 8)
  call void @hold(ptr %table, ptr %generator, i32 {GENERATOR})
  store ptr %generator, ptr %value
  store i64 {GENERATOR}, ptr %kind.p
  br label %done

done:
  ret void
}}
"""


def _try() -> str:
    """The cpu's kernel on aliases, and its results as the npu's: whether that went well. If not, `thrown` is what shall be thrown, or null.

    It is null where the operator can be tried again; only one that returns nothing may have written before it failed (`registration.py`).
    """
    return f"""
define internal i1 @try(ptr %table, ptr %words, ptr %operator, ptr %stack, i64 %place, ptr %saved, i64 %index, ptr %thrown.p)
    noinline uwtable personality ptr @__gxx_personality_v0 {{
entry:
  store ptr null, ptr %thrown.p
{word_of("kind", Word.BOXED_KIND)}
{word_of("entry.i", Word.ENTRY)}
{loads("host_keys")}
  %entry.p = inttoptr i64 %entry.i to ptr
  %object = load ptr, ptr %entry.p
  %kernel = call ptr @pointer(ptr %entry.p, i64 8)
  invoke void %kernel(ptr %object, ptr %operator, i64 %host_keys, ptr %stack) to label %computed unwind label %caught

computed:
  %well = call i1 @results(ptr %table, ptr %words, ptr %stack, i64 %place, ptr %saved, i64 %index)
  ret i1 %well

caught:
  %pad = landingpad {{ptr, i32}} catch ptr null
  %thrown = extractvalue {{ptr, i32}} %pad, 0
  %wrote = icmp eq i64 %kind, {int(Kind.NOTHING)}
  br i1 %wrote, label %keep, label %drop

keep:
  store ptr %thrown, ptr %thrown.p
  ret i1 false

drop:
  %error = call ptr @__cxa_begin_catch(ptr %thrown)
  call void @__cxa_end_catch()
  ret i1 false
}}
"""


def _results() -> str:
    """The results become the npu's; the one that was written is the argument itself. False if Python must do it.

    They are where the arguments were, `place` bytes from the stack's beginning, which moves when it has no room for several.
    """
    return f"""
define internal i1 @results(ptr %table, ptr %words, ptr %stack, i64 %place, ptr %saved, i64 %index) {{
entry:
  %begin = load ptr, ptr %stack
  %first = call ptr @at(ptr %begin, i64 %place)
{word_of("kind", Word.BOXED_KIND)}
{word_of("written", Word.PLACE)}
{loads("undefined")}
  switch i64 %kind, label %claim [
    i64 {int(Kind.IN_PLACE)}, label %exchange
    i64 {int(Kind.LIST)}, label %claim_list
    i64 {int(Kind.NOTHING)}, label %well
    i64 {int(Kind.VALUE)}, label %well
  ]

exchange:
  %target.p = getelementptr %value, ptr %saved, i64 %written
  %target = load %value, ptr %target.p
  %alias = load %value, ptr %first
  store %value %target, ptr %first
  store %value %alias, ptr %target.p
  ret i1 true

claim:
  %stack.end.p = call ptr @at(ptr %stack, i64 8)
  %stack.end = load ptr, ptr %stack.end.p
  br label %claim_all

claim_list:
  %list = load ptr, ptr %first
  %list.first = call ptr @pointer(ptr %list, i64 {LIST_AT})
  %list.end = call ptr @pointer(ptr %list, i64 {LIST_AT + 8})
  br label %claim_all

claim_all:
  %begin.result = phi ptr [%first, %claim], [%list.first, %claim_list]
  %end = phi ptr [%stack.end, %claim], [%list.end, %claim_list]
  br label %next

next:
  %result = phi ptr [%begin.result, %claim_all], [%result.next, %moved], [%result.next, %one]
  %over = icmp eq ptr %result, %end
  br i1 %over, label %well, label %one

one:
  %result.next = getelementptr %value, ptr %result, i64 1
  %impl = load ptr, ptr %result
  %impl.i = ptrtoint ptr %impl to i64
  %none = icmp eq i64 %impl.i, %undefined
  br i1 %none, label %next, label %defined

defined:
  %code = call i64 @move_impl(ptr %table, ptr %impl, i64 %index, i1 true)
  %moved.well = icmp eq i64 %code, 0
  br i1 %moved.well, label %moved, label %python

moved:
  br label %next

well:
  ret i1 true

python:
  ret i1 false
}}
"""


def _back() -> str:
    """`@put_back`: what is on the stack from `place` on goes, and the saved arguments come back. `@drop_values` lets values go."""
    return """
define internal void @put_back(ptr %table, ptr %stack, i64 %place, ptr %saved, i64 %count) {
entry:
  %begin = load ptr, ptr %stack
  %first = call ptr @at(ptr %begin, i64 %place)
  %end.p = call ptr @at(ptr %stack, i64 8)
  %end = load ptr, ptr %end.p
  %end.i = ptrtoint ptr %end to i64
  %first.i = ptrtoint ptr %first to i64
  %bytes = sub i64 %end.i, %first.i
  %there = lshr i64 %bytes, 4
  call void @drop_values(ptr %table, ptr %first, i64 %there)
  %saved.bytes = shl i64 %count, 4
  call void @llvm.memcpy.p0.p0.i64(ptr %first, ptr %saved, i64 %saved.bytes, i1 false)
  %end.then = call ptr @at(ptr %first, i64 %saved.bytes)
  store ptr %end.then, ptr %end.p
  ret void
}

define internal void @drop_values(ptr %table, ptr %values, i64 %count) {
entry:
  br label %next

next:
  %i = phi i64 [0, %entry], [%i.next, %one]
  %over = icmp eq i64 %i, %count
  br i1 %over, label %done, label %one

one:
  %value = getelementptr %value, ptr %values, i64 %i
  %object = load ptr, ptr %value
  %kind.p = call ptr @at(ptr %value, i64 8)
  %kind = load i32, ptr %kind.p
  call void @let_go(ptr %table, ptr %object, i32 %kind)
  %i.next = add i64 %i, 1
  br label %next

done:
  ret void
}
"""
