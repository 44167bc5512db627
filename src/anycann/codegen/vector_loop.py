"""Which loop runs over the lanes: the one with which the nest is estimated to take the fewest cycles."""

from __future__ import annotations

from collections.abc import Set
import math

from anycann.codegen.accesses import FlatNest, Stage
from anycann.codegen.lanes import Flat
from anycann.codegen.strided import STRIDES
from anycann.target.target import Target
from anycann.te.expression import COSTLY, Expr, Load, Op, Var
from anycann.te.simplify import Linear, linear
from anycann.te.traversal import children, walk

EXPENSIVE = COSTLY | {"sqrt", "div"}
# Cycles of a function of a vector, of a quotient or a root of one number, of an operation, around a stage, to combine the lanes of a
# vector; and of what is below. They come near what was measured in cycles a row, with the lanes along the row and over
# rows: softmax of 8 numbers 71 and 28, of 37 101 and 148, layer normalisation of 11 24 and 26, of 19 33 and 43, the mean of 16 8 and 11, of
# 43 10 and 20; with AVX2 the logarithm of softmax of 5 68 and 34, of 8 60 and 63; on a Zen 4 layer normalisation of 5 40 and 28, of 8 31
# and 43.
_FUNCTION, _QUOTIENT, _OPERATION, _AROUND, _COMBINE = 8.0, 2.0, 0.5, 1.0, 4.0
# All other functions of one number, and a kept row. With 16 lanes a Zen 4 takes for softmax of any few numbers 40 along the row, for its
# logarithm 84, which over rows is 39 for 6 and 82 for 14. A kept row is read without a mask since then, so that it does not wait to be
# written: on a Xeon of the fifth generation softmax of 8 to 14 numbers takes 14 to 20 ns along the row and 12 to 31 over rows, of 17 28 and
# 37, its logarithm of 8 43 and 16, of 32 43 and 53. The others are not measured again.
_OTHER_AND_KEPT, _OTHER_AND_KEPT_OF_16, _OTHER_AND_KEPT_ON_ZEN = (32.0, 28.0), (32.0, 2.0), (64.0, 15.0)
_OVER_ROWS = 0.8  # of the time along rows is what lanes over rows have to be estimated at, to be chosen
# Cycles a lane of elements that do not lie together: read, and written; one by one where there is no instruction for it. A gather of AVX2
# takes 0.7 on a processor that has AVX-512 too, and 1.2 on a Zen 3, where the sum of 8 numbers takes 11 cycles over rows and 4 along them,
# of 13 numbers 18 and 6, softmax of 6 numbers 49 and 38, of 9 numbers 82 and 52. 16 lanes were measured on a Xeon and on a Zen 4, where
# softmax of 8 numbers takes 76 over rows and 43 along them, of 12 83 and 42, the mean of 16 19 and 6; later ones of that maker count as it.
_ONE_BY_ONE = 1.5
_APART, _APART_ON_ZEN, _APART_OF_8 = (0.4, 0.8), (1.1, 1.5), (1.2, _ONE_BY_ONE)
# Times as long from memory larger than so many bytes: a cache line a lane which is not read on soon; and lines that are fetched too late.
# Lines that the next point reads on are near: every second pixel of 256 planes of 56 x 56, into blocks of channels (AVX2), takes 75 us with
# channels over the lanes and 134 with pixels, of 64 of 28 x 28 4.6 and 8.2. Where lanes are scattered by an instruction it is not measured.
_FAR, _NEAR_BYTES = 3.0, 32 * 1024
_SAME_LINE = 4  # elements apart
_LATE, _CACHED_BYTES = 1.6, 1 << 20


def outer_vector(nest: FlatNest, target: Target) -> Var | None:
    """The outer loop that runs over lanes; None if each stage vectorises a loop of its own."""
    candidates: list[Var | None] = list(reversed(nest.outer))
    if any(stage.over for stage in nest.stages):
        candidates.insert(0, None)
    return min(candidates, key=lambda v: vector_cycles(nest, v, target) * (_OVER_ROWS if v is None else 1.0), default=None)


