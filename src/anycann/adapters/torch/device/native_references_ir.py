"""The generated code that counts who refers to the values on torch's stack."""

from __future__ import annotations

from anycann.adapters.torch.device.native_stack_ir import BOOL, DEVICE, DOUBLE, INT
from anycann.adapters.torch.device.native_words import loads

NO_OBJECT = (0, DOUBLE, INT, BOOL, DEVICE)  # of the kinds that `@usual` lets pass all others refer to an object


def references_ir() -> str:
    """`@hold` and `@let_go`: one reference more or less to the object of a value."""
    return _refers() + _hold() + _let_go()


def _refers() -> str:
    """`@refers`: whether a value of some kind refers to an object."""
    cases = "\n".join(f"    i32 {kind}, label %done" for kind in NO_OBJECT)
    return f"""
define internal i1 @refers(ptr %table, ptr %object, i32 %kind) alwaysinline {{
entry:
{loads("undefined")}
  switch i32 %kind, label %object.kind [
{cases}
  ]

object.kind:
  %object.i = ptrtoint ptr %object to i64
  %real = icmp ne i64 %object.i, %undefined
  ret i1 %real

done:
  ret i1 false
}}
"""


def _hold() -> str:
    """`@hold`: one reference more to the object of a value of some kind, if it has one."""
    return """
define internal void @hold(ptr %table, ptr %object, i32 %kind) {
entry:
  %refers = call i1 @refers(ptr %table, ptr %object, i32 %kind)
  br i1 %refers, label %more, label %done

more:
  %count.p = call ptr @at(ptr %object, i64 8)
  %before = atomicrmw add ptr %count.p, i64 1 seq_cst
  br label %done

done:
  ret void
}
"""


def _let_go() -> str:
    """`@let_go`: one reference less to the object of a value of some kind, if it has one.

    The last but one and the last reference are given back by torch, which knows what to free and that Python may hold the object.
    """
    return f"""
define internal void @let_go(ptr %table, ptr %object, i32 %kind) {{
entry:
{loads("allocate", "delete_tensor")}
  %refers = call i1 @refers(ptr %table, ptr %object, i32 %kind)
  br i1 %refers, label %less, label %done

less:
  %count.p = call ptr @at(ptr %object, i64 8)
  %now = load atomic i64, ptr %count.p monotonic, align 8
  br label %try

try:
  %old = phi i64 [%now, %less], [%seen, %exchange]
  %references = and i64 %old, 4294967295
  %many = icmp ugt i64 %references, 2
  br i1 %many, label %exchange, label %by_torch

exchange:
  %fewer = sub i64 %old, 1
  %pair = cmpxchg ptr %count.p, i64 %old, i64 %fewer acq_rel monotonic
  %seen = extractvalue {{i64, i1}} %pair, 0
  %well = extractvalue {{i64, i1}} %pair, 1
  br i1 %well, label %done, label %try

by_torch:
  %allocate.f = inttoptr i64 %allocate to ptr
  %holder = call ptr %allocate.f(i64 8)
  store ptr %object, ptr %holder
  %delete_tensor.f = inttoptr i64 %delete_tensor to ptr
  call void %delete_tensor.f(ptr %holder)
  br label %done

done:
  ret void
}}
"""
