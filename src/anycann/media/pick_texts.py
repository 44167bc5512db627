"""Loops over rows of bytes as LLVM IR: picking samples out of pixels, and their means."""

from __future__ import annotations

from dataclasses import dataclass
from string import Template


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
