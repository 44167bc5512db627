"""Dynamic AIPP: each task makes a row of all channels, by what a table says of its picture (te/picture_table.py).

First the samples of the row go to planes of bytes in scratch memory, at the columns of the result, by a loop for each pixel format; then
one loop over vectors of the result converts and scales them. Bytes are read only where the whole row lies in the memory of the pictures,
whatever the table says; a row that does not is padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anycann.codegen.emitter import Emitter
from anycann.codegen.values import Value, first_lanes, vector_type
from anycann.support.records import dataclass
from anycann.te.picture_table import PIXEL_BYTES, WORDS, Format, Word

PLANES, _AT_ONCE, _SLACK = 4, 16, 64  # samples of a pixel at most; pixels that are sorted at once; bytes behind a plane
_CONVERTED = 3  # channels of a colour conversion

Write = Callable[[Sequence[Value], Value, Value | None], None]  # index of the first lane, values, mask


@dataclass(frozen=True)
class PictureShape:
    """The result, [batch, channels, height, width], and the bytes of all pictures."""

    batch: int
    channels: int
    height: int
    width: int
    nbytes: int

    @property
    def plane_bytes(self) -> int:
        """Of one of the planes."""
        return -(-self.width // _SLACK) * _SLACK + _SLACK

    @property
    def scratch_bytes(self) -> int:
        """Of all planes."""
        return PLANES * self.plane_bytes


def emit_picture(e: Emitter, shape: PictureShape, lanes: int, source: Value, table: Value, write: Write) -> int:
    """Write the loop over tasks, image after image and row after row; returns how many there are."""
    with e.loop(e.begin, e.end) as task:
        image, row = e.udiv(task.index, shape.height), e.urem(task.index, shape.height)
        settings = _Settings(e, e.gep(table, e.mul(image, WORDS), "i32"))
        line = _Line(e, shape, settings, row)
        with e.when(line.is_there):
            for form in Format:
                with e.when(e.compare("eq", line.form, e.const(form))):
                    _sort_samples(e, line, form, source)
        converts = e.compare("ne", settings.word(Word.CONVERTS), e.const(0))
        with e.when(converts):
            _write_row(e, shape, lanes, line, image, row, _Converted(e, shape, lanes, settings), write)
        with e.when(e.binary("xor", converts, e.const(1, "i1"))):
            _write_row(e, shape, lanes, line, image, row, _Samples(e, shape, lanes, settings), write)
    return shape.batch * shape.height


class _Settings:
    """The row of the table of one picture."""

    def __init__(self, e: Emitter, table: Value):
        self.e, self._table = e, table

    def word(self, word: int) -> Value:
        """A whole number."""
        return self.e.cast("sext", self.e.load(self.e.gep(self._table, word, "i32"), "i32", 4), "i64")

    def long(self, word: int) -> Value:
        """A whole number of two words."""
        return self.e.load(self.e.gep(self._table, word, "i32"), "i64", 4)

    def fraction(self, word: int, lanes: int) -> Value:
        """A number in every lane."""
        return self.e.splat(self.e.load(self.e.gep(self._table, word, "i32"), "float", 4), lanes)


class _Line:
    """A row of the result: where its pixels come from, and which of its columns they fill."""

    def __init__(self, e: Emitter, shape: PictureShape, settings: _Settings, row: Value):
        width = e.const(shape.width)
        self._plane_bytes = shape.plane_bytes
        self.form = settings.word(Word.FORMAT)  # read once: what is checked is what is used
        self.before = _limited(e, settings.word(Word.BEFORE), width)
        self.columns = _limited(e, settings.word(Word.COLUMNS), e.sub(width, self.before))
        inside = e.sub(row, settings.word(Word.ABOVE))
        self._source_row = e.add(settings.word(Word.FIRST_ROW), inside)
        self.first = settings.word(Word.FIRST_COLUMN)
        stride = settings.word(Word.STRIDE)
        begin = settings.long(Word.OFFSET)
        self.offset = e.add(begin, e.mul(self._source_row, stride))
        colours = e.add(begin, settings.word(Word.COLOURS))
        self.colours = e.add(colours, e.mul(e.binary("ashr", self._source_row, e.const(1)), stride))
        size = e.const(0)
        for form, pixel in PIXEL_BYTES.items():
            size = e.select(e.compare("eq", self.form, e.const(form)), e.const(pixel), size)
        is_yuv = e.compare("eq", self.form, e.const(Format.YUV420SP_U8))
        whole = e.binary("and", e.compare("ne", size, e.const(0)), self._lies_within(e, shape, self.offset, size))
        pairs = e.binary("or", self._lies_within(e, shape, self.colours, e.const(1)), e.binary("xor", is_yuv, e.const(1, "i1")))
        above = e.binary("and", e.compare("sge", inside, e.const(0)), e.compare("slt", inside, settings.word(Word.ROWS)))
        self.is_there = e.binary("and", e.binary("and", above, whole), pairs)

    def _lies_within(self, e: Emitter, shape: PictureShape, start: Value, pixel: Value) -> Value:
        """Whether the pixels of a row, those beside them that share their colours too, are bytes of the pictures."""
        begin = e.add(start, e.mul(e.binary("and", self.first, e.const(-2)), pixel))
        end = e.add(start, e.mul(e.binary("and", e.add(e.add(self.first, self.columns), 1), e.const(-2)), pixel))
        exact = e.add(start, e.mul(e.add(self.first, self.columns), pixel))
        end = e.select(e.compare("eq", self.form, e.const(Format.YUV420SP_U8)), end, exact)
        most = e.const(shape.nbytes)  # a begin within it is what keeps the sum that is the end from running over
        return e.binary("and", e.compare("ule", begin, most), e.compare("ule", end, most))

    def plane(self, e: Emitter, number: int | Value, column: Value) -> Value:
        """Where the samples of a plane from a column of the result on lie."""
        start = e.mul(e.const(number) if isinstance(number, int) else number, self._plane_bytes)
        return e.gep(e.scratch, e.add(start, column), "i8")

    def present(self, e: Emitter, column: Value, lanes: int) -> Value:
        """Which of so many columns have a pixel."""
        inside = e.splat(e.cast("trunc", e.sub(column, self.before), "i32"), lanes)
        inside = e.binary("add", inside, e.lane_numbers(lanes, "i32"))
        within = e.compare("ult", inside, e.splat(e.cast("trunc", self.columns, "i32"), lanes))
        return e.binary("and", within, e.splat(self.is_there, lanes))


def _limited(e: Emitter, number: Value, most: Value) -> Value:
    return e.smin(e.smax(number, e.const(0)), most)


# ---- samples to planes
def _sort_samples(e: Emitter, line: _Line, form: Format, source: Value) -> None:
    """The samples of the row's pixels, each in its plane: many pixels at once, then one after the other."""
    whole = e.binary("and", line.columns, e.const(-_AT_ONCE))
    for start, stop, count in ((e.const(0), whole, _AT_ONCE), (whole, line.columns, 1)):
        with e.loop(start, stop, count) as at:
            for number, samples in enumerate(_samples(e, line, form, source, at.index, count)):
                e.store(samples, line.plane(e, number, e.add(line.before, at.index)), 1)


