"""The inverse transform of JPEG as native loops: blocks of coefficients to rows of samples, as libjpeg-turbo's accurate one rounds.

The arithmetic is that of Loeffler, Ligtenberg and Moschytz with 13-bit constants, in the steps of the vector code of libjpeg-turbo: sums of
two coefficients have 16 bits, products and further sums 32, and between the passes are 16 bits with two of them behind the point. Two
blocks are transformed at once, in the two halves of a vector; nothing but the stores crosses from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value
from anycann.media.entropy import BLOCK_BYTES
from anycann.media.halves import Halves
from anycann.support.records import dataclass
from anycann.target.target import Target

# The words of what a loop gets, int64: addresses of the blocks and of the first sample; bytes between rows of samples; units in a row;
# blocks in a unit; in a unit the number of the first block, or of both of a pair; the component's blocks across (the binary logarithm)
# and down.
BLOCKS, TARGET, STRIDE, UNITS, PER_UNIT, FIRST, SECOND, ACROSS_BITS, DOWN = range(9)
_SIZE = 8
_CONSTANT_BITS, _PASS_BITS = 13, 2
_ROW = f"<{_SIZE} x i16>"


def _fixed(number: float) -> int:
    return round(number * (1 << _CONSTANT_BITS))


@dataclass(frozen=True)
class Transform:
    """paired: the samples of two components lie in turn, the first of each before the second of each.

    halved: of those, the rounded means of each two across, of each two down, or of each four.
    """

    paired: bool
    halved: tuple[bool, bool] = (False, False)

    def ir(self, target: Target) -> tuple[str, str]:
        """(symbol, text) of `void(ptr words, i64 begin, i64 end, ptr)`: rows of units; the first is that of the addresses."""
        e = Emitter()
        h = Halves(e, target)
        with e.loop(e.begin, e.end) as row:
            if self.paired:
                _pairs(h, row.index, self.halved)
            else:
                _plane(h, row.index)
        return e.finish("jpeg_pairs" if self.paired else "jpeg_plane")


def _word(e: Emitter, number: int) -> Value:
    return e.load(e.gep(e.args, number, "i64"), "i64", 8)


def _block(e: Emitter, number: Value) -> Value:
    return e.gep(e.argument(BLOCKS), e.mul(number, BLOCK_BYTES), "i8")


def _pairs(h: Halves, row: Value, halved: tuple[bool, bool]) -> None:
    """A row of units with one block of each component."""
    e = h.e
    units, per_unit, stride = (_word(e, which) for which in (UNITS, PER_UNIT, STRIDE))
    columns, lines = (_SIZE // 2 if half else _SIZE for half in halved)
    line = e.gep(e.argument(TARGET), e.mul(e.mul(row, lines), stride), "i8")
    with e.loop(0, units) as unit:
        number = e.mul(e.add(e.mul(row, units), unit.index), per_unit)
        one, other = (_block(e, e.add(number, _word(e, which))) for which in (FIRST, SECOND))
        target = e.gep(line, e.mul(unit.index, 2 * columns), "i8")
        written = (each for two_rows in _samples(h, one, other) for each in _in_turn(h, two_rows, halved))
        for place, samples in enumerate(written):
            e.store(samples, e.gep(target, e.mul(stride, place), "i8"), 1)


def _in_turn(h: Halves, two_rows: Value, halved: tuple[bool, bool]) -> list[Value]:
    """Two rows of both components as rows of pairs: one, if they are halved down."""
    e, (u, v) = h.e, h.parts(two_rows)

    def taken(row: int, first: int) -> Value:
        step = 2 if halved[0] else 1
        turns = [place + _SIZE * row for sample in range(first, _SIZE, step) for place in (sample, 2 * _SIZE + sample)]
        return e.shuffle(u, v, turns)

    rows = [[taken(row, first) for first in ((0, 1) if halved[0] else (0,))] for row in (0, 1)]
    together = [[*rows[0], *rows[1]]] if halved[1] else rows
    return [_mean(e, each) for each in together]


def _mean(e: Emitter, samples: Sequence[Value]) -> Value:
    """The rounded means of one, two or four vectors of bytes."""
    if len(samples) == 1:
        return samples[0]
    wide = [e.cast("zext", each, "i16") for each in samples]
    total = e.const(len(samples) // 2, wide[0].type)
    for each in wide:
        total = e.add(total, each)
    return e.cast("trunc", e.binary("lshr", total, e.const(len(samples).bit_length() - 1, total.type)), "i8")


def _plane(h: Halves, row: Value) -> None:
    """The blocks of the component in a row of units, line by line of blocks, two at a time; of an odd number the last one is done twice."""
    e = h.e
    units, per_unit, stride, bits, down = (_word(e, which) for which in (UNITS, PER_UNIT, STRIDE, ACROSS_BITS, DOWN))
    across, count = e.binary("shl", e.const(1), bits), e.binary("shl", units, bits)
    first = e.add(e.mul(e.mul(row, units), per_unit), _word(e, FIRST))
    with e.loop(0, down) as y:
        line = e.gep(e.argument(TARGET), e.mul(e.mul(e.add(e.mul(row, down), y.index), _SIZE), stride), "i8")
        inside = e.add(first, e.mul(y.index, across))
        with e.loop(0, count, 2) as x:
            columns = (x.index, e.smin(e.add(x.index, 1), e.sub(count, 1)))
            blocks = []
            for column in columns:
                unit, place = e.binary("lshr", column, bits), e.binary("and", column, e.sub(across, 1))
                blocks.append(_block(e, e.add(inside, e.add(e.mul(unit, per_unit), place))))
            targets = [e.gep(line, e.mul(column, _SIZE), "i8") for column in columns]
            for number, two_rows in enumerate(_samples(h, *blocks)):
                for target, part in zip(targets, h.parts(two_rows), strict=True):
                    for half in (0, 1):
                        samples = e.shuffle(part, part, range(_SIZE * half, _SIZE * (half + 1)))
                        e.store(samples, e.gep(target, e.mul(stride, 2 * number + half), "i8"), 1)


def _samples(h: Halves, one: Value, other: Value) -> list[Value]:
    """<32 x i8>[4]: two rows of samples of each block."""
    e = h.e
    rows = [h.joined(*(e.load(e.gep(block, 2 * _SIZE * row, "i8"), _ROW, 16) for block in (one, other))) for row in range(_SIZE)]
    columns = _transposed(h, _pass(h, rows, _CONSTANT_BITS - _PASS_BITS))
    return _rows_of_bytes(h, _pass(h, columns, _CONSTANT_BITS + _PASS_BITS + 3))


def _transposed(h: Halves, rows: list[Value]) -> list[Value]:
    half = len(rows) // 2
    for _ in range(3):
        rows = [turn(rows[n], rows[n + half]) for n in range(half) for turn in (h.low, h.high)]
    return rows


def _rows_of_bytes(h: Halves, columns: list[Value]) -> list[Value]:
    """Columns of numbers around 0 as rows of bytes around 128."""
    e = h.e
    packed = [h.to_bytes(columns[n], columns[n + 4]) for n in range(4)]
    lifted = [e.binary("xor", each, e.const(-128, each.type)) for each in packed]
    turned = [h.turned(each) for each in lifted]
    for _ in range(2):
        turned = [turn(turned[n], turned[n + 2]) for n in (0, 1) for turn in (h.low, h.high)]
    return turned


def _pass(h: Halves, rows: Sequence[Value], shift: int) -> list[Value]:
    """One dimension: <16 x i16>[8] to the same, divided by 2 ** shift and rounded; what does not fit is the nearest that does."""
    e = h.e
    halves = []
    for turn in (h.low, h.high):
        upper, lower = _even(h, rows, turn, shift), _odd(h, rows, turn)
        ends = [e.add(a, b) for a, b in zip(upper, lower, strict=True)]
        ends += [e.sub(a, b) for a, b in zip(reversed(upper), reversed(lower), strict=True)]
        halves.append([e.binary("ashr", end, e.const(shift, end.type)) for end in ends])
    return [h.to_words(low, high) for low, high in zip(*halves, strict=True)]


_Turn = Callable[[Value, Value], Value]


def _even(h: Halves, rows: Sequence[Value], turn: _Turn, shift: int) -> list[Value]:
    """What rows 0, 2, 4 and 6 make of results 0 to 3, and half of the last bit that is cut off."""
    e = h.e
    sums = [e.binary(opcode, rows[0], rows[4]) for opcode in ("add", "sub")]
    raised = [h.as_wide(turn(e.zero(each.type), each)) for each in sums]  # times 2 ** 16
    total, difference = (
        e.add(e.binary("ashr", each, e.const(16 - _CONSTANT_BITS, h.wide)), e.const(1 << (shift - 1), h.wide)) for each in raised
    )
    c, pair = _fixed(0.541196100), turn(rows[2], rows[6])
    outer, inner = h.dot(pair, (c + _fixed(0.765366865), c)), h.dot(pair, (c, c - _fixed(1.847759065)))
    return [e.add(total, outer), e.add(difference, inner), e.sub(difference, inner), e.sub(total, outer)]


def _odd(h: Halves, rows: Sequence[Value], turn: _Turn) -> list[Value]:
    """What rows 1, 3, 5 and 7 add to results 0 to 3."""
    e = h.e
    one, three, five, seven = (rows[number] for number in (1, 3, 5, 7))
    c, pair = _fixed(1.175875602), turn(e.binary("add", seven, three), e.binary("add", five, one))
    z3, z4 = h.dot(pair, (c - _fixed(1.961570560), c)), h.dot(pair, (c, c - _fixed(0.390180644)))
    outer, inner = _fixed(0.899976223), _fixed(2.562915447)
    pair = turn(seven, one)
    t0 = e.add(h.dot(pair, (_fixed(0.298631336) - outer, -outer)), z3)
    t3 = e.add(h.dot(pair, (-outer, _fixed(1.501321110) - outer)), z4)
    pair = turn(five, three)
    t1 = e.add(h.dot(pair, (_fixed(2.053119869) - inner, -inner)), z4)
    t2 = e.add(h.dot(pair, (-inner, _fixed(3.072711026) - inner)), z3)
    return [t3, t2, t1, t0]
