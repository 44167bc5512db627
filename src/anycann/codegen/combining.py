"""How the values of a reduction meet: the neutral element, two vectors lane by lane, and the lanes of one."""

from __future__ import annotations

from collections.abc import Callable
import math

from anycann.codegen.emitter import Emitter
from anycann.codegen.operations import emit_op
from anycann.codegen.values import Value
from anycann.te.dtypes import DType
from anycann.te.expression import Const, Op

_NEUTRAL: dict[str, dict[str, float]] = {
    "float": {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf, "largest_number": -math.inf},
    "int": {"sum": 0, "prod": 1},
    "bool": {"any": 0, "all": 1, "max": 0, "min": 1},
}
_OPERATION = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


def neutral(kind: str, dtype: DType) -> float:
    """The neutral element of a reduction."""
    if dtype.kind in ("int", "uint") and kind in ("max", "min"):
        bits = 8 * dtype.nbytes
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.kind == "int" else (0, (1 << bits) - 1)
        return low if kind == "max" else high
    return _NEUTRAL["int" if dtype.kind == "uint" else dtype.kind][kind]


def absent_from(kind: str, dtype: DType) -> float:
    """The neutral element for lanes that do not exist: of sums of floats -0, which is one too.

    LLVM moves pairs of lanes beside zeros by `vexpandpd`. A chain of them takes a Zen 4 6 cycles each, but in layer normalisation of 12
    numbers one took 75: 105 -> 30 cycles a row.
    """
    return -0.0 if kind == "sum" and dtype.kind == "float" else neutral(kind, dtype)


def combine(e: Emitter, kind: str, dtype: DType, a: Value, b: Value) -> Value:
    """Two partial results, lane by lane; `b` is the one that may be NaN where `kind` does not hand it on."""
    if kind == "largest_number":
        return e.select(e.compare("ogt", b, a), b, a)
    operand = Const(0, dtype)
    return emit_op(e, Op(_OPERATION[kind], (operand, operand), dtype), [a, b])


def extreme(e: Emitter, kind: str, values: list[Value]) -> Value:
    """The largest or smallest of several floats, lane by lane; NaN if one is, which is asked of two at once."""
    predicate, nan = "ogt" if kind == "max" else "olt", e.compare("uno", values[0], values[-1])
    for a, b in zip(values[1::2], values[2::2], strict=False):
        nan = e.binary("or", nan, e.compare("uno", a, b))
    found = _by_pairs(values, lambda a, b: e.select(e.compare(predicate, a, b), a, b))
    return e.select(nan, e.const(math.nan, found.type), found)


def total(e: Emitter, values: list[Value]) -> Value:
    """The sum of several floats, lane by lane."""
    return _by_pairs(values, lambda a, b: e.binary("fadd", a, b))


def combine_all(e: Emitter, kind: str, dtype: DType, totals: list[Value]) -> Value:
    """Several vectors by pairs, then the lanes of what is left by halves: a scalar."""
    return _across_lanes(e, kind, dtype, _by_pairs(totals, lambda a, b: combine(e, kind, dtype, a, b)))


def _by_pairs(values: list[Value], join: Callable[[Value, Value], Value]) -> Value:
    """All of several joined, those that are left in pairs again: none waits for a chain of the others."""
    while len(values) > 1:
        values = [join(a, b) for a, b in zip(values[::2], values[1::2], strict=False)] + values[len(values) & ~1 :]
    return values[0]


def _across_lanes(e: Emitter, kind: str, dtype: DType, vector: Value) -> Value:
    while vector.lanes > 1:
        half = vector.lanes // 2
        low = e.shuffle(vector, vector, range(half)) if half > 1 else e.extract(vector, 0)
        high = e.shuffle(vector, vector, range(half, 2 * half)) if half > 1 else e.extract(vector, 1)
        vector = combine(e, kind, dtype, low, high)
    return vector
