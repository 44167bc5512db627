"""Which loop runs over the lanes: the one with which the nest is estimated to take the fewest cycles."""

from __future__ import annotations

from collections.abc import Set
import math
from typing import TypeAlias

from anycann.codegen.accesses import FlatNest, Stage, walk_outside_addresses
from anycann.codegen.lanes import Flat
from anycann.codegen.strided import STRIDES
from anycann.support.records import dataclass
from anycann.target.target import Target
from anycann.te.expression import COSTLY, Const, Expr, Load, Op, Var
from anycann.te.simplify import Linear, linear
from anycann.te.traversal import children, walk

_Row: TypeAlias = tuple[str, int, frozenset[tuple[int, int]]]
EXPENSIVE = COSTLY | {"sqrt", "div"}


@dataclass(frozen=True)
class _Costs:
    """Cycles of what differs between processors.

    combine: the lanes of a vector; extreme: into the greatest or least. masked: around a row that is a part of a vector; half where no
    mask is needed. function: of a vector, other: of one number; quotient: of one number, or its root. kept: a row of what a function
    gave. read, written: a lane of elements that do not lie together. over_rows: of the time along the rows is what lanes over rows have to
    be estimated at, to be chosen. in_registers: elements of a row over the lanes that later stages need not read again. swept: times as
    long lanes take to be scattered whose lines have left the cache when the loop comes back. is_fine: what a Zen 4 showed and no other was
    asked counts: that lanes which do not exist are not gathered but scattered, every second to fourth one too; runs picked out of a vector;
    each mask of a short row; lines that the next point reads on; and of the places only those that are no linear form.
    """

    combine: float
    extreme: float
    masked: float
    function: float
    other: float
    quotient: float
    kept: float
    read: float
    written: float
    over_rows: float
    in_registers: int = 0
    swept: float = 3.0
    is_fine: bool = False


# Lanes along a row and over rows were measured for seven operators (softmax and its logarithm, layer and RMS normalisation, mean, root of
# squares, extreme) of 300 and 2000 rows of 3 to 40 numbers on a Xeon of the fifth generation, with its 16 lanes and with AVX2: 128 and 132
# of the 133 then take the faster loop or one within 10 %. With 16 lanes both take as long at about 12 numbers of layer normalisation, 7 of
# RMS normalisation, 9 of softmax, 28 of its logarithm, 15 of a mean, 20 of an extreme. On a Zen 4 the same is so for 492, with 8 lanes for
# 497 of 504 (300 to 120000 rows), and 2 of 240 drawn nests lose more than 15 % (docs/tuning.md, seed 291108). There rows of 2000 take 43
# cycles along softmax of 3 to 16 numbers, 92 along its logarithm, 34 along layer and 20 along RMS normalisation, 10 along a mean, and 10,
# 8, 5, 5 and 1.5 a number over rows; a gather takes as long as it has lanes. Later processors of that maker count as it.
_ONE_BY_ONE = 1.5  # cycles a lane where no instruction writes elements that do not lie together
_XEON = _Costs(
    combine=3.4, extreme=3.4, masked=4.0, function=8.0, other=44.0, quotient=1.0, kept=2.0, read=0.54, written=1.2, over_rows=0.88
)
_ZEN = _Costs(
    combine=4.9, extreme=2.0, masked=4.4, function=16.0, other=43.0, quotient=0.6, kept=2.8, read=1.3, written=2.0, over_rows=0.6,
    in_registers=12, swept=1.3, is_fine=True,
)  # fmt: skip
_ZEN_OF_8 = _Costs(
    combine=5.3, extreme=7.1, masked=3.0, function=16.0, other=29.0, quotient=0.0, kept=1.2, read=1.5, written=_ONE_BY_ONE, over_rows=0.9,
    in_registers=12, swept=1.3, is_fine=True,
)  # fmt: skip
_OF_8 = _Costs(
    combine=2.5, extreme=8.0, masked=0.0, function=8.0, other=40.0, quotient=1.0, kept=20.0, read=1.25, written=_ONE_BY_ONE, over_rows=0.84
)
_OF_4 = _Costs(
    combine=4.0, extreme=4.0, masked=0.0, function=8.0, other=32.0, quotient=2.0, kept=28.0, read=_ONE_BY_ONE, written=_ONE_BY_ONE,
    over_rows=0.8,
)  # fmt: skip
_OPERATION, _QUOTIENTS, _AROUND = 0.5, 8.0, 1.0  # an operation, a vector of quotients or roots, around a stage
_PLACE, _SHARED_PLACE = 1.5, 0.25  # an operation of a place, whose elements are of 64 bits; one that all lanes share
_WHOLE_RUNS = (1, 2, 4, 8)  # elements that an instruction reads without a mask
_AROUND_RUN, _WHOLE_RUN, _MASKED_RUN = 0.2, 0.4, 1.2  # around a few elements that lie together, an access to all of them
_PICK = 1.0  # where they are every second, third or fourth
# Times as long from memory larger than so many bytes: a cache line a lane which is not read on soon; and lines that are fetched too late.
# Lines that the next point reads on are near: every second pixel of 256 planes of 56 x 56, into blocks of channels (AVX2), takes 75 us with
# channels over the lanes and 134 with pixels, of 64 of 28 x 28 4.6 and 8.2. Where lanes are scattered by an instruction it is not measured.
_FAR, _NEAR_BYTES = 3.0, 32 * 1024
_SAME_LINE = 4  # elements apart
_LATE, _CACHED_BYTES = 1.6, 1 << 20
_LINE_BYTES = 64


