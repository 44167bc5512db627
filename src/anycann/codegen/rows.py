"""Rows kept in a thread's scratch memory: what a reduction computes at some cost for each element, and a later stage needs again.

softmax:   reduce s = sum over j of exp(x[i, j] - m)        keeps row[j] = exp(x[i, j] - m)
           write  y[i, j] = exp(x[i, j] - m) / s            becomes y[i, j] = row[j] / s
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anycann.codegen.accesses import FlatNest, Stage
from anycann.codegen.lanes import Flat
from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te.expression import COSTLY, Expr, Load, Op, Var
from anycann.te.nest import Inliner
from anycann.te.tensor import Placeholder
from anycann.te.traversal import certain, reached, rewrite, substitute, walk

LIMIT_BYTES = 512 * 1024
PREFIX = "row:"  # names of rows among the placeholders of a nest


@dataclass(frozen=True)
class Kept:
    """An expression of a reduction whose value for each element is stored in `row`."""

    expr: Expr
    row: Flat


def keep_rows(nest: FlatNest, lanes: int) -> tuple[FlatNest, tuple[Flat, ...]]:
    """The nest with costly values of one row kept, and the rows, which lie one after the other. For nests that run along rows only."""
    keyer, rows, stages = Inliner(), list[Flat](), list(nest.stages)
    for number, stage in enumerate(stages):
        if stage.is_store or len(stage.over) != 1:
            continue
        (variable,) = stage.over
        nbytes = sum(4 * row.size for row in rows) + 4 * _padded(variable.extent, lanes)
        offered = {} if nbytes > LIMIT_BYTES else {keyer.key(expr): expr for expr in _candidates(stage.body, variable)}
        kept: dict[object, Kept] = {}
        for later in range(number + 1, len(stages)):
            stages[later] = _reading(stages[later], variable, offered, kept, keyer, lanes, len(rows))
        stages[number] = replace(stages[number], keeps=tuple((k.expr, k.row) for k in kept.values()))
        rows += [k.row for k in kept.values()]
    return replace(nest, stages=tuple(stages)), tuple(rows)


def _padded(extent: int, lanes: int) -> int:
    return -(-extent // lanes) * lanes


def _candidates(body: Expr, variable: Var) -> Iterator[Expr]:
    """Costly float32 values of the row's elements, outside of branches."""

    def costly(expr: Expr) -> bool:
        return isinstance(expr, Op) and expr.name in COSTLY and expr.dtype.register == "float" and variable in walk(expr)

    return filter(costly, reached(body, lambda expr: () if isinstance(expr, Load) or costly(expr) else certain(expr)))


def _reading(
    stage: Stage, variable: Var, offered: dict[object, Expr], kept: dict[object, Kept], keyer: Inliner, lanes: int, first: int
) -> Stage:
    """A later stage over a row of the same extent, its equal expressions replaced by reads of the row."""
    if not offered or len(stage.over) != 1 or stage.over[0].extent != variable.extent:
        return stage
    (own,) = stage.over

    def one(expr: Expr) -> Expr | None:
        if not isinstance(expr, Op) or expr.name not in COSTLY:
            return None
        key = keyer.key(substitute(expr, {own: variable}))
        if key not in offered:
            return None
        if key not in kept:
            source = Placeholder((_padded(variable.extent, lanes),), dtypes.float32, f"{PREFIX}{first + len(kept)}")
            kept[key] = Kept(offered[key], Flat(source.shape, source.dtype, source))
        return Load(kept[key].row, (own,))

    return replace(stage, body=rewrite(stage.body, one))
