"""What all tasks of a convolution by dot products share: what they copy and read, the lines of register tiles, and handing sums on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_write import digits
from anycann.codegen.kernels.dot_copy import emit_padded_copy
from anycann.codegen.kernels.dot_products import GROUP_BYTES
from anycann.codegen.kernels.dot_shape import DotPlan
from anycann.codegen.kernels.dot_sorted import emit_lists, tile_lists
from anycann.codegen.kernels.dot_sums import Reads, Taps, sum_of_input
from anycann.codegen.values import Value, first_lanes
from anycann.support.records import dataclass
from anycann.te import dtypes

# write(e, plane of output pixels (`DotPlan.images`), channel of lane 0, row, column, sums, mask of the lanes that exist or None)
DotWrite: TypeAlias = Callable[[Emitter, Value, Value, Value, Value, Value, "Value | None"], None]


class DotKernel(ABC):
    """What all tasks share."""

    def __init__(self, plan: DotPlan, x: Value, weights: Value, write: DotWrite, zero: Value, scaled: bool, adds_head: bool, joined: int):
        self.plan, self.x, self.weights, self.write_out = plan, x, weights, write
        self.zero, self.scaled, self.adds_head, self.joined = zero, scaled, adds_head, joined

    @abstractmethod
    def panels(self, e: Emitter, task: DotTask, first: Value, stop: Value, columns: int) -> None:
        """Panels `first` to `stop` of a task, of so many columns each."""

    def task(self, e: Emitter, image: Value, chunk: Value, panels: Value, ready: Value | None = None) -> None:
        """All pixels of some rows of an image, for some panels. ready: that their input is copied; None: no task before this one did."""
        plan, tile = self.plan, self.plan.tile
        row = e.mul(chunk, tile.image_rows)
        rows = e.smin(e.const(tile.image_rows), e.sub(e.const(plan.shape.out_size[-2]), row))
        source = self._source(e, image, row)
        if ready is None:
            self._copy(e, image, row, source)
        else:
            with e.when(e.binary("xor", ready, e.const(1, "i1"))):
                self._copy(e, image, row, source)
                if plan.sorts:
                    self._sort(e, rows, source)
        first = e.mul(panels, tile.panels)
        stop = e.smin(e.add(first, tile.panels), e.const(plan.all_panels))
        full, rest = divmod(plan.shape.out_channels, plan.width)
        here = DotTask(image, row, rows, source)
        for columns, low, high in ((plan.width, 0, full), (rest, full, full + 1)):
            if columns and low < high:
                self.panels(e, here, e.smax(first, e.const(low)), e.smin(stop, e.const(high)), columns)

    def _source(self, e: Emitter, image: Value, row: Value) -> Value:
        """Where what the first output pixel of a task reads first is, or will be if it is copied."""
        plan, shape = self.plan, self.plan.shape
        if plan.copied:
            return e.gep(e.scratch, plan.copy_offset, "i8")
        base, place = self._input(e, image, row)
        first = e.const(0)
        for at, extent in zip([*place, e.const(-shape.pads_begin[-1])], shape.in_size, strict=True):
            first = e.add(e.mul(first, extent), at)
        return e.gep(base, e.mul(first, plan.channels * shape.dtype.nbytes), "i8")

    def _copy(self, e: Emitter, image: Value, row: Value, to: Value) -> None:
        """Copy what a task reads, if it is not read where it is."""
        plan = self.plan
        if plan.copied:
            base, place = self._input(e, image, row)
            fill = e.const(0, "i8") if plan.shape.dtype is dtypes.bfloat16 else e.cast("trunc", self.zero, "i8")
            emit_padded_copy(e, plan, base, place, fill, to)

    def _input(self, e: Emitter, image: Value, row: Value) -> tuple[Value, list[Value]]:
        """An image of the input, and the plane, if there are three dimensions, and the row of it that a task reads first."""
        plan, shape = self.plan, self.plan.shape
        image, *planes = digits(e, image, [shape.batch, *shape.out_size[:-2]])
        base = e.gep(self.x, e.mul(image, plan.image_stride * shape.dtype.nbytes), "i8")
        return base, [e.sub(e.mul(at, step), pad) for at, step, pad in zip([*planes, row], shape.strides, shape.pads_begin, strict=False)]

    def _sort(self, e: Emitter, rows: Value, source: Value) -> None:
        """Sort what all register tiles of a task read."""
        plan = self.plan

        def tile(e: Emitter, run: Run, _: Sequence[Value]) -> list[Value]:
            at = e.gep(source, e.mul(run.start, plan.pixel_stride * plan.nbytes), "i8")
            emit_lists(e, plan, run.pixels, e.gep(at, e.mul(run.line, plan.row_stride * plan.nbytes), "i8"), tile_lists(e, plan, run.place))
            return []

        self.lines(e, rows, [], tile)

    def lines(self, e: Emitter, rows: Value, carried: Sequence[Value], tile: Each) -> list[Value]:
        """Every register tile of a task: of one long line, or of each of its rows. Each takes what the one before it carries on."""
        plan = self.plan
        if plan.tile.merge:
            width = e.add(e.mul(e.sub(rows, 1), plan.pitch), plan.shape.out_size[-1])
            return self._line(e, e.const(0), width, carried, tile)
        with e.loop(0, rows, carried=carried) as line:
            line.carry(self._line(e, line.index, e.const(plan.shape.out_size[-1]), line.values, tile))
        return list(line.values)

    def reads(self, e: Emitter, task: DotTask, panel: Value, run: Run) -> Reads:
        plan = self.plan
        rows = e.gep(self._line_reads(e, task, panel, run.line), e.mul(run.start, plan.pixel_stride * plan.nbytes), "i8")
        weights = e.gep(self._weights(e, panel), plan.head * plan.width * GROUP_BYTES, "i8")
        return Reads(rows, weights, run.number, run.place, self._taps(e, e.add(task.row, run.line)) if plan.skips_rows else None)

    def _taps(self, e: Emitter, row: Value) -> Taps:
        """`inner_taps` of an output row."""
        shape = self.plan.shape
        dilation, extent = shape.dilations[0], e.const(shape.in_size[0] + shape.dilations[0] - 1)
        first = e.sub(e.mul(row, shape.strides[0]), shape.pads_begin[0])
        before = e.smax(e.sub(e.const(dilation - 1), first), e.const(0))
        return e.udiv(before, dilation), e.smin(e.udiv(e.sub(extent, first), dilation), e.const(shape.kernel[0]))

    def _line_reads(self, e: Emitter, task: DotTask, panel: Value, line: Value) -> Value:
        """What the first pixel of a line reads first, for a panel."""
        first = e.gep(task.source, e.mul(e.add(self._first_channel(e, panel), self._window(e, panel)), self.plan.nbytes), "i8")
        return e.gep(first, e.mul(line, self.plan.row_stride * self.plan.nbytes), "i8")

    def _weights(self, e: Emitter, panel: Value) -> Value:
        return e.gep(self.weights, e.mul(panel, self.plan.panel_bytes), "i8")

    def _first_channel(self, e: Emitter, panel: Value) -> Value:
        """`DotPlan.first_channel` of a panel."""
        plan, shape = self.plan, self.plan.shape
        if shape.group == 1:
            return e.const(0)
        groups = e.udiv(e.mul(panel, plan.width), shape.group_outputs)
        return e.smin(e.mul(groups, shape.group_inputs), e.const(plan.channels - plan.multiplied))

    def _window(self, e: Emitter, panel: Value) -> Value:
        """Elements from what the first window reads to what that of a panel does."""
        plan = self.plan
        if not plan.windows:
            return e.const(0)
        number = e.udiv(panel, plan.all_panels // len(plan.windows))
        found = e.const(0)
        for place, (row, column) in enumerate(plan.windows):
            begin = e.const(row * plan.row_stride + column * plan.pixel_stride)
            found = e.select(e.compare("eq", number, e.const(place)), begin, found)
        return found

    def _line(self, e: Emitter, line: Value, width: Value, carried: Sequence[Value], each: Each) -> list[Value]:
        """Pixels 0..width in register tiles; the last one is smaller, or begins earlier if nothing may be read behind it."""
        plan, tile = self.plan, self.plan.tile
        whole = plan.length - plan.rest
        before = e.mul(line, plan.line_tiles)
        with e.loop(0, e.const(whole) if plan.rest else width, tile.pixels, carried=carried) as pixel:
            start = pixel.index if plan.copied or plan.rest else e.smin(pixel.index, e.sub(width, tile.pixels))
            stop = e.add(pixel.index, tile.pixels)
            done = (pixel.index, stop if plan.rest else e.smin(width, stop))
            number = e.udiv(pixel.index, tile.pixels)
            pixel.carry(each(e, Run(tile.pixels, line, start, *done, number, e.add(before, number)), pixel.values))
        carried = pixel.values
        if plan.rest:
            ends, number = (e.const(whole), e.const(whole), e.const(plan.length)), e.const(whole // tile.pixels)
            carried = each(e, Run(plan.rest, line, *ends, number, e.add(before, number)), carried)
        return list(carried)

    def hand_on(self, e: Emitter, task: DotTask, columns: int, sums: WaitingSums, first: Value, stop: Value) -> None:
        """Pixels `first` to `stop` of a register tile whose sums are in scratch memory."""
        plan = self.plan
        panel = _Panel(task.image, self._weights(e, sums.panel), e.mul(sums.panel, plan.width), columns)
        row, source = e.add(task.row, sums.line), self._line_reads(e, task, sums.panel, sums.line)
        with e.loop(first, stop) as done:
            place = e.gep(sums.place, e.mul(e.sub(done.index, sums.start), plan.width * GROUP_BYTES), "i8")
            window = e.gep(source, e.mul(done.index, plan.pixel_stride * plan.nbytes), "i8")
            self._pixel(e, panel, row, done.index, _Pixel(place, window))

    def _pixel(self, e: Emitter, panel: _Panel, row: Value, pixel: Value, place: _Pixel) -> None:
        """Hand the vectors of one pixel on, unless it lies between two rows."""
        plan = self.plan
        if not plan.tile.merge:
            self._vectors(e, panel, row, pixel, place)
            return
        y, x = e.add(row, e.udiv(pixel, plan.pitch)), e.urem(pixel, plan.pitch)
        if plan.pitch == plan.shape.out_size[-1]:
            self._vectors(e, panel, y, x, place)
            return
        with e.when(e.compare("slt", x, e.const(plan.shape.out_size[-1]))):
            self._vectors(e, panel, y, x, place)

    def _vectors(self, e: Emitter, panel: _Panel, y: Value, x: Value, pixel: _Pixel) -> None:
        """Hand the vectors of one pixel on: so many as are joined at once, then the others."""
        plan, lanes = self.plan, self.plan.target.lanes
        read = None if plan.centred else e.splat(sum_of_input(e, plan, pixel.window), lanes)
        whole = panel.columns // lanes
        first = 0
        while first < -(-panel.columns // lanes):
            count = max(1, min(self.joined, whole - first))
            sums = [self._sums(e, panel, pixel, j, read) for j in range(first, first + count)]
            mask = first_lanes(panel.columns - first * lanes, lanes) if count == 1 else None
            self.write_out(e, panel.image, e.add(panel.channel, first * lanes), y, x, e.join(sums), mask)
            first += count

    def _sums(self, e: Emitter, panel: _Panel, pixel: _Pixel, j: int, read: Value | None) -> Value:
        """Vector `j` of a pixel's sums, with what zero points add. read: the sum of what the pixel reads, in every lane."""
        plan, lanes = self.plan, self.plan.target.lanes
        type_ = plan.dots.sums
        total = e.load(e.gep(pixel.sums, j * lanes * GROUP_BYTES, "i8"), type_, GROUP_BYTES)
        if self.adds_head:
            head = e.load(e.gep(panel.weights, j * lanes * GROUP_BYTES, "i8"), type_, GROUP_BYTES)
            head = e.binary("mul", head, e.splat(self.zero, lanes)) if self.scaled else head
            total = e.binary("add", total, head)
        if read is not None:
            zero = e.load(e.gep(panel.weights, (plan.width + j * lanes) * GROUP_BYTES, "i8"), type_, GROUP_BYTES)
            total = e.binary("add", total, e.binary("mul", zero, read))
        return total


@dataclass(frozen=True)
class DotTask:
    """Rows of output pixels from `row` on of an image, and where what their first pixel reads is."""

    image: Value
    row: Value
    rows: Value
    source: Value


@dataclass(frozen=True)
class WaitingSums:
    """The sums of a register tile: its panel and line, the pixel that it begins with, and where in scratch memory they are."""

    panel: Value
    line: Value
    start: Value
    place: Value


@dataclass(frozen=True)
class Run:
    """A register tile of a line: so many `pixels` from `start` on, of which first..stop are written.

    number, place: its own among those of the line and among those of the task.
    """

    pixels: int
    line: Value
    start: Value
    first: Value
    stop: Value
    number: Value
    place: Value


@dataclass(frozen=True)
class _Pixel:
    """One output pixel: its sums in scratch memory, and the first that it reads."""

    sums: Value
    window: Value


@dataclass(frozen=True)
class _Panel:
    """The output channels that are computed together: so many `columns` from `channel` on, for one image."""

    image: Value
    weights: Value
    channel: Value
    columns: int


# a register tile, given what the one before it carries on
Each: TypeAlias = Callable[[Emitter, Run, Sequence[Value]], list[Value]]
