"""LLVM IR of one kernel split over the threads of a pool: `fork_join`, which the caller runs, and the loop that each worker runs.

The tasks are cut into units, which threads take (`row_units.py`). As long as one is not taken or not done the caller stays.

A worker waits for the epoch to move, the caller for `DONE` to count all units; either spins for a while and then sleeps. A worker
announces that it will sleep before the system compares the epoch, and the caller moves the epoch before it looks for sleepers (both
sequentially consistent), so a wake-up is never missed and never costs a system call when nobody sleeps.

The system may wake a worker on the caller's own processor and leave it there, also where another is idle: then it interrupts who it is to
help. So a worker that finds itself there asks for any other of the processors it was given. Where there is no other it does not wait awake,
and takes nothing of a row that has just begun: it rests for `REST_NS`, in which the caller does not wake it, and looks again. A row that
lasts longer it joins wherever it is.

Waking costs the caller about 15 us, and the worker comes 50 and more later. So a row that `lets_sleep`, behind which there is little work,
wakes nobody, and where all workers sleep the caller runs it as if it had none. That ends where such rows follow each other, of whatever
runs, for `SPELL_NS` with less than `GAP_NS` from one to the next: a worker that is awake then stays so, and waking it is paid once.
"""

from __future__ import annotations

from anycann.runtime.row_units import UNITS_IR

CALLER_SHARE = 4  # of the spin of a worker: who waits longer than that waits for a thread that lost its processor, and lends it its own
REST_NS = 1_000_000  # of a worker beside the caller: waking it costs the caller some us, and short networks end before
SPELL_NS, GAP_NS = 500_000, 100_000
PROCESSOR_BYTES = 128  # of the system's set of processors: 1024 of them; where there are more, a worker stays where it is put
# of the kind of a row: whether it lets workers sleep, whether its kernel resumes, and from where on the numbers of units stand, of all that
# are wanted, and of those that a thread keeps
LETS_SLEEP_BIT, RESUMES_BIT, UNITS_BIT, KEPT_BIT = 6, 7, 8, 40
MOST_UNITS_WANTED, MOST_UNITS_KEPT = (1 << KEPT_BIT - UNITS_BIT) - 1, (1 << 63 - KEPT_BIT) - 1
MOST_UNITS = 32  # of a thread; a number of a unit has 16 bits, and there are at most 1024 threads


def fork_join_ir() -> str:
    """`@anycann_worker(ptr pool, i64 id)`, which returns when the pool stops, and `@fork_join(pool, fn, args, tasks, kind, scratch)`.

    `$NAME$` stands for what dispatch.py fills in.
    """
    worker = _WORKER.replace("$SPIN_OR_SLEEP$", _spin_or("sleep")).replace("$REST_NS$", str(REST_NS))
    caller = _FORK_JOIN.replace("$SPIN_OR_SLEEP$", _spin_or("announce"))
    for name, number in (
        ("$CALLER_SHARE$", CALLER_SHARE),
        ("$MOST_UNITS$", MOST_UNITS),
        ("$SPELL_NS$", SPELL_NS),
        ("$GAP_NS$", GAP_NS),
        ("$LETS_SLEEP_BIT$", LETS_SLEEP_BIT),
        ("$RESUMES_BIT$", RESUMES_BIT),
        ("$UNITS_BIT$", UNITS_BIT),
        ("$KEPT_BIT$", KEPT_BIT),
        ("$WANTED_MASK$", MOST_UNITS_WANTED),
    ):
        caller = caller.replace(name, str(number))
    text = "\n".join((*UNITS_IR, _PROCESSOR, worker, caller))
    return text.replace("$PROCESSORS$", str(8 * PROCESSOR_BYTES)).replace("$PROCESSOR_BYTES$", str(PROCESSOR_BYTES))


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


