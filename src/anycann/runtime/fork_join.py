"""LLVM IR of one kernel split over the threads of a pool: `fork_join`, which the caller runs, and the loop that each worker runs.

The tasks are cut into as many shares as there are threads. The caller begins with the first; `TICKET` holds the epoch and the number of the
next share, and who moves it by one has that share: a worker that comes, or the caller, which does not wait for a worker that still
sleeps (waking one took 0.1 ms and more on a virtual machine). A ticket of another epoch gives nothing, and as long as a share is not
taken or not done the caller stays, so what a worker reads behind its ticket is the row that the ticket was for.

A worker waits for the epoch to move, the caller for `DONE` to count all other shares; either spins for a while and then sleeps. A worker
announces that it will sleep before the system compares the epoch, and the caller moves the epoch before it looks for sleepers (both
sequentially consistent), so a wake-up is never missed and never costs a system call when nobody sleeps.
"""

from __future__ import annotations

CALLER_SHARE = 4  # of the spin of a worker: who waits longer than that waits for a thread that lost its processor, and lends it its own


def fork_join_ir() -> str:
    """`@anycann_worker(ptr pool, i64 id)`, which returns when the pool stops, and `@fork_join(pool, fn, args, tasks, scratch)`.

    `$NAME$` stands for what dispatch.py fills in.
    """
    worker = _WORKER.replace("$SPIN_OR_SLEEP$", _spin_or("sleep"))
    caller = _FORK_JOIN.replace("$SPIN_OR_SLEEP$", _spin_or("announce")).replace("$CALLER_SHARE$", str(CALLER_SHARE))
    return "\n".join((_FIRST_TASK, _TAKE_SHARE, _RUN_SHARE, worker, caller))


def _spin_or(sleep: str) -> str:
    """The blocks behind `idle`: once more to `wait` while `%spins` is below `%spin_limit`, then to the block `sleep`."""
    return f"""idle:
  %more_spins = add i32 %spins, 1
  %still = icmp ult i32 %more_spins, %spin_limit
  br i1 %still, label %spin, label %{sleep}
spin:
  call void $PAUSE$
  br label %wait
"""


_FIRST_TASK = """
define internal i64 @first_task(i64 %tasks, i64 %id, i64 %threads) alwaysinline {
  %product = mul i64 %tasks, %id
  %less_one = sub i64 %threads, 1
  %up = add i64 %product, %less_one
  %first = udiv i64 %up, %threads
  ret i64 %first
}
"""

_TAKE_SHARE = """
define internal i64 @take_share(ptr %pool, i32 %epoch, i64 %threads) alwaysinline {
entry:
  %ticket_at = $TICKET$
  br label %look
look:
  %ticket = load atomic i64, ptr %ticket_at acquire, align 8
  %high = lshr i64 %ticket, 32
  %of = trunc i64 %high to i32
  %current = icmp eq i32 %of, %epoch
  %share = and i64 %ticket, 4294967295
  %left = icmp ult i64 %share, %threads
  %free = and i1 %current, %left
  br i1 %free, label %take, label %none
take:
  %next = add i64 %ticket, 1
  %exchange = cmpxchg ptr %ticket_at, i64 %ticket, i64 %next acq_rel monotonic
  %taken = extractvalue { i64, i1 } %exchange, 1
  br i1 %taken, label %out, label %look
none:
  ret i64 0
out:
  ret i64 %share
}
"""

_RUN_SHARE = """
define internal void @run_share(ptr %pool, i64 %share, i64 %threads, ptr %scratch) alwaysinline {
entry:
  %fn_at = $FN$
  %args_at = $ARGS$
  %tasks_at = $TASKS$
  %done_at = $DONE$
  %tasks = load i64, ptr %tasks_at
  %next_share = add i64 %share, 1
  %begin = call i64 @first_task(i64 %tasks, i64 %share, i64 %threads)
  %end = call i64 @first_task(i64 %tasks, i64 %next_share, i64 %threads)
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %work, label %counted
work:
  %fn = load ptr, ptr %fn_at
  %args = load ptr, ptr %args_at
  call void %fn(ptr %args, i64 %begin, i64 %end, ptr %scratch)
  br label %counted
counted:
  %d = atomicrmw add ptr %done_at, i32 1 seq_cst
  ret void
}
"""

