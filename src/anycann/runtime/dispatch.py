"""The native side of the thread pool, as LLVM IR: `run` launches a whole table of kernels, `fork_join.py` splits one over the threads.

A row of the table is `{ptr fn, ptr args, i64 tasks, i64 flags}`, `fn` a kernel `void(ptr args, i64 begin, i64 end, ptr scratch)`. A row of
several tasks is split into a share for each thread, share `i` of `n` being the tasks from ceil(tasks * i / n); any other row runs on the
caller.
"""

from __future__ import annotations

from anycann.runtime.denormals import denormals_ir
from anycann.runtime.fork_join import fork_join_ir
from anycann.runtime.pool_layout import Field
from anycann.support.errors import UnsupportedError
from anycann.target.target import Target

ROW_BYTES = 32
ROW_INLINE = 1  # flag of a row that is not split, however many tasks it has


def dispatch_ir(target: Target) -> str:
    """The module with `anycann_worker`, `anycann_run` and `anycann_stop`. Raises UnsupportedError for a system without futex."""
    if "linux" not in target.triple:
        raise UnsupportedError(f"the thread pool needs Linux (futex); the target is {target.triple}")
    text = "\n".join((_HEAD, denormals_ir(target), fork_join_ir(), _RUN, _ENTRY, _STOP))
    for field in Field:
        text = text.replace(f"${field.name}$", f"getelementptr i8, ptr %pool, i64 {field.value}")
    for name, value in _instructions(target).items():
        text = text.replace(f"${name}$", value)
    return text


def _instructions(target: Target) -> dict[str, str]:
    """What the processor calls a pause, and the system a futex."""
    if target.is_x86:
        return {"PAUSE_TYPE": "@llvm.x86.sse2.pause()", "PAUSE": "@llvm.x86.sse2.pause()", "FUTEX": "@syscall(i64 202"}
    return {"PAUSE_TYPE": "@llvm.aarch64.hint(i32)", "PAUSE": "@llvm.aarch64.hint(i32 1)", "FUTEX": "@syscall(i64 98"}


_HEAD = """
declare void $PAUSE_TYPE$
declare i64 @syscall(i64, ...)
declare i32 @clock_gettime(i32, ptr)
"""

_ENTRY = """
define void @anycann_run(ptr %pool, ptr %table, i64 %rows, ptr %scratch, i64 %stride, ptr %times) {
  %mode = call i64 @flush_denormals()
  call void @run_rows(ptr %pool, ptr %table, i64 %rows, ptr %scratch, i64 %stride, ptr %times)
  call void @restore_denormals(i64 %mode)
  ret void
}
"""

_RUN = """
define internal void @stamp(ptr %times, i64 %row) {
  %wanted = icmp ne ptr %times, null
  br i1 %wanted, label %write, label %out
write:
  %moment = alloca [2 x i64]
  %a = call i32 @clock_gettime(i32 1, ptr %moment)
  %seconds = load i64, ptr %moment
  %rest_at = getelementptr i64, ptr %moment, i64 1
  %rest = load i64, ptr %rest_at
  %scaled = mul i64 %seconds, 1000000000
  %now = add i64 %scaled, %rest
  %at = getelementptr i64, ptr %times, i64 %row
  store i64 %now, ptr %at
  br label %out
out:
  ret void
}

define internal void @run_rows(ptr %pool, ptr %table, i64 %rows, ptr %scratch, i64 %stride, ptr %times) {
entry:
  %threads_at = $THREADS$
  %scratch_at = $SCRATCH$
  %stride_at = $STRIDE$
  %lock_at = $LOCK$
  %threads = load i32, ptr %threads_at
  %several = icmp ugt i32 %threads, 1
  br i1 %several, label %try_lock, label %row
try_lock:
  %exchange = cmpxchg ptr %lock_at, i32 0, i32 1 acquire monotonic
  %locked = extractvalue { i32, i1 } %exchange, 1
  br i1 %locked, label %lease, label %row
lease:
  store ptr %scratch, ptr %scratch_at
  store i64 %stride, ptr %stride_at
  br label %row
row:
  %ours = phi i1 [ false, %entry ], [ false, %try_lock ], [ true, %lease ], [ %ours, %next ]
  %i = phi i64 [ 0, %entry ], [ 0, %try_lock ], [ 0, %lease ], [ %i_next, %next ]
  call void @stamp(ptr %times, i64 %i)
  %more = icmp slt i64 %i, %rows
  br i1 %more, label %launch, label %finish
launch:
  %row_at = getelementptr { ptr, ptr, i64, i64 }, ptr %table, i64 %i
  %fn = load ptr, ptr %row_at
  %args_at = getelementptr i8, ptr %row_at, i64 8
  %args = load ptr, ptr %args_at
  %tasks_at = getelementptr i8, ptr %row_at, i64 16
  %tasks = load i64, ptr %tasks_at
  %flags_at = getelementptr i8, ptr %row_at, i64 24
  %flags = load i64, ptr %flags_at
  %i_next = add i64 %i, 1
  %splittable = icmp sgt i64 %tasks, 1
  %unflagged = icmp eq i64 %flags, 0
  %c1 = and i1 %splittable, %unflagged
  %parallel = and i1 %c1, %ours
  br i1 %parallel, label %shared, label %alone
shared:
  call void @fork_join(ptr %pool, ptr %fn, ptr %args, i64 %tasks, ptr %scratch)
  br label %next
alone:
  %some = icmp sgt i64 %tasks, 0
  br i1 %some, label %inline, label %next
inline:
  call void %fn(ptr %args, i64 0, i64 %tasks, ptr %scratch)
  br label %next
next:
  br label %row
finish:
  br i1 %ours, label %unlock, label %out
unlock:
  store atomic i32 0, ptr %lock_at release, align 4
  br label %out
out:
  ret void
}
"""

_STOP = """
define i32 @anycann_stop(ptr %pool) {
entry:
  %epoch_at = $EPOCH$
  %stop_at = $STOP$
  %lock_at = $LOCK$
  %exchange = cmpxchg ptr %lock_at, i32 0, i32 1 acquire monotonic
  %locked = extractvalue { i32, i1 } %exchange, 1
  br i1 %locked, label %stop, label %busy
stop:
  store atomic i32 1, ptr %stop_at monotonic, align 4
  %a = atomicrmw add ptr %epoch_at, i32 1 seq_cst
  %b = call i64 (i64, ...) $FUTEX$, ptr %epoch_at, i64 129, i64 2147483647, ptr null, ptr null, i64 0)
  ret i32 1
busy:
  ret i32 0
}
"""
