"""Operands of a product of bytes for dot products of four: rows of A as unsigned bytes, B as signed ones in panels of four neighbours of k.

A panel is [column], what its sums start from, then [fours of k][column][4]. Zero points are not taken off, but what they add is:
sum (a - p) (b - q) = sum a b - q sum a - p sum b + k p q. The second part goes with each row of A, the rest with each column of B. A signed
A is a + 128 with the zero point p + 128, an unsigned B is b - 128 with q - 128; sums wrap around, and are right in the end.
"""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.byte_product_words import Bytes, columns_of
from anycann.codegen.kernels.dot_copy import pieces
from anycann.codegen.kernels.dot_products import DotProducts
from anycann.codegen.values import Value, vector_type
from anycann.target.target import Target
from anycann.te import dtypes

QUAD, _SUM_BYTES, _LESS_128 = 4, 4, -128


def multiplies_quads(target: Target) -> bool:
    """True if a target has dot products of four bytes."""
    return DotProducts(dtypes.uint8, target).is_one_instruction


def emit_quad_rows(e: Emitter, target: Target, a: Bytes, b: Bytes, first: Value, stop: Value, k: int, step: int, to: Value) -> None:
    """to[row][step] fours from rows `first` to `stop` of A, of `k` bytes each and zeros up to a whole vector.

    Behind the last of `step` fours, what the zero point of B adds to the sums of the row, int32.
    """
    dots, size = DotProducts(dtypes.uint8, target), QUAD * target.lanes
    whole, rest, type_ = k - k % size, k % size, vector_type("i32", target.lanes)
    less = e.binary("sub", e.const(0, "i32"), _zero_point(e, b, wants_sign=True))
    ones = [e.const(0x01010101, type_)]
    with e.loop(0, e.sub(stop, first)) as row:
        source, place = a.at(e, e.add(first, row.index), 0), e.gep(to, e.mul(row.index, step * QUAD), "i8")
        with e.loop(0, whole, size, carried=[e.zero(type_)]) as part:
            found = _move(e, a, source, place, part.index, size)
            part.carry([dots.add(e, part.values[0], [e.bitcast(found, type_)], ones)])
        total = part.values[0]
        if rest:
            last = e.gep(place, whole, "i8")
            e.store(e.zero(type_), last, 1)
            for at, count in pieces(rest, size // 2):
                _move(e, a, source, place, whole + at, count)
            total = dots.add(e, total, [e.load(last, type_, 1)], ones)
        e.store(e.binary("mul", e.reduce("add", total), less), e.gep(place, (step - 1) * QUAD, "i8"), _SUM_BYTES)


def _move(e: Emitter, a: Bytes, source: Value, place: Value, at: Value | int, count: int) -> Value:
    """`count` bytes of a row as unsigned ones, from element `at` on."""
    raw = e.load(e.gep(source, at, "i8"), vector_type("i8", count), 1)
    found = e.binary("xor", raw, e.const(_LESS_128, raw.type)) if a.dtype.is_signed else raw
    e.store(found, e.gep(place, at, "i8"), 1)
    return found


def emit_quad_panel(e: Emitter, target: Target, a: Bytes, b: Bytes, k: int, n: int, first: Value, columns: int, to: Value) -> None:
    """A panel of `columns` columns of B [k, n] from `first` on, in whole vectors; rows of B that are not there are zero."""
    lanes = target.lanes
    width = -(-columns // lanes) * lanes
    dots, type_ = DotProducts(dtypes.uint8, target), vector_type("i32", lanes)
    ones, body = [e.const(0x01010101, type_)], e.gep(to, width, "i32")

    def store(rows: list[Value], place: Value, totals: list[Value]) -> list[Value]:
        found = list[Value]()
        for j, total in enumerate(totals):
            together = _interleaved(e, [e.shuffle(row, row, list(range(j * lanes, (j + 1) * lanes))) for row in rows])
            signed = together if b.dtype.is_signed else e.binary("xor", together, e.const(_LESS_128, together.type))
            e.store(signed, e.gep(place, j * lanes, "i32"), QUAD)
            found.append(dots.add(e, total, ones, [e.bitcast(signed, type_)]))
        return found

    def row(number: Value | int) -> Value:
        return columns_of(e, b, number, first, n, columns, width)

    with e.loop(0, k // QUAD, carried=[e.zero(type_)] * (width // lanes)) as quad:
        top = e.mul(quad.index, QUAD)
        quad.carry(store([row(e.add(top, i)) for i in range(QUAD)], e.gep(body, e.mul(quad.index, width), "i32"), quad.values))
    totals = quad.values
    if k % QUAD:
        some = [row(k - k % QUAD + i) for i in range(k % QUAD)]
        none = e.const(0 if b.dtype.is_signed else _LESS_128, some[0].type)
        totals = store(some + [none] * (QUAD - len(some)), e.gep(body, k // QUAD * width, "i32"), totals)
    _store_starts(e, a, b, k, totals, to)


def _store_starts(e: Emitter, a: Bytes, b: Bytes, k: int, totals: list[Value], to: Value) -> None:
    """What zero points add to the sums of each column, whose signed bytes sum to `totals`."""
    zero_a, zero_b = _zero_point(e, a, wants_sign=False), _zero_point(e, b, wants_sign=True)
    for j, total in enumerate(totals):
        lanes = total.lanes
        both = e.binary("mul", e.binary("mul", zero_a, zero_b), e.const(k, "i32"))
        added = e.binary("sub", e.splat(both, lanes), e.binary("mul", total, e.splat(zero_a, lanes)))
        e.store(added, e.gep(to, j * lanes, "i32"), _SUM_BYTES)


def _interleaved(e: Emitter, rows: list[Value]) -> Value:
    """The first elements of four rows, then the second ones, and so on."""
    lanes = rows[0].lanes
    pairs = [e.shuffle(a, b, [half * lanes + lane for lane in range(lanes) for half in (0, 1)]) for a, b in (rows[:2], rows[2:])]
    return e.shuffle(pairs[0], pairs[1], [half * 2 * lanes + 2 * lane + i for lane in range(lanes) for half in (0, 1) for i in (0, 1)])


def _zero_point(e: Emitter, operand: Bytes, wants_sign: bool) -> Value:
    """The zero point of an operand once it is signed or unsigned as wanted, i32."""
    is_signed = operand.dtype.is_signed
    wide = e.cast("sext" if is_signed else "zext", operand.zero, "i32")
    return wide if is_signed == wants_sign else e.binary("add", wide, e.const(_LESS_128 if wants_sign else -_LESS_128, "i32"))
