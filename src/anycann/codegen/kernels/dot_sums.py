"""The sums of a register tile of a convolution by dot products, left in scratch memory: by vectors, or by matrix tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import gcd, prod
from typing import TypeAlias

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.dot_products import GROUP_BYTES
from anycann.codegen.kernels.dot_shape import DotPlan
from anycann.codegen.kernels.dot_tiles import TileRegisters
from anycann.codegen.values import Value, first_lanes, vector_type
from anycann.support.records import dataclass

LINE_BYTES = 64
Taps: TypeAlias = tuple[Value, Value]  # the first row of a window that is inside the image, and the one behind the last
Meanwhile: TypeAlias = Callable[[Emitter, Value, int], None]  # a part of other work, by its number, of so many
_STEPS = 2  # groups a turn by magnitudes: 0.86 of the time beside a neighbour on the core, 0.99 without one (Zen 3)


@dataclass(frozen=True)
class Reads:
    """What a register tile reads: of the input, where its first pixel begins, and the weights behind the head of a panel.

    number, place: of the register tile among those of its line, and among those of its task. taps: where some rows are left out.
    """

    rows: Value
    weights: Value
    number: Value
    place: Value
    taps: Taps | None = None


class VectorSums:
    """Sums in vector registers; the groups of a pixel go to all lanes. With `from_head`, they start from the first row of the panel."""

    def __init__(self, plan: DotPlan, from_head: bool):
        self.plan, self.dots, self.from_head = plan, plan.dots, from_head

    def emit(self, e: Emitter, pixels: int, vectors: int, reads: Reads) -> None:
        """Leave the sums of so many pixels, [pixel, column], in the first bytes of scratch memory."""
        start = self.starts(e, pixels, vectors, reads.weights)
        self.keep(e, vectors, self.along(e, pixels, reads, later_panel(e, self.plan, reads.weights, reads.number), start))

    def starts(self, e: Emitter, pixels: int, vectors: int, weights: Value) -> list[Value]:
        """What the sums of [pixel, vector] start from."""
        return [self._start(e, weights, j) for j in range(vectors)] * pixels

    def keep(self, e: Emitter, vectors: int, totals: Sequence[Value]) -> None:
        """Leave sums of [pixel, vector] in scratch memory."""
        for number, total in enumerate(totals):
            i, j = divmod(number, vectors)
            e.store(total, e.gep(e.scratch, (i * self.plan.width + j * self.plan.target.lanes) * GROUP_BYTES, "i8"), GROUP_BYTES)

    def along(self, e: Emitter, pixels: int, reads: Reads, later: Value, totals: list[Value]) -> list[Value]:
        """totals + the products of all groups; the weights of a later panel are fetched from `later` on."""
        plan = self.plan

        def body(offset: Value, k: Value, totals: Sequence[Value]) -> list[Value]:
            fetch_panel(e, plan, later, k, 1)
            place = e.gep(reads.weights, e.mul(k, plan.width * self.dots.weight_bytes), "i8")
            return self.multiply(e, pixels, e.gep(reads.rows, offset, "i8"), place, totals)

        def turn(offset: Value, k: Value, totals: Sequence[Value]) -> list[Value]:
            for step in range(steps):
                totals = body(e.add(offset, step * GROUP_BYTES), e.add(k, step), totals)
            return list(totals)

        steps = gcd(_STEPS, plan.runs[-1]) if self.dots.magnitudes else 1
        return along_depth(e, plan, steps, totals, turn, reads.taps)

    def multiply(self, e: Emitter, pixels: int, rows: Value, place: Value, totals: Sequence[Value]) -> list[Value]:
        """totals + the products of one group. rows: of the first pixel; place: of the weights."""
        plan, vectors = self.plan, len(totals) // pixels
        places = [e.gep(place, j * plan.target.lanes * self.dots.weight_bytes, "i8") for j in range(vectors)]
        columns = [self.dots.second(e, at) for at in places]
        result = []
        for i in range(pixels):
            if self.dots.magnitudes and not self.dots.narrow:
                e.keep_order()  # there are no registers for signs: each pixel reads them again
            factor = self.dots.spread(e, e.gep(rows, i * plan.pixel_stride * plan.nbytes, "i8"))
            seconds = [[*columns[j], *self.dots.signs(e, places[j])] for j in range(vectors)]
            result += [self.dots.add(e, totals[i * vectors + j], factor, seconds[j]) for j in range(vectors)]
        return result

    def _start(self, e: Emitter, weights: Value, vector: int) -> Value:
        if not self.from_head:
            return e.zero(self.dots.sums)
        plan = self.plan
        head = e.gep(weights, (vector * plan.target.lanes - plan.head * plan.width) * GROUP_BYTES, "i8")
        return e.load(head, self.dots.sums, GROUP_BYTES)


def later_panel(e: Emitter, plan: DotPlan, weights: Value, number: Value) -> Value:
    """The part of the next panel that the register tile of this number fetches."""
    return e.gep(weights, e.add(e.mul(number, plan.fetched_bytes * plan.depth), plan.panel_bytes), "i8")


def fetch_panel(e: Emitter, plan: DotPlan, later: Value, k: Value, groups: int) -> None:
    """Ask for what lies as far behind `later` as so many groups from k on lie behind the first."""
    for line in range(0, groups * plan.fetched_bytes, LINE_BYTES):
        e.prefetch(e.gep(e.gep(later, e.mul(k, plan.fetched_bytes), "i8"), line, "i8"), level=2)


class TileSums:
    """Sums in matrix tiles, and one tile each of rows and of columns, loaded again and again: a processor has no more to spare.

    It renames tiles, of which there are few, and shares them with what another program runs on the same core. Then 2 x 2 sums from two
    tiles of either kind are 545 GFLOP/s, from one of either 847, 3 x 1 959, 2 x 1 1067, where alone they are 2214, 2213, 2158 and 2095
    (bfloat16 in the first-level cache, a Xeon of the fifth generation; `python -m benchmarks.matrix_tiles`). So at most three are summed.
    """

    def __init__(self, plan: DotPlan):
        self.plan, self.tiles = plan, TileRegisters(plan.shape.dtype, plan.tile.rows, plan.steps)

    def begin(self, e: Emitter) -> None:
        """Called once, in the entry block."""
        self.tiles.configure(e)

    def end(self, e: Emitter) -> None:
        """Called once, behind everything."""
        self.tiles.release(e)

    def emit(self, e: Emitter, vectors: int, reads: Reads, to: Value, meanwhile: Meanwhile) -> None:
        """Leave the sums of a register tile, [pixel, column], at `to`, and do some of other work with each step."""
        plan, tile = self.plan, self.plan.tile
        places = [(i, j) for i in range(tile.row_tiles) for j in range(vectors)]
        for i, j in places:
            self.tiles.clear(e, i * vectors + j)
        stride, later = plan.pixel_stride * plan.nbytes, later_panel(e, plan, reads.weights, reads.place)

        # all of the other work is done with the first row of the kernel that is not left out
        steps = plan.depth // plan.steps // (plan.runs[1] if reads.taps else 1)
        first = e.mul(reads.taps[0], steps * plan.steps) if reads.taps else e.const(0)

        def load_rows(offset: Value, i: int) -> None:
            self.tiles.load_rows(e, 0, e.gep(e.gep(reads.rows, offset, "i8"), i * tile.rows * stride, "i8"), stride)

        def load_columns(k: Value, j: int) -> None:
            column = e.add(e.mul(k, plan.width * GROUP_BYTES), j * plan.target.lanes * GROUP_BYTES)
            self.tiles.load_columns(e, 0, e.gep(reads.weights, column, "i8"), plan.width * GROUP_BYTES)

        def body(offset: Value, k: Value, totals: Sequence[Value]) -> list[Value]:
            fetch_panel(e, plan, later, k, plan.steps)
            self.tiles.multiply_all(e, tile.row_tiles, range(vectors), vectors, partial(load_rows, offset), partial(load_columns, k))
            meanwhile(e, e.udiv(e.sub(k, first), plan.steps), steps)
            return []

        along_depth(e, plan, plan.steps, [], body, reads.taps)
        for i, j in places:
            at = (i * tile.rows * plan.width + j * plan.target.lanes) * GROUP_BYTES
            self.tiles.store(e, i * vectors + j, e.gep(to, at, "i8"), plan.width * GROUP_BYTES)


def sum_of_input(e: Emitter, plan: DotPlan, row: Value) -> Value:
    """The sum of all bytes that one output pixel reads, as an i32."""
    dots, lanes = plan.dots, plan.target.lanes
    groups, type_ = plan.runs[-1], vector_type("i32", plan.target.lanes)
    whole = groups - groups % lanes
    mask = first_lanes(groups % lanes or lanes, lanes)

    def body(offset: Value, k: Value, totals: Sequence[Value]) -> list[Value]:
        part = e.gep(row, offset, "i8")
        with e.loop(0, whole, lanes, carried=totals) as loop:
            data = e.load(e.gep(part, loop.index, "i32"), type_, 1)
            loop.carry([dots.add(e, loop.values[0], dots.first(e, data), dots.ones(e))])
        total = loop.values[0]
        if mask is not None:
            data = e.masked_load(e.gep(part, whole, "i32"), type_, 1, mask, e.zero(type_))
            total = dots.add(e, total, dots.first(e, data), dots.ones(e))
        return [total]

    return e.reduce("add", along_depth(e, plan, groups, [e.zero(type_)], body)[0])


Body = Callable[[Value, Value, Sequence[Value]], list[Value]]
_Pixels = Callable[[Value], Value]  # from the first of several to the one of a number


def along_depth(e: Emitter, plan: DotPlan, step: int, totals: list[Value], body: Body, taps: Taps | None = None) -> list[Value]:
    """`body(offset of the input in bytes, number of the group of weights, totals)` for every `step` groups of the window.

    All those of a pixel, then of the next; `by_chunks`, some of each pixel, then the next of each. taps: the rows of the window.
    """
    groups = plan.runs[-1]
    if groups == step:
        return _window(e, plan, groups, e.const(0), e.const(0), totals, body, taps)
    if plan.by_chunks:
        with e.loop(0, groups, step, carried=totals) as loop:
            k = e.mul(loop.index, prod(plan.runs[:-1]))
            loop.carry(_window(e, plan, step, e.mul(loop.index, GROUP_BYTES), k, loop.values, body))
        return list(loop.values)

    def part(offset: Value, k: Value, totals: Sequence[Value]) -> list[Value]:
        with e.loop(0, plan.part_groups, step, carried=totals) as loop:
            first = loop.index if plan.part_groups == groups else e.smin(loop.index, e.const(groups - step))
            loop.carry(body(e.add(offset, e.mul(first, GROUP_BYTES)), e.add(k, loop.index), loop.values))
        return list(loop.values)

    return _window(e, plan, plan.part_groups, e.const(0), e.const(0), totals, part, taps)


def _window(
    e: Emitter, plan: DotPlan, size: int, offset: Value, k: Value, totals: Sequence[Value], then: Body, taps: Taps | None = None
) -> list[Value]:
    """`then` for each part of the window, `size` groups of weights apart, from an offset of the input and a group of the weights on."""
    planes, rows, parts, _ = plan.runs
    nbytes = plan.channels * plan.nbytes

    def outer(
        count: int, first: Value, k: Value, pixels: _Pixels, size: int, totals: Sequence[Value], then: Body, some: Taps | None = None
    ) -> list[Value]:
        if count == 1:
            return then(first, k, totals)
        low, high = some or (e.const(0), e.const(count))
        with e.loop(low, high, carried=totals) as loop:
            at = e.add(first, e.mul(pixels(loop.index), nbytes))
            loop.carry(then(at, e.add(k, e.mul(loop.index, size)), loop.values))
        return list(loop.values)

    def part(offset: Value, k: Value, totals: Sequence[Value]) -> list[Value]:
        return outer(parts, offset, k, lambda tap: _column_pixels(e, plan, tap), size, totals, then)

    def row(offset: Value, k: Value, totals: Sequence[Value]) -> list[Value]:
        return outer(rows, offset, k, lambda tap: _row_pixels(e, plan, tap), parts * size, totals, part, taps)

    return outer(planes, offset, k, lambda plane: e.mul(plane, plan.plane_pixels), rows * parts * size, totals, row)


def _column_pixels(e: Emitter, plan: DotPlan, tap: Value) -> Value:
    """Pixels from the first tap of a row of the window to another one."""
    place = e.mul(tap, plan.shape.dilations[-1])
    if not plan.is_split:
        return place
    stride = plan.shape.strides[-1]
    return e.add(e.mul(e.urem(place, stride), plan.copied_rows * plan.pitch), e.udiv(place, stride))


def _row_pixels(e: Emitter, plan: DotPlan, tap: Value) -> Value:
    """Pixels from the first row of the window to another one."""
    if not plan.is_split:
        return e.mul(tap, plan.row_step * plan.pitch)
    place, stride = e.mul(tap, plan.shape.dilations[-2]), plan.shape.strides[-2]
    return e.mul(e.add(e.mul(e.urem(place, stride), plan.part_rows), e.udiv(place, stride)), plan.pitch)
