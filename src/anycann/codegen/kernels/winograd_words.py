"""Winograd's convolution F(4x4, 3x3) of bytes by products of 16-bit integers: exact, with a quarter of the multiplications.

`winograd_words_transform.py` says why that is exact, and for which weights.

A task takes a block of 4x4 output tiles (numbered through the whole batch) and some output channels. The input is NHWC; less its zero
point, so that padding is zero.
"""

from __future__ import annotations

from itertools import product

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_sums import nest
from anycann.codegen.kernels.convolution_write import digits
from anycann.codegen.kernels.dot_convolution import DotWrite, existing_lanes
from anycann.codegen.kernels.dot_copy import pieces
from anycann.codegen.kernels.dot_products import add_word_pairs
from anycann.codegen.kernels.winograd import inside
from anycann.codegen.kernels.winograd_tile import all_tiles, tile_grid
from anycann.codegen.kernels.winograd_words_tile import OUT, PATCH, POINTS, WordTile, WordWinograd
from anycann.codegen.kernels.winograd_words_transform import transform_bytes, transform_sums
from anycann.codegen.resuming import resumed
from anycann.codegen.values import POINTER, Value, vector_type
from anycann.support.records import dataclass
from anycann.te import dtypes


def emit_word_winograd(e: Emitter, plan: WordWinograd, x: Value, weights: Value, write: DotWrite, zero_point: Value | int) -> int:
    """Write the tasks e.begin..e.end at the current end of `e`, in its entry block; returns how many there are.

    weights: `pack_words`. zero_point: of the input, counted from the least byte. write: consumes a vector of finished sums, of int32.
    """
    shape, tile = plan.shape, plan.tile
    goes_on = resumed(e)
    kernel = _kernel(e, plan, x, weights, write, zero_point)
    before = e.select(goes_on, e.udiv(e.sub(e.begin, 1), tile.splits), e.const(-1))
    per_task = -(-plan.groups // tile.splits)
    with e.loop(e.begin, e.end, 1, [before]) as tasks:
        block, split = digits(e, tasks.index, [plan.blocks, tile.splits])
        first = e.mul(block, tile.tiles)
        count = e.smin(e.const(tile.tiles), e.sub(e.const(all_tiles(shape, (OUT, OUT))), first))
        with e.when(e.compare("ne", block, tasks.values[0])):  # the next split of a block finds its inputs transformed
            kernel.transform_inputs(e, first, count)
        stop = e.smin(e.const(plan.groups), e.mul(e.add(split, 1), per_task))
        with e.loop(e.mul(split, per_task), stop) as group:
            kernel.group(e, group.index, first, count)
        tasks.carry([block])
    return plan.tasks


def _kernel(e: Emitter, plan: WordWinograd, x: Value, weights: Value, write: DotWrite, zero_point: Value | int) -> _Kernel:
    lanes, signed = plan.target.lanes, plan.shape.dtype is dtypes.int8
    zero = zero_point if isinstance(zero_point, Value) else e.const(zero_point, "i32")
    if signed:
        zero = e.binary("sub", zero, e.const(128, "i32"))
    zero = e.cast("trunc", zero, "i16")
    padding = e.op(f"alloca <{4 * lanes} x i8>, align 64", POINTER)
    e.store(e.splat(e.cast("trunc", zero, "i8"), 4 * lanes), padding, 1)
    results = e.op(f"alloca {vector_type('i32', lanes)}, i64 {OUT * OUT}, align 64", POINTER)
    products = e.gep(e.scratch, plan.input_bytes, "i8")
    return _Kernel(plan, x, weights, write, zero, signed, e.scratch, products, padding, results)


@dataclass(frozen=True)
class _Kernel:
    """What all tasks share."""

    plan: WordWinograd
    x: Value
    weights: Value
    write: DotWrite
    zero: Value  # i16
    signed: bool
    inputs: Value  # [36][chunk of channels][tile][2 * lanes] of i16, points `WordWinograd.input_stride` apart
    products: Value  # [36][vector of a group][tile][lanes] of i32, points `product_stride` apart
    padding: Value  # a vector of zero points
    results: Value  # 16 vectors

    @property
    def shape(self) -> ConvolutionShape:
        return self.plan.shape

    @property
    def tile(self) -> WordTile:
        return self.plan.tile

    @property
    def sums(self) -> str:
        return vector_type("i32", self.plan.target.lanes)

    # ---- input
    def transform_inputs(self, e: Emitter, first: Value, count: Value) -> None:
        """B^T d B of all channels of some tiles."""
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
        y, x = e.sub(y, shape.pads_begin[0]), e.sub(x, shape.pads_begin[1])
        rows = [inside(e, e.add(y, i), high) for i in range(PATCH)]
        columns = [inside(e, e.add(x, j), wide) for j in range(PATCH)]
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
        for i, j in product(range(PATCH), range(PATCH)):
            pointer = _moved(e, base, e.const((i * self.shape.in_size[1] + j) * self.shape.in_channels))
            if border:
                pointer = e.select(e.binary("and", border[0][i], border[1][j]), pointer, self.padding)
            value = e.cast("sext" if self.signed else "zext", e.load(pointer, stored, 1), "i16")
            patch.append(e.binary("sub", value, zero))
        for point, value in enumerate(transform_bytes(e, patch)):
            e.store(value, e.gep(self.inputs, e.add(at, point * self.plan.input_stride), "i16"), 2)

    def _place(self, e: Emitter, tile: Value) -> tuple[Value, Value, Value]:
        """Image, first output row and first output column of a tile."""
        image, row, column = digits(e, tile, [self.shape.batch, *tile_grid(self.shape, (OUT, OUT))])
        return image, e.mul(row, OUT), e.mul(column, OUT)

    # ---- products
    def group(self, e: Emitter, number: Value, first: Value, count: Value) -> None:
        """Products and results of one group of vectors of output channels; the last group may be smaller."""
        plan, full = self.plan, self.shape.out_channels // self.plan.width
        for low, high, channels in ((0, full, plan.width), (full, full + 1, self.shape.out_channels % plan.width)):
            if channels and low < high:
                part = e.binary("and", e.compare("sge", number, e.const(low)), e.compare("slt", number, e.const(high)))
                with e.when(part):
                    with e.loop(0, POINTS) as point:
                        self._multiply_point(e, number, point.index, -(-channels // plan.target.lanes))
                    self._transform_outputs(e, number, channels, first, count)

    def _multiply_point(self, e: Emitter, group: Value, point: Value, vectors: int) -> None:
        width = self.tile.columns
        full, rest = divmod(self.tile.tiles, width)
        if full:
            with e.loop(0, full * width, width) as start:
                self._multiply(e, group, point, vectors, start.index, width)
        if rest:
            self._multiply(e, group, point, vectors, e.const(full * width), rest)

    def _multiply(self, e: Emitter, group: Value, point: Value, vectors: int, start: Value, width: int) -> None:
        """One register tile: `width` tiles from `start`, some vectors of output channels, all input channels."""
        plan, lanes, chunk, tiles = self.plan, self.plan.target.lanes, self.plan.chunk, self.tile.tiles
        pairs, step = self.shape.in_channels // 2, plan.unroll
        weights = e.gep(self.weights, e.mul(e.add(e.mul(group, POINTS), point), pairs * plan.width), "i32")
        inputs = e.gep(self.inputs, e.add(e.mul(point, plan.input_stride), e.mul(start, chunk)), "i16")

        def chunks(indices: list[Value], sums: list[Value]) -> list[Value]:
            (block,) = indices
            real = e.smin(e.const(chunk // 2), e.sub(e.const(pairs), e.mul(block, chunk // 2)))
            at, before = e.mul(block, tiles * chunk // 2), e.mul(block, chunk // 2)
            return nest(e, [(e.const(0), real, step)], sums, lambda inner, s: some(e.add(at, inner[0]), e.add(before, inner[0]), s))

        def some(at: Value, pair: Value, sums: list[Value]) -> list[Value]:
            sums, x, w = list(sums), e.gep(inputs, at, "i32"), e.gep(weights, e.mul(pair, plan.width), "i32")
            for i in range(step):
                rows = [e.load(e.gep(w, i * plan.width + j * lanes, "i32"), self.sums, 4) for j in range(vectors)]
                for p in range(width):
                    two = e.splat(e.load(e.gep(x, p * chunk // 2 + i, "i32"), "i32", 4), lanes)
                    for j in range(vectors):
                        sums[p * vectors + j] = add_word_pairs(e, plan.target, sums[p * vectors + j], two, rows[j])
            return sums

        found = nest(e, [(e.const(0), e.const(-(-pairs // (chunk // 2))), 1)], [e.zero(self.sums)] * (width * vectors), chunks)
        to = e.mul(point, plan.product_stride)
        for p, j in product(range(width), range(vectors)):
            place = e.add(to, e.mul(e.add(start, j * tiles + p), lanes))
            e.store(found[p * vectors + j], e.gep(self.products, place, "i32"), 4)

    # ---- output
    def _transform_outputs(self, e: Emitter, group: Value, channels: int, first: Value, count: Value) -> None:
        """A^T m A of some tiles, written where it lies inside the output."""
        lanes, full = self.plan.target.lanes, channels // self.plan.target.lanes
        with e.loop(0, count) as tile:
            if full:
                with e.loop(0, full) as vector:
                    self._results(e, group, vector.index, tile.index, first, None)
            if channels % lanes:
                self._results(e, group, e.const(full), tile.index, first, existing_lanes(channels % lanes, lanes))

    def _results(self, e: Emitter, group: Value, vector: Value, tile: Value, first: Value, mask: Value | None) -> None:
        plan, lanes = self.plan, self.plan.target.lanes
        image, y, x = self._place(e, e.add(first, tile))
        at = e.mul(e.add(e.mul(vector, self.tile.tiles), tile), lanes)
        stride = plan.product_stride
        products = [e.load(e.gep(self.products, e.add(at, point * stride), "i32"), self.sums, 4) for point in range(POINTS)]
        for number, value in enumerate(transform_sums(e, products)):
            e.store(value, e.gep(self.results, number * lanes, "i32"), 4)
        channel = e.add(e.mul(group, plan.width), e.mul(vector, lanes))
        high, wide = self.shape.out_size
        rows, columns = e.smin(e.const(OUT), e.sub(e.const(high), y)), e.smin(e.const(OUT), e.sub(e.const(wide), x))
        with e.loop(0, rows) as row, e.loop(0, columns) as column:
            place = e.mul(e.add(e.mul(row.index, OUT), column.index), lanes)
            value = e.load(e.gep(self.results, place, "i32"), self.sums, 4)
            self.write(e, image, channel, e.add(y, row.index), e.add(x, column.index), value, mask)


def _moved(e: Emitter, base: Value, offset: Value) -> Value:
    """base + offset bytes, which may lie outside the buffer as long as nobody reads there."""
    return e.op(f"getelementptr i8, ptr {base.text}, i64 {offset.text}", POINTER)
