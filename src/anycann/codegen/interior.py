"""The part of a vector loop where what its indices are compared with is known: the inside of a padded row, of a picture under a window.

y[w] = x[max(w - 1, 0)] for w in 0 .. 57     ->     y[w] = x[w - 1] for w in 1 .. 56, and as before for w = 0 and w = 57

Elements lie in order there, where they would be gathered, and no lane needs a mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
import math

from anycann.codegen.accesses import FlatNest
from anycann.codegen.lanes import Flat
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.expression import Const, Expr, Load, Op, Var
from anycann.te.simplify import Linear, linear, range_of_linear, to_expr
from anycann.te.traversal import rewrite, substitute, walk

_COMPARED = frozenset({"min", "max", "lt", "le", "gt", "ge"})
# Of the time of a vector at a border; where nothing is gathered, and masks are free, it is nearly the same (AVX-512, Zen 4): maxima of 3 in
# rows of 2000 take 0.69 of the time, of 3 x 3 in rows of 128 0.91, 5 x 5 in rows of 40 1.28. Of 160 x 160 padded by its edge 0.18.
_INSIDE, _INSIDE_MASKED = 0.5, 0.8
_ROUNDS = 4  # what is known decides further comparisons


@dataclass(frozen=True)
class Interior:
    """`nest` with `vector`, which counts from 0, in place of the vector loop from `first` on; its extent is whole vectors."""

    nest: FlatNest
    vector: Var
    first: int


def interior(nest: FlatNest, vector: Var, target: Target) -> Interior | None:
    """Where comparisons of places along `vector` are decided; None where there are none, or too few whole vectors."""
    lanes = target.lanes
    guards = [*nest.guards, *(guard for stage in nest.stages for guard in stage.guards)]
    if any(vector in walk(guard) for guard in guards):
        return None
    found = Interior(nest, vector, 0)
    for _ in range(_ROUNDS):
        low, high = _decided(found.nest, found.vector)
        if (low, high) == (0, found.vector.extent):
            break
        if high - low < lanes:
            return None
        found = _part(found, low, high)
    if found.vector is vector:
        return None
    found = _part(found, 0, found.vector.extent // lanes * lanes)
    last = vector.extent - found.first - found.vector.extent
    at_borders = -(-found.first // lanes) - (-last // lanes)
    inside = _INSIDE_MASKED if target.has("avx512f") and not _gathers(nest, vector) else _INSIDE
    pays = inside * (found.vector.extent // lanes) + at_borders < -(-vector.extent // lanes)
    return found if pays else None


def _gathers(nest: FlatNest, vector: Var) -> bool:
    """True if what is read for the lanes of a vector does not lie at steps."""
    loads = [expr for expr in walk(*_roots(nest)) if isinstance(expr, Load)]
    atoms = [atom for load in loads for index in load.indices for atom in linear(index).atoms]
    return any(not isinstance(atom, Var) and vector in walk(atom) for atom in atoms)


def _roots(nest: FlatNest) -> list[Expr]:
    return [root for stage in nest.stages for root in (stage.body, stage.address) if root is not None]


def _compared(nest: FlatNest, vector: Var) -> Iterator[tuple[Op, Linear]]:
    """Comparisons of 64-bit integers, with the difference of both sides, for those that say something of `vector` alone."""
    for expr in walk(*_roots(nest)):
        if isinstance(expr, Op) and expr.name in _COMPARED and expr.operands[0].dtype == dtypes.int64:
            difference = _difference(expr)
            if difference.coefficient(vector) and all(isinstance(atom, Var) for atom in difference.atoms):
                yield expr, difference


def _difference(expr: Op) -> Linear:
    """a - b of a <= b, a < b, min(a, b); b - a of the others: what is asked is whether it is negative (or zero)."""
    a, b = expr.operands
    first, second = (a, b) if expr.name in ("lt", "le", "min") else (b, a)
    return linear(Op("sub", (first, second), dtypes.int64))


def _limit(expr: Op) -> int:
    """The largest difference for which the answer is yes."""
    return -1 if expr.name in ("lt", "gt") else 0


def _decided(nest: FlatNest, vector: Var) -> tuple[int, int]:
    """The longest run of places at which every comparison is decided the way most places have it."""
    low, high = 0, vector.extent
    for expr, difference in _compared(nest, vector):
        factor = difference.coefficient(vector)
        rest = range_of_linear(Linear(tuple(term for term in difference.terms if term[0] is not vector), difference.constant))
        yes = _below(factor, _limit(expr) - rest.high, vector.extent)
        no = _below(-factor, rest.low - _limit(expr) - 1, vector.extent)
        run = max(yes, no, key=lambda pair: pair[1] - pair[0])
        low, high = max(low, run[0]), min(high, run[1])
    return low, high


def _below(factor: int, bound: float, extent: int) -> tuple[int, int]:
    """Places v in 0 .. extent - 1 with factor * v <= bound, as (first, behind the last)."""
    edge = bound / factor
    return (0, max(0, min(extent, math.floor(edge) + 1))) if factor > 0 else (max(0, min(extent, math.ceil(edge))), extent)


def _part(found: Interior, low: int, high: int) -> Interior:
    """The places low .. high - 1 alone, with what is known there."""
    inner = Var(f"{found.vector.name}_inside", high - low)
    moved = {found.vector: inner + low if low else inner}
    stages = tuple(
        replace(
            stage,
            body=_known(substitute(stage.body, moved)),
            address=None if stage.address is None else to_expr(linear(_known(substitute(stage.address, moved)))),
        )
        for stage in found.nest.stages
    )
    outer = tuple(inner if v is found.vector else v for v in found.nest.outer)
    return Interior(replace(found.nest, outer=outer, stages=stages), inner, found.first + low)


def _known(expr: Expr) -> Expr:
    """The expression without comparisons that ranges decide."""
    memo: dict[int, Expr] = {}

    def one(expr: Expr) -> Expr | None:
        if isinstance(expr, Load) and isinstance(expr.tensor, Flat):
            return Load(expr.tensor, (to_expr(linear(rewrite(expr.indices[0], one, memo))),))
        if not isinstance(expr, Op):
            return None
        operands = tuple(rewrite(operand, one, memo) for operand in expr.operands)
        changed = expr if operands == expr.operands else Op(expr.name, operands, expr.dtype)
        return _folded(changed)

    return rewrite(expr, one, memo)


def _folded(expr: Op) -> Expr:
    if expr.name in _COMPARED and expr.operands[0].dtype == dtypes.int64:
        found = range_of_linear(_difference(expr))
        answer = True if found.high <= _limit(expr) else False if found.low > _limit(expr) else None
        if answer is None:
            return expr
        return expr.operands[0 if answer else 1] if expr.name in ("min", "max") else Const(answer, dtypes.bool_)
    if expr.name == "and":
        a, b = expr.operands
        return b if _is(a, True) else a if _is(b, True) or _is(a, False) else b if _is(b, False) else expr
    if expr.name == "select" and isinstance(expr.operands[0], Const):
        return expr.operands[1 if expr.operands[0].value else 2]
    return expr


def _is(expr: Expr, value: bool) -> bool:
    return isinstance(expr, Const) and bool(expr.value) == value
