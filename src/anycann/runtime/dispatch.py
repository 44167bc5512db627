"""The native side of the thread pool, as LLVM IR: workers that wait for an epoch, and `run`, which launches a whole table of kernels.

A row of the table is `{ptr fn, ptr args, i64 tasks, i64 flags}`, `fn` a kernel `void(ptr args, i64 begin, i64 end, ptr scratch)`. A row of
several tasks is split over the threads, thread `i` of `n` getting the tasks from ceil(tasks * i / n); any other row runs on the caller.

The pool is 256 bytes. Line 0: what the workers read (epoch, stop, threads, spin, fn, args, tasks, scratch, stride). Line 1: `done`, the
workers that have finished, and whether the caller sleeps on it. Line 2: the lock of the caller that has the pool. Line 3: sleeping workers.
A worker announces that it will sleep before the kernel compares the epoch, and the caller moves the epoch before it looks for sleepers
(both sequentially consistent), so a wake-up is never missed and never costs a system call when nobody sleeps.
"""

from __future__ import annotations

from anycann.support.errors import UnsupportedError
from anycann.target.target import Target

POOL_BYTES = 256
ROW_BYTES = 32
CALLER_SHARE = 4  # of the spin of a worker: who waits longer than that waits for a thread that lost its processor, and lends it its own
ROW_INLINE = 1  # flag of a row that is not split, however many tasks it has

EPOCH, STOP, THREADS, SPIN, FN, ARGS, TASKS, SCRATCH, STRIDE = 0, 4, 8, 12, 16, 24, 32, 40, 48
DONE, CALLER_SLEEPS, LOCK, SLEEPERS = 64, 68, 128, 192


def dispatch_ir(target: Target) -> str:
    """The module with `anycann_worker`, `anycann_run` and `anycann_stop`. Raises UnsupportedError for a system without futex."""
    if "linux" not in target.triple:
        raise UnsupportedError(f"the thread pool needs Linux (futex); the target is {target.triple}")
    if target.is_x86:
        pause, pause_type, futex = "@llvm.x86.sse2.pause()", "@llvm.x86.sse2.pause()", 202
    else:
        pause, pause_type, futex = "@llvm.aarch64.hint(i32 1)", "@llvm.aarch64.hint(i32)", 98
    parts = (_HEAD, _X86_DENORMALS if target.is_x86 else _ARM_DENORMALS, _WORKER, _FORK_JOIN, _RUN, _ENTRY, _STOP)
    text = "\n".join(parts)
    for name in (
        "EPOCH",
        "STOP",
        "THREADS",
        "SPIN",
        "FN",
        "ARGS",
        "TASKS",
        "SCRATCH",
        "STRIDE",
        "DONE",
        "CALLER_SLEEPS",
        "LOCK",
        "SLEEPERS",
    ):
        text = text.replace(f"${name}$", f"getelementptr i8, ptr %pool, i64 {globals()[name]}")
    text = text.replace("$CALLER_SHARE$", str(CALLER_SHARE))
    return text.replace("$PAUSE_TYPE$", pause_type).replace("$PAUSE$", pause).replace("$FUTEX$", f"@syscall(i64 {futex}")


_HEAD = """
declare void $PAUSE_TYPE$
declare i64 @syscall(i64, ...)
declare i32 @clock_gettime(i32, ptr)
"""

# Kernels take denormal numbers for zero: some processors need a hundred cycles for each, and none carries a digit that matters.
_X86_DENORMALS = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define internal i64 @flush_denormals() alwaysinline {
  %word = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %word)
  %old = load i32, ptr %word
  %new = or i32 %old, 32832
  store i32 %new, ptr %word
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  %mode = zext i32 %old to i64
  ret i64 %mode
}

define internal void @restore_denormals(i64 %mode) alwaysinline {
  %word = alloca i32
  %old = trunc i64 %mode to i32
  store i32 %old, ptr %word
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  ret void
}
"""

_ARM_DENORMALS = """
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)

define internal i64 @flush_denormals() alwaysinline {
  %mode = call i64 @llvm.aarch64.get.fpcr()
  %new = or i64 %mode, 16777216
  call void @llvm.aarch64.set.fpcr(i64 %new)
  ret i64 %mode
}

define internal void @restore_denormals(i64 %mode) alwaysinline {
  call void @llvm.aarch64.set.fpcr(i64 %mode)
  ret void
}
"""

_ENTRY = """
define void @anycann_run(ptr %pool, ptr %table, i64 %rows, ptr %scratch, i64 %stride, ptr %times) {
  %mode = call i64 @flush_denormals()
  call void @run_rows(ptr %pool, ptr %table, i64 %rows, ptr %scratch, i64 %stride, ptr %times)
  call void @restore_denormals(i64 %mode)
  ret void
}
"""

_WORKER = """
define internal i64 @first_task(i64 %tasks, i64 %id, i64 %threads) alwaysinline {
  %product = mul i64 %tasks, %id
  %less_one = sub i64 %threads, 1
  %up = add i64 %product, %less_one
  %first = udiv i64 %up, %threads
  ret i64 %first
}

