"""Comparisons, logic, bits, choice and conversion of elements."""

from __future__ import annotations

from collections.abc import Iterable
import math

import numpy as np

from anycann.graph.ops.common import EVERY_DTYPE, INTEGERS, OTHER_FLOATS, elementwise, floats, integers, retyped, unary_samples
from anycann.graph.registry import Lowering, NotLowered, Sample, Samples, operator
from anycann.graph.types import numpy_dtype
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te.dtypes import DType
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor

_PAIRS = (((37,), (37,)), ((2, 3, 5), (5,)), ((2, 1, 5), (3, 1)), ((1, 20, 3, 3), (20, 1, 1)), ((), (4,)))


def _compare_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for a, b in _PAIRS:
        yield Sample((integers(rng, *a, low=-2, high=2, dtype="float32"), integers(rng, *b, low=-2, high=2, dtype="float32")))
    yield from retyped(Sample((integers(rng, 3, 20, dtype="float32"), integers(rng, 20, dtype="float32"))), (*OTHER_FLOATS, *INTEGERS))
    yield Sample((np.array([np.nan, 1, np.nan], np.float32), np.array([np.nan, np.nan, 1], np.float32)))


def _compare(op_type: str, name: str) -> None:
    @operator(op_type, samples=_compare_samples)
    def lower(context: Lowering) -> Tensor:
        return elementwise(context, lambda a, b: x.compare(name, a, b), context.operand(0), context.operand(1))


for _op_type, _name in (("Equal", "eq"), ("Less", "lt"), ("LessOrEqual", "le"), ("Greater", "gt"), ("GreaterOrEqual", "ge")):
    _compare(_op_type, _name)


def _bools(rng: np.random.Generator) -> Iterable[Sample]:
    return [Sample((integers(rng, *a, low=0, high=1, dtype="bool"), integers(rng, *b, low=0, high=1, dtype="bool"))) for a, b in _PAIRS]


def _bit_patterns(rng: np.random.Generator) -> Iterable[Sample]:
    for name in ("uint8", "int32", "uint64", "int16"):
        yield Sample((integers(rng, 3, 17, low=0, high=127, dtype=name), integers(rng, 17, low=0, high=127, dtype=name)))


def _logical(op_type: str, name: str, samples: Samples) -> None:
    @operator(op_type, samples=samples)
    def lower(context: Lowering) -> Tensor:
        return elementwise(context, lambda a, b: x.binary(name, a, b), context.operand(0), context.operand(1))


for _op_type, _name in (("And", "and"), ("Or", "or"), ("Xor", "xor")):
    _logical(_op_type, _name, _bools)
    _logical(f"Bitwise{_op_type}", _name, _bit_patterns)


def _negation(op_type: str, samples: Samples) -> None:
    @operator(op_type, samples=lambda rng: [Sample(s.operands[:1]) for s in samples(rng)])
    def lower(context: Lowering) -> Tensor:
        return elementwise(context, x.logical_not, context.operand(0))


_negation("Not", _bools)
_negation("BitwiseNot", _bit_patterns)


def _shift_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for name in ("uint8", "uint16", "uint32", "uint64"):
        for direction in ("LEFT", "RIGHT"):
            operands = (integers(rng, 3, 17, low=0, high=250, dtype=name), integers(rng, 17, low=0, high=7, dtype=name))
            yield Sample(operands, {"direction": direction})


@operator("BitShift", samples=_shift_samples)
def bit_shift(context: Lowering) -> Tensor:
    """Bits moved left or right; moved by the width of the type or more, none are left."""
    name = "shl" if context.text("direction") == "LEFT" else "shr"

    def shifted(a: Expr, b: Expr) -> Expr:
        width = 8 * a.dtype.nbytes
        return x.select(b < width, x.binary(name, a, x.minimum(b, width - 1)), 0)

    return elementwise(context, shifted, context.operand(0), context.operand(1))


# ---- choice
def _where_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for chosen, a, b in (((37,), (37,), (37,)), ((2, 1, 5), (3, 1), (5,)), ((1, 20, 3, 3), (), (1, 20, 3, 3)), ((), (4,), (4,))):
        yield Sample((integers(rng, *chosen, low=0, high=1, dtype="bool"), floats(rng, *a), floats(rng, *b)))
    yield from retyped(Sample((integers(rng, 3, 20, low=0, high=1, dtype="bool"), floats(rng, 20), floats(rng, 3, 1))), EVERY_DTYPE)


@operator("Where", samples=_where_samples)
def where(context: Lowering) -> Tensor:
    """The second operand where the first holds, else the third."""
    return elementwise(context, x.select, context.operand(0), context.operand(1), context.operand(2))


_SPECIAL = np.array([1, np.nan, np.inf, -np.inf, 0, -0.0, 5], np.float32)


@operator("IsNaN", samples=lambda rng: [Sample((_SPECIAL,)), *retyped(Sample((_SPECIAL,)), OTHER_FLOATS)])
def is_nan(context: Lowering) -> Tensor:
    """True for what is not a number."""
    return elementwise(context, lambda a: x.not_equal(a, a), context.operand(0))


