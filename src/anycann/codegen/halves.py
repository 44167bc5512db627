"""An order of tasks in which threads keep to halves of the rows: all points of the loops around them for one half, then for the other.

So a thread reads rows of an image that it wrote itself, whatever channels they are of. A line that one core wrote and another read costs
28 ns to write again where the two have no third-level cache in common, and 7 where they do (Zen 4, `docs/decisions.md`).
"""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value
from anycann.support.records import dataclass

# Pixels of an image from which on halves are worth it. Of weights for so many reading is hidden behind the products of each half, as for
# rows of a product (`matmul_row_shares.py`); MobileNetV2 takes 1.01 of the time where those of 49 are halved too.
LEAST_PIXELS = 128


@dataclass(frozen=True)
class Turn:
    """A task of outer loops: which point of them it is of, which task of that point, and whether it is of the second half."""

    point: Value
    within: Value
    behind: Value


def in_order(e: Emitter, task: Value, around: int, inside: int, first: int) -> Turn:
    """The turn of a task: `around` points of outer loops with `inside` tasks each; the first half has the first `first` of every point."""
    second = inside - first
    behind = e.compare("sge", task, e.const(around * first))
    number = e.sub(task, e.select(behind, e.const(around * first), e.const(0)))
    point = _quotient(e, number, around * max(first, second), behind, (first, second))
    size = e.select(behind, e.const(second), e.const(first)) if first != second else e.const(first)
    within = e.add(e.sub(number, e.mul(point, size)), e.select(behind, e.const(first), e.const(0)))
    return Turn(point, within, behind)


_WIDEST = 1 << 30


def _quotient(e: Emitter, number: Value, below: int, behind: Value, sizes: tuple[int, int]) -> Value:
    """`number`, which is less than `below`, over the size of its half: a product and a shift.

    LLVM would make one division of two that are chosen from, which takes as long as the products of a small task.
    """
    first, second = sizes
    if second in (0, first):
        return e.udiv(number, first)
    if below > _WIDEST:
        return e.select(behind, e.udiv(number, second), e.udiv(number, first))
    shift = (below * max(sizes)).bit_length()  # 2^shift / size, rounded up, errs by less than number * size / 2^shift < 1 in the quotient
    inverses = [(1 << shift) // size + 1 for size in sizes]
    return e.binary("lshr", e.mul(number, e.select(behind, e.const(inverses[1]), e.const(inverses[0]))), e.const(shift))


def even_count(parts: int) -> int:
    """As many parts for one thread of two as for the other; one stays one."""
    return parts + parts % 2 if parts > 1 else parts
