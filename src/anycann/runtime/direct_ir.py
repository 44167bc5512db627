"""The native side of `direct_call.py`, as LLVM IR: checks feeds, makes results, runs `anycann_call` without the interpreter's lock."""

from __future__ import annotations

from anycann.runtime.direct_call import PLAIN, Array, Description, Facts, Port


def direct_ir(arrays: int) -> str:
    """`ptr @anycann_direct(ptr facts, ptr feeds)`, a function of one argument by the interpreter's C interface; facts: an array of numpy's.

    arrays: where the arrays begin in a block.
    """
    text = _DIRECT
    words = {f"ARRAY_{part.name}": str(part.value) for part in Array} | {f"PORT_{part.name}": str(part.value) for part in Port}
    words |= {f"DTYPE_{part.name}": str(part.value) for part in Description}
    words |= {"PORTS": str(Facts.PORTS.value), "PORT_WORDS": str(len(Port)), "ARRAYS": str(arrays), "PLAIN": str(PLAIN)}
    words |= {f"FACT_{fact.name}": _fact(fact) for fact in Facts if fact is not Facts.PORTS}
    for name, value in words.items():
        text = text.replace(f"${name}$", value)
    return text


_NUMBERS = (Facts.ROWS, Facts.INPUTS, Facts.OUTPUTS, Facts.BUSY, Facts.CALLS)


def _fact(fact: Facts) -> str:
    """Loads a fact into a register of its name; the address stays in one with `_at`."""
    name, kind = fact.name.lower(), "i64" if fact in _NUMBERS else "ptr"
    return f"  %{name}_at = getelementptr i64, ptr %facts, i64 {fact.value}\n  %{name} = load {kind}, ptr %{name}_at"