# the number of the processor that this thread is on, plus one: 0 if the system does not say; and whether a worker is on the caller's and
# cannot leave it for another of the `allowed`, the system's set of processors
_PROCESSOR = """
define internal i32 @processor() alwaysinline {
  %number = call i32 @sched_getcpu()
  %name = add i32 %number, 1
  ret i32 %name
}
define internal i1 @in_the_way(ptr %pool, ptr %allowed) {
entry:
  %caller_at = $CALLER_PROCESSOR$
  %caller = load atomic i32, ptr %caller_at monotonic, align 4
  %own = call i32 @processor()
  %same = icmp eq i32 %own, %caller
  %number = sub i32 %own, 1
  %named = icmp ult i32 %number, $PROCESSORS$
  %beside = and i1 %same, %named
  br i1 %beside, label %leave, label %out
leave:
  %byte = lshr i32 %number, 3
  %at = getelementptr i8, ptr %allowed, i32 %byte
  %place = and i32 %number, 7
  %wide_bit = shl i32 1, %place
  %bit = trunc i32 %wide_bit to i8
  %before = load i8, ptr %at
  %without = xor i8 %bit, -1
  %others = and i8 %before, %without
  store i8 %others, ptr %at
  %result = call i64 (i64, ...) $SET_PROCESSORS$, i64 0, i64 $PROCESSOR_BYTES$, ptr %allowed)
  store i8 %before, ptr %at
  %stays = icmp ne i64 %result, 0
  br label %out
out:
  %in_the_way = phi i1 [ false, %entry ], [ %stays, %leave ]
  ret i1 %in_the_way
}
"""

_WORKER = """
@rest = internal constant [2 x i64] [i64 0, i64 $REST_NS$]
define void @anycann_worker(ptr %pool, i64 %id) {
entry:
  %epoch_at = $EPOCH$
  %stop_at = $STOP$
  %threads_at = $THREADS$
  %spin_at = $SPIN$
  %scratch_at = $SCRATCH$
  %stride_at = $STRIDE$
  %sleepers_at = $SLEEPERS$
  %spin_limit = load i32, ptr %spin_at
  %mode = call i64 @flush_denormals()
  %allowed = alloca [$PROCESSOR_BYTES$ x i8]
  store [$PROCESSOR_BYTES$ x i8] zeroinitializer, ptr %allowed
  %e = call i64 (i64, ...) $GET_PROCESSORS$, i64 0, i64 $PROCESSOR_BYTES$, ptr %allowed)
  br label %wait
wait:
  %seen = phi i32 [ 0, %entry ], [ %seen, %spin ], [ %seen, %sleep ], [ %seen, %rest ], [ %epoch, %run ]
  %spins = phi i32 [ 0, %entry ], [ %more_spins, %spin ], [ 0, %sleep ], [ 0, %rest ], [ 0, %run ]
  %rested = phi i32 [ 0, %entry ], [ %rested, %spin ], [ %rested, %sleep ], [ %epoch, %rest ], [ %rested, %run ]
  %epoch = load atomic i32, ptr %epoch_at acquire, align 4
  %moved = icmp ne i32 %epoch, %seen
  br i1 %moved, label %go, label %look
look:
  %waits_in_the_way = call i1 @in_the_way(ptr %pool, ptr %allowed)
  br i1 %waits_in_the_way, label %sleep, label %idle
$SPIN_OR_SLEEP$sleep:
  %a = atomicrmw add ptr %sleepers_at, i32 1 seq_cst
  %seen_long = zext i32 %seen to i64
  %b = call i64 (i64, ...) $FUTEX$, ptr %epoch_at, i64 128, i64 %seen_long, ptr null, ptr null, i64 0)
  %c = atomicrmw sub ptr %sleepers_at, i32 1 seq_cst
  br label %wait
go:
  %stop = load atomic i32, ptr %stop_at monotonic, align 4
  %leave = icmp ne i32 %stop, 0
  br i1 %leave, label %out, label %place
place:
  %in_the_way = call i1 @in_the_way(ptr %pool, ptr %allowed)
  %just_begun = icmp ne i32 %epoch, %rested
  %rests = and i1 %in_the_way, %just_begun
  br i1 %rests, label %rest, label %run
rest:
  %d = call i64 (i64, ...) $FUTEX$, ptr %stop_at, i64 128, i64 0, ptr @rest, ptr null, i64 0)
  br label %wait
run:
  %threads_short = load i32, ptr %threads_at
  %threads = zext i32 %threads_short to i64
  %all_scratch = load ptr, ptr %scratch_at
  %stride = load i64, ptr %stride_at
  %offset = mul i64 %stride, %id
  %scratch = getelementptr i8, ptr %all_scratch, i64 %offset
  call void @work(ptr %pool, i32 %epoch, i64 %id, i64 %threads, ptr %scratch)
  br label %wait
out:
  ret void
}
"""

