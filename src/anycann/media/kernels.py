"""Native loops over rows of bytes, as LLVM IR: blending rows when a picture is scaled, and picking samples out of pixels."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from string import Template

from anycann.codegen.kernel_cache import compile_kernels
from anycann.runtime.loader import LoadedCode
from anycann.target.target import Target, host

WEIGHT_BITS = 11  # of an interpolation weight, as in OpenCV


@dataclass(frozen=True)
class Pick:
    """Of every `step` bytes, those at `offsets`."""

    step: int
    offsets: tuple[int, ...]

    @property
    def symbol(self) -> str:
        return f"anycann_pick_{self.step}_" + "_".join(map(str, self.offsets))


@dataclass(frozen=True)
class Mean:
    """Of every two pixels of 3 bytes in two rows, the rounded means of the bytes at `offsets`."""

    offsets: tuple[int, int]

    @property
    def symbol(self) -> str:
        return "anycann_mean_" + "_".join(map(str, self.offsets))


FIRST_OF_3 = Pick(3, (0,))
PAIR_OF_3, SWAPPED_PAIR_OF_3 = Pick(3, (1, 2)), Pick(3, (2, 1))
PAIR_OF_6, SWAPPED_PAIR_OF_6 = Pick(6, (1, 2)), Pick(6, (2, 1))
MEAN_OF_4, SWAPPED_MEAN_OF_4 = Mean((1, 2)), Mean((2, 1))
MEANS = (MEAN_OF_4, SWAPPED_MEAN_OF_4)
PICKS = (FIRST_OF_3, PAIR_OF_3, SWAPPED_PAIR_OF_3, PAIR_OF_6, SWAPPED_PAIR_OF_6)
_BLEND = "anycann_blend_rows"


class Kernels:
    """The native functions. Calls leave the interpreter's lock."""

    def __init__(self, target: Target):
        texts = {pick.symbol: pick_ir(pick) for pick in PICKS} | {mean.symbol: mean_ir(mean) for mean in MEANS}
        texts[_BLEND] = blend_ir(target.lanes)
        self._code = LoadedCode(compile_kernels(texts, target), target)
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        take = ctypes.CFUNCTYPE(None, pointer, number, pointer, number, number, number)
        self._picks = {pick: take(self._code.address(pick.symbol)) for pick in PICKS}
        reduce = ctypes.CFUNCTYPE(None, pointer, number, number, pointer, number, number, number)
        self._means = {mean: reduce(self._code.address(mean.symbol)) for mean in MEANS}
        blend = ctypes.CFUNCTYPE(
            None, *(pointer, pointer, number, number, number), *(pointer, pointer), *(pointer, pointer, pointer), pointer
        )
        self._blend = blend(self._code.address(_BLEND))

    def pick(self, pick: Pick, source: int, source_stride: int, target: int, target_stride: int, rows: int, columns: int) -> None:
        """Copy the bytes of `pick` out of `columns` groups in each of `rows` rows, from address `source` to address `target`."""
        self._picks[pick](source, source_stride, target, target_stride, rows, columns)

    def mean(
        self, mean: Mean, source: int, pair_stride: int, row_stride: int, target: int, target_stride: int, rows: int, columns: int
    ) -> None:
        """Write `columns` means for each of `rows` pairs of rows; pairs lie `pair_stride` bytes apart, their rows `row_stride`."""
        self._means[mean](source, pair_stride, row_stride, target, target_stride, rows, columns)

    def blend_rows(
        self, source: int, target: int, target_stride: int, rows: int, columns: int, tables: tuple[int, ...], scratch: int
    ) -> None:
        """Scale: `rows` rows of `columns` bytes, each blended of four bytes of the source.

        `tables`: addresses of int64[2 * rows] (bytes from `source` to the upper and the lower row), int32[rows] (weight of the lower row),
        int32[columns] twice (where in a row the two bytes are), int32[columns] (weight of the second). Weights are of 2 ** WEIGHT_BITS.
        scratch: the address of int32[2 * padded], where padded is `columns` and a vector.
        """
        self._blend(source, target, target_stride, rows, columns, *tables, scratch)


@lru_cache(maxsize=4)
def kernels_for(target: Target) -> Kernels:
    """The functions for `target`, compiled once."""
    return Kernels(target)


def kernels() -> Kernels:
    """The functions for this processor (or the one that ANYCANN_TARGET names)."""
    return kernels_for(host())