_DIRECT = """
define ptr @anycann_direct(ptr %self, ptr %feeds) {
entry:
  %facts_at = getelementptr i8, ptr %self, i64 $ARRAY_ELEMENTS$
  %facts = load ptr, ptr %facts_at
$FACT_POOL$
$FACT_READY$
$FACT_BLOCK$
$FACT_ROWS$
$FACT_INPUTS$
$FACT_OUTPUTS$
$FACT_WATCHED$
$FACT_BUSY$
$FACT_CALLS$
$FACT_DICT_TYPE$
$FACT_ARRAY_TYPE$
$FACT_NONE$
$FACT_COUNT$
$FACT_ITEM$
$FACT_CLEAR$
$FACT_LIST$
$FACT_PUT$
$FACT_MAKE$
$FACT_HOLD$
$FACT_DROP$
$FACT_LEAVE$
$FACT_ENTER$
  %ports = getelementptr i64, ptr %facts, i64 $PORTS$
  %port_words = mul i64 %inputs, $PORT_WORDS$
  %makers = getelementptr i64, ptr %ports, i64 %port_words
  %arrays = getelementptr i64, ptr %block, i64 $ARRAYS$
  %results = getelementptr i64, ptr %arrays, i64 %inputs
  %type_at = getelementptr i8, ptr %feeds, i64 $ARRAY_TYPE$
  %type = load ptr, ptr %type_at
  %is_dict = icmp eq ptr %type, %dict_type
  %started = load i32, ptr %ready
  %is_started = icmp ne i32 %started, 0
  %observers = load i64, ptr %watched
  %unseen = icmp eq i64 %observers, 0
  %free = icmp eq i64 %busy, 0
  %a = and i1 %is_dict, %is_started
  %b = and i1 %unseen, %free
  %c = and i1 %a, %b
  br i1 %c, label %taken, label %left
taken:
  store i64 1, ptr %busy_at
  %feed_count = call i64 %count(ptr %feeds)
  %complete = icmp eq i64 %feed_count, %inputs
  br i1 %complete, label %input, label %other_names
input:
  %i = phi i64 [ 0, %taken ], [ %i_next, %accept ]
  %more = icmp ult i64 %i, %inputs
  br i1 %more, label %find, label %accepted
find:
  %port_word = mul i64 %i, $PORT_WORDS$
  %port = getelementptr i64, ptr %ports, i64 %port_word
  %name_at = getelementptr i64, ptr %port, i64 $PORT_NAME$
  %name = load ptr, ptr %name_at
  %feed = call ptr %item(ptr %feeds, ptr %name)
  %missing = icmp eq ptr %feed, null
  br i1 %missing, label %forget, label %check
forget:
  call void %clear()
  br label %other
check:
  %feed_type_at = getelementptr i8, ptr %feed, i64 $ARRAY_TYPE$
  %feed_type = load ptr, ptr %feed_type_at
  %is_array = icmp eq ptr %feed_type, %array_type
  br i1 %is_array, label %check_array, label %other
check_array:
  %wanted_at = getelementptr i64, ptr %port, i64 $PORT_DTYPE$
  %wanted = load ptr, ptr %wanted_at
  %dtype_at = getelementptr i8, ptr %feed, i64 $ARRAY_DTYPE$
  %dtype = load ptr, ptr %dtype_at
  %class_at = getelementptr i8, ptr %dtype, i64 $DTYPE_TYPE$
  %class = load ptr, ptr %class_at
  %wanted_class_at = getelementptr i8, ptr %wanted, i64 $DTYPE_TYPE$
  %wanted_class = load ptr, ptr %wanted_class_at
  %same_class = icmp eq ptr %class, %wanted_class
  %order_at = getelementptr i8, ptr %dtype, i64 $DTYPE_ORDER$
  %order = load i8, ptr %order_at
  %wanted_order_at = getelementptr i8, ptr %wanted, i64 $DTYPE_ORDER$
  %wanted_order = load i8, ptr %wanted_order_at
  %same_order = icmp eq i8 %order, %wanted_order
  %same_dtype = and i1 %same_class, %same_order
  %flags_at = getelementptr i8, ptr %feed, i64 $ARRAY_FLAGS$
  %flags = load i32, ptr %flags_at
  %how = and i32 %flags, $PLAIN$
  %plain = icmp eq i32 %how, $PLAIN$
  %rank_at = getelementptr i8, ptr %feed, i64 $ARRAY_RANK$
  %rank_word = load i32, ptr %rank_at
  %rank = zext i32 %rank_word to i64
  %wanted_rank_at = getelementptr i64, ptr %port, i64 $PORT_RANK$
  %wanted_rank = load i64, ptr %wanted_rank_at
  %same_rank = icmp eq i64 %rank, %wanted_rank
  %d = and i1 %same_dtype, %plain
  %e = and i1 %d, %same_rank
  %sizes_at = getelementptr i8, ptr %feed, i64 $ARRAY_SIZES$
  %sizes = load ptr, ptr %sizes_at
  %wanted_sizes_at = getelementptr i64, ptr %port, i64 $PORT_SIZES$
  %wanted_sizes = load ptr, ptr %wanted_sizes_at
  br i1 %e, label %axis, label %other
axis:
  %j = phi i64 [ 0, %check_array ], [ %j_next, %compare ]
  %some_axis = icmp ult i64 %j, %rank
  br i1 %some_axis, label %compare, label %accept
compare:
  %size_at = getelementptr i64, ptr %sizes, i64 %j
  %extent = load i64, ptr %size_at
  %wanted_size_at = getelementptr i64, ptr %wanted_sizes, i64 %j
  %wanted_extent = load i64, ptr %wanted_size_at
  %same_extent = icmp eq i64 %extent, %wanted_extent
  %j_next = add i64 %j, 1
  br i1 %same_extent, label %axis, label %other
accept:
  call void %hold(ptr %feed)
  %slot = getelementptr ptr, ptr %arrays, i64 %i
  store ptr %feed, ptr %slot
  %i_next = add i64 %i, 1
  br label %input
accepted:
  %calls_next = add i64 %calls, 1
  store i64 %calls_next, ptr %calls_at
  %answers = call ptr %list(i64 %outputs)
  %no_list = icmp eq ptr %answers, null
  br i1 %no_list, label %release, label %output
output:
  %o = phi i64 [ 0, %accepted ], [ %o_next, %made ]
  %o_more = icmp ult i64 %o, %outputs
  br i1 %o_more, label %make_one, label %run
make_one:
  %maker_at = getelementptr ptr, ptr %makers, i64 %o
  %maker = load ptr, ptr %maker_at
  %array = call ptr %make(ptr %maker)
  %not_made = icmp eq ptr %array, null
  br i1 %not_made, label %give_up, label %made
made:
  %result_at = getelementptr ptr, ptr %results, i64 %o
  store ptr %array, ptr %result_at
  %put_status = call i32 %put(ptr %answers, i64 %o, ptr %array)
  %o_next = add i64 %o, 1
  br label %output
give_up:
  call void %drop(ptr %answers)
  br label %release
run:
  %thread = call ptr %leave()
  %end = call i64 @anycann_call(ptr %pool, ptr %block)
  call void %enter(ptr %thread)
  %whole = icmp eq i64 %end, %rows
  br i1 %whole, label %release, label %stopped
stopped:
  call void %drop(ptr %answers)
  call void %hold(ptr %none)
  br label %release
other:
  br label %other_names
other_names:
  %seen = phi i64 [ 0, %taken ], [ %i, %other ]
  call void %hold(ptr %none)
  br label %release
release:
  %answer = phi ptr [ null, %accepted ], [ null, %give_up ], [ %answers, %run ], [ %none, %stopped ], [ %none, %other_names ]
  %held = phi i64 [ %inputs, %accepted ], [ %inputs, %give_up ], [ %inputs, %run ], [ %inputs, %stopped ], [ %seen, %other_names ]
  br label %letting
letting:
  %l = phi i64 [ 0, %release ], [ %l_next, %let ]
  %l_more = icmp ult i64 %l, %held
  br i1 %l_more, label %let, label %finished
let:
  %let_at = getelementptr ptr, ptr %arrays, i64 %l
  %let_feed = load ptr, ptr %let_at
  call void %drop(ptr %let_feed)
  %l_next = add i64 %l, 1
  br label %letting
finished:
  store i64 0, ptr %busy_at
  ret ptr %answer
left:
  call void %hold(ptr %none)
  ret ptr %none
}
"""
