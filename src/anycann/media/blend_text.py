"""A loop over rows of bytes as LLVM IR: blending rows and columns when a picture is scaled."""

from __future__ import annotations

from string import Template

WEIGHT_BITS = 11  # of an interpolation weight, as in OpenCV
BLEND = "anycann_blend_rows"


def blend_ir(lanes: int) -> str:
    """The kernel behind `Kernels.blend_rows`. A row is spread over the columns once, however many rows of the result it is part of."""
    ones = ", ".join(["i32 1"] * lanes)
    return Template(_BLEND_IR).substitute(
        name=BLEND,
        lanes=lanes,
        bits=WEIGHT_BITS,
        one=1 << WEIGHT_BITS,
        splat_one=ones.replace("i32 1", f"i32 {1 << WEIGHT_BITS}"),
        half=ones.replace("i32 1", f"i32 {1 << (2 * WEIGHT_BITS - 1)}"),
        shift=ones.replace("i32 1", f"i32 {2 * WEIGHT_BITS}"),
    )


_BLEND_IR = """
define internal void @spread(ptr %row, ptr %into, i64 %columns, ptr %starts, ptr %nexts, ptr %weights) {
entry:
  br label %column
column:
  %x = phi i64 [ 0, %entry ], [ %next_x, %body ]
  %more = icmp ult i64 %x, %columns
  br i1 %more, label %body, label %out
body:
  %start_at = getelementptr i32, ptr %starts, i64 %x
  %next_at = getelementptr i32, ptr %nexts, i64 %x
  %weight_at = getelementptr i32, ptr %weights, i64 %x
  %start = load i32, ptr %start_at
  %next = load i32, ptr %next_at
  %weight = load i32, ptr %weight_at
  %start_wide = zext i32 %start to i64
  %next_wide = zext i32 %next to i64
  %first_at = getelementptr i8, ptr %row, i64 %start_wide
  %second_at = getelementptr i8, ptr %row, i64 %next_wide
  %first_byte = load i8, ptr %first_at
  %second_byte = load i8, ptr %second_at
  %first = zext i8 %first_byte to i32
  %second = zext i8 %second_byte to i32
  %base = shl i32 %first, $bits
  %difference = sub i32 %second, %first
  %share = mul i32 %difference, %weight
  %sum = add i32 %base, %share
  %into_at = getelementptr i32, ptr %into, i64 %x
  store i32 %sum, ptr %into_at
  %next_x = add i64 %x, 1
  br label %column
out:
  ret void
}

define internal void @blend(ptr %upper, ptr %lower, i32 %weight, ptr %into, i64 %columns) {
entry:
  %whole = and i64 %columns, -$lanes
  %weight_in = insertelement <$lanes x i32> poison, i32 %weight, i64 0
  %weights = shufflevector <$lanes x i32> %weight_in, <$lanes x i32> poison, <$lanes x i32> zeroinitializer
  %others = sub <$lanes x i32> <$splat_one>, %weights
  br label %many
many:
  %x = phi i64 [ 0, %entry ], [ %next_x, %many_body ]
  %more = icmp ult i64 %x, %columns
  br i1 %more, label %choose, label %out
choose:
  %full = icmp ult i64 %x, %whole
  %upper_at = getelementptr i32, ptr %upper, i64 %x
  %lower_at = getelementptr i32, ptr %lower, i64 %x
  %a = load <$lanes x i32>, ptr %upper_at, align 4
  %b = load <$lanes x i32>, ptr %lower_at, align 4
  %left = mul <$lanes x i32> %a, %others
  %right = mul <$lanes x i32> %b, %weights
  %both = add <$lanes x i32> %left, %right
  %rounded = add <$lanes x i32> %both, <$half>
  %high = lshr <$lanes x i32> %rounded, <$shift>
  %bytes = trunc <$lanes x i32> %high to <$lanes x i8>
  %into_at = getelementptr i8, ptr %into, i64 %x
  br i1 %full, label %many_body, label %tail
many_body:
  store <$lanes x i8> %bytes, ptr %into_at, align 1
  %next_x = add i64 %x, $lanes
  br label %many
tail:
  %rest = sub i64 %columns, %x
  br label %one
one:
  %z = phi i64 [ 0, %tail ], [ %next_z, %one_body ]
  %still = icmp ult i64 %z, %rest
  br i1 %still, label %one_body, label %out
one_body:
  %byte = extractelement <$lanes x i8> %bytes, i64 %z
  %one_at = getelementptr i8, ptr %into_at, i64 %z
  store i8 %byte, ptr %one_at
  %next_z = add i64 %z, 1
  br label %one
out:
  ret void
}

define void @$name(ptr %source, ptr %target, i64 %target_stride, i64 %rows, i64 %columns, ptr %row_starts, ptr %row_weights,
                   ptr %byte_starts, ptr %next_bytes, ptr %byte_weights, ptr %scratch) {
entry:
  %padded = add i64 %columns, $lanes
  %second_half = getelementptr i32, ptr %scratch, i64 %padded
  br label %row
row:
  %y = phi i64 [ 0, %entry ], [ %next_y, %done ]
  %upper_is = phi i64 [ -1, %entry ], [ %upper_start, %done ]
  %lower_is = phi i64 [ -1, %entry ], [ %lower_start, %done ]
  %upper_buffer = phi ptr [ %scratch, %entry ], [ %upper_now, %done ]
  %lower_buffer = phi ptr [ %second_half, %entry ], [ %lower_now, %done ]
  %more = icmp ult i64 %y, %rows
  br i1 %more, label %starts, label %out
starts:
  %pair = mul i64 %y, 2
  %upper_start_at = getelementptr i64, ptr %row_starts, i64 %pair
  %lower_start_at = getelementptr i64, ptr %upper_start_at, i64 1
  %upper_start = load i64, ptr %upper_start_at
  %lower_start = load i64, ptr %lower_start_at
  %moved_up = icmp eq i64 %upper_start, %lower_is
  %upper_now = select i1 %moved_up, ptr %lower_buffer, ptr %upper_buffer
  %lower_now = select i1 %moved_up, ptr %upper_buffer, ptr %lower_buffer
  %was_in_upper = select i1 %moved_up, i64 %lower_is, i64 %upper_is
  %was_in_lower = select i1 %moved_up, i64 %upper_is, i64 %lower_is
  %upper_there = icmp eq i64 %upper_start, %was_in_upper
  br i1 %upper_there, label %lower, label %spread_upper
spread_upper:
  %upper_row = getelementptr i8, ptr %source, i64 %upper_start
  call void @spread(ptr %upper_row, ptr %upper_now, i64 %columns, ptr %byte_starts, ptr %next_bytes, ptr %byte_weights)
  br label %lower
lower:
  %lower_there = icmp eq i64 %lower_start, %was_in_lower
  br i1 %lower_there, label %done, label %spread_lower
spread_lower:
  %lower_row = getelementptr i8, ptr %source, i64 %lower_start
  call void @spread(ptr %lower_row, ptr %lower_now, i64 %columns, ptr %byte_starts, ptr %next_bytes, ptr %byte_weights)
  br label %done
done:
  %weight_at = getelementptr i32, ptr %row_weights, i64 %y
  %weight = load i32, ptr %weight_at
  %target_at = mul i64 %y, %target_stride
  %target_row = getelementptr i8, ptr %target, i64 %target_at
  call void @blend(ptr %upper_now, ptr %lower_now, i32 %weight, ptr %target_row, i64 %columns)
  %next_y = add i64 %y, 1
  br label %row
out:
  ret void
}
"""