def vector_cycles(nest: FlatNest, vector: Var | None, target: Target) -> float:
    """About how many cycles of one core the nest takes with `vector` over the lanes; None: a loop of each stage."""
    points = math.prod(-(-v.extent // target.lanes) if v is vector else v.extent for v in nest.outer)
    known, cycles = set[str](), 0.0
    inner = next((v for v in reversed(nest.outer) if v is not vector), None)
    for stage in nest.stages:
        cycles += _stage_cycles(stage, vector, target, known, None if _scatters(target) else inner)
        if vector is None:  # rows of what functions give are kept (rows.py)
            known |= {expr.name for expr in _changing(stage) if isinstance(expr, Op) and expr.name in EXPENSIVE}
    return points * cycles


def _stage_cycles(stage: Stage, vector: Var | None, target: Target, known: Set[str], inner: Var | None) -> float:
    """At one point of the outer loops, of which `inner` is the innermost; functions that are `known` by now need not be computed again."""
    own = own_vector(stage) if vector is None else None
    times = math.prod(-(-v.extent // target.lanes) if v is own else v.extent for v in stage.over)
    around = _AROUND + (_COMBINE if own is not None and not stage.is_store else 0.0)
    once, each = _body_cycles(stage, vector or own, target, known, inner)
    return around + once + times * each


def _changing(stage: Stage) -> list[Expr]:
    """What is not the same at all points of the stage's loops."""
    found: dict[int, Expr] = {id(v): v for v in stage.over}
    if found:
        for expr in walk(stage.body):
            if any(id(part) in found for part in children(expr)):
                found[id(expr)] = expr
    return list(found.values())


def _body_cycles(stage: Stage, vector: Var | None, target: Target, known: Set[str], inner: Var | None) -> tuple[float, float]:
    """What is computed once, and for each vector of the loops of the stage, with its store. One number needs no vector's time."""
    once, each, changing = 0.0, 1.0, {id(expr) for expr in _changing(stage)}
    of_vectors = vector is not None and vector not in stage.over
    read, written = _apart_cycles(target)
    other, kept = _other_and_kept(target)
    for expr in walk(stage.body):
        cycles = 0.0
        if isinstance(expr, Load) and isinstance(expr.tensor, Flat):
            apart = read if expr.tensor.dtype.nbytes >= 4 else _ONE_BY_ONE
            cycles = _access_cycles(linear(expr.indices[0]), vector, target.lanes, apart) * _distance(expr, stage, vector, inner)
        elif isinstance(expr, Op) and expr.name in known and id(expr) in changing:
            once += kept
        elif isinstance(expr, Op) and expr.name not in EXPENSIVE:
            cycles = _OPERATION
        elif isinstance(expr, Op):
            cycles = _FUNCTION if of_vectors or id(expr) in changing else other if expr.name in COSTLY else _QUOTIENT
        once, each = (once, each + cycles) if id(expr) in changing else (once + cycles, each)
    if stage.address is not None:
        each += 0.5 + _access_cycles(linear(stage.address), vector, target.lanes, written)
    return once, each


def _other_and_kept(target: Target) -> tuple[float, float]:
    if target.lanes != 16:
        return _OTHER_AND_KEPT
    return _OTHER_AND_KEPT_ON_ZEN if _is_wide_zen(target) else _OTHER_AND_KEPT_OF_16


def _scatters(target: Target) -> bool:
    """True if an instruction writes elements that do not lie together."""
    return target.lanes == 16


def _is_wide_zen(target: Target) -> bool:
    return target.lanes == 16 and target.cpu.startswith("znver")


def _apart_cycles(target: Target) -> tuple[float, float]:
    """To read an element of four bytes or more into a lane, its neighbours' lying elsewhere, and to write one."""
    if _scatters(target):
        return _APART_ON_ZEN if _is_wide_zen(target) else _APART
    return _APART_OF_8 if target.lanes == 8 else (_ONE_BY_ONE, _ONE_BY_ONE)


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
    if not any(form.coefficient(v) == 1 and v.extent > 3 for v in stage.over):
        return _FAR
    return _LATE if nbytes > _CACHED_BYTES else 1.0


def _depends(form: Linear, variable: Var) -> bool:
    return any(variable is atom for atom in form.atoms) or any(variable in walk(atom) for atom in form.atoms if not isinstance(atom, Var))


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
