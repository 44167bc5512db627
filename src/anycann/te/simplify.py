"""Index arithmetic: linear forms over index variables, ranges, and exact division."""

from __future__ import annotations

from functools import lru_cache
import math

from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te.expression import Const, Expr, Load, Op, Var


@dataclass(frozen=True)
class Linear:
    """constant + sum of coefficient * atom. An atom is a Var, or an expression that is not linear (a division, a loaded index)."""

    terms: tuple[tuple[Expr, int], ...]
    constant: int

    def coefficient(self, atom: Expr) -> int:
        """0 if the atom does not occur."""
        return next((factor for other, factor in self.terms if other is atom), 0)

    @property
    def atoms(self) -> tuple[Expr, ...]:
        return tuple(atom for atom, _ in self.terms)


@dataclass(frozen=True)
class Range:
    """Inclusive bounds."""

    low: float
    high: float

    def within(self, low: int, high: int) -> bool:
        return low <= self.low and self.high <= high


EVERYTHING = Range(-math.inf, math.inf)


@lru_cache(maxsize=4096)  # a kernel asks for that of its one store once for each vector of a tile
def linear(expr: Expr) -> Linear:
    """The linear form of an int64 index expression, with divisions and remainders resolved where ranges allow."""
    terms: dict[int, tuple[Expr, int]] = {}
    constant = _collect(expr, 1, terms)
    kept = sorted((t for t in terms.values() if t[1]), key=_order)
    return Linear(tuple(kept), constant)


def _order(term: tuple[Expr, int]) -> tuple[int, int]:
    return (term[0].serial if isinstance(term[0], Var) else 1 << 60, -term[1])


def _collect(expr: Expr, factor: int, terms: dict[int, tuple[Expr, int]]) -> int:
    """Add factor * expr to terms; returns the constant part."""
    if isinstance(expr, Const):
        return factor * int(expr.value)
    if isinstance(expr, Op):
        a, b = (*expr.operands, *expr.operands)[:2]
        if expr.name == "add":
            return _collect(a, factor, terms) + _collect(b, factor, terms)
        if expr.name == "sub":
            return _collect(a, factor, terms) + _collect(b, -factor, terms)
        if expr.name == "neg":
            return _collect(a, -factor, terms)
        if expr.name == "mul":
            for x, y in ((a, b), (b, a)):
                if isinstance(y, Const):
                    return _collect(x, factor * int(y.value), terms)
                constant = linear(y)
                if not constant.terms:
                    return _collect(x, factor * constant.constant, terms)
        if expr.name in ("floordiv", "floormod") and isinstance(b, Const):
            return _collect_division(expr, int(b.value), factor, terms)
    _add(expr, factor, terms)
    return 0


def _add(atom: Expr, factor: int, terms: dict[int, tuple[Expr, int]]) -> None:
    known = terms.get(id(atom), (atom, 0))[1]
    terms[id(atom)] = (atom, known + factor)