_WORKER = """
define void @anycann_worker(ptr %pool, i64 %id) {
entry:
  %epoch_at = $EPOCH$
  %stop_at = $STOP$
  %threads_at = $THREADS$
  %spin_at = $SPIN$
  %scratch_at = $SCRATCH$
  %stride_at = $STRIDE$
  %done_at = $DONE$
  %caller_sleeps_at = $CALLER_SLEEPS$
  %sleepers_at = $SLEEPERS$
  %spin_limit = load i32, ptr %spin_at
  %mode = call i64 @flush_denormals()
  br label %wait
wait:
  %seen = phi i32 [ 0, %entry ], [ %seen, %spin ], [ %seen, %sleep ], [ %epoch, %claim ]
  %spins = phi i32 [ 0, %entry ], [ %more_spins, %spin ], [ 0, %sleep ], [ 0, %claim ]
  %epoch = load atomic i32, ptr %epoch_at acquire, align 4
  %moved = icmp ne i32 %epoch, %seen
  br i1 %moved, label %go, label %idle
$SPIN_OR_SLEEP$sleep:
  %a = atomicrmw add ptr %sleepers_at, i32 1 seq_cst
  %seen_long = zext i32 %seen to i64
  %b = call i64 (i64, ...) $FUTEX$, ptr %epoch_at, i64 128, i64 %seen_long, ptr null, ptr null, i64 0)
  %c = atomicrmw sub ptr %sleepers_at, i32 1 seq_cst
  br label %wait
go:
  %stop = load atomic i32, ptr %stop_at monotonic, align 4
  %leave = icmp ne i32 %stop, 0
  br i1 %leave, label %out, label %prepare
prepare:
  %threads_short = load i32, ptr %threads_at
  %threads = zext i32 %threads_short to i64
  br label %claim
claim:
  %share = call i64 @take_share(ptr %pool, i32 %epoch, i64 %threads)
  %mine = icmp ne i64 %share, 0
  br i1 %mine, label %run, label %wait
run:
  %all_scratch = load ptr, ptr %scratch_at
  %stride = load i64, ptr %stride_at
  %offset = mul i64 %stride, %id
  %scratch = getelementptr i8, ptr %all_scratch, i64 %offset
  call void @run_share(ptr %pool, i64 %share, i64 %threads, ptr %scratch)
  %caller_sleeps = load atomic i32, ptr %caller_sleeps_at seq_cst, align 4
  %must_wake = icmp ne i32 %caller_sleeps, 0
  br i1 %must_wake, label %wake_caller, label %claim
wake_caller:
  %e = call i64 (i64, ...) $FUTEX$, ptr %done_at, i64 129, i64 1, ptr null, ptr null, i64 0)
  br label %claim
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
  %ticket_at = $TICKET$
  store ptr %fn, ptr %fn_at
  store ptr %args, ptr %args_at
  store i64 %tasks, ptr %tasks_at
  store atomic i32 0, ptr %done_at monotonic, align 4
  store atomic i32 0, ptr %caller_sleeps_at monotonic, align 4
  %old = load atomic i32, ptr %epoch_at monotonic, align 4
  %epoch = add i32 %old, 1
  %epoch_long = zext i32 %epoch to i64
  %epoch_high = shl i64 %epoch_long, 32
  %first_ticket = or i64 %epoch_high, 1
  store atomic i64 %first_ticket, ptr %ticket_at release, align 8
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
  br label %help
help:
  %share = call i64 @take_share(ptr %pool, i32 %epoch, i64 %threads)
  %mine = icmp ne i64 %share, 0
  br i1 %mine, label %run, label %wait
run:
  call void @run_share(ptr %pool, i64 %share, i64 %threads, ptr %scratch)
  br label %help
wait:
  %spins = phi i32 [ 0, %help ], [ %more_spins, %spin ]
  %done = load atomic i32, ptr %done_at acquire, align 4
  %all = icmp eq i32 %done, %workers
  br i1 %all, label %out, label %idle
$SPIN_OR_SLEEP$announce:
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
