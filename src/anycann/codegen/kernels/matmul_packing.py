"""Column panels of B: packed once with numpy when B is constant, copied by the kernel into its scratch memory when it is not.

A panel holds `width` columns, row after row: panel[k][c] = B[k, first column + c]. The innermost loop then reads one stream.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_shape import Operand
from anycann.codegen.values import Value, first_lanes
from anycann.support.arrangement import Arrangement
from anycann.support.records import dataclass


def pack_columns(b: np.ndarray, width: int) -> np.ndarray:
    """[..., K, N] -> [..., ceil(N / width), K, width] of the same type, columns beyond N zero."""
    *batch, k, n = b.shape
    panels = -(-n // width)
    padded = np.zeros((*batch, k, panels * width), b.dtype)
    padded[..., :n] = b
    return np.ascontiguousarray(np.moveaxis(padded.reshape(*batch, k, panels, width), -2, -3))


def columns_arrangement(shape: Sequence[int], width: int, transposed: bool) -> Arrangement:
    """Where B of this shape, [..., K, N] or `transposed` [..., N, K], lies in what `pack_columns` makes of its columns."""
    *batch, k, n = (*shape[:-2], shape[-1], shape[-2]) if transposed else shape
    panels, outer = -(-n // width), range(len(batch))
    panel, row, column = (len(batch) + axis for axis in range(3))
    axes = (panel, column, row) if transposed else (row, panel, column)
    padded = (panels * width, k) if transposed else (k, panels * width)
    return Arrangement((*batch, panels, k, width), (*outer, *axes), (*batch, *padded), tuple(shape))


@dataclass(frozen=True)
class PanelCopy:
    """How a panel is copied: the operand, its strides, how many of the panel's `width` columns exist, and lanes of a register.

    rest: the rows that are left when their number is divided by the lanes, if that is known; None if it is not.
    apart: elements from one panel to the next, where neighbouring columns fill several (column 1 only); 0: there is one.
    """

    operand: Operand
    row: int
    column: int
    columns: int
    width: int
    lanes: int
    rest: int | None = None
    apart: int = 0

    @property
    def element(self) -> str:
        """The type the panel is stored in: that of the sums, so that widening happens once."""
        return self.operand.accumulator.register

    @property
    def nbytes(self) -> int:
        return self.operand.accumulator.nbytes


def emit_copy(e: Emitter, copy: PanelCopy, source: Value, count: Value, panel: Value) -> None:
    """panel[0..count][0..width] from the rows of B at `source`; columns that do not exist are zero or left as they are."""
    if copy.column == 1:
        _copy_rows(e, copy, source, count, panel)
        return
    done = e.const(0)
    if copy.row == 1 and copy.lanes > 1:
        done = e.sub(count, e.urem(count, copy.lanes))
        with e.loop(0, done, copy.lanes) as k:
            _copy_square(e, copy, source, k.index, panel, copy.lanes)
        if copy.rest is not None:
            with e.loop(done, count, copy.lanes) as k:
                _copy_square(e, copy, source, k.index, panel, copy.rest)
            return
    _copy_elements(e, copy, source, done, count, panel)


# Rows so far apart are other pages, found while earlier ones are copied: [128, 600] x [600, 2000] takes 0.85 of the time.
_FAR_BYTES, _ROWS_AHEAD, _LINE_BYTES = 1024, 16, 64


def _copy_rows(e: Emitter, copy: PanelCopy, source: Value, count: Value, panel: Value) -> None:
    with e.loop(0, count) as k:
        row = copy.operand.step(e, source, e.mul(k.index, copy.row))
        to = e.gep(panel, e.mul(k.index, copy.width), copy.element)
        if copy.row * copy.operand.dtype.nbytes >= _FAR_BYTES:
            later = copy.operand.step(e, row, _ROWS_AHEAD * copy.row)
            for line in range(0, copy.columns * copy.operand.dtype.nbytes, _LINE_BYTES):
                e.prefetch(e.gep(later, line, "i8"))
        for first in range(0, copy.columns, copy.lanes):
            mask = first_lanes(min(copy.lanes, copy.columns - first), copy.lanes)
            value = copy.operand.load(e, copy.operand.step(e, row, first), copy.lanes, mask)
            panels, column = divmod(first, copy.width) if copy.apart else (0, first)
            e.store(value, e.gep(to, panels * copy.apart + column, copy.element), copy.nbytes)


def _copy_square(e: Emitter, copy: PanelCopy, source: Value, k: Value, panel: Value, rows: int) -> None:
    """`rows` rows of the panel from `k` on, by transposing squares of lanes x lanes: for a B whose columns are contiguous."""
    full, rest = divmod(copy.columns, copy.lanes)
    if full:
        with e.loop(0, full) as square:
            _transpose_square(e, copy, source, k, panel, rows, e.mul(square.index, copy.lanes), copy.lanes)
    if rest:
        _transpose_square(e, copy, source, k, panel, rows, e.const(full * copy.lanes), rest)


def _transpose_square(e: Emitter, copy: PanelCopy, source: Value, k: Value, panel: Value, rows: int, first: Value, columns: int) -> None:
    lanes, mask = copy.lanes, first_lanes(rows, copy.lanes)
    corner = copy.operand.step(e, source, e.add(k, e.mul(first, copy.column)))
    loaded = [copy.operand.load(e, copy.operand.step(e, corner, i * copy.column), lanes, mask) for i in range(columns)]
    loaded += [e.zero(loaded[0].type)] * (lanes - columns)
    to = e.gep(panel, e.add(e.mul(k, copy.width), first), copy.element)
    for i, row in enumerate(transpose(e, loaded)[:rows]):
        e.store(row, e.gep(to, i * copy.width, copy.element), copy.nbytes)


def _copy_elements(e: Emitter, copy: PanelCopy, source: Value, start: Value, count: Value, panel: Value) -> None:
    with e.loop(start, count) as k, e.loop(0, copy.columns) as c:
        at = e.add(e.mul(k.index, copy.row), e.mul(c.index, copy.column))
        value = copy.operand.widen(e, e.load(copy.operand.step(e, source, at), copy.operand.dtype.storage, copy.operand.dtype.nbytes))
        e.store(value, e.gep(panel, e.add(e.mul(k.index, copy.width), c.index), copy.element), copy.nbytes)


def transpose(e: Emitter, rows: list[Value]) -> list[Value]:
    """The columns of a square of vectors (a power of two of them), by exchanging ever larger blocks of pairs of rows.

    Words of 32 bits are interleaved within 128 bits first, which is one instruction: 8 x 8 take 24 of them, by exchanging alone 32.
    """
    size, distance = len(rows), 1
    segment = min(size, _SEGMENT) if rows[0].element in ("float", "i32") else 1
    while distance < size:
        result = list(rows)
        masks = _interleaved(size, distance) if distance < segment else _exchanged(size, distance)
        for i in range(size):
            if i & distance == 0:
                result[i], result[i + distance] = (e.shuffle(rows[i], rows[i + distance], mask) for mask in masks)
        rows = result
        distance *= 2
    if segment == _SEGMENT:  # interleaving leaves the second column where the third belongs
        rows = [rows[first + i] for first in range(0, size, _SEGMENT) for i in (0, 2, 1, 3)]
    return rows


_SEGMENT = 4  # words of 32 bits in 128 bits


def _exchanged(size: int, distance: int) -> tuple[list[int], list[int]]:
    """Lanes of two rows so many apart, whose off-diagonal blocks change places."""
    upper = [lane if lane & distance == 0 else size + lane - distance for lane in range(size)]
    lower = [lane + distance if lane & distance == 0 else size + lane for lane in range(size)]
    return upper, lower


def _interleaved(size: int, width: int) -> tuple[list[int], list[int]]:
    """Lanes of two rows taken in turns, `width` at a time: of the first halves of their segments, and of the second."""
    segment = min(size, _SEGMENT)
    places = [first + lane for first in range(0, size, segment) for lane in range(0, segment // 2, width)]
    halves = [
        [row + start + lane for start in places for row in (0, size) for lane in range(half, half + width)] for half in (0, segment // 2)
    ]
    return halves[0], halves[1]