def _collect_division(expr: Op, divisor: int, factor: int, terms: dict[int, tuple[Expr, int]]) -> int:
    """floordiv and floormod: terms whose coefficient the divisor divides come out whole if the rest stays within one period."""
    form = linear(expr.operands[0])
    whole_constant, rest_constant = divmod(form.constant, divisor)
    whole = [(atom, c // divisor) for atom, c in form.terms if c % divisor == 0]
    rest = Linear(tuple((atom, c) for atom, c in form.terms if c % divisor), rest_constant)
    if not range_of_linear(rest).within(0, divisor - 1):
        # (x + d*k) // d = x // d + k and (x + d*k) % d = x % d for every integer x and k
        leftover = _reduced(rest, divisor, expr.name)
        if leftover is None:
            _add(expr, factor, terms)
            return 0
        _add(leftover, factor, terms)
    elif expr.name == "floormod":
        for atom, c in rest.terms:
            _add(atom, factor * c, terms)
        return factor * rest.constant
    if expr.name == "floormod":
        return 0
    for atom, c in whole:
        _add(atom, factor * c, terms)
    return factor * whole_constant


def _reduced(rest: Linear, divisor: int, name: str) -> Expr | None:
    """rest // divisor or rest % divisor as an expression with common factors cancelled; None if nothing was taken out."""
    common = math.gcd(divisor, *(c for _, c in rest.terms), rest.constant)
    if common > 1:
        smaller = Linear(tuple((atom, c // common) for atom, c in rest.terms), rest.constant // common)
        inner = Op(name, (to_expr(smaller), Const(divisor // common, dtypes.int64)), dtypes.int64)
        return inner if name == "floordiv" else Op("mul", (inner, Const(common, dtypes.int64)), dtypes.int64)
    return Op(name, (to_expr(rest), Const(divisor, dtypes.int64)), dtypes.int64)


def to_expr(form: Linear) -> Expr:
    """Back to an expression."""
    result: Expr | None = None
    for atom, factor in form.terms:
        term = atom if factor == 1 else Op("mul", (atom, Const(factor, dtypes.int64)), dtypes.int64)
        result = term if result is None else Op("add", (result, term), dtypes.int64)
    if result is None:
        return Const(form.constant, dtypes.int64)
    return result if form.constant == 0 else Op("add", (result, Const(form.constant, dtypes.int64)), dtypes.int64)


def range_of_linear(form: Linear) -> Range:
    """Bounds of a linear form, from the bounds of its atoms."""
    low = high = float(form.constant)
    for atom, factor in form.terms:
        bounds = range_of(atom)
        a, b = sorted((_times(bounds.low, factor), _times(bounds.high, factor)))
        low, high = low + a, high + b
    return Range(low, high)


def _times(bound: float, factor: int) -> float:
    return 0.0 if bound == 0 or factor == 0 else bound * factor


_SHORT = Range(-(1 << 31), (1 << 31) - 1)
_SHORT_OPERATIONS = frozenset({"add", "sub", "mul", "neg", "min", "max", "floordiv", "floormod", "lt", "le", "gt", "ge", "eq", "ne"})


def is_short(expr: Op) -> bool:
    """Whether an operation on 64-bit integers has operands, and a result, that 32 bits hold."""
    if expr.name not in _SHORT_OPERATIONS or expr.operands[0].dtype != dtypes.int64:
        return False
    values = [*expr.operands, expr] if expr.dtype == dtypes.int64 else expr.operands
    return all(range_of(value).within(int(_SHORT.low), int(_SHORT.high)) for value in values)


@lru_cache(maxsize=4096)
def range_of(expr: Expr) -> Range:
    """Bounds of an int64 index expression; EVERYTHING if it is loaded from memory that is not known."""
    if isinstance(expr, Const):
        return Range(float(expr.value), float(expr.value))
    if isinstance(expr, Var):
        return Range(0, expr.extent - 1)
    if isinstance(expr, Load):
        return EVERYTHING if expr.tensor.bounds is None else Range(*expr.tensor.bounds)
    if not isinstance(expr, Op):
        return EVERYTHING
    return _range_of_op(expr)


def _range_of_op(expr: Op) -> Range:
    if expr.name in ("add", "sub", "neg"):
        form = linear(expr)
        if not any(atom is expr for atom in form.atoms):
            return range_of_linear(form)
    bounds = [range_of(operand) for operand in expr.operands]
    if expr.name == "select":
        return Range(min(bounds[1].low, bounds[2].low), max(bounds[1].high, bounds[2].high))
    if expr.name == "cast" and expr.operands[0].dtype.kind in ("int", "uint"):
        return bounds[0]
    if expr.name == "cast" and expr.dtype == dtypes.int32:
        return _SHORT
    if expr.name == "min":
        return Range(min(b.low for b in bounds), min(b.high for b in bounds))
    if expr.name == "max":
        return Range(max(b.low for b in bounds), max(b.high for b in bounds))
    if expr.name == "mul":
        corners = [_product(x, y) for x in (bounds[0].low, bounds[0].high) for y in (bounds[1].low, bounds[1].high)]
        return Range(min(corners), max(corners))
    return _range_of_division(expr, bounds[0])


def _product(x: float, y: float) -> float:
    return 0.0 if x == 0 or y == 0 else x * y


def _range_of_division(expr: Op, bounds: Range) -> Range:
    divisor = expr.operands[1] if len(expr.operands) == 2 else None
    if not isinstance(divisor, Const) or int(divisor.value) <= 0:
        return EVERYTHING
    d = int(divisor.value)
    if expr.name == "floormod":
        return bounds if bounds.within(0, d - 1) else Range(0, d - 1)
    if expr.name == "floordiv":
        return Range(_floor(bounds.low / d), _floor(bounds.high / d))
    return EVERYTHING


def _floor(x: float) -> float:
    return x if math.isinf(x) else math.floor(x)