@operator("IsInf", samples=lambda rng: [
    Sample((_SPECIAL,), {"detect_positive": p, "detect_negative": n}) for p, n in ((1, 1), (1, 0), (0, 1), (0, 0))
])  # fmt: skip
def is_inf(context: Lowering) -> Tensor:
    """True for the infinities of the signs asked for."""
    positive, negative = context.integer("detect_positive", 1), context.integer("detect_negative", 1)

    def infinite(a: Expr) -> Expr:
        above = x.equal(a, math.inf) if positive else x.const(False, dtypes.bool_)
        below = x.equal(a, -math.inf) if negative else x.const(False, dtypes.bool_)
        return above | below

    return elementwise(context, infinite, context.operand(0))


# ---- conversion
_TO = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11,
       "uint32": 12, "uint64": 13, "bfloat16": 16}  # fmt: skip


def _cast_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield from unary_samples(attributes={"to": 7})(rng)
    source = floats(rng, 3, 20, low=0, high=120)
    for number in _TO.values():
        yield Sample((source,), {"to": number})
    for name in EVERY_DTYPE:
        for to in ("float32", "bool", "int64", "float16", "uint8"):
            yield from retyped(Sample((source,), {"to": _TO[to]}), (name,))
    yield Sample((np.array([0.5, -0.5, np.nan, np.inf, 0, -0.0], np.float32),), {"to": 9})


def _on_host(data: np.ndarray, to: int, saturate: int | None = 1, round_mode: str | None = None) -> tuple[np.ndarray]:
    """Cast as kernels do: what is beyond int32 or int64 saturates, and NaN is zero. Raises TypeError for what is left to the reference."""
    return (_converted(data, numpy_dtype(to)),)


def _like_on_host(data: np.ndarray, like: np.ndarray, saturate: int | None = 1, round_mode: str | None = None) -> tuple[np.ndarray]:
    """CastLike, as `_on_host`."""
    return (_converted(data, like.dtype),)


def _converted(data: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if not all(each.isbuiltin == 1 and each.kind in "bif" for each in (data.dtype, dtype)) or dtype in (np.int8, np.int16):
        raise TypeError(f"{data.dtype} -> {dtype}")
    result = data.astype(dtype)
    if data.dtype.kind == "f" and dtype.kind == "i":
        limits = np.iinfo(dtype)
        for where, value in ((data < limits.min, limits.min), (data >= limits.max + 1.0, limits.max), (np.isnan(data), 0)):
            np.copyto(result, value, where=where)
    return result


@operator("Cast", samples=_cast_samples, host=_on_host)
def cast(context: Lowering) -> Tensor:
    """Floats to integers truncate; to bool: whether it is not zero."""
    return _cast(context, context.outputs[0].dtype)


@operator(
    "CastLike",
    samples=lambda rng: [Sample((floats(rng, 3, 17, low=-90, high=90), np.zeros(1, d))) for d in ("int32", "bool", "float16")],
    host=_like_on_host,
)
def cast_like(context: Lowering) -> Tensor:
    """Cast to the type of the second operand."""
    return _cast(context, context.outputs[0].dtype)


def _cast(context: Lowering, dtype: DType) -> Tensor:
    return elementwise(context, lambda a: x.cast(a, dtype), context.operand(0))


def _bit_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for name, to in (
        ("float32", "int32"),
        ("int32", "float32"),
        ("float16", "uint16"),
        ("int16", "bfloat16"),
        ("float64", "int64"),
        ("bool", "uint8"),
    ):
        yield from retyped(Sample((floats(rng, 3, 20, low=0, high=90),), {"to": _TO[to]}), (name,))


@operator("BitCast", samples=_bit_samples)
def bit_cast(context: Lowering) -> Tensor:
    """The same bits as another type of the same size."""
    dtype = context.outputs[0].dtype
    if context.operand(0).dtype.nbytes != dtype.nbytes:
        raise NotLowered("a bit cast that changes the number of elements")
    return elementwise(context, lambda a: x.bitcast(a, dtype), context.operand(0))


# ---- remainders
def _mod_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for name in (*INTEGERS, "uint32", "int16"):
        low = 0 if name.startswith("u") else -90
        for fmod in (0, 1):
            divisor = integers(rng, 17, low=1, high=9, dtype=name) * (1 if low == 0 else np.array([1, -1] * 8 + [1], name))
            yield Sample((integers(rng, 3, 17, low=low, high=90, dtype=name), divisor), {"fmod": fmod})
    for name in ("float32", "float16"):
        yield Sample((floats(rng, 3, 17, low=-9, high=9, dtype=name), floats(rng, 17, low=0.5, high=2, dtype=name)), {"fmod": 1})


@operator("Mod", samples=_mod_samples)
def modulo(context: Lowering) -> Tensor:
    """Integers: the sign of the divisor (Python); fmod=1: the sign of the dividend (C)."""
    a = context.operand(0)
    if a.dtype is dtypes.float64:
        raise NotLowered("the remainder of float64")
    name = "rem" if context.integer("fmod") else "floormod"
    if a.dtype.is_float:
        name = "fmod"
    return elementwise(context, lambda p, q: x.binary(name, p, q), a, context.operand(1))