def _samples(e: Emitter, line: _Line, form: Format, source: Value, at: Value, count: int) -> list[Value]:
    column, step = e.add(line.first, at), PIXEL_BYTES[form]
    found = _every(e, e.gep(source, e.add(line.offset, e.mul(column, step)), "i8"), count, step)
    if form is not Format.YUV420SP_U8:
        return found
    pairs = e.gep(source, e.add(line.colours, e.binary("and", column, e.const(-2))), "i8")
    if count == 1:
        return [*found, *(e.load(e.gep(pairs, number, "i8"), "i8", 1) for number in range(2))]
    both = e.load(pairs, vector_type("i8", count), 1)
    return [*found, *(e.shuffle(both, both, [lane // 2 * 2 + number for lane in range(count)]) for number in range(2))]


def _every(e: Emitter, place: Value, count: int, step: int) -> list[Value]:
    """The first, second ... of every `step` bytes of so many pixels."""
    if count == 1:
        return [e.load(e.gep(place, number, "i8"), "i8", 1) for number in range(step)]
    together = e.load(place, vector_type("i8", count * step), 1)
    if step == 1:
        return [together]
    return [e.shuffle(together, together, [lane * step + number for lane in range(count)]) for number in range(step)]


# ---- planes to the result
class _Samples:
    """The samples of a pixel in their order, scaled."""

    def __init__(self, e: Emitter, shape: PictureShape, lanes: int, settings: _Settings):
        self.channels, self.lanes = shape.channels, lanes
        self.order = [e.binary("and", settings.word(Word.ORDER + number), e.const(PLANES - 1)) for number in range(PLANES)]
        self._subtracted = [settings.fraction(Word.SUBTRACTED + channel, lanes) for channel in range(shape.channels)]
        self._factors = [settings.fraction(Word.FACTORS + channel, lanes) for channel in range(shape.channels)]
        self.padding = settings.fraction(Word.PADDING, lanes)

    def sample(self, e: Emitter, line: _Line, number: int, column: Value) -> Value:
        """Sample `number` of the pixels from a column on, as numbers."""
        loaded = e.load(line.plane(e, self.order[number], column), vector_type("i8", self.lanes), 1)
        return e.cast("uitofp", loaded, "float")

    def values(self, e: Emitter, line: _Line, column: Value) -> list[Value]:
        """Each channel of the pixels from a column on."""
        return [self.scaled(e, channel, self.sample(e, line, channel, column)) for channel in range(self.channels)]

    def scaled(self, e: Emitter, channel: int, value: Value) -> Value:
        """(x - subtracted) * factor."""
        return e.binary("fmul", e.binary("fsub", value, self._subtracted[channel]), self._factors[channel])


class _Converted(_Samples):
    """The same with a colour conversion before it; what is not converted is zero."""

    def __init__(self, e: Emitter, shape: PictureShape, lanes: int, settings: _Settings):
        super().__init__(e, shape, lanes, settings)
        numbers = range(_CONVERTED)
        self._matrix = [[settings.fraction(Word.MATRIX + _CONVERTED * row + n, lanes) for n in numbers] for row in numbers]
        self._before, self._behind = ([settings.fraction(word + n, lanes) for n in numbers] for word in (Word.INPUT_BIAS, Word.OUTPUT_BIAS))

    def values(self, e: Emitter, line: _Line, column: Value) -> list[Value]:
        samples = [e.binary("fsub", self.sample(e, line, n, column), self._before[n]) for n in range(_CONVERTED)]
        found = [self._converted(e, row, samples) for row in range(min(self.channels, _CONVERTED))]
        found += [e.zero(samples[0].type)] * (self.channels - len(found))
        return [self.scaled(e, channel, value) for channel, value in enumerate(found)]

    def _converted(self, e: Emitter, row: int, samples: Sequence[Value]) -> Value:
        first, second, third = self._matrix[row]
        total = e.fma(samples[2], third, e.fma(samples[1], second, e.binary("fmul", samples[0], first)))
        whole = e.intrinsic("floor", [e.binary("fmul", total, e.const(1 / 256, total.type))])
        shifted = e.binary("fadd", whole, self._behind[row])
        return e.intrinsic("minnum", [e.intrinsic("maxnum", [shifted, e.const(0, total.type)]), e.const(255, total.type)])


def _write_row(e: Emitter, shape: PictureShape, lanes: int, line: _Line, image: Value, row: Value, values: _Samples, write: Write) -> None:
    """All channels of a row, padding where there is no pixel."""
    whole = shape.width - shape.width % lanes

    def at(column: Value, mask: Value | None) -> None:
        present = line.present(e, column, lanes)
        for channel, value in enumerate(values.values(e, line, column)):
            write((image, e.const(channel), row, column), e.select(present, value, values.padding), mask)

    with e.loop(0, whole, lanes) as column:
        at(column.index, None)
    if whole < shape.width:
        at(e.const(whole), first_lanes(shape.width - whole, lanes))
