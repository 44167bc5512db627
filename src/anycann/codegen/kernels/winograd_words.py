"""Winograd's convolution of bytes by products of 16-bit integers: exact, with 0.25 (4x4 results of 3x3 taps) to 0.7 of the multiplications.

`winograd_words_transform.py` says why that is exact, and for which weights.

A task takes a block of output tiles (numbered through the whole batch) and some output channels. The input is NHWC; less its zero
point, so that padding is zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_sums import nest
from anycann.codegen.kernels.convolution_write import digits
from anycann.codegen.kernels.dot_copy import pieces
from anycann.codegen.kernels.dot_kernel import DotWrite
from anycann.codegen.kernels.dot_products import add_word_pairs
from anycann.codegen.kernels.winograd import inside, run_part
from anycann.codegen.kernels.winograd_tile import tile_grid
from anycann.codegen.kernels.winograd_words_lines import WordAlgorithm
from anycann.codegen.kernels.winograd_words_tile import WordTile, WordWinograd
from anycann.codegen.kernels.winograd_words_transform import transform_bytes, transform_sums
from anycann.codegen.resuming import resumed
from anycann.codegen.values import POINTER, Value, first_lanes, vector_type
from anycann.support.records import dataclass
from anycann.te import dtypes


def emit_word_winograd(e: Emitter, plan: WordWinograd, x: Value, weights: Value, write: DotWrite, zero_point: Value | int) -> int:
    """Write the tasks e.begin..e.end at the current end of `e`, in its entry block; returns how many there are.

    weights: `pack_words`. zero_point: of the input, counted from the least byte. write: consumes a vector of finished sums, of int32.
    """
    tile, each = plan.tile, plan.run_tasks
    tasks, task_groups = tile.splits * each, plan.run_groups // each
    goes_on = resumed(e)
    kernel = _kernel(e, plan, x, weights, write, zero_point)
    before = e.select(goes_on, e.udiv(e.sub(e.begin, 1), tasks), e.const(-1))
    with e.loop(e.udiv(e.begin, each), e.udiv(e.add(e.end, each - 1), each), 1, [before]) as loop:
        block, run = digits(e, loop.index, [plan.blocks, tile.splits])
        first = e.mul(block, tile.tiles)
        count = e.smin(e.const(tile.tiles), e.sub(e.const(plan.all_tiles), first))
        with e.when(e.compare("ne", block, loop.values[0])):  # the next run of a block finds its inputs transformed
            kernel.transform_inputs(e, first, count)
        low, high = run_part(e, block, run, tasks, each)
        low, stop = e.mul(low, task_groups), e.smin(e.const(plan.groups), e.mul(high, task_groups))
        if tile.by_point:
            kernel.finish(e, low, stop, first, count)
        else:
            with e.loop(low, stop) as group:
                kernel.finish(e, group.index, e.add(group.index, 1), first, count)
        loop.carry([block])
    return plan.tasks


def _kernel(e: Emitter, plan: WordWinograd, x: Value, weights: Value, write: DotWrite, zero_point: Value | int) -> _Kernel:
    lanes, signed = plan.target.lanes, plan.shape.dtype is dtypes.int8
    zero = zero_point if isinstance(zero_point, Value) else e.const(zero_point, "i32")
    if signed:
        zero = e.binary("sub", zero, e.const(128, "i32"))
    zero = e.cast("trunc", zero, "i16")
    padding = e.op(f"alloca <{4 * lanes} x i8>, align 64", POINTER)
    e.store(e.splat(e.cast("trunc", zero, "i8"), 4 * lanes), padding, 1)
    results = e.op(f"alloca {vector_type('i32', lanes)}, i64 {plan.algorithm.results}, align 64", POINTER)
    products = e.gep(e.scratch, plan.input_bytes, "i8")
    return _Kernel(plan, x, weights, write, zero, signed, e.scratch, products, padding, results)


_LINE_BYTES = 64


@dataclass(frozen=True)
class _Panel:
    """The weights of a group and point, those that come next, and where the products lie: so many vectors into those of the point."""

    weights: Value
    following: Value
    kept: Value
    point: Value


@dataclass(frozen=True)
class _Kernel:
    """What all tasks share."""

    plan: WordWinograd
    x: Value
    weights: Value
    write: DotWrite
    zero: Value  # i16
    signed: bool
    inputs: Value  # [points][chunk of channels][tile][2 * lanes] of i16, points `WordWinograd.input_stride` apart
    products: Value  # [points][group][vector of a group][tile][lanes] of i32, points `product_stride` apart
    padding: Value  # a vector of zero points
    results: Value  # a vector for each result of a tile

    @property
    def shape(self) -> ConvolutionShape:
        return self.plan.shape

    @property
    def tile(self) -> WordTile:
        return self.plan.tile

    @property
    def algorithm(self) -> WordAlgorithm:
        return self.plan.algorithm

    @property
    def sums(self) -> str:
        return vector_type("i32", self.plan.target.lanes)

    # ---- input
    def transform_inputs(self, e: Emitter, first: Value, count: Value) -> None:
        """B d B^T of all channels of some tiles."""
        chunk, channels = self.plan.chunk, self.shape.in_channels
        with e.loop(0, count) as tile:
            with e.loop(0, channels // chunk) as block:
                self._patch(e, e.add(first, tile.index), tile.index, block.index, 0, chunk)
            for offset, size in pieces(channels % chunk, chunk):
                self._patch(e, e.add(first, tile.index), tile.index, e.const(channels // chunk), offset, size)

    def _patch(self, e: Emitter, number: Value, tile: Value, block: Value, offset: int, size: int) -> None:
        """One tile, for `size` channels from `offset` on in a chunk."""
        shape, chunk = self.shape, self.plan.chunk
        high, wide = shape.in_size
        image, y, x = self._place(e, number)
        y, x = (e.sub(e.mul(at, step), pad) for at, step, pad in zip((y, x), shape.strides, shape.pads_begin, strict=True))
        rows = [inside(e, e.add(y, i), high) for i in range(self.algorithm.rows.patch)]
        columns = [inside(e, e.add(x, j), wide) for j in range(self.algorithm.columns.patch)]
        pixel = e.add(e.mul(e.add(e.mul(image, high), y), wide), x)
        channel = e.add(e.mul(block, chunk), offset)
        base = _moved(e, self.x, e.add(e.mul(pixel, shape.in_channels), channel))
        at = e.add(e.mul(e.add(e.mul(block, self.tile.tiles), tile), chunk), offset)
        whole = rows[0]
        for condition in (rows[-1], columns[0], columns[-1]):
            whole = e.binary("and", whole, condition)
        with e.when(whole):
            self._transform(e, base, at, size, None)
        with e.when(e.binary("xor", whole, e.const(1, "i1"))):
            self._transform(e, base, at, size, (rows, columns))

    def _transform(self, e: Emitter, base: Value, at: Value, size: int, border: tuple[list[Value], list[Value]] | None) -> None:
        """With `border`, rows and columns whose condition is false are padding."""
        stored, zero = f"<{size} x i8>", e.splat(self.zero, size)
        patch = []
        for i, j in product(range(self.algorithm.rows.patch), range(self.algorithm.columns.patch)):
            pointer = _moved(e, base, e.const((i * self.shape.in_size[1] + j) * self.shape.in_channels))
            if border:
                pointer = e.select(e.binary("and", border[0][i], border[1][j]), pointer, self.padding)
            value = e.cast("sext" if self.signed else "zext", e.load(pointer, stored, 1), "i16")
            patch.append(e.binary("sub", value, zero))
        for point, value in enumerate(transform_bytes(e, self.algorithm, patch)):
            e.store(value, e.gep(self.inputs, e.add(at, point * self.plan.input_stride), "i16"), 2)

    def _place(self, e: Emitter, tile: Value) -> tuple[Value, Value, Value]:
        """Image, first output row and first output column of a tile."""
        image, _, _, row, column = digits(e, tile, [self.shape.batch, *tile_grid(self.shape, self.tile.size)])
        return image, e.mul(row, self.tile.results), e.mul(column, self.tile.results)

    # ---- products
    def finish(self, e: Emitter, low: Value, stop: Value, first: Value, count: Value) -> None:
        """Products and results of some groups of vectors of output channels; the last of all groups may be smaller."""
        points = self.algorithm.points
        with e.loop(0, points) as point, e.loop(low, stop) as group:
            kept = e.mul(e.sub(group.index, low), self.tile.vectors * self.tile.tiles)
            number, after = e.add(e.mul(group.index, points), point.index), e.add(group.index, 1)
            back = e.add(e.add(e.mul(low, points), point.index), 1)
            following = e.select(e.compare("slt", after, stop), e.add(number, points), back)
            panel = _Panel(self._panel(e, number), self._panel(e, following), kept, point.index)
            for channels in self._sizes(e, group.index):
                self._multiply_point(e, panel, -(-channels // self.plan.target.lanes))
        with e.loop(low, stop) as group:
            kept = e.mul(e.sub(group.index, low), self.tile.vectors * self.tile.tiles)
            for channels in self._sizes(e, group.index):
                self._transform_outputs(e, group.index, kept, channels, first, count)

    def _sizes(self, e: Emitter, group: Value) -> Iterator[int]:
        """The numbers of channels that groups have; what is written for one of them is for groups that have so many."""
        full, rest = divmod(self.shape.out_channels, self.plan.width)
        if not (full and rest):
            yield rest or self.plan.width
            return
        for channels, predicate in ((self.plan.width, "slt"), (rest, "sge")):
            with e.when(e.compare(predicate, group, e.const(full))):
                yield channels

    def _panel(self, e: Emitter, number: Value) -> Value:
        """The weights of a group and point."""
        return e.gep(self.weights, e.mul(number, self.shape.in_channels // 2 * self.plan.width), "i32")

    def _multiply_point(self, e: Emitter, panel: _Panel, vectors: int) -> None:
        width = self.tile.columns
        full, rest = divmod(self.tile.tiles, width)
        if full:
            with e.loop(0, full) as number:
                self._multiply(e, panel, vectors, number.index, width)
        if rest:
            self._multiply(e, panel, vectors, e.const(full), rest)

    def _multiply(self, e: Emitter, panel: _Panel, vectors: int, number: Value, width: int) -> None:
        """A register tile: `width` tiles from number * `tile.columns` on, some vectors of output channels, all input channels."""
        plan, lanes, chunk, tiles = self.plan, self.plan.target.lanes, self.plan.chunk, self.tile.tiles
        pairs, step, start = self.shape.in_channels // 2, plan.unroll, e.mul(number, self.tile.columns)
        inputs = e.gep(self.inputs, e.add(e.mul(panel.point, plan.input_stride), e.mul(start, chunk)), "i16")
        later = e.gep(panel.following, e.mul(number, pairs * plan.fetched_bytes), "i8")

        def chunks(indices: list[Value], sums: list[Value]) -> list[Value]:
            (block,) = indices
            real = e.smin(e.const(chunk // 2), e.sub(e.const(pairs), e.mul(block, chunk // 2)))
            at, before = e.mul(block, tiles * chunk // 2), e.mul(block, chunk // 2)
            return nest(e, [(e.const(0), real, step)], sums, lambda inner, s: some(e.add(at, inner[0]), e.add(before, inner[0]), s))

        def some(at: Value, pair: Value, sums: list[Value]) -> list[Value]:
            sums, x, w = list(sums), e.gep(inputs, at, "i32"), e.gep(panel.weights, e.mul(pair, plan.width), "i32")
            for line in range(0, step * plan.fetched_bytes, _LINE_BYTES):
                e.prefetch(e.gep(e.gep(later, e.mul(pair, plan.fetched_bytes), "i8"), line, "i8"), level=2)
            for i in range(step):
                rows = [e.load(e.gep(w, i * plan.width + j * lanes, "i32"), self.sums, 4) for j in range(vectors)]
                for p in range(width):
                    two = e.splat(e.load(e.gep(x, p * chunk // 2 + i, "i32"), "i32", 4), lanes)
                    for j in range(vectors):
                        sums[p * vectors + j] = add_word_pairs(e, plan.target, sums[p * vectors + j], two, rows[j])
            return sums

        found = nest(e, [(e.const(0), e.const(-(-pairs // (chunk // 2))), 1)], [e.zero(self.sums)] * (width * vectors), chunks)
        to = e.add(e.mul(panel.point, plan.product_stride), e.mul(panel.kept, lanes))
        for p, j in product(range(width), range(vectors)):
            place = e.add(to, e.mul(e.add(start, j * tiles + p), lanes))
            e.store(found[p * vectors + j], e.gep(self.products, place, "i32"), 4)

    # ---- output
    def _transform_outputs(self, e: Emitter, group: Value, kept: Value, channels: int, first: Value, count: Value) -> None:
        """A m A^T of some tiles, written where it lies inside the output."""
        lanes, full = self.plan.target.lanes, channels // self.plan.target.lanes
        with e.loop(0, count) as tile:
            if full:
                with e.loop(0, full) as vector:
                    self._results(e, group, kept, vector.index, tile.index, first, None)
            if channels % lanes:
                self._results(e, group, kept, e.const(full), tile.index, first, first_lanes(channels % lanes, lanes))

    def _results(self, e: Emitter, group: Value, kept: Value, vector: Value, tile: Value, first: Value, mask: Value | None) -> None:
        plan, lanes = self.plan, self.plan.target.lanes
        image, y, x = self._place(e, e.add(first, tile))
        at = e.mul(e.add(e.add(kept, e.mul(vector, self.tile.tiles)), tile), lanes)
        stride = plan.product_stride
        products = [e.load(e.gep(self.products, e.add(at, point * stride), "i32"), self.sums, 4) for point in range(self.algorithm.points)]
        for number, value in enumerate(transform_sums(e, self.algorithm, products)):
            e.store(value, e.gep(self.results, number * lanes, "i32"), 4)
        channel = e.add(e.mul(group, plan.width), e.mul(vector, lanes))
        high, wide = self.shape.out_size
        most = e.const(self.tile.results)
        rows, columns = e.smin(most, e.sub(e.const(high), y)), e.smin(most, e.sub(e.const(wide), x))
        with e.loop(0, rows) as row, e.loop(0, columns) as column:
            place = e.mul(e.add(e.mul(row.index, self.tile.results), column.index), lanes)
            value = e.load(e.gep(self.results, place, "i32"), self.sums, 4)
            self.write(e, image, channel, e.add(y, row.index), e.add(x, column.index), value, mask)


def _moved(e: Emitter, base: Value, offset: Value) -> Value:
    """base + offset bytes, which may lie outside the buffer as long as nobody reads there."""
    return e.op(f"getelementptr i8, ptr {base.text}, i64 {offset.text}", POINTER)
