"""Layouts resolved and loops tidied: channel loops split into blocks, loads made flat, adjacent loops that are one run merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
import itertools

from anycann.codegen.lanes import Flat
from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te.expression import Const, Expr, Load, Var
from anycann.te.layout import NC1HWC0, Place, element_count, flat_index
from anycann.te.nest import Nest, ReduceStage, WriteStage
from anycann.te.simplify import Linear, linear, to_expr
from anycann.te.tensor import Placeholder, Tensor
from anycann.te.traversal import children, reached, rewrite, substitute, walk


@dataclass(frozen=True)
class Stage:
    """One stage with everything resolved. kind None: a store at `address` of output `output`; else a reduction kept for `tensor`."""

    over: tuple[Var, ...]
    body: Expr
    kind: str | None = None
    tensor: Tensor | None = None
    output: int = 0
    address: Expr | None = None
    guards: tuple[Expr, ...] = ()  # conditions on this stage's own loops (partial channel blocks)
    fills: Expr | None = None  # the one of all conditions beyond which a store may write: there the last channel block is filled up
    keeps: tuple[tuple[Expr, Flat], ...] = ()  # values that a reduction also stores, element by element (rows.py)

    @property
    def is_store(self) -> bool:
        return self.kind is None


@dataclass(frozen=True)
class FlatNest:
    """Outer loops, conditions on them, and stages."""

    outer: tuple[Var, ...]
    stages: tuple[Stage, ...]
    guards: tuple[Expr, ...] = ()


def flatten(
    nest: Nest,
    places: Sequence[Place],
    layouts: Mapping[str, str],
    lanes: int,
    apart: Var | None = None,
) -> FlatNest:
    """The nest with every load and store a flat address, adjacent loops merged. `layouts` by placeholder name; absent: row-major.

    The loop `apart` stays one of its own.
    """
    split = _channel_variables(nest, places, layouts)
    return merge_loops(resolve(nest, places, layouts, lanes, split)[0], apart)


def resolve(
    nest: Nest,
    places: Sequence[Place],
    layouts: Mapping[str, str],
    lanes: int,
    split: Sequence[Var],
) -> tuple[FlatNest, dict[Var, tuple[Var, Var]]]:
    """The nest with flat addresses and the loops `split` cut into (block, lane), and which those are."""
    mapping, parts, conditions = _split(split, lanes)
    flats: dict[int, Flat] = {}
    stages = []
    for stage in nest.stages:
        body = _flat_loads(substitute(stage.body, mapping), layouts, lanes, flats)
        over = _replace_loops(stage.over, parts)
        guards = tuple(conditions[v] for v in stage.over if v in conditions)
        if isinstance(stage, ReduceStage):
            stages.append(Stage(over, body, stage.tensor.kind, stage.tensor, guards=guards))
            continue
        index = [substitute(i, mapping) for i in stage.index]
        address = to_expr(linear(places[stage.output].address(index, lanes)))
        fills = _filled(stage.index[1:2], places[stage.output], conditions)
        stages.append(Stage(over, body, output=stage.output, address=address, guards=guards, fills=fills))
    outer_guards = tuple(conditions[v] for v in nest.outer if v in conditions)
    return FlatNest(_replace_loops(nest.outer, parts), tuple(stages), outer_guards), parts


def _filled(channel: Sequence[Expr], place: Place, conditions: Mapping[Var, Expr]) -> Expr | None:
    """The condition of the channel loop, if it runs to the end of a blocked buffer: nothing lies in the lanes behind that."""
    if place.layout != NC1HWC0 or place.offset is not None or not channel or not isinstance(channel[0], Var):
        return None
    return conditions.get(channel[0]) if channel[0].extent == place.shape[1] else None


def _channel_variables(nest: Nest, places: Sequence[Place], layouts: Mapping[str, str]) -> list[Var]:
    """Loops that run along the channel of a blocked tensor."""
    found: dict[Var, None] = {}
    for stage in nest.stages:
        channels = [
            expr.indices[1]
            for expr in walk(stage.body)
            if isinstance(expr, Load) and isinstance(expr.tensor, Placeholder) and layouts.get(expr.tensor.name) == NC1HWC0
        ]
        if isinstance(stage, WriteStage) and places[stage.output].layout == NC1HWC0:
            channels.append(stage.index[1])
        for channel in channels:
            found.update({a: None for a, factor in linear(channel).terms if factor == 1 and isinstance(a, Var)})
    return list(found)


def _split(variables: Sequence[Var], lanes: int) -> tuple[dict[Var, Expr], dict[Var, tuple[Var, Var]], dict[Var, Expr]]:
    """c -> c1 * C0 + c0, with the condition c < extent where the last block is partial."""
    mapping: dict[Var, Expr] = {}
    parts: dict[Var, tuple[Var, Var]] = {}
    conditions: dict[Var, Expr] = {}
    for variable in variables:
        block, lane = Var(f"{variable.name}_1", -(-variable.extent // lanes)), Var(f"{variable.name}_0", lanes)
        first: Expr = block * lanes if block.extent > 1 else Const(0, dtypes.int64)
        mapping[variable] = first + lane
        parts[variable] = (block, lane)
        if variable.extent % lanes:
            conditions[variable] = mapping[variable] < variable.extent
    return mapping, parts, conditions


def _replace_loops(loops: tuple[Var, ...], parts: Mapping[Var, tuple[Var, Var]]) -> tuple[Var, ...]:
    """Blocks stay where the channel loop was; lanes go innermost."""
    blocks = [parts[v][0] if v in parts else v for v in loops]
    return tuple(v for v in blocks if v.extent != 1) + tuple(parts[v][1] for v in loops if v in parts)


def _flat_loads(body: Expr, layouts: Mapping[str, str], lanes: int, flats: dict[int, Flat]) -> Expr:
    memo: dict[int, Expr] = {}

    def one(expr: Expr) -> Expr | None:
        if not isinstance(expr, Load) or not isinstance(expr.tensor, Placeholder):
            return None
        tensor, layout = expr.tensor, layouts.get(expr.tensor.name, "ND")
        flat = flats.setdefault(id(tensor), Flat((element_count(layout, tensor.shape, lanes),), tensor.dtype, tensor))
        indices = tuple(rewrite(i, one, memo) for i in expr.indices)
        return Load(flat, (to_expr(linear(flat_index(layout, tensor.shape, indices, lanes))),))

    return rewrite(body, one, memo)


# ---- merging loops
def merge_loops(nest: FlatNest, apart: Var | None = None) -> FlatNest:
    """Adjacent loops (i, j) whose every address moves by extent(j) steps of j when i moves by one become one loop, but for `apart`."""
    while (pair := _mergeable_pair(nest, apart)) is not None:
        nest = _merge(nest, *pair)
    return nest


def _mergeable_pair(nest: FlatNest, apart: Var | None) -> tuple[Var, Var] | None:
    pairs = (pair for loops in (nest.outer, *(stage.over for stage in nest.stages)) for pair in itertools.pairwise(loops))
    return next((pair for pair in pairs if apart not in pair and _mergeable(nest, *pair)), None)


def _forms(nest: FlatNest) -> list[Linear]:
    forms = [linear(stage.address) for stage in nest.stages if stage.address is not None]
    loads = [expr for stage in nest.stages for expr in walk(stage.body) if isinstance(expr, Load) and isinstance(expr.tensor, Flat)]
    return forms + [linear(load.indices[0]) for load in loads]


def _raw_uses(nest: FlatNest) -> set[Var]:
    """Variables used other than as a linear term of an address."""
    used: set[Var] = set()

    def visit(expr: Expr) -> None:
        if isinstance(expr, Load) and isinstance(expr.tensor, Flat):
            for atom in linear(expr.indices[0]).atoms:
                if not isinstance(atom, Var):
                    used.update(v for v in walk(atom) if isinstance(v, Var))
            return
        if isinstance(expr, Var):
            used.add(expr)

    for stage in nest.stages:
        for expr in walk_outside_addresses(stage.body):
            visit(expr)
        roots = [*stage.guards, *nest.guards]
        used.update(v for root in roots for v in walk(root) if isinstance(v, Var))
        if stage.address is not None:
            for atom in linear(stage.address).atoms:
                if not isinstance(atom, Var):
                    used.update(v for v in walk(atom) if isinstance(v, Var))
    return used


def walk_outside_addresses(root: Expr) -> list[Expr]:
    """What is computed at a point of the loops, but for where it is read."""
    # what is below a load is an address, or a bound value read at its own loops
    return list(reached(root, lambda expr: () if isinstance(expr, Load) else children(expr)))


def _mergeable(nest: FlatNest, outer: Var, inner: Var) -> bool:
    used = _raw_uses(nest)
    if outer in used or inner in used:
        return False
    return all(form.coefficient(outer) == form.coefficient(inner) * inner.extent for form in _forms(nest))


def _merge(nest: FlatNest, outer: Var, inner: Var) -> FlatNest:
    merged = Var(f"{outer.name}{inner.name}", outer.extent * inner.extent)

    def address(expr: Expr) -> Expr:
        form = linear(expr)
        terms = tuple((merged if a is inner else a, c) for a, c in form.terms if a is not outer)
        return to_expr(Linear(terms, form.constant))

    def one(expr: Expr) -> Expr | None:
        if isinstance(expr, Load) and isinstance(expr.tensor, Flat):
            return Load(expr.tensor, (address(expr.indices[0]),))
        return None

    def loops(group: tuple[Var, ...]) -> tuple[Var, ...]:
        return tuple(merged if v is inner else v for v in group if v is not outer)

    stages = tuple(
        replace(s, over=loops(s.over), body=rewrite(s.body, one), address=None if s.address is None else address(s.address))
        for s in nest.stages
    )
    return replace(nest, outer=loops(nest.outer), stages=stages)
