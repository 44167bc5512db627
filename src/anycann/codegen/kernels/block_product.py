"""Products of small matrices inside another kernel: register tiles over operands that lie in the cache."""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_products import multiply_add
from anycann.codegen.values import Value, first_lanes, vector_type
from anycann.support.records import dataclass
from anycann.target.target import Target


@dataclass(frozen=True)
class Matrix:
    """float32 at an address, with the elements to the next row and to the next column."""

    pointer: Value
    row: int
    column: int

    @property
    def transposed(self) -> Matrix:
        return Matrix(self.pointer, self.column, self.row)


def product_width(target: Target, columns: int) -> int:
    """Columns of the tiles of a product whose columns are only known when it runs; its operands have whole tiles of them."""
    return min(2, -(-columns // target.lanes)) * target.lanes


def emit_product(
    e: Emitter, target: Target, a: Matrix, b: Matrix, c: Matrix, rows: Value, columns: Value | int, depth: Value, adds: bool = False
) -> None:
    """c = a b, or c += a b. The columns of b and c lie side by side.

    columns: a number, of which the last tile is masked, or a value: then b and c have room for whole tiles of `product_width`.
    """
    if isinstance(columns, int):
        most = 2 if target.has_few_registers else 4
        vectors = -(-columns // target.lanes)
        size = -(-vectors // -(-vectors // most))
        for first in range(0, vectors, size):
            here = min(size, vectors - first)
            mask = first_lanes(min(target.lanes, columns - (first + here - 1) * target.lanes), target.lanes)
            _emit_rows(e, target, a, b, c, rows, e.const(first * target.lanes), here, depth, mask, adds)
        return
    width = min(product_width(target, b.row), b.row)
    with e.loop(0, columns, width) as column:
        _emit_rows(e, target, a, b, c, rows, column.index, width // target.lanes, depth, None, adds)


def _emit_rows(
    e: Emitter,
    target: Target,
    a: Matrix,
    b: Matrix,
    c: Matrix,
    rows: Value,
    column: Value,
    vectors: int,
    depth: Value,
    mask: Value | None,
    adds: bool,
) -> None:
    """Tiles of many rows, then of two, then of one."""
    done = e.const(0)
    most = max(1, target.registers // 2 // vectors)
    for size in sorted({most, min(2, most), 1}, reverse=True):
        left = e.sub(rows, done)
        stop = e.add(done, e.sub(left, e.urem(left, size)))
        with e.loop(done, stop, size) as row:
            _emit_tile(e, target, a, b, c, row.index, size, column, vectors, depth, mask, adds)
        done = stop


def _emit_tile(
    e: Emitter,
    target: Target,
    a: Matrix,
    b: Matrix,
    c: Matrix,
    row: Value,
    size: int,
    column: Value,
    vectors: int,
    depth: Value,
    mask: Value | None,
    adds: bool,
) -> None:
    lanes, type_ = target.lanes, vector_type("float", target.lanes)
    corner = e.gep(c.pointer, e.add(e.mul(row, c.row), column), "float")
    places = [
        (e.gep(corner, i * c.row + j * lanes, "float"), mask if j == vectors - 1 else None) for i in range(size) for j in range(vectors)
    ]
    sums = [_load(e, place, type_, some) if adds else e.zero(type_) for place, some in places]
    left, right = e.gep(a.pointer, e.mul(row, a.row), "float"), e.gep(b.pointer, column, "float")
    with e.loop(0, depth, carried=sums) as k:
        line = e.gep(right, e.mul(k.index, b.row), "float")
        loaded = [_load(e, e.gep(line, j * lanes, "float"), type_, mask if j == vectors - 1 else None) for j in range(vectors)]
        factors = e.gep(left, e.mul(k.index, a.column), "float")
        totals = []
        for i in range(size):
            factor = e.splat(e.load(e.gep(factors, i * a.row, "float"), "float", 4), lanes)
            totals += [multiply_add(e, target, factor, loaded[j], k.values[i * vectors + j]) for j in range(vectors)]
        k.carry(totals)
    for (place, some), total in zip(places, k.values, strict=True):
        if some is None:
            e.store(total, place, 4)
        else:
            e.masked_store(total, place, 4, some)


def _load(e: Emitter, place: Value, type_: str, mask: Value | None) -> Value:
    return e.load(place, type_, 4) if mask is None else e.masked_load(place, type_, 4, mask, e.zero(type_))