define void @anycann_worker(ptr %pool, i64 %id) {
entry:
  %epoch_at = $EPOCH$
  %stop_at = $STOP$
  %threads_at = $THREADS$
  %spin_at = $SPIN$
  %fn_at = $FN$
  %args_at = $ARGS$
  %tasks_at = $TASKS$
  %scratch_at = $SCRATCH$
  %stride_at = $STRIDE$
  %done_at = $DONE$
  %caller_sleeps_at = $CALLER_SLEEPS$
  %sleepers_at = $SLEEPERS$
  %spin_limit = load i32, ptr %spin_at
  %mode = call i64 @flush_denormals()
  br label %wait
wait:
  %seen = phi i32 [ 0, %entry ], [ %seen, %spin ], [ %seen, %sleep ], [ %epoch, %finished ], [ %epoch, %wake_caller ]
  %spins = phi i32 [ 0, %entry ], [ %more_spins, %spin ], [ 0, %sleep ], [ 0, %finished ], [ 0, %wake_caller ]
  %epoch = load atomic i32, ptr %epoch_at acquire, align 4
  %moved = icmp ne i32 %epoch, %seen
  br i1 %moved, label %go, label %idle
idle:
  %more_spins = add i32 %spins, 1
  %still = icmp ult i32 %more_spins, %spin_limit
  br i1 %still, label %spin, label %sleep
spin:
  call void $PAUSE$
  br label %wait
sleep:
  %a = atomicrmw add ptr %sleepers_at, i32 1 seq_cst
  %seen_long = zext i32 %seen to i64
  %b = call i64 (i64, ...) $FUTEX$, ptr %epoch_at, i64 128, i64 %seen_long, ptr null, ptr null, i64 0)
  %c = atomicrmw sub ptr %sleepers_at, i32 1 seq_cst
  br label %wait
go:
  %stop = load atomic i32, ptr %stop_at monotonic, align 4
  %leave = icmp ne i32 %stop, 0
  br i1 %leave, label %out, label %split
split:
  %threads_short = load i32, ptr %threads_at
  %threads = zext i32 %threads_short to i64
  %tasks = load i64, ptr %tasks_at
  %next_id = add i64 %id, 1
  %begin = call i64 @first_task(i64 %tasks, i64 %id, i64 %threads)
  %end = call i64 @first_task(i64 %tasks, i64 %next_id, i64 %threads)
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %work, label %finished
work:
  %fn = load ptr, ptr %fn_at
  %args = load ptr, ptr %args_at
  %all_scratch = load ptr, ptr %scratch_at
  %stride = load i64, ptr %stride_at
  %offset = mul i64 %stride, %id
  %scratch = getelementptr i8, ptr %all_scratch, i64 %offset
  call void %fn(ptr %args, i64 %begin, i64 %end, ptr %scratch)
  br label %finished
finished:
  %d = atomicrmw add ptr %done_at, i32 1 seq_cst
  %caller_sleeps = load atomic i32, ptr %caller_sleeps_at seq_cst, align 4
  %must_wake = icmp ne i32 %caller_sleeps, 0
  br i1 %must_wake, label %wake_caller, label %wait
wake_caller:
  %e = call i64 (i64, ...) $FUTEX$, ptr %done_at, i64 129, i64 1, ptr null, ptr null, i64 0)
  br label %wait
out:
  ret void
}
"""

_FORK_JOIN = """
define internal void @fork_join(ptr %pool, ptr %fn, ptr %args, i64 %tasks, ptr %scratch) {
entry:
  %epoch_at = $EPOCH$
  %threads_at = $THREADS$
  %spin_at = $SPIN$
  %fn_at = $FN$
  %args_at = $ARGS$
  %tasks_at = $TASKS$
  %done_at = $DONE$
  %caller_sleeps_at = $CALLER_SLEEPS$
  %sleepers_at = $SLEEPERS$
  store ptr %fn, ptr %fn_at
  store ptr %args, ptr %args_at
  store i64 %tasks, ptr %tasks_at
  store atomic i32 0, ptr %done_at monotonic, align 4
  store atomic i32 0, ptr %caller_sleeps_at monotonic, align 4
  %a = atomicrmw add ptr %epoch_at, i32 1 seq_cst
  %sleepers = load atomic i32, ptr %sleepers_at seq_cst, align 4
  %any = icmp ne i32 %sleepers, 0
  br i1 %any, label %wake, label %own
wake:
  %b = call i64 (i64, ...) $FUTEX$, ptr %epoch_at, i64 129, i64 2147483647, ptr null, ptr null, i64 0)
  br label %own
own:
  %threads_short = load i32, ptr %threads_at
  %threads = zext i32 %threads_short to i64
  %end = call i64 @first_task(i64 %tasks, i64 1, i64 %threads)
  call void %fn(ptr %args, i64 0, i64 %end, ptr %scratch)
  %workers = sub i32 %threads_short, 1
  %worker_spin = load i32, ptr %spin_at
  %spin_limit = udiv i32 %worker_spin, $CALLER_SHARE$
  br label %wait
wait:
  %spins = phi i32 [ 0, %own ], [ %more_spins, %spin ]
  %done = load atomic i32, ptr %done_at acquire, align 4
  %all = icmp eq i32 %done, %workers
  br i1 %all, label %out, label %again
again:
  %more_spins = add i32 %spins, 1
  %still = icmp ult i32 %more_spins, %spin_limit
  br i1 %still, label %spin, label %announce
spin:
  call void $PAUSE$
  br label %wait
announce:
  store atomic i32 1, ptr %caller_sleeps_at seq_cst, align 4
  br label %check
check:
  %done_now = load atomic i32, ptr %done_at seq_cst, align 4
  %all_now = icmp eq i32 %done_now, %workers
  br i1 %all_now, label %out, label %sleep
sleep:
  %done_long = zext i32 %done_now to i64
  %c = call i64 (i64, ...) $FUTEX$, ptr %done_at, i64 128, i64 %done_long, ptr null, ptr null, i64 0)
  br label %check
out:
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
