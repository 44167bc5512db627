"""The Huffman decoder of baseline JPEG as LLVM IR: coded bytes to coefficients, dequantised, in blocks of 8 x 8."""

from __future__ import annotations

from dataclasses import dataclass
from string import Template

from anycann.media.jpeg_coding import HAS_VALUE, LOOKAHEAD_BITS
from anycann.target.target import Target

_SYMBOL = "anycann_jpeg_entropy"
# The words of what the decoder gets and leaves, int64. Behind BLOCKS four for every block of a unit: the addresses of the tables of
# differences, of coefficients and of the quantisation, and which of the three words from LAST on has its component's last level.
DATA, END, POSITION, BUFFER, BITS, BORROWED, DAMAGED, INTERVAL, LEFT, RESTART, PER_UNIT, COEFFICIENTS, ZIGZAG, LAST = range(14)
BLOCKS = LAST + 3
BLOCK_BYTES = 128
_MOST_LEVEL = 1 << 13  # of the mean of a block; beyond, what a transform of 16 bits makes of it is its own affair


@dataclass(frozen=True)
class Entropy:
    """Units of the scan, one after the other, into memory from its start.

    The state is in the words, so that the next call goes on. A block is int16[64], row by row. What is not as it should be sets the word
    DAMAGED and ends the call: no such code, a run beyond the block, a mean far beyond white, data that end early, no restart where one
    should be. Nothing is read beyond the data.

    Bits are taken from the top of a 64-bit buffer that is filled with eight bytes at a time; where one of them is 0xff, byte by byte.
    Behind the last bit come zeros, which BORROWED counts.
    """

    def ir(self, target: Target) -> tuple[str, str]:
        """(symbol, text) of `void(ptr words, i64 begin, i64 end, ptr)`: so many units."""
        names = {name.lower(): value for name, value in globals().items() if name.isupper() and isinstance(value, int)}
        limits = {"range": _MOST_LEVEL, "twice": 2 * _MOST_LEVEL}
        tables = {"lookup": 64 - LOOKAHEAD_BITS, "whole": 1 << LOOKAHEAD_BITS, "has_value": HAS_VALUE}
        return _SYMBOL, Template(_TEXT).substitute(names, **limits, **tables, symbol=_SYMBOL)