def pick_ir(pick: Pick, groups: int = 16) -> str:
    """`void(ptr source, i64 source_stride, ptr target, i64 target_stride, i64 rows, i64 columns)`: `groups` at once, then one by one."""
    kept = len(pick.offsets)
    mask = ", ".join(f"i32 {group * pick.step + offset}" for group in range(groups) for offset in pick.offsets)
    singles = "\n".join(_one_byte(number, offset) for number, offset in enumerate(pick.offsets))
    return Template(_PICK).substitute(
        name=pick.symbol, step=pick.step, kept=kept, groups=groups, wide=groups * pick.step, out=groups * kept, mask=mask, singles=singles
    )


def _one_byte(number: int, offset: int) -> str:
    return f"""  %from{number} = getelementptr i8, ptr %one_source, i64 {offset}
  %byte{number} = load i8, ptr %from{number}
  %to{number} = getelementptr i8, ptr %one_target, i64 {number}
  store i8 %byte{number}, ptr %to{number}"""


def mean_ir(mean: Mean, groups: int = 16) -> str:
    """`void(ptr source, i64 pair_stride, i64 row_stride, ptr target, i64 target_stride, i64 rows, i64 columns)`."""
    first, second = ([6 * group + 3 * pixel + offset for group in range(groups) for offset in mean.offsets] for pixel in (0, 1))
    singles = "\n".join(_one_mean(number, offset) for number, offset in enumerate(mean.offsets))
    return Template(_MEAN).substitute(
        name=mean.symbol, groups=groups, wide=6 * groups, out=2 * groups, first=_mask(first), second=_mask(second), singles=singles,
        two=", ".join(["i16 2"] * 2 * groups)
    )  # fmt: skip


def _mask(places: list[int]) -> str:
    return ", ".join(f"i32 {place}" for place in places)


def _one_mean(number: int, offset: int) -> str:
    lines = []
    for name, row, place in (("a", "upper", offset), ("b", "upper", offset + 3), ("c", "lower", offset), ("d", "lower", offset + 3)):
        lines += [
            f"  %{name}{number}_at = getelementptr i8, ptr %one_{row}, i64 {place}",
            f"  %{name}{number}_byte = load i8, ptr %{name}{number}_at",
            f"  %{name}{number} = zext i8 %{name}{number}_byte to i16",
        ]
    return "\n".join(
        [
            *lines,
            f"  %ab{number} = add i16 %a{number}, %b{number}",
            f"  %cd{number} = add i16 %c{number}, %d{number}",
            f"  %abcd{number} = add i16 %ab{number}, %cd{number}",
            f"  %more{number} = add i16 %abcd{number}, 2",
            f"  %mean{number} = lshr i16 %more{number}, 2",
            f"  %result{number} = trunc i16 %mean{number} to i8",
            f"  %to{number} = getelementptr i8, ptr %one_target, i64 {number}",
            f"  store i8 %result{number}, ptr %to{number}",
        ]
    )


def blend_ir(lanes: int) -> str:
    """The kernel behind `Kernels.blend_rows`. A row is spread over the columns once, however many rows of the result it is part of."""
    ones = ", ".join(["i32 1"] * lanes)
    return Template(_BLEND_IR).substitute(
        name=_BLEND,
        lanes=lanes,
        bits=WEIGHT_BITS,
        one=1 << WEIGHT_BITS,
        splat_one=ones.replace("i32 1", f"i32 {1 << WEIGHT_BITS}"),
        half=ones.replace("i32 1", f"i32 {1 << (2 * WEIGHT_BITS - 1)}"),
        shift=ones.replace("i32 1", f"i32 {2 * WEIGHT_BITS}"),
    )


