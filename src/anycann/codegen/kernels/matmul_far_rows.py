"""Rows of A that go through all panels of B together: those that the second-level cache holds, or others if it holds too few."""

from __future__ import annotations

from anycann.codegen.kernels.matmul_shape import MatmulShape
from anycann.target.target import Target

# With 16 registers panels of B are narrow, and few rows between two reads of a panel wait for memory. More rows then come from behind the
# second-level cache, through wide panels: all of them if A is small, so that B is read once. k = 3072 (77 and 197 rows) goes from 81 and
# 86 % of the multiply-adds to 95 and 94, k = 4096 (512 rows) from 86 to 96, k = 5120 from 84 to 94, k = 2048 from 91 to 95 (Zen 3,
# 512 KiB); k = 1536 and 1280 gain nothing. 256 rows of k = 3072 in two parts take 1.03 of the time.
_FEW_ROWS, _FAR_ROWS, _FAR_BYTES, _FAR_SHARE = 40, 128, 4 << 20, 0.1
FAR_TASKS = 32  # rows are not cut for more tasks than these


def reads_far_rows(shape: MatmulShape, target: Target) -> bool:
    """True if the rows of A that should share a panel of a constant B are too long to stay in the second-level cache."""
    is_plain = shape.packed and not shape.grouped
    return is_plain and target.has_few_registers and _rows_nearby(shape, target) < min(shape.m, _FEW_ROWS)


def cuts_far_rows(shape: MatmulShape, target: Target) -> bool:
    """True if A is too large to come from behind the second-level cache once for every panel: parts of it go through all panels."""
    return reads_far_rows(shape, target) and shape.m * shape.k * shape.a_dtype.nbytes > _FAR_BYTES


def shared_rows(shape: MatmulShape, target: Target) -> int:
    """Rows of A that go through all panels of B before the next ones do."""
    return _FAR_ROWS if cuts_far_rows(shape, target) else _rows_nearby(shape, target)


def far_penalty(shape: MatmulShape, target: Target, vectors: int) -> float:
    """Above 1 if each panel reads rows of A from behind the second-level cache: less often if panels are wide."""
    return 1.0 + _FAR_SHARE / vectors if reads_far_rows(shape, target) else 1.0


def _rows_nearby(shape: MatmulShape, target: Target) -> int:
    """Rows of A that fill half of the second-level cache."""
    return target.l2_bytes // 2 // max(1, shape.k * shape.a_dtype.nbytes)