_TEXT = """
%reader = type { i64, i64, i64, i64 } ; position, buffer, bits, borrowed

declare i64 @llvm.bswap.i64(i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal %reader @bytewise(ptr %data, i64 %end, i64 %position, i64 %buffer, i64 %bits, i64 %borrowed) noinline {
entry:
  br label %next
next:
  %at = phi i64 [ %position, %entry ], [ %then, %taken ]
  %held = phi i64 [ %buffer, %entry ], [ %more, %taken ]
  %count = phi i64 [ %bits, %entry ], [ %grown, %taken ]
  %room = icmp ule i64 %count, 56
  br i1 %room, label %look, label %out
look:
  %there = icmp ult i64 %at, %end
  br i1 %there, label %byte, label %borrow
byte:
  %place = getelementptr i8, ptr %data, i64 %at
  %raw = load i8, ptr %place
  %special = icmp eq i8 %raw, -1
  br i1 %special, label %stuffed, label %taken
stuffed:
  %second_at = add i64 %at, 1
  %second_there = icmp ult i64 %second_at, %end
  br i1 %second_there, label %second, label %borrow
second:
  %second_place = getelementptr i8, ptr %data, i64 %second_at
  %second_byte = load i8, ptr %second_place
  %is_data = icmp eq i8 %second_byte, 0
  br i1 %is_data, label %taken, label %borrow
taken:
  %step = phi i64 [ 1, %byte ], [ 2, %second ]
  %then = add i64 %at, %step
  %wide = zext i8 %raw to i64
  %shift = sub i64 56, %count
  %moved = shl i64 %wide, %shift
  %more = or i64 %held, %moved
  %grown = add i64 %count, 8
  br label %next
borrow:
  %few = icmp ult i64 %count, 32
  %lent = select i1 %few, i64 32, i64 0
  %with = add i64 %count, %lent
  %debt = add i64 %borrowed, %lent
  br label %out
out:
  %last_count = phi i64 [ %count, %next ], [ %with, %borrow ]
  %last_borrowed = phi i64 [ %borrowed, %next ], [ %debt, %borrow ]
  %r0 = insertvalue %reader poison, i64 %at, 0
  %r1 = insertvalue %reader %r0, i64 %held, 1
  %r2 = insertvalue %reader %r1, i64 %last_count, 2
  %r3 = insertvalue %reader %r2, i64 %last_borrowed, 3
  ret %reader %r3
}

define internal void @fill(ptr %data, i64 %end, ptr %state) alwaysinline {
entry:
  %position_at = getelementptr %reader, ptr %state, i64 0, i32 0
  %buffer_at = getelementptr %reader, ptr %state, i64 0, i32 1
  %bits_at = getelementptr %reader, ptr %state, i64 0, i32 2
  %borrowed_at = getelementptr %reader, ptr %state, i64 0, i32 3
  %bits = load i64, ptr %bits_at
  %enough = icmp uge i64 %bits, 32
  br i1 %enough, label %done, label %look
look:
  %position = load i64, ptr %position_at
  %buffer = load i64, ptr %buffer_at
  %behind = add i64 %position, 8
  %inside = icmp ule i64 %behind, %end
  br i1 %inside, label %wide, label %slow
wide:
  %place = getelementptr i8, ptr %data, i64 %position
  %raw = load i64, ptr %place, align 1
  %bytes = call i64 @llvm.bswap.i64(i64 %raw)
  %inverse = xor i64 %bytes, -1
  %less = sub i64 %inverse, 72340172838076673
  %borrows = and i64 %less, %bytes
  %marks = and i64 %borrows, -9187201950435737472
  %plain = icmp eq i64 %marks, 0
  br i1 %plain, label %take, label %slow
take:
  %moved = lshr i64 %bytes, %bits
  %more = or i64 %buffer, %moved
  %free = sub i64 64, %bits
  %count = lshr i64 %free, 3
  %then = add i64 %position, %count
  %added = shl i64 %count, 3
  %grown = add i64 %bits, %added
  store i64 %then, ptr %position_at
  store i64 %more, ptr %buffer_at
  store i64 %grown, ptr %bits_at
  br label %done
slow:
  %borrowed = load i64, ptr %borrowed_at
  %all = call %reader @bytewise(ptr %data, i64 %end, i64 %position, i64 %buffer, i64 %bits, i64 %borrowed)
  store %reader %all, ptr %state
  br label %done
done:
  ret void
}

; the entry for the next bits, which are taken, and the value behind the code; an entry of zero: there is no such code
define internal { i32, i64 } @symbol(ptr %table, ptr %state) alwaysinline {
entry:
  %buffer_at = getelementptr %reader, ptr %state, i64 0, i32 1
  %bits_at = getelementptr %reader, ptr %state, i64 0, i32 2
  %buffer = load i64, ptr %buffer_at
  %bits = load i64, ptr %bits_at
  %first = lshr i64 %buffer, $lookup
  %first_at = getelementptr i32, ptr %table, i64 %first
  %first_entry = load i32, ptr %first_at
  %long = icmp eq i32 %first_entry, 0
  br i1 %long, label %longer, label %found, !prof !0
longer:
  %sixteen = lshr i64 %buffer, 48
  %whole = getelementptr i32, ptr %table, i64 $whole
  %second_at = getelementptr i32, ptr %whole, i64 %sixteen
  %second_entry = load i32, ptr %second_at
  br label %found
found:
  %entry_word = phi i32 [ %first_entry, %entry ], [ %second_entry, %longer ]
  %all = zext i32 %entry_word to i64
  %total = and i64 %all, 63
  %code_wide = lshr i64 %all, 8
  %code = and i64 %code_wide, 63
  %shift_wide = lshr i64 %all, 16
  %shift = and i64 %shift_wide, 63
  %value_top = shl i64 %buffer, %code ; a value that begins with 0 is negative: its bits are those of the amount, inverted
  %positive = ashr i64 %value_top, 63
  %negative = xor i64 %positive, -1
  %amount_top = xor i64 %value_top, %negative
  %amount_half = lshr i64 %amount_top, 1
  %amount = lshr i64 %amount_half, %shift
  %inverted = xor i64 %amount, %negative
  %value = sub i64 %inverted, %negative
  %left = shl i64 %buffer, %total
  %fewer = sub i64 %bits, %total
  store i64 %left, ptr %buffer_at
  store i64 %fewer, ptr %bits_at
  %r0 = insertvalue { i32, i64 } poison, i32 %entry_word, 0
  %r1 = insertvalue { i32, i64 } %r0, i64 %value, 1
  ret { i32, i64 } %r1
}

; true if the next restart is where the data says
define internal i1 @restart(ptr %words, ptr %data, i64 %end, ptr %state) alwaysinline {
entry:
  call void @fill(ptr %data, i64 %end, ptr %state)
  %all = load %reader, ptr %state
  %position = extractvalue %reader %all, 0
  %bits = extractvalue %reader %all, 2
  %borrowed = extractvalue %reader %all, 3
  %left = sub i64 %bits, %borrowed
  %little = icmp ult i64 %left, 8
  %behind = add i64 %position, 2
  %inside = icmp ule i64 %behind, %end
  %may = and i1 %little, %inside
  br i1 %may, label %look, label %no
look:
  %number_at = getelementptr i64, ptr %words, i64 $restart
  %number = load i64, ptr %number_at
  %place = getelementptr i8, ptr %data, i64 %position
  %marker = load i16, ptr %place, align 1
  %code = add i64 %number, 208
  %high = shl i64 %code, 8
  %wanted = or i64 %high, 255
  %wanted_word = trunc i64 %wanted to i16
  %right = icmp eq i16 %marker, %wanted_word
  br i1 %right, label %yes, label %no
yes:
  %following = add i64 %number, 1
  %wrapped = and i64 %following, 7
  store i64 %wrapped, ptr %number_at
  %interval_at = getelementptr i64, ptr %words, i64 $interval
  %interval = load i64, ptr %interval_at
  %left_at = getelementptr i64, ptr %words, i64 $left
  store i64 %interval, ptr %left_at
  %last_at = getelementptr i64, ptr %words, i64 $last
  call void @llvm.memset.p0.i64(ptr %last_at, i8 0, i64 24, i1 false)
  %fresh = insertvalue %reader zeroinitializer, i64 %behind, 0
  store %reader %fresh, ptr %state
  ret i1 true
no:
  ret i1 false
}

define void @$symbol(ptr noalias %words, i64 %begin, i64 %finish, ptr %unused) {
entry:
  %state = alloca %reader
  %data_at = getelementptr i64, ptr %words, i64 $data
  %data = load ptr, ptr %data_at
  %end_at = getelementptr i64, ptr %words, i64 $end
  %end = load i64, ptr %end_at
  %state_at = getelementptr i64, ptr %words, i64 $position
  %before = load %reader, ptr %state_at
  store %reader %before, ptr %state
  %interval_at = getelementptr i64, ptr %words, i64 $interval
  %interval = load i64, ptr %interval_at
  %restarts = icmp ne i64 %interval, 0
  %left_at = getelementptr i64, ptr %words, i64 $left
  %per_unit_at = getelementptr i64, ptr %words, i64 $per_unit
  %per_unit = load i64, ptr %per_unit_at
  %coefficients_at = getelementptr i64, ptr %words, i64 $coefficients
  %coefficients = load ptr, ptr %coefficients_at
  %zigzag_at = getelementptr i64, ptr %words, i64 $zigzag
  %zigzag = load ptr, ptr %zigzag_at
  %blocks = getelementptr i64, ptr %words, i64 $blocks
  br label %unit
unit:
  %u = phi i64 [ %begin, %entry ], [ %next_u, %unit_done ]
  %done_blocks = phi i64 [ 0, %entry ], [ %all_blocks, %unit_done ]
  %more_units = icmp ult i64 %u, %finish
  br i1 %more_units, label %unit_body, label %out
unit_body:
  %next_u = add i64 %u, 1
  br i1 %restarts, label %count_down, label %block
count_down:
  %left = load i64, ptr %left_at
  %is_due = icmp eq i64 %left, 0
  br i1 %is_due, label %due, label %counted
due:
  %restarted = call i1 @restart(ptr %words, ptr %data, i64 %end, ptr %state)
  br i1 %restarted, label %counted, label %damaged
counted:
  %left_now = load i64, ptr %left_at
  %one_less = sub i64 %left_now, 1
  store i64 %one_less, ptr %left_at
  br label %block
block:
  %b = phi i64 [ 0, %unit_body ], [ 0, %counted ], [ %next_b, %block_done ]
  %next_b = add i64 %b, 1
  %number = add i64 %done_blocks, %b
  %offset = mul i64 %number, $block_bytes
  %memory = getelementptr i8, ptr %coefficients, i64 %offset
  call void @llvm.memset.p0.i64(ptr align 64 %memory, i8 0, i64 $block_bytes, i1 false)
  %four = shl i64 %b, 2
  %differences_at = getelementptr i64, ptr %blocks, i64 %four
  %differences = load ptr, ptr %differences_at
  %table_at = getelementptr i64, ptr %differences_at, i64 1
  %table = load ptr, ptr %table_at
  %steps_at = getelementptr i64, ptr %differences_at, i64 2
  %steps = load ptr, ptr %steps_at
  %last_at_at = getelementptr i64, ptr %differences_at, i64 3
  %last_word = load i64, ptr %last_at_at
  %last_at = getelementptr i64, ptr %words, i64 %last_word
  call void @fill(ptr %data, i64 %end, ptr %state)
  %dc = call { i32, i64 } @symbol(ptr %differences, ptr %state)
  %dc_entry = extractvalue { i32, i64 } %dc, 0
  %dc_known = icmp ne i32 %dc_entry, 0
  br i1 %dc_known, label %dc_store, label %damaged
dc_store:
  %difference = extractvalue { i32, i64 } %dc, 1
  %last = load i64, ptr %last_at
  %level = add i64 %last, %difference
  store i64 %level, ptr %last_at
  %dc_step = load i16, ptr %steps
  %dc_step_wide = zext i16 %dc_step to i64
  %dc_value = mul i64 %level, %dc_step_wide
  %dc_lifted = add i64 %dc_value, $range
  %dc_possible = icmp ult i64 %dc_lifted, $twice
  br i1 %dc_possible, label %dc_write, label %damaged
dc_write:
  %dc_short = trunc i64 %dc_value to i16
  store i16 %dc_short, ptr %memory
  br label %ac
ac:
  %k = phi i64 [ 1, %dc_write ], [ %after_value, %value ], [ %after_zeros, %zeros ]
  call void @fill(ptr %data, i64 %end, ptr %state)
  %found = call { i32, i64 } @symbol(ptr %table, ptr %state)
  %word = extractvalue { i32, i64 } %found, 0
  %value_bit = and i32 %word, $has_value
  %has_value = icmp ne i32 %value_bit, 0
  %run_wide = lshr i32 %word, 24
  %run_word = and i32 %run_wide, 15
  %run = zext i32 %run_word to i64
  br i1 %has_value, label %value, label %no_value
value:
  %amount = extractvalue { i32, i64 } %found, 1
  %place = add i64 %k, %run
  %order_at = getelementptr i16, ptr %zigzag, i64 %place
  %order = load i16, ptr %order_at
  %step_at = getelementptr i16, ptr %steps, i64 %place
  %step = load i16, ptr %step_at
  %amount_short = trunc i64 %amount to i16
  %product = mul i16 %amount_short, %step
  %order_wide = zext i16 %order to i64
  %into = getelementptr i16, ptr %memory, i64 %order_wide
  store i16 %product, ptr %into
  %after_value = add i64 %place, 1
  %goes_on = icmp ult i64 %after_value, 64
  br i1 %goes_on, label %ac, label %block_end
no_value:
  %known = icmp ne i32 %word, 0
  br i1 %known, label %which, label %damaged
which:
  %is_long_run = icmp eq i64 %run, 15
  br i1 %is_long_run, label %zeros, label %block_end
zeros:
  %after_zeros = add i64 %k, 16
  %zeros_go_on = icmp ult i64 %after_zeros, 64
  br i1 %zeros_go_on, label %ac, label %damaged
block_end:
  %coded = phi i64 [ %after_value, %value ], [ %k, %which ]
  %inside = icmp ule i64 %coded, 64
  br i1 %inside, label %block_done, label %damaged
block_done:
  %more_blocks = icmp ult i64 %next_b, %per_unit
  br i1 %more_blocks, label %block, label %unit_done
unit_done:
  %all_blocks = add i64 %done_blocks, %per_unit
  br label %unit
damaged:
  %damaged_at = getelementptr i64, ptr %words, i64 $damaged
  store i64 1, ptr %damaged_at
  ret void
out:
  %after = load %reader, ptr %state
  store %reader %after, ptr %state_at
  ret void
}

!0 = !{!"branch_weights", i32 1, i32 64}
"""
