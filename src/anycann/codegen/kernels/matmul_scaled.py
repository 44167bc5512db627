"""Weights that are stored as integers with scales: a panel of them becomes floats in scratch, once for all the rows of a task.

A product of few rows waits for its weights, which are a quarter of the bytes so; one of many multiplies floats as ever.
"""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_shape import Operand
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass

_LINE_BYTES, _MOST_AHEAD = 64, 32 << 10


@dataclass(frozen=True)
class ScaledCopy:
    """How a packed panel is copied: its integers, columns of a panel, vectors that are used, lanes of one.

    depth: rows of B. scale_rows: rows that share the scales of their columns. ahead: rows that the next copy will read.
    """

    operand: Operand
    width: int
    vectors: int
    lanes: int
    depth: int
    scale_rows: int
    ahead: int

    @property
    def blocks(self) -> int:
        """Rows of scales."""
        return -(-self.depth // self.scale_rows)


def emit_scaled_copy(e: Emitter, copy: ScaledCopy, source: Value, scales: Value, first: Value, count: Value, panel: Value) -> None:
    """panel[0..count] = the integers at `source` times the scales of their rows; row 0 there is row `first` of B."""
    one = _factors(e, copy, scales, e.const(0)) if copy.blocks == 1 else None
    with e.loop(0, count) as k:
        row = copy.operand.step(e, source, e.mul(k.index, copy.width))
        _fetch(e, copy, row)
        factors = one or _factors(e, copy, scales, e.udiv(e.add(first, k.index), copy.scale_rows))
        to = e.gep(panel, e.mul(k.index, copy.width), copy.operand.accumulator.register)
        for j, factor in enumerate(factors):
            value = copy.operand.load(e, copy.operand.step(e, row, j * copy.lanes), copy.lanes)
            e.store(e.binary("fmul", value, factor), e.gep(to, j * copy.lanes, value.element), copy.operand.accumulator.nbytes)


def _factors(e: Emitter, copy: ScaledCopy, scales: Value, block: Value) -> list[Value]:
    """The scales of a block of rows, a vector for each of the panel."""
    register, nbytes = copy.operand.accumulator.register, copy.operand.accumulator.nbytes
    start = e.gep(scales, e.mul(block, copy.width), register)
    return [e.load(e.gep(start, j * copy.lanes, register), vector_type(register, copy.lanes), nbytes) for j in range(copy.vectors)]


def _fetch(e: Emitter, copy: ScaledCopy, row: Value) -> None:
    """What the next copy reads comes while the rows of A are multiplied."""
    nbytes = copy.width * copy.operand.dtype.nbytes
    for line in range(0, nbytes, _LINE_BYTES):
        e.prefetch(e.gep(row, min(copy.ahead * nbytes, _MOST_AHEAD) + line, "i8"))
