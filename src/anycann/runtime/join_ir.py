"""LLVM IR of the kernels that copy: `@anycann_copy`, and `@anycann_join`, which writes arrays one behind the other, as Concat does."""

from __future__ import annotations

import enum


class Join(enum.IntEnum):
    """What the sizes of `@anycann_join` say, int64: how many PARTS there are, bytes of a task's result, then those of each part."""

    PARTS = 0
    STEP = 1
    BYTES = 2


# args: to, from. A task: one byte
_COPY = """
define void @anycann_copy(ptr %args, i64 %begin, i64 %end, ptr %scratch) {
  %to_start = load ptr, ptr %args
  %from_at = getelementptr ptr, ptr %args, i64 1
  %from_start = load ptr, ptr %from_at
  %to = getelementptr i8, ptr %to_start, i64 %begin
  %from = getelementptr i8, ptr %from_start, i64 %begin
  %nbytes = sub i64 %end, %begin
  %a = call ptr @memcpy(ptr %to, ptr %from, i64 %nbytes)
  ret void
}
"""

# args: sizes, the result, then one array for each part. A task: what all parts have there, one behind the other
_JOIN = f"""
define void @anycann_join(ptr %args, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %sizes = load ptr, ptr %args
  %parts = load i64, ptr %sizes
  %step_at = getelementptr i64, ptr %sizes, i64 {Join.STEP.value}
  %step = load i64, ptr %step_at
  %all_bytes = getelementptr i64, ptr %sizes, i64 {Join.BYTES.value}
  %result_slot = getelementptr ptr, ptr %args, i64 1
  %result = load ptr, ptr %result_slot
  %arrays = getelementptr ptr, ptr %args, i64 2
  br label %task
task:
  %i = phi i64 [ %begin, %entry ], [ %i_next, %written ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %start, label %out
start:
  %skipped = mul i64 %i, %step
  %first = getelementptr i8, ptr %result, i64 %skipped
  br label %part
part:
  %p = phi i64 [ 0, %start ], [ %p_next, %copy ]
  %to = phi ptr [ %first, %start ], [ %behind, %copy ]
  %some = icmp ult i64 %p, %parts
  br i1 %some, label %copy, label %written
copy:
  %bytes_at = getelementptr i64, ptr %all_bytes, i64 %p
  %bytes = load i64, ptr %bytes_at
  %array_at = getelementptr ptr, ptr %arrays, i64 %p
  %array = load ptr, ptr %array_at
  %before = mul i64 %i, %bytes
  %from = getelementptr i8, ptr %array, i64 %before
  %a = call ptr @memcpy(ptr %to, ptr %from, i64 %bytes)
  %behind = getelementptr i8, ptr %to, i64 %bytes
  %p_next = add i64 %p, 1
  br label %part
written:
  %i_next = add i64 %i, 1
  br label %task
out:
  ret void
}}
"""

COPIES_IR = _COPY + _JOIN  # they need `@memcpy`
