"""The rows of an input that a task reads, copied with their padding: afterwards every tap of every pixel is there.

Bytes that are multiplied as 16-bit integers are widened on the way: what lies `n` bytes into the input then lies `2 * n` into the copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.dot_magnitudes import as_signed
from anycann.codegen.kernels.dot_shape import DotPlan
from anycann.codegen.values import Value, vector_type
from anycann.support.records import dataclass
from anycann.te import dtypes

_SIGN = 0x80


def emit_padded_copy(e: Emitter, plan: DotPlan, image: Value, place: Sequence[Value], fill: Value, copy: Value) -> None:
    """Rows of `image` (where it begins) from `place` (plane, if there are three dimensions, and row) on to `copy`.

    What lies outside is `fill`, a byte, in every byte. Both are less what the input lies around.
    """
    fill = e.binary("sub", fill, e.const(as_signed(plan.around), "i8")) if plan.around else fill
    for part in range(plan.split[1]):
        with e.loop(0, plan.planes) as plane, e.loop(0, plan.copied_rows) as row:
            first = e.mul(e.add(e.mul(plane.index, plan.split[1]), part), plan.copied_rows)
            to = e.gep(copy, e.mul(e.add(first, row.index), plan.pitch * plan.channels * plan.nbytes), "i8")
            _line(e, plan, image, place, (plane.index, row.index), _Line(to, part, fill))


@dataclass(frozen=True)
class _Line:
    """A line of the copy: where it is, the part of the columns that it holds, and what padding is."""

    to: Value
    part: int
    fill: Value


def _line(e: Emitter, plan: DotPlan, image: Value, place: Sequence[Value], number: tuple[Value, Value], line: _Line) -> None:
    """One line, by its plane and its row in the copy."""
    plane, row = number
    steps = [e.mul(plane, plan.shape.dilations[0]), _row_read(e, plan, row)][-len(place) :]
    read, outside = e.const(0), e.const(0, "i1")
    for first, step, extent in zip(place, steps, plan.shape.in_size, strict=False):
        at = e.add(first, step)
        beyond = e.binary("or", e.compare("slt", at, e.const(0)), e.compare("sge", at, e.const(extent)))
        read, outside = e.add(e.mul(read, extent), at), e.binary("or", outside, beyond)
    with e.when(outside):
        _fill(e, plan, line.to, plan.pitch, line.fill)
    with e.when(e.binary("xor", outside, e.const(1, "i1"))):
        _row(e, plan, image, read, line)


def _row_read(e: Emitter, plan: DotPlan, row: Value) -> Value:
    """The row of the input, counted from the first, that is row `row` of the copy."""
    if plan.is_split:
        return e.add(e.mul(e.urem(row, plan.part_rows), plan.shape.strides[-2]), e.udiv(row, plan.part_rows))
    if plan.row_step == plan.shape.dilations[-2]:
        return row
    return e.add(e.mul(e.udiv(row, plan.band), plan.shape.dilations[-2]), e.urem(row, plan.band))


def _row(e: Emitter, plan: DotPlan, image: Value, y: Value, line: _Line) -> None:
    """One row that exists, by its number in the image: padding, pixels, padding."""
    shape, pixel = plan.shape, plan.channels * plan.nbytes
    step = shape.strides[-1] if plan.is_split else 1
    left = min(plan.pitch, max(0, -((line.part - shape.pads_begin[-1]) // step)))
    skipped = left * step + line.part - shape.pads_begin[-1]
    count = max(0, min(plan.pitch - left, -((skipped - shape.in_size[-1]) // step)))
    _fill(e, plan, line.to, left, line.fill)
    _fill(e, plan, e.gep(line.to, (left + count) * pixel, "i8"), plan.pitch - left - count, line.fill)
    inside = e.gep(line.to, left * pixel, "i8")
    if plan.planar:
        _planar_pixels(e, plan, image, e.add(e.mul(y, shape.in_size[-1]), skipped), inside, count)
        return
    nbytes = shape.in_channels * shape.dtype.nbytes
    source = e.gep(image, e.mul(e.add(e.mul(y, shape.in_size[-1]), skipped), nbytes), "i8")
    if plan.channels == shape.in_channels and step == 1:
        _stretch(e, plan, source, inside, count * nbytes)
        return
    with e.loop(0, count) as column:
        one, to = e.gep(source, e.mul(column.index, step * nbytes), "i8"), e.gep(inside, e.mul(column.index, pixel), "i8")
        _stretch(e, plan, one, to, nbytes)
        _clear_rest(e, plan, to, nbytes * _growth(plan))


def _planar_pixels(e: Emitter, plan: DotPlan, image: Value, first: Value, to: Value, count: int) -> None:
    """Pixels whose channels lie in planes of their own."""
    shape, nbytes = plan.shape, plan.shape.dtype.nbytes
    with e.loop(0, count) as column:
        place = e.add(first, column.index)
        target = e.gep(to, e.mul(column.index, plan.channels * plan.nbytes), "i8")
        for channel in range(plan.channels):
            at = e.gep(target, channel * plan.nbytes, "i8")
            if channel < shape.in_channels:
                _move(e, plan, e.gep(image, e.mul(e.add(place, channel * plan.channel_stride), nbytes), "i8"), at, f"i{8 * nbytes}")
            else:
                e.store(e.const(0, f"i{8 * plan.nbytes}"), at, 1)


def _clear_rest(e: Emitter, plan: DotPlan, pixel: Value, nbytes: int) -> None:
    """Zero for the channels that only the copy has: no NaN may meet their weights of zero, and the sum of the input is without them."""
    for at, size in pieces(plan.channels * plan.nbytes - nbytes, plan.target.lanes * 4):
        e.store(e.zero(vector_type("i8", size)), e.gep(pixel, nbytes + at, "i8"), 1)


def _stretch(e: Emitter, plan: DotPlan, source: Value, to: Value, nbytes: int) -> None:
    """So many bytes of the input, which lie one behind the other on both sides."""
    size = plan.target.lanes * 4
    with e.loop(0, nbytes - nbytes % size, size) as part:
        _move(e, plan, e.gep(source, part.index, "i8"), e.gep(to, e.mul(part.index, _growth(plan)), "i8"), f"<{size} x i8>")
    whole = nbytes - nbytes % size
    for at, piece in pieces(nbytes - whole, size):
        place = e.gep(to, (whole + at) * _growth(plan), "i8")
        _move(e, plan, e.gep(source, whole + at, "i8"), place, f"<{piece} x i8>" if piece > 1 else "i8")


def _fill(e: Emitter, plan: DotPlan, to: Value, pixels: int, fill: Value) -> None:
    """`fill` in every channel of so many pixels."""
    own, pixel = plan.shape.in_channels * plan.nbytes, plan.channels * plan.nbytes
    if own == pixel:
        _fill_bytes(e, plan, to, pixels * pixel, fill)
        return
    with e.loop(0, pixels) as column:
        place = e.gep(to, e.mul(column.index, pixel), "i8")
        _fill_bytes(e, plan, place, own, fill)
        _clear_rest(e, plan, place, own)


def _fill_bytes(e: Emitter, plan: DotPlan, to: Value, nbytes: int, fill: Value) -> None:
    size, growth = plan.target.lanes * 4, _growth(plan)
    one = e.cast("zext", fill, "i16") if growth > 1 else fill
    whole = nbytes - nbytes % size
    with e.loop(0, whole, size) as part:
        e.store(e.splat(one, size // growth), e.gep(to, part.index, "i8"), 1)
    for at, piece in pieces(nbytes - whole, size):
        e.store(e.splat(one, piece // growth), e.gep(to, whole + at, "i8"), 1)


def _growth(plan: DotPlan) -> int:
    """Bytes of the copy for each of the input."""
    return plan.nbytes // plan.shape.dtype.nbytes


def _move(e: Emitter, plan: DotPlan, source: Value, to: Value, type_: str) -> None:
    """Load and store; signed bytes become unsigned ones, and these signed ones around their middle."""
    value = e.load(source, type_, 1)
    if plan.shape.dtype is dtypes.int8:
        value = e.binary("xor", value, e.const(_SIGN - 256, type_))
    if plan.around:
        value = e.binary("sub", value, e.const(as_signed(plan.around), type_))
    e.store(e.cast("zext", value, "i16") if _growth(plan) > 1 else value, to, 1)


def pieces(nbytes: int, most: int) -> Iterator[tuple[int, int]]:
    """(offset, size) of powers of two that cover so many bytes."""
    at = 0
    while at < nbytes:
        size = most
        while size > nbytes - at:
            size //= 2
        yield at, size
        at += size
