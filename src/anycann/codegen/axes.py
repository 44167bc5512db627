"""Axes of a copy cut or joined, so that it reads and writes long runs of memory. What it computes stays.

cut:      y[w] = x[w % 2, w // 2]                 ->  y[i * 2 + j] = x[j, i]             vectors along i are interleaved
joined:   y[i, m, j] = x[j, m, i], j < 3          ->  y[i, w] = x[w % 3, w // 3, i]      squares of i and w are turned
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anycann.codegen.accesses import FlatNest, Stage
from anycann.codegen.lanes import Flat
from anycann.te import dtypes
from anycann.te.expression import Const, Expr, Load, Op, Var
from anycann.te.simplify import Linear, linear, to_expr
from anycann.te.traversal import rewrite, substitute, walk

_DIVISIONS = ("floordiv", "floormod")


def flat_loads(stage: Stage) -> list[Load]:
    """What a stage reads from memory."""
    return [expr for expr in walk(stage.body) if isinstance(expr, Load) and isinstance(expr.tensor, Flat)]


def divided(form: Linear, variable: Var) -> bool:
    """True if an address depends on a variable other than by a multiple of it."""
    return any(variable in walk(atom) for atom in form.atoms if not isinstance(atom, Var))


def is_division(atom: Expr) -> bool:
    """True for a loop's quotient or remainder."""
    return isinstance(atom, Op) and atom.name in _DIVISIONS and isinstance(atom.operands[0], Var) and isinstance(atom.operands[1], Const)


def is_copy(nest: FlatNest) -> bool:
    """One store at each point of the outer loops, without conditions."""
    stage = nest.stages[0]
    return len(nest.stages) == 1 and stage.address is not None and not (stage.over or stage.guards or nest.guards)


def cut(nest: FlatNest) -> FlatNest | None:
    """The axis that is written along as two, where what is read depends on its quotients and remainders by a number only."""
    if not is_copy(nest):
        return None
    stage = nest.stages[0]
    assert stage.address is not None
    form = linear(stage.address)
    whole = next((v for v in nest.outer if form.coefficient(v) == 1), None)
    divisor = None if whole is None or divided(form, whole) else _only_divisor(stage, whole)
    if whole is None or divisor is None or whole.extent % divisor:
        return None
    outer, inner = Var(f"{whole.name}_1", whole.extent // divisor), Var(f"{whole.name}_0", divisor)
    loops = tuple(part for v in nest.outer for part in ((outer, inner) if v is whole else (v,)))
    return FlatNest(loops, (_with(stage, {whole: outer * divisor + inner}),))


def _only_divisor(stage: Stage, variable: Var) -> int | None:
    """The number that addresses divide `variable` by; None if they use it otherwise, or several numbers."""
    forms = [linear(load.indices[0]) for load in flat_loads(stage)]
    if any(form.coefficient(variable) for form in forms):
        return None
    atoms = [atom for form in forms for atom in form.atoms if variable in walk(atom)]
    divisors = {_divisor(atom, variable) for atom in atoms}
    return divisors.pop() if len(divisors) == 1 else None


def _divisor(atom: Expr, variable: Var) -> int | None:
    if isinstance(atom, Op) and is_division(atom) and atom.operands[0] is variable:
        assert isinstance(atom.operands[1], Const)
        return int(atom.operands[1].value)
    return None


def joined(nest: FlatNest, least: int) -> Iterator[FlatNest]:
    """The nest with an axis of less than `least` elements, along which it reads or writes, and the one behind it in memory as one."""
    if not is_copy(nest):
        return
    stage = nest.stages[0]
    assert stage.address is not None
    for form in (linear(stage.address), *(linear(load.indices[0]) for load in flat_loads(stage))):
        short = next((v for v in nest.outer if form.coefficient(v) == 1), None)
        if short is None or short.extent >= least:
            continue
        long = next((v for v in nest.outer if v is not short and form.coefficient(v) == short.extent), None)
        if long is not None and not divided(form, short) and not divided(form, long):
            yield _join(nest, long, short)


def _join(nest: FlatNest, long: Var, short: Var) -> FlatNest:
    whole, extent = Var(f"{long.name}{short.name}", long.extent * short.extent), Const(short.extent, dtypes.int64)
    parts: dict[Var, Expr] = {long: Op("floordiv", (whole, extent), whole.dtype), short: Op("floormod", (whole, extent), whole.dtype)}
    loops = tuple(whole if v is long else v for v in nest.outer if v is not short)
    return FlatNest(loops, (_with(nest.stages[0], parts, (long, short, whole)),))


def _with(stage: Stage, mapping: dict[Var, Expr], run: tuple[Var, Var, Var] | None = None) -> Stage:
    """The stage by other loops. run: (long, short, whole) of two that are one run wherever an address moves by both."""

    def address(expr: Expr) -> Expr:
        form = linear(expr)
        if run is not None and _is_run(form, *run[:2]):
            long, short, whole = run
            return to_expr(Linear(tuple((whole if a is short else a, c) for a, c in form.terms if a is not long), form.constant))
        return to_expr(linear(substitute(expr, mapping)))

    def one(expr: Expr) -> Expr | None:
        if isinstance(expr, Load) and isinstance(expr.tensor, Flat):
            return Load(expr.tensor, (address(expr.indices[0]),))
        return None

    assert stage.address is not None
    return replace(stage, body=substitute(rewrite(stage.body, one), mapping), address=address(stage.address))


def _is_run(form: Linear, long: Var, short: Var) -> bool:
    step = form.coefficient(short)
    return step != 0 and form.coefficient(long) == step * short.extent and not divided(form, long) and not divided(form, short)
