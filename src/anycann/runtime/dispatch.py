"""The native side of the thread pool, as LLVM IR: `run` launches a whole table of kernels, `fork_join.py` splits one over the threads.

A row of the table is `{ptr fn, ptr args, i64 tasks, i64 kind}`, `fn` a kernel `void(ptr args, i64 begin, i64 end, ptr scratch)`. A row of
several tasks is split over the threads, in as many units as `split` said, rounded up to the same number for each thread as far as there are
tasks; unit `i` of `n` is the tasks from ceil(tasks * i / n). Any other row runs on the caller. Rows of other kinds (`Row`) lead to other
rows, so that an If runs in the same call as what comes before and after it.

`call` is `run` with everything in one block, and binds the arrays of this run first: a patch `{i64 number, i64 position, i64 offset}` makes
`pointers[position]` the address of the elements of array `number`, an object of numpy's, plus `offset`. `calls` is that of several blocks,
one after the other.
"""

from __future__ import annotations

import enum

from anycann.runtime import memory
from anycann.runtime.denormals import denormals_ir
from anycann.runtime.direct_ir import direct_ir
from anycann.runtime.fork_join import (
    KEPT_BIT,
    LETS_SLEEP_BIT,
    MOST_UNITS_KEPT,
    MOST_UNITS_WANTED,
    RESUMES_BIT,
    UNITS_BIT,
    fork_join_ir,
)
from anycann.runtime.join_ir import COPIES_IR
from anycann.runtime.pool_layout import Field
from anycann.runtime.turn_ir import turn_ir
from anycann.support.errors import UnsupportedError
from anycann.target.target import Target

ROW_BYTES = 32
PATCH_BYTES = 24
KIND_BITS = (1 << LETS_SLEEP_BIT) - 1  # of the kind of a row: its `Row`


class Row(enum.IntEnum):
    """What a row does. `tasks` of CHOICE and JUMP is the number of another row; `args` of CHOICE begins with the address of a bool."""

    SPLIT = 0
    INLINE = 1  # is not split, however many tasks it has
    CHOICE = 2  # goes on with the next row if the bool is true, with the named one if not
    JUMP = 3
    STOP = 4  # ends the run: what comes now is not in the table


def split(units: int, resumes: bool = False, kept: int = 0) -> int:
    """The kind of a row that is split into so many units, where it has the tasks and the threads enough for them.

    resumes: a call that begins where the thread's last one ended is told so by the lowest bit of `scratch` (`codegen/resuming.py`).
    kept: where a thread that has begun has fewer of these units left, others take none of them. Both numbers are cut to what a row has
    room for.
    """
    units, kept = min(units, MOST_UNITS_WANTED), min(kept, MOST_UNITS_KEPT)
    return Row.SPLIT | resumes << RESUMES_BIT | units << UNITS_BIT | kept << KEPT_BIT


class Block(enum.IntEnum):
    """What `call` is given, int64 each, by number; from ARRAYS on, the arrays."""

    TABLE = 0
    ROWS = 1
    SCRATCH = 2
    STRIDE = 3
    POINTERS = 4
    PATCHES = 5
    PATCH_COUNT = 6
    ARRAYS = 7


def dispatch_ir(target: Target) -> str:
    """The module with `anycann_worker`, `anycann_run`, `anycann_call`, `anycann_calls`, `anycann_direct`, `anycann_stop`, and kernels:
    `anycann_copy`, `anycann_join` and those of `turn_ir`.

    Raises UnsupportedError for a system without futex.
    """
    if "linux" not in target.triple:
        raise UnsupportedError(f"the thread pool needs Linux (futex); the target is {target.triple}")
    entries = (_RUN, _ENTRY, _CALL, _CALLS, direct_ir(Block.ARRAYS), _STOP)
    text = "\n".join((_HEAD, denormals_ir(target), fork_join_ir(), *entries, COPIES_IR, turn_ir()))
    for field in Field:
        text = text.replace(f"${field.name}$", f"getelementptr i8, ptr %pool, i64 {field.value}")
    for name, value in _instructions(target).items():
        text = text.replace(f"${name}$", value)
    return text


def _instructions(target: Target) -> dict[str, str]:
    """What the processor calls a pause, the system a futex, and this file a kind of row."""
    words = {f"ROW_{kind.name}": str(kind.value) for kind in Row} | {
        "ELEMENTS": str(memory.POINTER_OFFSET),
        "PATCH": str(PATCH_BYTES),
        "KIND_BITS": str(KIND_BITS),
    }
    words["BLOCK_FIELDS"] = "\n".join(_field(field) for field in Block)
    if target.is_x86:
        pause, pause_type, numbers = "@llvm.x86.sse2.pause()", "@llvm.x86.sse2.pause()", (202, 203, 204)
    else:
        pause, pause_type, numbers = "@llvm.aarch64.hint(i32 1)", "@llvm.aarch64.hint(i32)", (98, 122, 123)
    calls = dict(zip(("FUTEX", "SET_PROCESSORS", "GET_PROCESSORS"), (f"@syscall(i64 {number}" for number in numbers), strict=True))
    return words | {"PAUSE": pause, "PAUSE_TYPE": pause_type} | calls


