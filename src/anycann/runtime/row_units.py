"""LLVM IR of the units of a row: how threads cut the tasks of one kernel, take them and run them.

The tasks are cut into units. Every thread has an equal range of them and takes half of what is left of it, from the front, until nothing
is: it mostly computes what it computed of the row before, which its cache still has. Then it takes half of what is left of another's, from
the back. So a thread whose processor is slower, interrupted, or still asleep (waking one took 0.1 ms and more on a virtual machine) keeps
nobody waiting for more than what it has begun. Where beginning elsewhere costs something a thread that has begun keeps what is left when it
is less than some units: taking it would cost more than waiting for it.

`RANGES` holds for each thread, in a line of its own, the epoch, the first unit that nobody took and the one behind the last; all threads
change it by compare and exchange. A range of another epoch gives nothing, and as long as a unit is not taken or not done the caller stays,
so what a worker reads after it took some is the row that they are of. To a kernel that `resumes` (`codegen/resuming.py`) the lowest bit of
the address of the scratch memory says that the units lie behind those of the thread's last call.
"""

from __future__ import annotations

# where part `id` of `parts` begins, of `all` things
_FIRST = """
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
define internal i64 @first_of(i64 %all, i64 %id, i64 %parts) alwaysinline {
  %product = mul i64 %all, %id
  %less_one = sub i64 %parts, 1
  %up = add i64 %product, %less_one
  %first = udiv i64 %up, %parts
  ret i64 %first
}
"""

# half of what is left of a range, from the front or the back: the first unit * 65536 + the one behind the last, or 0. Of less than `kept`
# units none is taken, unless the range still begins at its `initial` unit
_TAKE = """
define internal i64 @take(ptr %range_at, i32 %epoch, i1 %front, i64 %kept, i64 %initial) alwaysinline {
entry:
  br label %look
look:
  %range = load atomic i64, ptr %range_at acquire, align 8
  %high = lshr i64 %range, 32
  %of = trunc i64 %high to i32
  %current = icmp eq i32 %of, %epoch
  %middle = lshr i64 %range, 16
  %first = and i64 %middle, 65535
  %stop = and i64 %range, 65535
  %left = icmp ult i64 %first, %stop
  %count = sub i64 %stop, %first
  %enough = icmp uge i64 %count, %kept
  %whole = icmp eq i64 %first, %initial
  %allowed = or i1 %enough, %whole
  %some = and i1 %left, %allowed
  %free = and i1 %current, %some
  br i1 %free, label %take, label %none
take:
  %up = add i64 %count, 1
  %half = lshr i64 %up, 1
  %later = add i64 %first, %half
  %earlier = sub i64 %stop, %half
  %moved = shl i64 %half, 16
  %from_front = add i64 %range, %moved
  %from_back = sub i64 %range, %half
  %rest = select i1 %front, i64 %from_front, i64 %from_back
  %begin = select i1 %front, i64 %first, i64 %earlier
  %end = select i1 %front, i64 %later, i64 %stop
  %exchange = cmpxchg ptr %range_at, i64 %range, i64 %rest acq_rel monotonic
  %taken = extractvalue { i64, i1 } %exchange, 1
  br i1 %taken, label %out, label %look
none:
  ret i64 0
out:
  %begin_high = shl i64 %begin, 16
  %both = or i64 %begin_high, %end
  ret i64 %both
}
"""

_RUN_UNITS = """
define internal void @run_units(ptr %pool, i64 %first, i64 %stop, i1 %goes_on, ptr %scratch) alwaysinline {
  %fn_at = $FN$
  %args_at = $ARGS$
  %tasks_at = $TASKS$
  %units_at = $UNITS$
  %fn = load ptr, ptr %fn_at
  %args = load ptr, ptr %args_at
  %tasks = load i64, ptr %tasks_at
  %units_short = load i32, ptr %units_at
  %units = zext i32 %units_short to i64
  %resumes_at = $RESUMES$
  %resumes_and_kept = load i32, ptr %resumes_at
  %resumes = and i32 %resumes_and_kept, 1
  %told = select i1 %goes_on, i32 %resumes, i32 0
  %marked = getelementptr i8, ptr %scratch, i32 %told
  %begin = call i64 @first_of(i64 %tasks, i64 %first, i64 %units)
  %end = call i64 @first_of(i64 %tasks, i64 %stop, i64 %units)
  call void %fn(ptr %args, i64 %begin, i64 %end, ptr %marked)
  ret void
}
"""

_WORK = """
define internal void @work(ptr %pool, i32 %epoch, i64 %id, i64 %threads, ptr %scratch) {
entry:
  %done_at = $DONE$
  %caller_sleeps_at = $CALLER_SLEEPS$
  %ranges_at = $RANGES$
  %units_at = $UNITS$
  %all_short = load i32, ptr %units_at
  %all_units = zext i32 %all_short to i64
  %resumes_at = $RESUMES$
  %resumes_and_kept = load i32, ptr %resumes_at
  %kept_short = lshr i32 %resumes_and_kept, 1
  %kept_of_others = zext i32 %kept_short to i64
  br label %thread
thread:
  %distance = phi i64 [ 0, %entry ], [ %further, %next ]
  %sum = add i64 %id, %distance
  %wraps = icmp uge i64 %sum, %threads
  %wrapped = sub i64 %sum, %threads
  %of = select i1 %wraps, i64 %wrapped, i64 %sum
  %offset = shl i64 %of, 6
  %range_at = getelementptr i8, ptr %ranges_at, i64 %offset
  %own = icmp eq i64 %distance, 0
  %kept = select i1 %own, i64 0, i64 %kept_of_others
  %initial = call i64 @first_of(i64 %all_units, i64 %of, i64 %threads)
  br label %again
again:
  %count = phi i64 [ 0, %thread ], [ %more, %run ]
  %both = call i64 @take(ptr %range_at, i32 %epoch, i1 %own, i64 %kept, i64 %initial)
  %some = icmp ne i64 %both, 0
  br i1 %some, label %run, label %exhausted
run:
  %first = lshr i64 %both, 16
  %ran = icmp ne i64 %count, 0
  %goes_on = and i1 %own, %ran
  %stop = and i64 %both, 65535
  call void @run_units(ptr %pool, i64 %first, i64 %stop, i1 %goes_on, ptr %scratch)
  %units = sub i64 %stop, %first
  %more = add i64 %count, %units
  br label %again
exhausted:
  %any = icmp ne i64 %count, 0
  br i1 %any, label %report, label %next
report:
  %count_short = trunc i64 %count to i32
  %before = atomicrmw add ptr %done_at, i32 %count_short seq_cst
  %caller_sleeps = load atomic i32, ptr %caller_sleeps_at seq_cst, align 4
  %must_wake = icmp ne i32 %caller_sleeps, 0
  br i1 %must_wake, label %wake_caller, label %next
wake_caller:
  %a = call i64 (i64, ...) $FUTEX$, ptr %done_at, i64 129, i64 1, ptr null, ptr null, i64 0)
  br label %next
next:
  %further = add i64 %distance, 1
  %others = icmp ult i64 %further, %threads
  br i1 %others, label %thread, label %out
out:
  ret void
}
"""

# `@first_of`, and what the caller and the workers of `fork_join.py` call: `@work(pool, epoch, id, threads, scratch)`
UNITS_IR = (_FIRST, _TAKE, _RUN_UNITS, _WORK)
