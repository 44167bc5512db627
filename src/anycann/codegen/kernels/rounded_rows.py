"""Rows of floats rounded to 8 bits, a scale for each block of them: what weights of few bits are multiplied with where a model allows it.

A row in memory is [block]: its signed bytes, what the sums of its products start from (int32), and its scale (float32). Unsigned weights
are `offset` too large, and the sum of the bytes times that is what they add.
"""

from __future__ import annotations

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.matmul_shape import Operand
from anycann.codegen.values import Value, first_lanes, vector_type
from anycann.codegen.vector_math_basic import nearest

LARGEST = 127  # either way
_NUMBER = 4  # bytes of a scale, and of what sums start from


def block_bytes(block: int) -> int:
    """From one rounded block of a row to the next."""
    return block + 2 * _NUMBER


def start_at(e: Emitter, rounded: Value, block: int) -> Value:
    """Where a rounded block says what its sums start from."""
    return e.gep(rounded, block, "i8")


def scale_at(e: Emitter, rounded: Value, block: int) -> Value:
    """Where a rounded block has its scale."""
    return e.gep(rounded, block + _NUMBER, "i8")


def emit_rounded_row(e: Emitter, operand: Operand, lanes: int, row: Value, depth: int, block: int, offset: int, to: Value) -> None:
    """Round the `depth` elements at `row`; the last block goes on with zeros. A block that is not finite makes sums that are no numbers."""
    whole, rest = divmod(depth, block)
    with e.loop(0, whole) as number:
        source = operand.step(e, row, e.mul(number.index, block))
        _emit_block(e, operand, lanes, source, block, block, offset, e.gep(to, e.mul(number.index, block_bytes(block)), "i8"))
    if rest:
        source, place = operand.step(e, row, whole * block), e.gep(to, whole * block_bytes(block), "i8")
        _emit_block(e, operand, lanes, source, rest, block, offset, place)


def _emit_block(e: Emitter, operand: Operand, lanes: int, source: Value, count: int, block: int, offset: int, to: Value) -> None:
    """One block, of which `count` elements exist."""
    integer, whole, rest = vector_type("i32", lanes), *divmod(count, lanes)

    def load(at: Value | int, exist: int = lanes) -> Value:
        return operand.load(e, operand.step(e, source, at), lanes, first_lanes(exist, lanes))

    def larger(value: Value, most: Value) -> Value:  # magnitudes in the order of their bits, NaN the last
        return e.intrinsic("smax", [e.binary("and", e.cast("bitcast", value, "i32"), e.const(0x7FFFFFFF, integer)), most])

    with e.loop(0, whole * lanes, lanes, carried=[e.zero(integer)]) as at:
        at.carry([larger(load(at.index), at.values[0])])
    most = larger(load(whole * lanes, rest), at.values[0]) if rest else at.values[0]
    range_ = e.cast("bitcast", e.reduce("smax", most), "float")
    is_zero = e.compare("oeq", range_, e.const(0.0, "float"))
    factor = e.select(is_zero, e.const(0.0, "float"), e.binary("fdiv", e.const(float(LARGEST), "float"), range_))
    spread = e.splat(factor, lanes)

    def rounded(value: Value, at: Value | int) -> Value:
        number = nearest(e, e.binary("fmul", value, spread))
        e.store(e.cast("trunc", number, "i8"), e.gep(to, at, "i8"), 1)
        return number

    with e.loop(0, whole * lanes, lanes, carried=[e.zero(integer)]) as at:
        at.carry([e.binary("add", at.values[0], rounded(load(at.index), at.index))])
    total = at.values[0]
    if rest:
        total = e.binary("add", total, rounded(load(whole * lanes, rest), whole * lanes))
    for at_zero in range((whole + (rest > 0)) * lanes, block, lanes):
        e.store(e.zero(vector_type("i8", lanes)), e.gep(to, at_zero, "i8"), 1)
    added = e.binary("mul", e.reduce("add", total), e.const(-offset, "i32"))
    e.store(added, start_at(e, to, block), 1)
    e.store(e.binary("fmul", range_, e.const(1 / LARGEST, "float")), scale_at(e, to, block), 1)
