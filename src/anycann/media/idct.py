"""The inverse transform of JPEG as native loops: blocks of coefficients to rows of samples, as libjpeg-turbo's accurate one rounds.

The arithmetic is that of Loeffler, Ligtenberg and Moschytz with 13-bit constants, in the steps of the vector code of libjpeg-turbo: sums of
two coefficients have 16 bits, products and further sums 32, and between the passes are 16 bits with two of them behind the point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value
from anycann.media.entropy_text import BLOCK_BYTES

# The words of what a loop gets, int64: addresses of the blocks and of the first sample; bytes between rows of samples; units in a row;
# blocks in a unit; in a unit the number of the first block, or of both of a pair; blocks of the component across and down.
BLOCKS, TARGET, STRIDE, UNITS, PER_UNIT, FIRST, SECOND, ACROSS, DOWN = range(9)
_SIZE = 8
_CONSTANT_BITS, _PASS_BITS = 13, 2
_I16, _I32 = f"<{_SIZE} x i16>", f"<{_SIZE} x i32>"
_LOW, _HIGH = [0, 8, 1, 9, 2, 10, 3, 11], [4, 12, 5, 13, 6, 14, 7, 15]
_LOW_BYTES = [place for number in range(8) for place in (number, 16 + number)]
_HIGH_BYTES = [place + 8 for place in _LOW_BYTES]


def _fixed(number: float) -> int:
    return round(number * (1 << _CONSTANT_BITS))


@dataclass(frozen=True)
class Transform:
    """paired: the samples of two components lie in turn, the first of each before the second of each."""

    paired: bool

    def ir(self) -> tuple[str, str]:
        """(symbol, text) of `void(ptr words, i64 begin, i64 end, ptr)`: rows of units; the first is that of the addresses."""
        e = Emitter()
        _units(e, self.paired)
        return e.finish("jpeg_pairs" if self.paired else "jpeg_plane")


def _units(e: Emitter, paired: bool) -> None:
    units, per_unit = _word(e, UNITS), _word(e, PER_UNIT)
    write = _pair if paired else _plane
    with e.loop(e.begin, e.end) as row, e.loop(0, units) as unit:
        write(e, e.mul(e.add(e.mul(row.index, units), unit.index), per_unit), row.index, unit.index)


def _pair(e: Emitter, number: Value, row: Value, unit: Value) -> None:
    """One block of each component, the first of the unit being block `number`."""
    stride = _word(e, STRIDE)
    samples = [_samples(e, _block(e, e.add(number, _word(e, which)))) for which in (FIRST, SECOND)]
    target = e.gep(e.argument(TARGET), e.add(e.mul(e.mul(row, _SIZE), stride), e.mul(unit, 2 * _SIZE)), "i8")
    for place, (one, other) in enumerate(zip(*samples, strict=True)):
        for half, places in enumerate((_LOW_BYTES, _HIGH_BYTES)):
            e.store(e.shuffle(one, other, places), e.gep(target, e.mul(stride, 2 * place + half), "i8"), 1)


def _plane(e: Emitter, number: Value, row: Value, unit: Value) -> None:
    """All blocks of the component, the first of the unit being block `number`."""
    stride, across, down = (_word(e, which) for which in (STRIDE, ACROSS, DOWN))
    first = e.add(number, _word(e, FIRST))
    with e.loop(0, down) as y, e.loop(0, across) as x:
        line, column = e.add(e.mul(row, down), y.index), e.add(e.mul(unit, across), x.index)
        target = e.gep(e.argument(TARGET), e.add(e.mul(e.mul(line, _SIZE), stride), e.mul(column, _SIZE)), "i8")
        for place, two_rows in enumerate(_samples(e, _block(e, e.add(first, e.add(e.mul(y.index, across), x.index))))):
            for half in (0, 1):
                part = e.shuffle(two_rows, two_rows, range(_SIZE * half, _SIZE * (half + 1)))
                e.store(part, e.gep(target, e.mul(stride, 2 * place + half), "i8"), 1)


def _block(e: Emitter, number: Value) -> Value:
    return e.gep(e.argument(BLOCKS), e.mul(number, BLOCK_BYTES), "i8")


def _word(e: Emitter, number: int) -> Value:
    return e.load(e.gep(e.args, number, "i64"), "i64", 8)


def _samples(e: Emitter, block: Value) -> list[Value]:
    """<16 x i8>[4]: two rows each."""
    rows = [e.load(e.gep(block, 2 * _SIZE * row, "i8"), _I16, 16) for row in range(_SIZE)]
    columns = _pass(e, rows, _CONSTANT_BITS - _PASS_BITS)
    between = _transposed(e, [_narrowed(e, column) for column in columns])
    samples = _pass(e, between, _CONSTANT_BITS + _PASS_BITS + 3)
    return _rows_of_bytes(e, [e.cast("trunc", sample, "i16") for sample in samples])


def _narrowed(e: Emitter, value: Value) -> Value:
    """To 16 bits, the nearest that there is."""
    limited = e.smin(e.smax(value, e.const(-(1 << 15), _I32)), e.const((1 << 15) - 1, _I32))
    return e.cast("trunc", limited, "i16")


def _transposed(e: Emitter, rows: list[Value]) -> list[Value]:
    half = len(rows) // 2
    for _ in range(3):
        rows = [e.shuffle(rows[n], rows[n + half], places) for n in range(half) for places in (_LOW, _HIGH)]
    return rows


def _rows_of_bytes(e: Emitter, columns: list[Value]) -> list[Value]:
    """Columns of numbers around 0 as rows of bytes around 128."""
    pairs = [e.shuffle(columns[n], columns[n + 4], [*_LOW, *_HIGH]) for n in range(4)]
    wide = f"<{2 * _SIZE} x i16>"
    limited = [e.smin(e.smax(pair, e.const(-128, wide)), e.const(127, wide)) for pair in pairs]
    a = [e.binary("xor", e.cast("trunc", pair, "i8"), e.const(-128, f"<{2 * _SIZE} x i8>")) for pair in limited]
    b = [e.shuffle(a[n], a[n + 2], places) for n in (0, 1) for places in (_LOW_BYTES, _HIGH_BYTES)]
    return [e.shuffle(b[n], b[n + 2], places) for n in (0, 1) for places in (_LOW_BYTES, _HIGH_BYTES)]


def _pass(e: Emitter, rows: Sequence[Value], shift: int) -> list[Value]:
    """One dimension: <8 x i16>[8] to <8 x i32>[8], divided by 2 ** shift and rounded."""
    upper, lower = _even(e, rows, shift), _odd(e, rows)
    ends = [e.add(a, b) for a, b in zip(upper, lower, strict=True)]
    ends += [e.sub(a, b) for a, b in zip(reversed(upper), reversed(lower), strict=True)]
    return [e.binary("ashr", end, e.const(shift, _I32)) for end in ends]


def _even(e: Emitter, rows: Sequence[Value], shift: int) -> list[Value]:
    """What rows 0, 2, 4 and 6 make of results 0 to 3, and half of the last bit that is cut off."""
    half = e.const(1 << (shift - 1), _I32)
    total, difference = (_wide(e, e.binary(opcode, rows[0], rows[4])) for opcode in ("add", "sub"))
    total, difference = (e.add(e.binary("shl", each, e.const(_CONSTANT_BITS, _I32)), half) for each in (total, difference))
    c = _fixed(0.541196100)
    sums = _weighted(e, (rows[2], rows[6]), (c + _fixed(0.765366865), c))
    differences = _weighted(e, (rows[2], rows[6]), (c, c - _fixed(1.847759065)))
    return [e.add(total, sums), e.add(difference, differences), e.sub(difference, differences), e.sub(total, sums)]


def _odd(e: Emitter, rows: Sequence[Value]) -> list[Value]:
    """What rows 1, 3, 5 and 7 add to results 0 to 3."""
    one, three, five, seven = (rows[number] for number in (1, 3, 5, 7))
    a, b = e.binary("add", seven, three), e.binary("add", five, one)
    c = _fixed(1.175875602)
    z3 = _weighted(e, (a, b), (c - _fixed(1.961570560), c))
    z4 = _weighted(e, (a, b), (c, c - _fixed(0.390180644)))
    outer, inner = _fixed(0.899976223), _fixed(2.562915447)
    t0 = e.add(_weighted(e, (seven, one), (_fixed(0.298631336) - outer, -outer)), z3)
    t3 = e.add(_weighted(e, (seven, one), (-outer, _fixed(1.501321110) - outer)), z4)
    t1 = e.add(_weighted(e, (five, three), (_fixed(2.053119869) - inner, -inner)), z4)
    t2 = e.add(_weighted(e, (five, three), (-inner, _fixed(3.072711026) - inner)), z3)
    return [t3, t2, t1, t0]


def _weighted(e: Emitter, values: tuple[Value, Value], weights: tuple[int, int]) -> Value:
    products = [e.mul(_wide(e, value), e.const(weight, _I32)) for value, weight in zip(values, weights, strict=True)]
    return e.add(*products)


def _wide(e: Emitter, value: Value) -> Value:
    return e.cast("sext", value, "i32")
