"""Which loop runs over the lanes: the one along which most memory is read and written in order."""

from __future__ import annotations

import math

from anycann.codegen.accesses import FlatNest, Stage
from anycann.codegen.lanes import Flat
from anycann.codegen.strided import STRIDES
from anycann.te.expression import Load, Var
from anycann.te.simplify import Linear, linear
from anycann.te.traversal import walk


def outer_vector(nest: FlatNest, lanes: int) -> Var | None:
    """The outer loop that runs over lanes; None if each stage vectorises a loop of its own. A loop that leaves lanes empty counts less."""
    scores: dict[Var, float] = {}
    for stage in nest.stages:
        for form, weight in _strides(stage):
            for atom, factor in form.terms:
                if isinstance(atom, Var) and (factor == 1 or factor in STRIDES):
                    worth = weight if factor == 1 else weight / (2 * abs(factor))
                    scores[atom] = scores.get(atom, 0) + worth * min(1.0, atom.extent / lanes)
    best_outer = max(nest.outer, key=lambda v: scores.get(v, 0), default=None)
    own = max((scores.get(v, 0) for stage in nest.stages for v in stage.over), default=0)
    if best_outer is not None and scores.get(best_outer, 0) > own:
        return best_outer
    if own == 0 and nest.outer and not any(stage.over for stage in nest.stages):
        return nest.outer[-1]
    return None


def own_vector(stage: Stage) -> Var | None:
    """The loop of a stage that runs over lanes where no outer loop does; None for a stage without loops."""
    scores = dict.fromkeys(stage.over, 0.0)
    for form, weight in _strides(stage):
        for variable in stage.over:
            if form.coefficient(variable) == 1:
                scores[variable] += weight
    return max(stage.over, key=lambda v: (scores[v], v.extent > 1), default=None)


def _strides(stage: Stage) -> list[tuple[Linear, float]]:
    """Linear forms of the stage's loads and store; a store counts double (scattering costs more than gathering)."""
    found = [
        (linear(expr.indices[0]), math.log2(2 + expr.tensor.size))
        for expr in walk(stage.body)
        if isinstance(expr, Load) and isinstance(expr.tensor, Flat)
    ]
    if stage.address is not None:
        volume = math.prod(v.extent for v in stage.over)
        found.append((linear(stage.address), 2 * math.log2(2 + volume) + 12))
    return found
