"""What is costly and the same for every channel is computed once: places and weights of GridSample follow from coordinates in memory.

for n, c, h, w:  y[n, c, h, w] = x[n, c, place(grid[n, h, w])]   ->   for n, h, w:  p = place(grid[n, h, w])
                                                                        for c:  y[n, c, h, w] = x[n, c, p]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anycann.codegen.accesses import FlatNest
from anycann.support.records import dataclass
from anycann.te.expression import Expr, Load, Op, Var
from anycann.te.traversal import certain, children, reached, walk

_LEAST_OPERATIONS, _LEAST_TURNS = 24, 2  # the nearest pixel takes 33, a place that Resize finds in a table 16


@dataclass(frozen=True)
class Invariant:
    """`nest` with a loop of its store in place of an outer one, and what does not depend on that loop: `values`."""

    nest: FlatNest
    values: tuple[Expr, ...]


def invariant(nest: FlatNest, vector: Var) -> Invariant | None:
    """The loop for whose turns most is the same; None where that is little, or for several stages."""
    stage = nest.stages[0]
    if len(nest.stages) != 1 or not stage.is_store or stage.over or stage.guards or nest.guards:
        return None
    sure = {id(expr) for expr in reached(stage.body, certain)}
    loops = [loop for loop in nest.outer if loop is not vector and loop.extent >= _LEAST_TURNS]
    found = [(loop, tuple(_unchanging(stage.body, loop, sure))) for loop in loops]
    loop, values = max(found, key=lambda each: _operations(each[1]), default=(None, ()))
    if loop is None or _operations(values) < _LEAST_OPERATIONS:
        return None
    outer = tuple(each for each in nest.outer if each is not loop)
    return Invariant(replace(nest, outer=outer, stages=(replace(stage, over=(loop,)),)), values)


def _unchanging(body: Expr, loop: Var, sure: set[int]) -> Iterator[Expr]:
    """The largest operations that are the same in every turn of a loop and read only what is there in any case."""

    def same(expr: Expr) -> bool:
        below = walk(expr)
        return loop not in below and all(id(load) in sure for load in below if isinstance(load, Load))

    found = reached(body, lambda expr: () if same(expr) else children(expr))
    return (expr for expr in found if isinstance(expr, Op) and same(expr))


def _operations(values: tuple[Expr, ...]) -> int:
    """How many there are below, where they follow from numbers in memory; places of known loops cost nothing."""
    below = walk(*values)
    return sum(isinstance(expr, Op) for expr in below) if any(isinstance(expr, Load) for expr in below) else 0
