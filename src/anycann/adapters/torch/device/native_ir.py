"""The generated code of `native.py`, as text."""

from __future__ import annotations

from anycann.adapters.torch.device.native_boxed_ir import boxed_ir
from anycann.adapters.torch.device.native_call_ir import call_ir
from anycann.adapters.torch.device.native_claim_ir import claim_ir, entries_ir, release_ir


def module_ir() -> str:
    """The module: `torch_npu_claim`, `torch_npu_account` and `torch_npu_call`, which Python calls, `torch_npu_release` and
    `torch_npu_boxed`, which torch calls."""
    return "\n".join((_helpers_ir(), release_ir(), claim_ir(), entries_ir(), call_ir(), boxed_ir()))


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
