"""The Huffman decoder of baseline JPEG as LLVM IR: coded bytes to coefficients, dequantised, in blocks of 8 x 8."""

from __future__ import annotations

from string import Template

from anycann.media.entropy_bits import reader_ir
from anycann.media.jpeg_coding import HAS_VALUE
from anycann.support.records import dataclass
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
    """

    def ir(self, target: Target) -> tuple[str, str]:
        """(symbol, text) of `void(ptr words, i64 begin, i64 end, ptr)`: so many units."""
        names = {name.lower(): value for name, value in globals().items() if name.isupper() and isinstance(value, int)}
        limits = {"range": _MOST_LEVEL, "twice": 2 * _MOST_LEVEL, "has_value": HAS_VALUE}
        return _SYMBOL, reader_ir() + Template(_TEXT).substitute(names, **limits, symbol=_SYMBOL)


_TEXT = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

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
"""
