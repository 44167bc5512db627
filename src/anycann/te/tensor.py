"""Tensors of expressions: placeholders (memory), computed elements and reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import hashlib
import math

import numpy as np

from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te.dtypes import DType
from anycann.te.expression import Const, Expr, Load, Operand, Var, wrap


@dataclass(frozen=True, eq=False)
class Tensor:
    """A shape and an element type; `tensor[i, j]` is the expression of one element."""

    shape: tuple[int, ...]
    dtype: DType

    def __getitem__(self, indices: Operand | tuple[Operand, ...]) -> Load:
        listed = indices if isinstance(indices, tuple) else (indices,)
        assert len(listed) == len(self.shape), f"{len(listed)} indices for a rank-{len(self.shape)} tensor"
        return Load(self, tuple(wrap(index, dtypes.int64) for index in listed))

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The least and the greatest element if they are known integers; what is indexed with them is then proved to stay inside."""
        return None


@dataclass(frozen=True, eq=False)
class Placeholder(Tensor):
    """Elements that are in memory when the kernel starts. `name` is the graph's value name."""

    name: str


@dataclass(frozen=True, eq=False)
class Constant(Placeholder):
    """A table made while compiling; it goes to the constant pool. Equal tables have equal names."""

    value: np.ndarray

    @property
    def bounds(self) -> tuple[int, int] | None:
        if self.value.dtype.kind not in "iu" or not self.value.size:
            return None
        return int(self.value.min()), int(self.value.max())


@dataclass(frozen=True, eq=False)
class Compute(Tensor):
    """Element [axes] is `body`."""

    axes: tuple[Expr, ...]  # a Var per dimension; Const 0 for a dimension of extent 1
    body: Expr


@dataclass(frozen=True, eq=False)
class Reduction(Tensor):
    """Element [axes] is `kind` (sum, prod, max, min, any, all, largest_number) of `body` over `reduce_axes`.

    largest_number: the largest of floats, of those that are no NaN.
    """

    axes: tuple[Expr, ...]
    reduce_axes: tuple[Var, ...]
    kind: str
    body: Expr


@dataclass(frozen=True, eq=False)
class Contraction(Tensor):
    """Elements a kernel generator delivers vector by vector (convolution, matmul); `operator` says which and with what."""

    operator: object


def placeholder(name: str, shape: Sequence[int], dtype: DType) -> Placeholder:
    """A tensor in memory."""
    return Placeholder(tuple(shape), dtype, name)


def table(value: np.ndarray) -> Constant:
    """A tensor of known elements, row-major. Raises KeyError for an element type that no kernel handles."""
    value = np.ascontiguousarray(value)
    key = hashlib.sha256(f"{value.dtype}{value.shape}".encode() + value.tobytes()).hexdigest()
    return Constant(value.shape, dtypes.of(value.dtype), f"table:{key[:20]}", value)


def axes_of(shape: Sequence[int], prefix: str = "i") -> tuple[Expr, ...]:
    """A fresh index variable for each dimension; a dimension of extent 1 has the index 0 and no variable."""
    return tuple(Const(0, dtypes.int64) if extent == 1 else Var(f"{prefix}{n}", extent) for n, extent in enumerate(shape))


def compute(shape: Sequence[int], element: Callable[..., Operand], dtype: DType | None = None) -> Compute:
    """The tensor whose element [i, j, ...] is `element(i, j, ...)`. `dtype` is needed only if that is a Python number."""
    axes = axes_of(shape)
    body = element(*axes)
    if not isinstance(body, Expr):
        assert dtype is not None, "a constant element needs a dtype"
        body = Const(body, dtype)
    return Compute(tuple(shape), body.dtype, axes, body)


def reduce(kind: str, shape: Sequence[int], over: Sequence[int], element: Callable[..., Expr]) -> Reduction:
    """The tensor whose element [i...] is `kind` of `element(i..., r...)` with r over the extents `over`."""
    axes = axes_of(shape)
    inner = axes_of(over, "r")
    body = element(*axes, *inner)
    variables = tuple(axis for axis in inner if isinstance(axis, Var))
    return Reduction(tuple(shape), body.dtype, axes, variables, kind, body)


def contraction(operator: object, shape: Sequence[int], dtype: DType) -> Contraction:
    """The result of a kernel generator."""
    return Contraction(tuple(shape), dtype, operator)