_PICK = """
define void @$name(ptr %source, i64 %source_stride, ptr %target, i64 %target_stride, i64 %rows, i64 %columns) {
entry:
  %whole = and i64 %columns, -$groups
  br label %row
row:
  %y = phi i64 [ 0, %entry ], [ %next_y, %row_end ]
  %more_rows = icmp ult i64 %y, %rows
  br i1 %more_rows, label %row_body, label %out
row_body:
  %source_at = mul i64 %y, %source_stride
  %target_at = mul i64 %y, %target_stride
  %source_row = getelementptr i8, ptr %source, i64 %source_at
  %target_row = getelementptr i8, ptr %target, i64 %target_at
  br label %many
many:
  %x = phi i64 [ 0, %row_body ], [ %next_x, %many_body ]
  %more = icmp ult i64 %x, %whole
  br i1 %more, label %many_body, label %one
many_body:
  %wide_at = mul i64 %x, $step
  %out_at = mul i64 %x, $kept
  %wide_source = getelementptr i8, ptr %source_row, i64 %wide_at
  %wide_target = getelementptr i8, ptr %target_row, i64 %out_at
  %wide = load <$wide x i8>, ptr %wide_source, align 1
  %picked = shufflevector <$wide x i8> %wide, <$wide x i8> poison, <$out x i32> <$mask>
  store <$out x i8> %picked, ptr %wide_target, align 1
  %next_x = add i64 %x, $groups
  br label %many
one:
  %z = phi i64 [ %whole, %many ], [ %next_z, %one_body ]
  %still = icmp ult i64 %z, %columns
  br i1 %still, label %one_body, label %row_end
one_body:
  %one_source_at = mul i64 %z, $step
  %one_target_at = mul i64 %z, $kept
  %one_source = getelementptr i8, ptr %source_row, i64 %one_source_at
  %one_target = getelementptr i8, ptr %target_row, i64 %one_target_at
$singles
  %next_z = add i64 %z, 1
  br label %one
row_end:
  %next_y = add i64 %y, 1
  br label %row
out:
  ret void
}
"""

_MEAN = """
define void @$name(ptr %source, i64 %pair_stride, i64 %row_stride, ptr %target, i64 %target_stride, i64 %rows, i64 %columns) {
entry:
  %whole = and i64 %columns, -$groups
  br label %row
row:
  %y = phi i64 [ 0, %entry ], [ %next_y, %row_end ]
  %more_rows = icmp ult i64 %y, %rows
  br i1 %more_rows, label %row_body, label %out
row_body:
  %upper_at = mul i64 %y, %pair_stride
  %target_at = mul i64 %y, %target_stride
  %upper = getelementptr i8, ptr %source, i64 %upper_at
  %lower = getelementptr i8, ptr %upper, i64 %row_stride
  %target_row = getelementptr i8, ptr %target, i64 %target_at
  br label %many
many:
  %x = phi i64 [ 0, %row_body ], [ %next_x, %many_body ]
  %more = icmp ult i64 %x, %whole
  br i1 %more, label %many_body, label %one
many_body:
  %wide_at = mul i64 %x, 6
  %out_at = mul i64 %x, 2
  %wide_upper = getelementptr i8, ptr %upper, i64 %wide_at
  %wide_lower = getelementptr i8, ptr %lower, i64 %wide_at
  %wide_target = getelementptr i8, ptr %target_row, i64 %out_at
  %u = load <$wide x i8>, ptr %wide_upper, align 1
  %l = load <$wide x i8>, ptr %wide_lower, align 1
  %a_bytes = shufflevector <$wide x i8> %u, <$wide x i8> poison, <$out x i32> <$first>
  %b_bytes = shufflevector <$wide x i8> %u, <$wide x i8> poison, <$out x i32> <$second>
  %c_bytes = shufflevector <$wide x i8> %l, <$wide x i8> poison, <$out x i32> <$first>
  %d_bytes = shufflevector <$wide x i8> %l, <$wide x i8> poison, <$out x i32> <$second>
  %a = zext <$out x i8> %a_bytes to <$out x i16>
  %b = zext <$out x i8> %b_bytes to <$out x i16>
  %c = zext <$out x i8> %c_bytes to <$out x i16>
  %d = zext <$out x i8> %d_bytes to <$out x i16>
  %ab = add <$out x i16> %a, %b
  %cd = add <$out x i16> %c, %d
  %abcd = add <$out x i16> %ab, %cd
  %rounded = add <$out x i16> %abcd, <$two>
  %mean = lshr <$out x i16> %rounded, <$two>
  %result = trunc <$out x i16> %mean to <$out x i8>
  store <$out x i8> %result, ptr %wide_target, align 1
  %next_x = add i64 %x, $groups
  br label %many
one:
  %z = phi i64 [ %whole, %many ], [ %next_z, %one_body ]
  %still = icmp ult i64 %z, %columns
  br i1 %still, label %one_body, label %row_end
one_body:
  %one_at = mul i64 %z, 6
  %one_target_at = mul i64 %z, 2
  %one_upper = getelementptr i8, ptr %upper, i64 %one_at
  %one_lower = getelementptr i8, ptr %lower, i64 %one_at
  %one_target = getelementptr i8, ptr %target_row, i64 %one_target_at
$singles
  %next_z = add i64 %z, 1
  br label %one
row_end:
  %next_y = add i64 %y, 1
  br label %row
out:
  ret void
}
"""

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