# whether rows that let workers sleep have followed each other for long, this one being the next
_FORK_JOIN = """
define internal i1 @spell_is_long(ptr %pool) {
  %began_at = $SPELL_BEGAN$
  %seen_at = $SPELL_SEEN$
  %now = call i64 @now()
  %seen = load i64, ptr %seen_at
  %gap = sub i64 %now, %seen
  %anew = icmp sgt i64 %gap, $GAP_NS$
  %before = load i64, ptr %began_at
  %began = select i1 %anew, i64 %now, i64 %before
  store i64 %now, ptr %seen_at
  store i64 %began, ptr %began_at
  %length = sub i64 %now, %began
  %long = icmp ugt i64 %length, $SPELL_NS$
  ret i1 %long
}

define internal void @fork_join(ptr %pool, ptr %fn, ptr %args, i64 %tasks, i64 %kind, ptr %scratch) {
entry:
  %epoch_at = $EPOCH$
  %threads_at = $THREADS$
  %spin_at = $SPIN$
  %fn_at = $FN$
  %args_at = $ARGS$
  %tasks_at = $TASKS$
  %units_at = $UNITS$
  %resumes_at = $RESUMES$
  %done_at = $DONE$
  %caller_sleeps_at = $CALLER_SLEEPS$
  %sleepers_at = $SLEEPERS$
  %ranges_at = $RANGES$
  %threads_short = load i32, ptr %threads_at
  %workers = sub i32 %threads_short, 1
  %now_asleep = load atomic i32, ptr %sleepers_at monotonic, align 4
  %all_asleep = icmp uge i32 %now_asleep, %workers
  %sleep_flag = lshr i64 %kind, $LETS_SLEEP_BIT$
  %lets_sleep = trunc i64 %sleep_flag to i1
  %may_be_alone = and i1 %all_asleep, %lets_sleep
  br i1 %may_be_alone, label %ask, label %share
ask:
  %is_long = call i1 @spell_is_long(ptr %pool)
  br i1 %is_long, label %share, label %whole
whole:
  call void %fn(ptr %args, i64 0, i64 %tasks, ptr %scratch)
  br label %out
share:
  %wakes_none = phi i1 [ %lets_sleep, %entry ], [ false, %ask ]
  %threads = zext i32 %threads_short to i64
  %workers_long = zext i32 %workers to i64
  %most_units = mul i64 %threads, $MOST_UNITS$
  %wanted_high = lshr i64 %kind, $UNITS_BIT$
  %wanted = and i64 %wanted_high, $WANTED_MASK$
  %up = add i64 %wanted, %workers_long
  %each = udiv i64 %up, %threads
  %shares = mul i64 %each, %threads
  %least = call i64 @llvm.umax.i64(i64 %shares, i64 %threads)
  %fitting = call i64 @llvm.umin.i64(i64 %least, i64 %most_units)
  %units = call i64 @llvm.umin.i64(i64 %fitting, i64 %tasks)
  store ptr %fn, ptr %fn_at
  store ptr %args, ptr %args_at
  store i64 %tasks, ptr %tasks_at
  %all_units = trunc i64 %units to i32
  store i32 %all_units, ptr %units_at
  %kind_short = trunc i64 %kind to i32
  %flag = lshr i32 %kind_short, $RESUMES_BIT$
  %resumes = and i32 %flag, 1
  %kept_of_wanted = lshr i64 %kind, $KEPT_BIT$
  %kept_units = mul i64 %kept_of_wanted, %units
  %divisor = call i64 @llvm.umax.i64(i64 %wanted, i64 1)
  %kept = udiv i64 %kept_units, %divisor
  %kept_short = trunc i64 %kept to i32
  %kept_high = shl i32 %kept_short, 1
  %resumes_and_kept = or i32 %kept_high, %resumes
  store i32 %resumes_and_kept, ptr %resumes_at
  store atomic i32 0, ptr %done_at monotonic, align 4
  store atomic i32 0, ptr %caller_sleeps_at monotonic, align 4
  %processor_at = $CALLER_PROCESSOR$
  %processor_before = load atomic i32, ptr %processor_at monotonic, align 4
  %processor = call i32 @processor()
  %stays = icmp eq i32 %processor, %processor_before
  br i1 %stays, label %begin, label %move
move:
  store atomic i32 %processor, ptr %processor_at monotonic, align 4
  br label %begin
begin:
  %old = load atomic i32, ptr %epoch_at monotonic, align 4
  %epoch = add i32 %old, 1
  %epoch_long = zext i32 %epoch to i64
  %epoch_high = shl i64 %epoch_long, 32
  br label %deal
deal:
  %id = phi i64 [ 0, %begin ], [ %next_id, %deal ]
  %first = phi i64 [ 0, %begin ], [ %behind, %deal ]
  %next_id = add i64 %id, 1
  %behind = call i64 @first_of(i64 %units, i64 %next_id, i64 %threads)
  %first_high = shl i64 %first, 16
  %bounds = or i64 %first_high, %behind
  %range = or i64 %epoch_high, %bounds
  %offset = shl i64 %id, 6
  %range_at = getelementptr i8, ptr %ranges_at, i64 %offset
  store atomic i64 %range, ptr %range_at release, align 8
  %more = icmp ult i64 %next_id, %threads
  br i1 %more, label %deal, label %publish
publish:
  %a = atomicrmw add ptr %epoch_at, i32 1 seq_cst
  %sleepers = load atomic i32, ptr %sleepers_at seq_cst, align 4
  %any = icmp ne i32 %sleepers, 0
  %wakes = xor i1 %wakes_none, true
  %must_wake = and i1 %any, %wakes
  br i1 %must_wake, label %wake, label %own
wake:
  %b = call i64 (i64, ...) $FUTEX$, ptr %epoch_at, i64 129, i64 2147483647, ptr null, ptr null, i64 0)
  br label %own
own:
  call void @work(ptr %pool, i32 %epoch, i64 0, i64 %threads, ptr %scratch)
  %worker_spin = load i32, ptr %spin_at
  %spin_limit = udiv i32 %worker_spin, $CALLER_SHARE$
  br label %wait
wait:
  %spins = phi i32 [ 0, %own ], [ %more_spins, %spin ]
  %done = load atomic i32, ptr %done_at acquire, align 4
  %all = icmp eq i32 %done, %all_units
  br i1 %all, label %out, label %idle
$SPIN_OR_SLEEP$announce:
  store atomic i32 1, ptr %caller_sleeps_at seq_cst, align 4
  br label %check
check:
  %done_now = load atomic i32, ptr %done_at seq_cst, align 4
  %all_now = icmp eq i32 %done_now, %all_units
  br i1 %all_now, label %out, label %sleep
sleep:
  %done_long = zext i32 %done_now to i64
  %c = call i64 (i64, ...) $FUTEX$, ptr %done_at, i64 128, i64 %done_long, ptr null, ptr null, i64 0)
  br label %check
out:
  ret void
}
"""
