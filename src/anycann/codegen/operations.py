"""One elementwise operation of an expression (`add`, `lt`, `floordiv`, `exp` ...) as instructions on registers."""

from __future__ import annotations

from collections.abc import Callable

from anycann.codegen.emitter import Emitter
from anycann.codegen.known_divisors import divided
from anycann.codegen.values import Value
from anycann.support.errors import UnsupportedError
from anycann.te import dtypes
from anycann.te.dtypes import DType
from anycann.te.expression import Const, Op

_COMPARE = {"lt": ("olt", "slt", "ult"), "le": ("ole", "sle", "ule"), "gt": ("ogt", "sgt", "ugt"), "ge": ("oge", "sge", "uge"),
            "eq": ("oeq", "eq", "eq"), "ne": ("une", "ne", "ne")}  # fmt: skip
_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "shl": "shl"}


def emit_op(e: Emitter, expr: Op, operands: list[Value]) -> Value:
    """One operation on operands of equal lanes."""
    kind = expr.operands[0].dtype
    if expr.name in _COMPARE:
        predicates = _COMPARE[expr.name]
        return e.compare(predicates[0] if kind.is_float else predicates[1] if kind.kind == "int" else predicates[2], *operands)
    if expr.name == "not":
        return e.binary("xor", operands[0], e.const(1 if kind is dtypes.bool_ else -1, operands[0].type))
    if kind.is_float:
        return _float_op(e, expr, operands)
    return _integer_op(e, expr, operands, kind)


def _float_op(e: Emitter, expr: Op, operands: list[Value]) -> Value:
    if expr.name == "div" and (quotient := divided(e, operands[0], expr.operands[1])) is not None:
        return quotient
    if expr.name in _FLOAT:
        return e.binary(_FLOAT[expr.name], *operands)
    if expr.name == "neg":
        return e.op(f"fneg {operands[0].type} {operands[0].text}", operands[0].type)
    from anycann.codegen import vector_math  # where one is written: a kernel that is kept needs none

    function: Callable[..., Value] | None = vector_math.FUNCTIONS.get(expr.name)
    if function is None:
        raise UnsupportedError(f"no vector function for {expr.name} on {expr.dtype}")
    return function(e, *operands)


def _integer_op(e: Emitter, expr: Op, operands: list[Value], kind: DType) -> Value:
    signed, name = kind.kind == "int", expr.name
    if name in _INTEGER:
        return e.binary(_INTEGER[name], *operands)
    if name in ("max", "min"):
        if kind is dtypes.bool_:
            return e.binary("or" if name == "max" else "and", *operands)
        return e.intrinsic(("s" if signed else "u") + name, operands)
    if name == "neg":
        return e.binary("sub", e.zero(operands[0].type), operands[0])
    if name == "shr":
        return e.binary("ashr" if signed else "lshr", *operands)
    if name == "abs":
        return e.select(e.compare("slt", operands[0], e.zero(operands[0].type)), e.binary("sub", e.zero(operands[0].type), operands[0]),
                        operands[0]) if signed else operands[0]  # fmt: skip
    if name in ("div", "rem", "floordiv", "floormod"):
        return _division(e, name, operands, kind, isinstance(expr.operands[1], Const))
    raise UnsupportedError(f"no integer operation {name} on {kind}")


def _division(e: Emitter, name: str, operands: list[Value], kind: DType, by_constant: bool) -> Value:
    """Integer division that cannot trap: x / 0 gives x, smallest / -1 the smallest. div and rem truncate; floor* round down."""
    a, b = operands
    signed = kind.kind == "int"
    zero, one = e.zero(a.type), e.const(1, a.type)
    b = e.select(e.compare("eq", b, zero), one, b)
    by_floats = a.lanes > 1 and kind.nbytes <= 4 and not by_constant
    if not signed:
        quotient, remainder = _divided_by_floats(e, a, b, kind) if by_floats else (e.binary("udiv", a, b), e.binary("urem", a, b))
        return quotient if name in ("div", "floordiv") else remainder
    minus = e.compare("eq", b, e.const(-1, a.type))
    safe = e.select(minus, one, b)
    quotient, remainder = _divided_by_floats(e, a, safe, kind) if by_floats else (e.binary("sdiv", a, safe), e.binary("srem", a, safe))
    quotient, remainder = e.select(minus, e.binary("sub", zero, a), quotient), e.select(minus, zero, remainder)
    if name in ("div", "rem"):
        return quotient if name == "div" else remainder
    negative = e.compare("slt", e.binary("xor", remainder, b), zero)
    adjust = e.binary("and", e.compare("ne", remainder, zero), negative)
    if name == "floordiv":
        return e.binary("sub", quotient, e.cast("zext", adjust, a.element))
    return e.select(adjust, e.binary("add", remainder, b), remainder)


def _divided_by_floats(e: Emitter, a: Value, b: Value, kind: DType) -> tuple[Value, Value]:
    """Quotient, towards zero, and remainder of vectors of integers. Processors divide vectors of floats only, and LLVM lane by lane.

    Exact: a / b is further from the next integer than the quotient's rounding, for a needs fewer bits than the float has.
    """
    element, sign = "double" if kind.nbytes == 4 else "float", "s" if kind.kind == "int" else "u"
    ratio = e.binary("fdiv", *(e.cast(f"{sign}itofp", value, element) for value in (a, b)))
    quotient = e.cast(f"fpto{sign}i", ratio, a.element)
    return quotient, e.binary("sub", a, e.binary("mul", quotient, b))
