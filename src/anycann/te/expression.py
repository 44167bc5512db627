"""Scalar expressions: what one element of a tensor is, as a tree over index variables, constants and loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
import itertools
from typing import TYPE_CHECKING, TypeAlias

from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te.dtypes import DType

if TYPE_CHECKING:
    from anycann.te.tensor import Tensor

_serial = itertools.count()


class Expr:
    """Base of all expressions; compared by identity, so that a shared subexpression is computed once."""

    dtype: DType

    def __add__(self, other: Operand) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return binary("div", other, self)

    def __floordiv__(self, other: Operand) -> Expr:
        return binary("floordiv", self, other)

    def __mod__(self, other: Operand) -> Expr:
        return binary("floormod", self, other)

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __lt__(self, other: Operand) -> Expr:
        return compare("lt", self, other)

    def __le__(self, other: Operand) -> Expr:
        return compare("le", self, other)

    def __gt__(self, other: Operand) -> Expr:
        return compare("gt", self, other)

    def __ge__(self, other: Operand) -> Expr:
        return compare("ge", self, other)

    def __and__(self, other: Operand) -> Expr:
        return binary("and", self, other)

    def __or__(self, other: Operand) -> Expr:
        return binary("or", self, other)

    def __xor__(self, other: Operand) -> Expr:
        return binary("xor", self, other)


Operand: TypeAlias = Expr | int | float | bool


@dataclass(frozen=True, eq=False)
class Const(Expr):
    """A literal."""

    value: float | int | bool
    dtype: DType


@dataclass(frozen=True, eq=False)
class Var(Expr):
    """An index that runs over 0 .. extent-1."""

    name: str
    extent: int
    dtype: DType = dtypes.int64
    serial: int = field(default_factory=lambda: next(_serial))


@dataclass(frozen=True, eq=False)
class Load(Expr):
    """One element of a tensor at a logical index."""

    tensor: Tensor
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.tensor.dtype


COSTLY = frozenset(  # operations of many instructions
    {"exp", "log", "tanh", "tanh_of_softplus", "erf", "gelu", "gelu_tanh", "sigmoid", "silu", "pow", "sin", "cos", "softplus"}
)


@dataclass(frozen=True, eq=False)
class Op(Expr):
    """An elementwise operation by name (`add`, `exp`, `select`, `cast` ...); codegen/operations.py says how each is emitted."""

    name: str
    operands: tuple[Expr, ...]
    dtype: DType


def const(value: float | int | bool, dtype: DType) -> Const:
    """A literal of `dtype`."""
    return Const(value, dtype)


def wrap(value: Operand, dtype: DType) -> Expr:
    """`value` itself, or a literal of `dtype` if it is a Python number."""
    return value if isinstance(value, Expr) else Const(value, dtype)


def _pair(a: Operand, b: Operand) -> tuple[Expr, Expr]:
    dtype = a.dtype if isinstance(a, Expr) else b.dtype if isinstance(b, Expr) else dtypes.int64
    left, right = wrap(a, dtype), wrap(b, dtype)
    if left.dtype != right.dtype:
        raise TypeError(f"operands of different element types: {left.dtype} and {right.dtype}")
    return left, right


def binary(name: str, a: Operand, b: Operand) -> Expr:
    """An operation on two operands of one dtype; the result has it too. Integer literals are folded."""
    left, right = _pair(a, b)
    if isinstance(left, Const) and isinstance(right, Const) and left.dtype == dtypes.int64 and name in FOLDED:
        return Const(FOLDED[name](int(left.value), int(right.value)), dtypes.int64)
    return Op(name, (left, right), left.dtype)


FOLDED: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


def unary(name: str, x: Expr, dtype: DType | None = None) -> Expr:
    """An operation on one operand; the result has its dtype unless another is given."""
    return Op(name, (x,), dtype or x.dtype)


def compare(name: str, a: Operand, b: Operand) -> Expr:
    """lt, le, gt, ge, eq or ne: a bool. NaN compares false except with ne."""
    return Op(name, _pair(a, b), dtypes.bool_)


def select(condition: Expr, a: Operand, b: Operand) -> Expr:
    """a where condition holds, else b. Loads in the branch not taken are not performed."""
    left, right = _pair(a, b)
    return Op("select", (condition, left, right), left.dtype)


def cast(x: Expr, dtype: DType) -> Expr:
    """Convert as ONNX Cast does (floats to integers truncate; to bool: not zero)."""
    return x if x.dtype == dtype else Op("cast", (x,), dtype)


def bitcast(x: Expr, dtype: DType) -> Expr:
    """The stored bits of x read as another type of the same size."""
    assert x.dtype.nbytes == dtype.nbytes
    return x if x.dtype == dtype else Op("bitcast", (x,), dtype)


def lookup(index: Expr, table: bytes, dtype: DType) -> Expr:
    """Byte number `index` (a uint8) of 256, as the 8-bit `dtype`. The table is a literal, one number of 256 bytes, the first lowest."""
    assert index.dtype == dtypes.uint8
    assert len(table) == 256
    assert dtype.nbytes == 1
    return Op("lookup", (index, Const(int.from_bytes(table, "little"), dtype)), dtype)


def maximum(a: Operand, b: Operand) -> Expr:
    """The larger; NaN if either is."""
    return binary("max", a, b)


def minimum(a: Operand, b: Operand) -> Expr:
    """The smaller; NaN if either is."""
    return binary("min", a, b)


def equal(a: Operand, b: Operand) -> Expr:
    """True where the operands are equal; NaN equals nothing."""
    return compare("eq", a, b)


def not_equal(a: Operand, b: Operand) -> Expr:
    """True where they differ, and for NaN."""
    return compare("ne", a, b)


def logical_not(x: Expr) -> Expr:
    """The negation of a bool."""
    return unary("not", x)


def clamp(x: Expr, low: Operand | None, high: Operand | None) -> Expr:
    """x held within low..high (either may be None)."""
    x = x if low is None else maximum(x, low)
    return x if high is None else minimum(x, high)


def clamp_to_unit(x: Expr) -> Expr:
    """x held within 0..1, by the upper end first: of a product with min(x, 1) LLVM makes a comparison and a choice between two factors."""
    return maximum(minimum(x, 1.0), 0.0)


def all_of(conditions: Sequence[Expr]) -> Expr | None:
    """The conjunction; None for none."""
    result: Expr | None = None
    for condition in conditions:
        result = condition if result is None else result & condition
    return result
