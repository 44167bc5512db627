"""Copies that run along one axis where they read and along another where they write: squares of both are turned in registers.

y[i, j] = x[j, i]:   for squares of lanes x lanes: load a vector of x[j0 + k, i0 ...] for each k,
                     transpose, store a vector of y[i0 + k, j0 ...]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anycann.codegen.accesses import FlatNest, Stage
from anycann.codegen.axes import divided, is_division
from anycann.codegen.emitter import Emitter
from anycann.codegen.lanes import Flat
from anycann.codegen.nest_writer import NestWriter
from anycann.codegen.values import Value
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.dtypes import DType
from anycann.te.expression import Expr, Load, Var
from anycann.te.simplify import Linear, linear
from anycann.te.traversal import certain, reached, walk

PART = 16  # squares along the axis written along that one task computes
LARGEST_BODY = 24  # expressions; the body is written once for each lane


@dataclass(frozen=True)
class Transposition:
    """`loads` run along `read`, the store runs along `written`; both are outer loops."""

    read: Var
    written: Var
    loads: tuple[Load, ...]


def transposition(nest: FlatNest, lanes: int) -> Transposition | None:
    """How to turn the squares of this nest; None if it has another form, or axes so short that squares would be mostly empty."""
    stage = nest.stages[0]
    if len(nest.stages) != 1 or stage.address is None or stage.over or len(walk(stage.body)) > LARGEST_BODY:
        return None
    form = linear(stage.address)
    written = next((v for v in nest.outer if form.coefficient(v) == 1 and not divided(form, v)), None)
    if written is None or not _is_regular(form):
        return None
    loads = tuple(load for load in _certain_loads(stage.body) if _scattered(load, written))
    common = [v for v in nest.outer if v is not written and all(_runs_along(load, v) for load in loads)]
    if not loads or not common or min(written.extent, common[0].extent) < lanes // 2:
        return None
    return Transposition(common[0], written, loads)


def _certain_loads(body: Expr) -> Iterator[Load]:
    """Loads outside of the branches of selects, and of addresses."""
    found = reached(body, lambda expr: () if isinstance(expr, Load) else certain(expr))
    return (expr for expr in found if isinstance(expr, Load))


def _scattered(load: Load, written: Var) -> bool:
    """Whether the elements for consecutive `written` lie apart, at distances that do not depend on what is in memory."""
    form = linear(load.indices[0])
    regular = isinstance(load.tensor, Flat) and _is_regular(form) and load.dtype is not dtypes.bool_
    return regular and (form.coefficient(written) not in (0, 1) or divided(form, written))


def _is_regular(form: Linear) -> bool:
    """True if an address follows from loops, their quotients and remainders."""
    return all(isinstance(atom, Var) or is_division(atom) for atom in form.atoms)


def _runs_along(load: Load, variable: Var) -> bool:
    form = linear(load.indices[0])
    return form.coefficient(variable) == 1 and not divided(form, variable)


class TransposingWriter(NestWriter):
    """Writes such a nest: a task is some rows of squares."""

    def __init__(self, nest: FlatNest, dtypes_: Sequence[DType], target: Target, plan: Transposition):
        super().__init__(nest, dtypes_, target, plan.written)
        self.plan = plan
        self.block = Var(f"{plan.read.name}_block", -(-plan.read.extent // target.lanes))
        self.part = Var(f"{plan.written.name}_part", -(-plan.written.extent // (PART * target.lanes)))

    def task_loops(self) -> list[Var]:
        """All loops but the two of the square, parts of the one written along, and blocks of the one read along."""
        return [*(v for v in self.nest.outer if v not in (self.plan.read, self.plan.written)), self.part, self.block]

    def _inside(self) -> None:
        e, lanes, extent = self.e, self.target.lanes, self.plan.read.extent
        whole, rest = divmod(extent, lanes)
        block = self.values[self.block]
        if not rest:
            self._strip(e.mul(block, lanes), lanes)
            return
        if whole:
            with e.when(e.compare("slt", block, e.const(whole))):
                self._strip(e.mul(block, lanes), lanes)
        with e.when(e.compare("eq", block, e.const(whole))):
            self._strip(e.const(whole * lanes), rest)

    def _strip(self, first: Value, count: int) -> None:
        """`count` positions of the axis read along, a part of the axis written along."""
        e, lanes, extent = self.e, self.target.lanes, self.plan.written.extent
        whole = extent - extent % lanes
        start = e.mul(self.values[self.part], PART * lanes)
        if whole:
            with e.loop(start, e.smin(e.add(start, PART * lanes), e.const(whole)), lanes) as loop:
                self._square(first, count, loop.index, lanes)
        if extent != whole:
            with e.when(e.compare("eq", self.values[self.part], e.const(self.part.extent - 1))):
                self._square(first, count, e.const(whole), extent - whole)

    def _square(self, first: Value, count: int, start: Value, rows: int) -> None:
        e, lanes, plan, stage = self.e, self.target.lanes, self.plan, self.nest.stages[0]
        columns = [transposed(e, self._rows(stage, load, first, count, start, rows)) for load in plan.loads]
        mask = None if rows == lanes else self._tail_mask(rows)
        for number in range(count):
            self.values[plan.read], self.values[plan.written] = e.add(first, number), start
            here = self._lanes(lanes, plan.written, {}, mask, stage)
            for load, turned in zip(plan.loads, columns, strict=True):
                here.provide(load, turned[number])
            self._store_at(stage, here)

    def _rows(self, stage: Stage, load: Load, first: Value, count: int, start: Value, rows: int) -> list[Value]:
        """A vector along the axis read along for each position of the other; zeros beyond the last, for what is computed with them may be
        an address (a byte that is looked up) or a divisor, and neither may be unknown."""
        e, lanes, plan = self.e, self.target.lanes, self.plan
        mask = None if count == lanes else self._tail_mask(count)
        vectors: list[Value] = []
        for number in range(rows):
            self.values[plan.read], self.values[plan.written] = first, e.add(start, number)
            vectors.append(self._lanes(lanes, plan.read, {}, mask, stage).vector_of(load))
        return vectors + [e.zero(vectors[0].type)] * (lanes - rows)


def transposed(e: Emitter, rows: list[Value]) -> list[Value]:
    """Lane i of row j becomes lane j of row i: bit by bit, row and lane numbers swap."""
    lanes = len(rows)
    distance = 1
    while distance < lanes:
        low = [lane if not lane & distance else lanes + lane - distance for lane in range(lanes)]
        high = [lane + distance if not lane & distance else lanes + lane for lane in range(lanes)]
        for number in range(lanes):
            if not number & distance:
                a, b = rows[number], rows[number + distance]
                rows[number], rows[number + distance] = e.shuffle(a, b, low), e.shuffle(a, b, high)
        distance *= 2
    return rows
