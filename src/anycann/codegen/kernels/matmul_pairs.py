"""Products of bfloat16 by dot products of two (AVX512-BF16), summed in float32: twice the rate of float32 multiply-adds.

The instruction takes denormal numbers as zero and rounds once per pair; both are within what mixed precision promises.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_shape import MatmulShape
from anycann.codegen.values import Value
from anycann.target.target import Target
from anycann.te import dtypes

PAIR = 2


def wants_pairs(shape: MatmulShape, target: Target) -> bool:
    """True if a constant B of this product should be packed in pairs."""
    is_bfloat = shape.a_dtype is shape.b_dtype is dtypes.bfloat16 and shape.accumulator is dtypes.float32
    return is_bfloat and shape.a.column == 1 and shape.n > 1 and target.lanes == 16 and target.has("avx512bf16")


def pack_pairs(b: npt.NDArray[np.generic], width: int) -> npt.NDArray[np.generic]:
    """[..., K, N] of bfloat16 -> [..., panels, ceil(K / 2), width, 2], zero where there is no element."""
    *batch, k, n = b.shape
    panels, pairs = -(-n // width), -(-k // PAIR)
    padded = np.zeros((*batch, pairs * PAIR, panels * width), b.dtype)
    padded[..., :k, :n] = b
    return np.ascontiguousarray(np.moveaxis(padded.reshape(*batch, pairs, PAIR, panels, width), [-2, -1, -3], [-4, -2, -1]))


def pair_panel_bytes(shape: MatmulShape, width: int) -> int:
    """Bytes of one panel of `pack_pairs`."""
    return -(-shape.k // PAIR) * width * PAIR * 2


def emit_pair_sums(
    e: Emitter, shape: MatmulShape, lanes: int, vectors: int, width: int, rows_of_a: list[Value], panel: Value
) -> list[Value]:
    """The finished sums [row, vector] of rows of A that begin at `rows_of_a`, times one panel."""
    row_bytes, whole = width * PAIR * 2, shape.k // PAIR
    sums = [e.zero(f"<{lanes} x float>")] * (len(rows_of_a) * vectors)
    with e.loop(0, whole, carried=sums) as pair:
        factors = [e.load(e.gep(a, e.mul(pair.index, PAIR), "i16"), "i32", 2) for a in rows_of_a]
        pair.carry(_multiply(e, lanes, vectors, factors, e.gep(panel, e.mul(pair.index, row_bytes), "i8"), pair.values))
    if shape.k % PAIR == 0:
        return pair.values
    factors = [e.cast("zext", e.load(e.gep(a, whole * PAIR, "i16"), "i16", 2), "i32") for a in rows_of_a]
    return _multiply(e, lanes, vectors, factors, e.gep(panel, whole * row_bytes, "i8"), pair.values)


def _multiply(e: Emitter, lanes: int, vectors: int, factors: list[Value], row: Value, sums: list[Value]) -> list[Value]:
    """sums + two products, for each row and vector."""
    type_ = f"<{PAIR * lanes} x bfloat>"
    columns = [e.load(e.gep(row, j * lanes * PAIR, "i16"), type_, 4) for j in range(vectors)]
    spread = [e.op(f"bitcast <{lanes} x i32> {e.splat(factor, lanes).text} to {type_}", type_) for factor in factors]
    name = "llvm.x86.avx512bf16.dpbf16ps.512"
    return [e.call(name, sums[0].type, [sums[i * vectors + j], a, b]) for i, a in enumerate(spread) for j, b in enumerate(columns)]
