"""Reading the bits of a JPEG scan as LLVM IR: a buffer that is filled with eight bytes at a time, and the next Huffman code of it."""

from __future__ import annotations

from string import Template

from anycann.media.jpeg_coding import LOOKAHEAD_BITS


def reader_ir() -> str:
    """`%reader` (position, buffer, bits, borrowed), `@fill(data, end, state)` to at least 32 bits, and `@symbol(table, state)`.

    Bits are taken from the top of the buffer. Where one of the next eight bytes is 0xff, they come byte by byte. Behind the last bit come
    zeros, which `borrowed` counts.
    """
    return Template(_TEXT).substitute(lookup=64 - LOOKAHEAD_BITS, whole=1 << LOOKAHEAD_BITS)


_TEXT = """
%reader = type { i64, i64, i64, i64 } ; position, buffer, bits, borrowed

declare i64 @llvm.bswap.i64(i64)

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

!0 = !{!"branch_weights", i32 1, i32 64}
"""
