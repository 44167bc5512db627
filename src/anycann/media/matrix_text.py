"""A loop over pixels of three bytes as LLVM IR: each result is a weighted sum of the three, as conversions between RGB and YUV are."""

from __future__ import annotations

MATRIX = "anycann_matrix"
COEFFICIENT_BITS = 14
_GROUP = 16  # pixels at once
_I32 = f"<{_GROUP} x i32>"
_I8 = f"<{_GROUP} x i8>"


def matrix_ir() -> str:
    """`void(ptr source, i64 source_stride, ptr target, i64 target_stride, i64 rows, i64 columns, ptr table)`.

    table: int32[3, 4]; result k is (table[k, :3] . pixel + table[k, 3]) >> COEFFICIENT_BITS, limited to 0 and 255.
    """
    return "\n".join(
        (
            f"declare {_I32} @llvm.smax.v{_GROUP}i32({_I32}, {_I32})",
            f"declare {_I32} @llvm.smin.v{_GROUP}i32({_I32}, {_I32})",
            "declare i32 @llvm.smax.i32(i32, i32)",
            "declare i32 @llvm.smin.i32(i32, i32)",
            _HEAD.replace("$name", MATRIX).replace("$group", str(_GROUP)),
            _splats(),
            _ROWS.replace("$group", str(_GROUP)),
            _many(),
            _BETWEEN,
            _one(),
            _END,
        )
    )


def _splats() -> str:
    lines = []
    for k in range(12):
        lines += [
            f"  %at{k} = getelementptr i32, ptr %table, i64 {k}",
            f"  %c{k} = load i32, ptr %at{k}",
            f"  %in{k} = insertelement {_I32} poison, i32 %c{k}, i64 0",
            f"  %v{k} = shufflevector {_I32} %in{k}, {_I32} poison, {_I32} zeroinitializer",
        ]
    return "\n".join(lines)


def _mask(places: list[int]) -> str:
    return f"<{len(places)} x i32> <{', '.join(f'i32 {place}' for place in places)}>"


def _many() -> str:
    wide = f"<{3 * _GROUP} x i8>"
    lines = [f"  %pixels = load {wide}, ptr %many_source, align 1"]
    for number in range(3):
        places = _mask([3 * group + number for group in range(_GROUP)])
        lines += [
            f"  %b{number} = shufflevector {wide} %pixels, {wide} poison, {places}",
            f"  %p{number} = zext {_I8} %b{number} to {_I32}",
        ]
    for k in range(3):
        lines += _weighted(k, "", "v", _I32, f"v{_GROUP}i32", "splat (i32 255)", "zeroinitializer", "splat (i32 14)")
        lines.append(f"  %r{k} = trunc {_I32} %low{k} to {_I8}")
    double = f"<{2 * _GROUP} x i8>"
    both, alone = _mask(list(range(2 * _GROUP))), _mask(list(range(_GROUP)) * 2)
    order = _mask([group + place for group in range(_GROUP) for place in (0, _GROUP, 2 * _GROUP)])
    return "\n".join(
        [
            *lines,
            f"  %ab = shufflevector {_I8} %r0, {_I8} %r1, {both}",
            f"  %cc = shufflevector {_I8} %r2, {_I8} poison, {alone}",
            f"  %mixed = shufflevector {double} %ab, {double} %cc, {order}",
            f"  store {wide} %mixed, ptr %many_target, align 1",
        ]
    )


def _one() -> str:
    lines = []
    for number in range(3):
        lines += [
            f"  %one_from{number} = getelementptr i8, ptr %one_source, i64 {number}",
            f"  %one_byte{number} = load i8, ptr %one_from{number}",
            f"  %one_p{number} = zext i8 %one_byte{number} to i32",
        ]
    for k in range(3):
        lines += _weighted(k, "one_", "c", "i32", "i32", "255", "0", "14")
        lines += [
            f"  %one_r{k} = trunc i32 %one_low{k} to i8",
            f"  %one_to{k} = getelementptr i8, ptr %one_target, i64 {k}",
            f"  store i8 %one_r{k}, ptr %one_to{k}",
        ]
    return "\n".join(lines)


def _weighted(k: int, prefix: str, table: str, kind: str, suffix: str, most: str, least: str, shift: str) -> list[str]:
    """Result k of pixels %{prefix}p0 to 2 in %{prefix}low{k}."""
    products = [f"  %{prefix}m{k}{n} = mul {kind} %{prefix}p{n}, %{table}{4 * k + n}" for n in range(3)]
    return [
        *products,
        f"  %{prefix}s{k}0 = add {kind} %{prefix}m{k}0, %{prefix}m{k}1",
        f"  %{prefix}s{k}1 = add {kind} %{prefix}s{k}0, %{prefix}m{k}2",
        f"  %{prefix}s{k}2 = add {kind} %{prefix}s{k}1, %{table}{4 * k + 3}",
        f"  %{prefix}h{k} = ashr {kind} %{prefix}s{k}2, {shift}",
        f"  %{prefix}not_less{k} = call {kind} @llvm.smax.{suffix}({kind} %{prefix}h{k}, {kind} {least})",
        f"  %{prefix}low{k} = call {kind} @llvm.smin.{suffix}({kind} %{prefix}not_less{k}, {kind} {most})",
    ]


_HEAD = """
define void @$name(ptr %source, i64 %source_stride, ptr %target, i64 %target_stride, i64 %rows, i64 %columns, ptr %table) {
entry:
  %whole = and i64 %columns, -$group"""

_ROWS = """  br label %row
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
  %next_x = add i64 %x, $group
  %many_at = mul i64 %x, 3
  %many_source = getelementptr i8, ptr %source_row, i64 %many_at
  %many_target = getelementptr i8, ptr %target_row, i64 %many_at"""

_BETWEEN = """  br label %many
one:
  %z = phi i64 [ %whole, %many ], [ %next_z, %one_body ]
  %still = icmp ult i64 %z, %columns
  br i1 %still, label %one_body, label %row_end
one_body:
  %next_z = add i64 %z, 1
  %one_at = mul i64 %z, 3
  %one_source = getelementptr i8, ptr %source_row, i64 %one_at
  %one_target = getelementptr i8, ptr %target_row, i64 %one_at"""

_END = """  br label %one
row_end:
  %next_y = add i64 %y, 1
  br label %row
out:
  ret void
}
"""
