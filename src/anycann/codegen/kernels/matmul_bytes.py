"""Products of 8-bit integers by dot products of four bytes (AVX512-VNNI): sums of u8 times s8 in int32.

A signed A is taken as a + 128 and an unsigned B as b - 128, so that the instruction's signs hold; what that adds is a constant per column,
put into the panel when B is packed, and 128 times the sum of a row of A, which one more product with ones finds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_shape import MatmulShape
from anycann.codegen.values import Value
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.dtypes import DType

QUAD = 4


def wants_quads(shape: MatmulShape, target: Target) -> bool:
    """True if a constant B of this product should be packed by `pack_quads` and the shape marked `grouped`."""
    is_bytes = {shape.a_dtype, shape.b_dtype} <= {dtypes.int8, dtypes.uint8} and shape.accumulator is dtypes.int32
    return is_bytes and shape.a.column == 1 and shape.n > 1 and target.lanes == 16 and target.has("avx512vnni")


def pack_quads(b: npt.NDArray[np.generic], width: int, a_dtype: DType, start: npt.NDArray[np.int32] | None = None) -> npt.NDArray[np.int8]:
    """[..., K, N] of int8 or uint8 -> [..., panels, 1 + ceil(K / 4), width, 4] int8.

    Row 0 of a panel holds the int32 that each column's sums start from: `start` ([..., N], zero if not given), less what the shifted
    signs of A add. The other rows hold four values of k for every column.
    """
    *batch, k, n = b.shape
    panels, quads = -(-n // width), -(-k // QUAD)
    signed = b.astype(np.int32) - (128 if b.dtype == np.uint8 else 0)
    first = np.zeros((*batch, panels * width), np.int32)
    first[..., :n] = 0 if start is None else start
    if a_dtype is dtypes.int8:
        first[..., :n] -= 128 * signed.sum(-2, dtype=np.int32) + (128 * 128 * k if b.dtype == np.uint8 else 0)
    padded = np.zeros((*batch, quads * QUAD, panels * width), np.int8)
    padded[..., :k, :n] = signed
    rows = np.moveaxis(padded.reshape(*batch, quads, QUAD, panels, width), [-2, -1, -3], [-4, -2, -1])
    head = first.view(np.int8).reshape(*batch, panels, 1, width, QUAD)
    return np.ascontiguousarray(np.concatenate([head, rows], axis=-3))


def byte_panel_bytes(shape: MatmulShape, width: int) -> int:
    """Bytes of one panel of `pack_quads`."""
    return (1 + -(-shape.k // QUAD)) * width * QUAD


def emit_byte_sums(
    e: Emitter, shape: MatmulShape, lanes: int, vectors: int, width: int, rows_of_a: list[Value], panel: Value
) -> list[Value]:
    """The finished sums [row, vector] of rows of A that begin at `rows_of_a`, times one panel."""
    type_ = f"<{lanes} x i32>"
    first = [e.load(e.gep(panel, j * lanes * QUAD, "i8"), type_, 4) for j in range(vectors)]
    rows = len(rows_of_a)
    sums = first * rows + ([e.zero(type_)] * rows if shape.b_dtype is dtypes.uint8 else [])
    row_bytes, whole, rest = width * QUAD, *divmod(shape.k, QUAD)
    body = e.gep(panel, row_bytes, "i8")
    with e.loop(0, whole, carried=sums) as quad:
        factors = [_quad(e, e.load(e.gep(a, e.mul(quad.index, QUAD), "i8"), "i32", 1), shape, QUAD) for a in rows_of_a]
        quad.carry(_multiply(e, lanes, vectors, factors, e.gep(body, e.mul(quad.index, row_bytes), "i8"), quad.values))
    sums = quad.values
    if rest:
        factors = [_quad(e, _short_quad(e, e.gep(a, whole * QUAD, "i8"), rest), shape, rest) for a in rows_of_a]
        sums = _multiply(e, lanes, vectors, factors, e.gep(body, whole * row_bytes, "i8"), sums)
    if shape.b_dtype is not dtypes.uint8:
        return sums
    shifts = [e.binary("shl", total, e.const(7, type_)) for total in sums[rows * vectors :]]
    return [e.binary("add", sums[i * vectors + j], shifts[i]) for i in range(rows) for j in range(vectors)]


def _quad(e: Emitter, four: Value, shape: MatmulShape, count: int) -> Value:
    """Four bytes of A as unsigned numbers; the first `count` exist."""
    if shape.a_dtype is dtypes.uint8:
        return four
    return e.binary("xor", four, e.const(int.from_bytes(bytes([0x80] * count), "little"), "i32"))


def _short_quad(e: Emitter, pointer: Value, count: int) -> Value:
    """The first bytes of four, read one by one; the others zero."""
    total = e.const(0, "i32")
    for i in range(count):
        byte = e.cast("zext", e.load(e.gep(pointer, i, "i8"), "i8", 1), "i32")
        total = e.binary("or", total, e.binary("shl", byte, e.const(8 * i, "i32")))
    return total


def _multiply(e: Emitter, lanes: int, vectors: int, factors: list[Value], row: Value, sums: list[Value]) -> list[Value]:
    """sums + four products, for each row and vector; behind them, if they are there, the sums of the rows of A."""
    type_ = f"<{QUAD * lanes} x i8>"
    columns = [e.load(e.gep(row, j * lanes * QUAD, "i8"), type_, 4) for j in range(vectors)]
    spread = [e.op(f"bitcast <{lanes} x i32> {e.splat(factor, lanes).text} to {type_}", type_) for factor in factors]
    totals = [_dot(e, sums[i * vectors + j], a, b) for i, a in enumerate(spread) for j, b in enumerate(columns)]
    rest = sums[len(totals) :]
    return totals + [_dot(e, total, a, e.const(1, type_)) for total, a in zip(rest, spread, strict=False)]


def _dot(e: Emitter, total: Value, a: Value, b: Value) -> Value:
    return e.call("llvm.x86.avx512.vpdpbusd.512", total.type, [total, a, b])
