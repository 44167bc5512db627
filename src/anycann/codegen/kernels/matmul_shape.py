"""What a matrix product is: sizes, where the elements of its operands lie, and their types."""

from __future__ import annotations

from dataclasses import replace
import math

from anycann.codegen.conversions import from_storage
from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te.dtypes import DType


@dataclass(frozen=True)
class Strides:
    """Distances in elements between neighbours: along each batch dimension (0: the same matrix again), down a column, along a row."""

    batch: tuple[int, ...]
    row: int
    column: int


@dataclass(frozen=True)
class MatmulShape:
    """C[batch, m, n] = sum over k of A[batch, m, k] B[batch, k, n].

    a: strides of A; `a.row` leads to the next m, `a.column` to the next k. b: strides of B; `b.row` leads to the next k, `b.column` to the
    next n. packed: B lies in the panels of `pack_columns`; its batch strides then count matrices, and its other strides mean nothing.
    grouped: packed, with neighbours of k side by side for dot product instructions (8-bit integers, bfloat16).
    accumulator: the type of the sums (float32 for float16 and bfloat16 operands, int32 for 8-bit integers).
    scale_rows: B holds integers, packed, of which so many rows share the scales of their columns (`matmul_scaled.py`); 0: no scales.
    """

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    a: Strides
    b: Strides
    packed: bool = False
    grouped: bool = False
    a_dtype: DType = dtypes.float32
    b_dtype: DType = dtypes.float32
    accumulator: DType = dtypes.float32
    scale_rows: int = 0

    def __post_init__(self) -> None:
        assert len(self.a.batch) == len(self.b.batch) == len(self.batch), self

    @property
    def batches(self) -> int:
        """Number of products."""
        return math.prod(self.batch)

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.batches * self.m * self.n * self.k


def contiguous(
    batch: tuple[int, ...], m: int, n: int, k: int, *, transpose_a: bool = False, transpose_b: bool = False, **rest: object
) -> MatmulShape:
    """The shape of row-major operands, either of them stored transposed (as Gemm's transA and transB). `rest`: further fields."""
    a_steps, b_steps = _batch_strides(batch, m * k), _batch_strides(batch, k * n)
    a = Strides(a_steps, 1, m) if transpose_a else Strides(a_steps, k, 1)
    b = Strides(b_steps, 1, k) if transpose_b else Strides(b_steps, n, 1)
    return MatmulShape(batch, m, n, k, a, b, **rest)  # type: ignore[arg-type]


def _batch_strides(batch: tuple[int, ...], matrix: int) -> tuple[int, ...]:
    return tuple(math.prod(batch[i + 1 :]) * matrix for i in range(len(batch)))


def folded(shape: MatmulShape) -> MatmulShape:
    """The same products with batch dimensions taken into m as far as possible: from the last, those that B does not have.

    [batch, m, k] x [k, n] is one product of batch * m rows if the matrices of A follow each other as its rows do.
    """
    batch, a_steps, b_steps = list(shape.batch), list(shape.a.batch), list(shape.b.batch)
    m, row = shape.m, shape.a.row
    while batch and (batch[-1] == 1 or (b_steps[-1] == 0 and (m == 1 or a_steps[-1] == m * row))):
        extent, step, _ = batch.pop(), a_steps.pop(), b_steps.pop()
        if extent > 1:
            m, row = m * extent, step if m == 1 else row
    a, b = Strides(tuple(a_steps), row, shape.a.column), Strides(tuple(b_steps), shape.b.row, shape.b.column)
    return replace(shape, batch=tuple(batch), m=m, a=a, b=b)


def lanes_of(accumulator: DType, lanes: int) -> int:
    """Elements of the accumulator in a vector register of `lanes` float32."""
    return max(1, lanes * 4 // accumulator.nbytes)


@dataclass(frozen=True)
class Operand:
    """One operand in memory: its type, and the register type it is widened to when loaded."""

    dtype: DType
    accumulator: DType

    def widen(self, e: Emitter, raw: Value) -> Value:
        """A loaded scalar or vector in the type of the accumulator."""
        value = from_storage(e, raw, self.dtype)
        if value.element == self.accumulator.register:
            return value
        if self.dtype.is_float:
            return e.cast("fpext", value, self.accumulator.register)
        if self.accumulator.is_float:
            return e.cast("sitofp" if self.dtype.is_signed else "uitofp", value, self.accumulator.register)
        return e.cast("sext" if self.dtype.is_signed else "zext", value, self.accumulator.register)

    def load(self, e: Emitter, pointer: Value, lanes: int, mask: Value | None = None) -> Value:
        """`lanes` neighbours, widened; lanes outside `mask` are not read and are zero."""
        type_ = vector_type(self.dtype.storage, lanes)
        if mask is None:
            return self.widen(e, e.load(pointer, type_, self.dtype.nbytes))
        return self.widen(e, e.masked_load(pointer, type_, self.dtype.nbytes, mask, e.zero(type_)))

    def broadcast(self, e: Emitter, pointer: Value, lanes: int) -> Value:
        """One element in every lane, widened there."""
        raw = e.load(pointer, self.dtype.storage, self.dtype.nbytes)
        return self.widen(e, e.splat(raw, lanes))

    def step(self, e: Emitter, pointer: Value, elements: Value | int) -> Value:
        """The address `elements` further on."""
        return e.gep(pointer, elements, self.dtype.storage)


def multiply_add(e: Emitter, a: Value, b: Value, total: Value) -> Value:
    """total + a b in the type of the accumulator; one rounding where the processor fuses."""
    if total.element in ("float", "double"):
        return e.intrinsic("fmuladd", [a, b, total])
    return e.binary("add", e.binary("mul", a, b), total)


def addition(value: Value) -> str:
    """The instruction that adds values of this type."""
    return "fadd" if value.element in ("float", "double") else "add"
