"""An order of tasks in which threads keep to halves of the rows: all points of the loops around them for one half, then for the other.

So a thread reads rows of an image that it wrote itself, whatever channels they are of. A line that one core wrote and another read costs
28 ns to write again where the two have no third-level cache in common, and 7 where they do (Zen 4, `docs/decisions.md`).
"""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value

# Pixels of an image from which on halves are worth it. Of weights for so many reading is hidden behind the products of each half, as for
# rows of a product (`matmul_row_shares.py`); MobileNetV2 takes 1.01 of the time where those of 49 are halved too.
LEAST_PIXELS = 128


def in_order(e: Emitter, task: Value, around: int, inside: int, first: int) -> tuple[Value, Value]:
    """The number of a task in the order of the loops, and whether it is of the second half.

    `around` points of outer loops with `inside` tasks each; the first half has the first `first` of every point.
    """
    second = inside - first
    behind = e.compare("sge", task, e.const(around * first))
    within = e.sub(task, e.select(behind, e.const(around * first), e.const(0)))
    point, skipped = e.udiv(within, first), e.const(second)
    if first != second:
        point, skipped = e.select(behind, e.udiv(within, second), point), e.select(behind, e.const(first), skipped)
    start = e.select(behind, e.const(first), e.const(0))
    return e.add(e.add(within, e.mul(point, skipped)), start), behind


def even_count(parts: int) -> int:
    """As many parts for one thread of two as for the other; one stays one."""
    return parts + parts % 2 if parts > 1 else parts