def outer_vector(nest: FlatNest, target: Target) -> Var | None:
    """The outer loop that runs over lanes; None if each stage vectorises a loop of its own."""
    candidates: list[Var | None] = list(reversed(nest.outer))
    if any(stage.over for stage in nest.stages):
        candidates.insert(0, None)
    return min(candidates, key=lambda v: vector_cycles(nest, v, target) * (_costs(target).over_rows if v is None else 1.0), default=None)


def vector_cycles(nest: FlatNest, vector: Var | None, target: Target) -> float:
    """About how many cycles of one core the nest takes with `vector` over the lanes; None: a loop of each stage."""
    points = math.prod(-(-v.extent // target.lanes) if v is vector else v.extent for v in nest.outer)
    known, held, cycles = set[str](), set[_Row](), 0.0
    inner = next((v for v in reversed(nest.outer) if v is not vector), None)
    costs = _costs(target)
    for stage in nest.stages:
        cycles += _stage_cycles(stage, vector, target, known, held, inner if costs.is_fine or not _scatters(target) else None)
        if vector is not None and 1 < math.prod(v.extent for v in stage.over) <= costs.in_registers:
            held |= {_row(load, stage) for load in _reads(stage)}
        elif vector is None:  # rows of what functions give are kept (rows.py)
            known |= {expr.name for expr in _changing(stage) if isinstance(expr, Op) and expr.name in EXPENSIVE}
    return points * cycles


def _stage_cycles(stage: Stage, vector: Var | None, target: Target, known: Set[str], held: Set[_Row], inner: Var | None) -> float:
    """At one point of the outer loops, of which `inner` is the innermost.

    Functions that are `known` by now need not be computed again, and rows that are `held` not be read again.
    """
    if vector is not None and not stage.over and vector.extent < target.lanes and (run := _run_cycles(stage, vector, target)):
        return run
    own = own_vector(stage) if vector is None else None
    times = math.prod(-(-v.extent // target.lanes) if v is own else v.extent for v in stage.over)
    costs = _costs(target)
    around = _AROUND
    if own is not None and not stage.is_store:
        around += costs.extreme if stage.kind in ("max", "min") else costs.combine
    if own is not None and own.extent < target.lanes:
        around += costs.masked * (0.5 if own.extent in _WHOLE_RUNS else 1.0) * (times if costs.is_fine else 1)
    once, each = _body_cycles(stage, vector or own, target, known, held, inner)
    return around + once + times * each


def _run_cycles(stage: Stage, vector: Var, target: Target) -> float | None:
    """A few elements that are read and written together, by one access each; None if they lie apart somewhere.

    Runs of two, of three and of four, from one place of 900 to another, take 1.7, 3.5 and 1.7 cycles. On a Zen every third of seven
    elements takes 2.8.
    """
    if stage.address is None:
        return None
    forms = [linear(stage.address), *(linear(x.indices[0]) for x in walk(stage.body) if isinstance(x, Load))]
    apart = [form for form in forms if _depends(form, vector) and form.coefficient(vector) != 1]
    if any(form is forms[0] or not _is_picked(form, vector, target) for form in apart):
        return None
    access = _WHOLE_RUN if vector.extent in _WHOLE_RUNS else _MASKED_RUN
    operations = (x for x in walk_outside_addresses(stage.body) if isinstance(x, Op))
    return _AROUND_RUN + access * len(forms) + _PICK * len(apart) + sum(_operation_cycles(x, target) for x in operations)


def _is_picked(form: Linear, vector: Var, target: Target) -> bool:
    """True if the elements of a run are picked out of one vector."""
    step = form.coefficient(vector)
    return _costs(target).is_fine and step in STRIDES and (vector.extent - 1) * abs(step) < target.lanes


def _changing(stage: Stage) -> list[Expr]:
    """What is not the same at all points of the stage's loops."""
    found: dict[int, Expr] = {id(v): v for v in stage.over}
    if found:
        for expr in walk(stage.body):
            if any(id(part) in found for part in children(expr)):
                found[id(expr)] = expr
    return list(found.values())


def _reads(stage: Stage) -> list[Load]:
    return [x for x in walk_outside_addresses(stage.body) if isinstance(x, Load) and isinstance(x.tensor, Flat)]


def _row(load: Load, stage: Stage) -> _Row:
    """What a stage reads along its loops, whatever they are called."""
    form = linear(load.indices[0])
    names = {id(v): number for number, v in enumerate(stage.over)}
    assert isinstance(load.tensor, Flat)
    return load.tensor.source.name, form.constant, frozenset((names.get(id(atom), id(atom)), step) for atom, step in form.terms)


def _body_cycles(
    stage: Stage, vector: Var | None, target: Target, known: Set[str], held: Set[_Row], inner: Var | None
) -> tuple[float, float]:
    """What is computed once, and for each vector of the loops of the stage, with its store. One number needs no vector's time."""
    once, each, changing = 0.0, 1.0, {id(expr) for expr in _changing(stage)}
    of_vectors = vector is not None and vector not in stage.over
    costs, lanes = _costs(target), target.lanes
    if costs.is_fine and vector is not None:
        lanes = min(lanes, vector.extent)
    for expr in walk_outside_addresses(stage.body) if costs.is_fine else walk(stage.body):
        cycles = 0.0
        if isinstance(expr, Load) and isinstance(expr.tensor, Flat):
            apart = costs.read if expr.tensor.dtype.nbytes >= 4 else _ONE_BY_ONE
            form = linear(expr.indices[0])
            cycles = _access_cycles(form, vector, lanes, apart) * _distance(expr, stage, vector, inner)
            cycles += _place_cycles(form, vector) if costs.is_fine else 0.0
            cycles = 1.0 if _row(expr, stage) in held else cycles
        elif isinstance(expr, Op) and expr.name in known and id(expr) in changing:
            once += costs.kept
        elif isinstance(expr, Op) and _is_operation(expr):
            cycles = _OPERATION
        elif isinstance(expr, Op):
            of_one = costs.other if expr.name in COSTLY else costs.quotient
            cycles = _operation_cycles(expr, target) if of_vectors or id(expr) in changing else of_one
        once, each = (once, each + cycles) if id(expr) in changing else (once + cycles, each)
    if stage.address is not None:
        form = linear(stage.address)
        written = _access_cycles(form, vector, target.lanes, costs.written)
        if costs.is_fine and not stage.over and written > 1.0:  # they are scattered, however near
            written = costs.written * target.lanes
        each += 0.5 + written * (costs.swept if _returns_late(form, stage, vector) else 1.0)
    return once, each


def _place_cycles(form: Linear, vector: Var | None) -> float:
    """What computing a place takes that is no linear form: in all lanes, or once where they have it in common."""
    operations = {id(x): x for atom in form.atoms if not isinstance(atom, Var) for x in walk(atom) if isinstance(x, Op)}
    return sum(_PLACE if vector is not None and vector in walk(x) else _SHARED_PLACE for x in operations.values())


def _operation_cycles(expr: Op, target: Target) -> float:
    """Of a vector."""
    if _is_operation(expr):
        return _OPERATION
    return _costs(target).function if expr.name in COSTLY else _QUOTIENTS


def _is_operation(expr: Op) -> bool:
    """True if it takes no longer than a product, as dividing by a known number does (known_divisors.py)."""
    return expr.name not in EXPENSIVE or (expr.name == "div" and isinstance(expr.operands[1], Const))


def _costs(target: Target) -> _Costs:
    is_zen = target.cpu.startswith("znver")
    if target.lanes == 16:
        return _ZEN if is_zen else _XEON
    if target.lanes == 8:
        return _ZEN_OF_8 if is_zen else _OF_8
    return _OF_4


def _scatters(target: Target) -> bool:
    """True if an instruction writes elements that do not lie together."""
    return target.lanes == 16


def _access_cycles(form: Linear, vector: Var | None, lanes: int, apart: float) -> float:
    """A read or a write of elements at `form` in all lanes; `apart`: cycles a lane where they do not lie together."""
    if vector is None or not _depends(form, vector) or form.coefficient(vector) == 1:
        return 1.0
    step = form.coefficient(vector)
    return min(2.0 * abs(step), apart * lanes) if step in STRIDES else apart * lanes


def _distance(load: Load, stage: Stage, vector: Var | None, inner: Var | None) -> float:
    """How much longer a gather takes for where its elements come from."""
    form = linear(load.indices[0])
    assert isinstance(load.tensor, Flat)
    nbytes, step = load.tensor.size * load.tensor.dtype.nbytes, 0 if vector is None else form.coefficient(vector)
    if step in (0, 1) or step in STRIDES or nbytes <= _NEAR_BYTES:  # lanes some elements apart share their cache lines
        return 1.0
    if not stage.over and inner is not None and inner.extent > 3 and 1 <= form.coefficient(inner) <= _SAME_LINE:
        return 1.0
    if not any(v.extent > 3 and _goes_on(form, v) for v in stage.over):
        return _FAR
    return _LATE if nbytes > _CACHED_BYTES else 1.0


def _goes_on(form: Linear, variable: Var) -> bool:
    """True if the next point of a loop reads the next element, or one near it: the places of a Resize are no linear form."""
    return any(step == 1 and (atom is variable or (not isinstance(atom, Var) and variable in walk(atom))) for atom, step in form.terms)


def _returns_late(form: Linear, stage: Stage, vector: Var | None) -> bool:
    """True if elements that lie apart are written, and the vector loop comes back to their lines when they have left the cache."""
    step = 0 if vector is None else abs(form.coefficient(vector))
    if vector is None or stage.over or step in (0, 1) or step in STRIDES:
        return False
    return vector.extent * min(step * stage.body.dtype.nbytes, _LINE_BYTES) > _NEAR_BYTES


def _depends(form: Linear, variable: Var) -> bool:
    return any(variable is atom for atom in form.atoms) or any(variable in walk(atom) for atom in form.atoms if not isinstance(atom, Var))


def own_vector(stage: Stage) -> Var | None:
    """The loop of a stage that runs over lanes where no outer loop does; None for a stage without loops."""
    scores = dict.fromkeys(stage.over, 0.0)
    for form, weight in _strides(stage):
        for variable in stage.over:
            if _goes_on(form, variable):
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
