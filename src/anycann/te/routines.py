"""Operators that are a kernel of their own: sequential or irregular work that no loop nest expresses.

A routine reads whole operands from memory, row-major, and writes whole results. A tensor is seen as [outer, extent, inner] around the axis.
"""

from __future__ import annotations

from anycann.support.records import dataclass
from anycann.te.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Routine:
    """Result number `output` of a routine."""

    output: int

    def operands(self) -> tuple[Tensor, ...]:
        """What it reads, in the order of its kernel's arguments."""
        return tuple(value for value in vars(self).values() if isinstance(value, Tensor))


@dataclass(frozen=True, eq=False)
class Selection(Routine):
    """The `count` largest (or smallest) elements along the axis in order, equal ones by place: output 0 their values, 1 their places."""

    x: Tensor
    outer: int
    extent: int
    inner: int
    count: int
    largest: bool


@dataclass(frozen=True, eq=False)
class Running(Routine):
    """Sums or products ("add", "mul") of all elements up to each one along the axis; exclusive: without it; reverse: from the end."""

    x: Tensor
    outer: int
    extent: int
    inner: int
    kind: str
    exclusive: bool
    reverse: bool


@dataclass(frozen=True, eq=False)
class Scatter(Routine):
    """`data` with `updates` brought to computed places; one that is out of range goes nowhere. kind: none, add, mul, max, min.

    axis: along which an element of `places` counts (ScatterElements); None where a row of `places` says where a slice goes (ScatterND).
    """

    data: Tensor
    places: Tensor
    updates: Tensor
    axis: int | None
    kind: str


@dataclass(frozen=True, eq=False)
class RowSums(Routine):
    """[rows, size]: row `places[n]` is the sum of the rows n of `updates`, of `count`; what goes to row `skipped` is left out."""

    places: Tensor
    updates: Tensor
    rows: int
    size: int
    count: int
    skipped: int | None


@dataclass(frozen=True, eq=False)
class PlaneSums(Routine):
    """[planes, size]: element p of a plane is the sum of its `updates` (`count` a plane) whose entry of `places` is p."""

    places: Tensor
    updates: Tensor
    planes: int
    size: int
    count: int


@dataclass(frozen=True, eq=False)
class AttentionGradient(Routine):
    """The gradients of query, key and value (outputs 0 to 2), all [N, heads, rows or keys, size], of softmax(scale * Q K^T + mask) V.

    mask_steps: elements of the mask to the next image, head and row. causal: row m sees the keys up to m.
    """

    dy: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    mask_steps: tuple[int, int, int] | None
    scale: float
    causal: bool


@dataclass(frozen=True, eq=False)
class Suppression(Routine):
    """Of each class the numbers of at most `count` boxes, the best first, none of which overlaps a better one by more than `overlap`.

    boxes [batch, boxes, 4], scores [batch, classes, boxes]; a score must be above `least`, if that is given.
    """

    boxes: Tensor
    scores: Tensor
    count: int
    overlap: float
    least: float | None
    centred: bool


@dataclass(frozen=True, eq=False)
class Places(Routine):
    """Where `x` is not zero, in order: output 0 int32 [axes, size of x], -1 behind them, output 1 int32 [1], how many there are."""

    x: Tensor


@dataclass(frozen=True, eq=False)
class Trees(Routine):
    """[rows, targets]: what the leaves are worth that each row of `x` reaches in `count` trees.

    tables: features, thresholds, children, entries, roots, depths, targets, weights, as codegen/kernels/trees.py reads them.
    missing: whether features may be given as ~feature.
    """

    x: Tensor
    tables: tuple[Tensor, ...]
    count: int
    missing: bool
    target_count: int

    def operands(self) -> tuple[Tensor, ...]:
        return (self.x, *self.tables)