def _field(field: Block) -> str:
    """What a block has there, and where, by name."""
    name, kind = field.name.lower(), "ptr" if field in (Block.TABLE, Block.SCRATCH, Block.POINTERS, Block.PATCHES) else "i64"
    place = f"  %{name}_at = getelementptr i64, ptr %block, i64 {field.value}"
    return place if field is Block.ARRAYS else f"{place}\n  %{name} = load {kind}, ptr %{name}_at"


_HEAD = """
declare void $PAUSE_TYPE$
declare i64 @syscall(i64, ...)
declare i32 @sched_getcpu()
declare i32 @clock_gettime(i32, ptr)
declare ptr @memcpy(ptr, ptr, i64)
"""

_ENTRY = """
define i64 @anycann_run(ptr %pool, ptr %table, i64 %rows, ptr %scratch, i64 %stride, ptr %times) {
  %mode = call i64 @flush_denormals()
  %end = call i64 @run_rows(ptr %pool, ptr %table, i64 %rows, ptr %scratch, i64 %stride, ptr %times)
  call void @restore_denormals(i64 %mode)
  ret i64 %end
}
"""

_RUN = """
define internal i64 @now() {
  %moment = alloca [2 x i64]
  %a = call i32 @clock_gettime(i32 1, ptr %moment)
  %seconds = load i64, ptr %moment
  %rest_at = getelementptr i64, ptr %moment, i64 1
  %rest = load i64, ptr %rest_at
  %scaled = mul i64 %seconds, 1000000000
  %now = add i64 %scaled, %rest
  ret i64 %now
}

define internal void @stamp(ptr %times, i64 %row) {
  %wanted = icmp ne ptr %times, null
  br i1 %wanted, label %write, label %out
write:
  %now = call i64 @now()
  %at = getelementptr i64, ptr %times, i64 %row
  store i64 %now, ptr %at
  br label %out
out:
  ret void
}

define internal i64 @run_rows(ptr %pool, ptr %table, i64 %rows, ptr %scratch, i64 %stride, ptr %times) {
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
  %ours = phi i1 [ false, %entry ], [ false, %try_lock ], [ true, %lease ], [ %ours, %next ], [ %ours, %jump ]
  %i = phi i64 [ 0, %entry ], [ 0, %try_lock ], [ 0, %lease ], [ %i_next, %next ], [ %i_jump, %jump ]
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
  %kind_at = getelementptr i8, ptr %row_at, i64 24
  %kind_and_units = load i64, ptr %kind_at
  %kind = and i64 %kind_and_units, $KIND_BITS$
  %i_next = add i64 %i, 1
  switch i64 %kind, label %finish [
    i64 $ROW_SPLIT$, label %kernel
    i64 $ROW_INLINE$, label %alone
    i64 $ROW_CHOICE$, label %choice
    i64 $ROW_JUMP$, label %jump
  ]
choice:
  %bool_at = load ptr, ptr %args
  %bool = load i8, ptr %bool_at
  %holds = icmp ne i8 %bool, 0
  %chosen = select i1 %holds, i64 %i_next, i64 %tasks
  br label %jump
jump:
  %i_jump = phi i64 [ %tasks, %launch ], [ %chosen, %choice ]
  br label %row
kernel:
  %splittable = icmp sgt i64 %tasks, 1
  %parallel = and i1 %splittable, %ours
  br i1 %parallel, label %shared, label %alone
shared:
  call void @fork_join(ptr %pool, ptr %fn, ptr %args, i64 %tasks, i64 %kind_and_units, ptr %scratch)
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
  ret i64 %i
}
"""

_CALL = """
define i64 @anycann_call(ptr %pool, ptr %block) {
entry:
$BLOCK_FIELDS$
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i_next, %bind ]
  %more = icmp ult i64 %i, %patch_count
  br i1 %more, label %bind, label %bound
bind:
  %skipped = mul i64 %i, $PATCH$
  %number_at = getelementptr i8, ptr %patches, i64 %skipped
  %number = load i64, ptr %number_at
  %position_at = getelementptr i64, ptr %number_at, i64 1
  %position = load i64, ptr %position_at
  %offset_at = getelementptr i64, ptr %number_at, i64 2
  %offset = load i64, ptr %offset_at
  %array_at = getelementptr ptr, ptr %arrays_at, i64 %number
  %array = load ptr, ptr %array_at
  %elements_at = getelementptr i8, ptr %array, i64 $ELEMENTS$
  %elements = load ptr, ptr %elements_at
  %address = getelementptr i8, ptr %elements, i64 %offset
  %pointer_at = getelementptr ptr, ptr %pointers, i64 %position
  store ptr %address, ptr %pointer_at
  %i_next = add i64 %i, 1
  br label %next
bound:
  %end = call i64 @anycann_run(ptr %pool, ptr %table, i64 %rows, ptr %scratch, i64 %stride, ptr null)
  ret i64 %end
}
"""

_CALLS = """
define void @anycann_calls(ptr %pool, ptr %blocks, i64 %count) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i_next, %call ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %call, label %out
call:
  %block_at = getelementptr ptr, ptr %blocks, i64 %i
  %block = load ptr, ptr %block_at
  %end = call i64 @anycann_call(ptr %pool, ptr %block)
  %i_next = add i64 %i, 1
  br label %next
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
