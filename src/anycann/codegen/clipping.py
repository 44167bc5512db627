"""Conditions on the loops of a reduction become bounds of those loops: taps of a window that lie outside are not visited.

max over k in 0 .. 2 of select(0 <= 2 h - 1 + k < 112, x[2 h - 1 + k], -inf)
->  max over k in max(0, 1 - 2 h) .. min(3, 113 - 2 h) - 1 of x[2 h - 1 + k]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace

from anycann.codegen.accesses import Stage
from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te.expression import Const, Expr, Op, Var
from anycann.te.simplify import Linear, linear, to_expr


@dataclass
class Bounds:
    """A loop runs from the greatest of `low` (and 0) to the least of `high` (and its extent)."""

    low: list[Expr] = field(default_factory=list)
    high: list[Expr] = field(default_factory=list)

    def start(self) -> Expr:
        """The first index."""
        result: Expr = Const(0, dtypes.int64)
        for bound in self.low:
            result = x.maximum(result, bound)
        return result

    def stop(self, extent: int) -> Expr:
        """The index after the last."""
        result: Expr = Const(extent, dtypes.int64)
        for bound in self.high:
            result = x.minimum(result, bound)
        return result


def clip(stage: Stage, vector: Var | None, neutral: float) -> tuple[Stage, dict[Var, Bounds]]:
    """The reduction without the conditions that its loops now keep. `neutral` elements change nothing; `vector` runs over lanes."""
    body = stage.body
    if not (isinstance(body, Op) and body.name == "select" and isinstance(body.operands[2], Const) and body.operands[2].value == neutral):
        return stage, {}
    bounds: dict[Var, Bounds] = {}
    rest = [c for c in _conjuncts(body.operands[0]) if not _bound(c, stage.over, vector, bounds)]
    if not bounds:
        return stage, {}
    condition = x.all_of(rest)
    kept = body.operands[1] if condition is None else x.select(condition, body.operands[1], body.operands[2])
    return replace(stage, body=kept), bounds


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    if isinstance(condition, Op) and condition.name == "and":
        for operand in condition.operands:
            yield from _conjuncts(operand)
    else:
        yield condition


def _bound(condition: Expr, loops: tuple[Var, ...], vector: Var | None, bounds: dict[Var, Bounds]) -> bool:
    """Note c * r + rest >= n, or < n, as a bound of the loop r; False for a condition of another form."""
    if not isinstance(condition, Op) or condition.name not in ("ge", "lt") or condition.operands[0].dtype is not dtypes.int64:
        return False
    form = linear(condition.operands[0] - condition.operands[1])
    inner = [(atom, factor) for atom, factor in form.terms if atom in loops]
    plain = all(isinstance(atom, Var) and atom is not vector for atom in form.atoms)
    if len(inner) != 1 or not plain or inner[0][1] <= 0:
        return False
    (variable, factor) = inner[0]
    assert isinstance(variable, Var)
    others = Linear(tuple((atom, -c) for atom, c in form.terms if atom is not variable), -form.constant + factor - 1)
    bound = to_expr(others) if factor == 1 else to_expr(others) // factor  # ceil((n - rest) / c)
    found = bounds.setdefault(variable, Bounds())
    (found.low if condition.name == "ge" else found.high).append(bound)
    return True
