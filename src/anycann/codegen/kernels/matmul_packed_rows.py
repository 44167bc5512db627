"""Rows of A that a task copies for all panels of a constant B: whether they repay it, how many, and how they come from far away."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.arithmetic_rate import has_fma
from anycann.codegen.kernels.matmul_shape import MatmulShape
from anycann.codegen.kernels.matmul_tile import MatmulTile, method
from anycann.codegen.values import Value
from anycann.target.target import Target
from anycann.te import dtypes

# A tile that reads its rows in place reads as many streams, often of few sets of the first-level cache, and waits for them: within the
# second-level cache 6 x 2 sums take 0.97 of the time with packed rows, 4 x 3 0.94 (Zen 3, medians beside a neighbour). A copy costs half a
# cycle for an element: with 512 columns it gains nothing, with 768 to 4096 1 to 10 %; 50 rows of k = 1728 take 1.07 of the time, and so
# do 133 rows of k = 128: an A of 3/8 of that cache or less is best read in place.
_LEAST_ROWS, _LEAST_COLUMNS, _LEAST_K = 80, 640, 256

# Bytes of the copy, which comes from behind the second-level cache where it is larger, and rows that repay fetching a panel.
_PART_BYTES, _PART_ROWS = 2 << 20, 96

# Copies of long rows that exceed the second-level cache are taken in parts of k, of which this share of it stays: k = 3072 takes 0.97 of
# the time that rows from behind it take. Then as many rows are enough, and more would make parts short.
_PARTED_K, _LEAST_DEPTH, _PARTED_ROWS, _PART_SHARE = 1024, 256, 160, 7 / 16


def may_pack_rows(shape: MatmulShape, target: Target) -> bool:
    """True if copying rows of A is repaid."""
    is_plain = shape.packed and not shape.grouped and not shape.scale_rows and shape.a.column == 1
    is_fused = has_fma(target) and shape.a_dtype is shape.b_dtype is shape.accumulator is dtypes.float32
    most_k = _PART_BYTES // (_LEAST_ROWS * dtypes.float32.nbytes)
    repaid = shape.m >= _LEAST_ROWS and shape.n >= _LEAST_COLUMNS and _LEAST_K <= shape.k <= most_k
    is_near = shape.m * shape.k * dtypes.float32.nbytes <= target.l2_bytes * 3 // 8
    return is_plain and is_fused and repaid and not is_near and target.has_few_registers and method(shape) == "panel"


def packs_rows(shape: MatmulShape, target: Target, tile: MatmulTile) -> bool:
    """True if tasks copy their rows: neighbouring ones share them, and they are enough."""
    return tile.panels_inner and tile.rows * tile.row_blocks >= _LEAST_ROWS // 2 and may_pack_rows(shape, target)


def packed_chunks(shape: MatmulShape) -> int:
    """Parts into which rows are cut for tasks: an even number, so that each of two threads copies its own, or one of few rows."""
    parts = -(-shape.m * shape.k * shape.a_dtype.nbytes // _PART_BYTES)
    if shape.k >= _PARTED_K:
        parts = max(parts, -(-shape.m // _PARTED_ROWS))
    return parts + parts % 2 if parts > 1 or shape.m >= 2 * _PART_ROWS else 1


def packed_depth(shape: MatmulShape, target: Target, rows: int) -> int:
    """Equal parts of k of which `rows` copied rows stay in the second-level cache, beside panels of B and their sums; or all of k."""
    row_bytes = rows * shape.a_dtype.nbytes
    if shape.k < _PARTED_K or row_bytes * shape.k <= target.l2_bytes * 5 // 8:
        return shape.k
    parts = -(-shape.k // max(_LEAST_DEPTH, int(target.l2_bytes * _PART_SHARE) // row_bytes))
    return -(-shape.k // parts // 16) * 16


def fetches_rows(shape: MatmulShape, target: Target, tile: MatmulTile) -> bool:
    """True if the copy does not stay in the second-level cache: k = 3072 took 0.98 of the time with fetches, k = 768 as long."""
    return tile.rows * tile.row_blocks * min(tile.depth, shape.k) * shape.a_dtype.nbytes > target.l2_bytes


_AHEAD_BYTES, _LINE_BYTES = 2048, 64  # 1 to 4 KiB are all the same


def fetch_rows(e: Emitter, column: Value, nbytes: int) -> None:
    """Fetch what the innermost loop reads some turns later: `nbytes` a turn, this one's from `column` on."""
    for line in range(0, nbytes, _LINE_BYTES):
        e.prefetch(e.gep(column, _AHEAD_BYTES + line, "i8"))
