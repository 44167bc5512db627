"""Winograd's convolution: of 3x3 taps F(4x4, 3x3) takes 36 multiplications for 16 results instead of 144.

A task takes a block of output tiles (numbered through the whole batch) and some output channels: it transforms the patches of the input,
multiplies them at each point with the transformed weights as small matrices, and transforms the products back. In three
dimensions the block has the same tiles of some planes: each plane of the input is transformed once, and multiplied for every plane of the
output that reads it; only height and width are saved multiplications.
Padding is read as zeros from a zero vector; nothing outside the input is loaded.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_inputs import Elements
from anycann.codegen.kernels.convolution_kernel import Initial, Write
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_write import digits
from anycann.codegen.kernels.winograd_bundles import BundledShape, bundled, lanes_of_last
from anycann.codegen.kernels.winograd_products import BlockGroup, WinogradKernel, group_block, multiply_point, weights_ahead
from anycann.codegen.kernels.winograd_tile import (
    WinogradTile,
    all_blocks,
    all_groups,
    all_tiles,
    channel_runs,
    input_stride,
    out_planes,
    plane_reach,
    plane_taps,
    product_stride,
    read_positions,
    run_tasks,
    scratch_bytes,
    tap_steps,
    tile_grid,
    tile_points,
    winograd_depth,
    winograd_refusal,
)
from anycann.codegen.kernels.winograd_transform import goes_by_lines, transform_input, transform_input_by_lines, transform_output
from anycann.codegen.resuming import resumed
from anycann.codegen.values import POINTER, Value, vector_type
from anycann.support.errors import UsageError
from anycann.support.records import dataclass
from anycann.target.target import Target


@dataclass(frozen=True)
class WinogradLaunch:
    """What a caller must know to launch the kernel."""

    tasks: int
    scratch_bytes: int


def emit_winograd(
    e: Emitter,
    shape: ConvolutionShape,
    target: Target,
    tile: WinogradTile,
    input_pointer: Value,
    weights: Value,
    write: Write,
    initial: Initial | None = None,
) -> WinogradLaunch:
    """Write the tasks e.begin..e.end at the current end of `e`, in its entry block.

    input: NC1HWC0 of `shape.dtype` (a float of at most 32 bits); weights: `pack_winograd_weights`; both aligned to a vector. `write` and
    `initial` as in `emit_convolution`. Raises UsageError for a convolution that no algorithm computes (`winograd_refusal`).
    """
    refusal = winograd_refusal(shape, target)
    if refusal:
        accepted = "small kernels, dilation or stride 1, full vectors, groups of at least half a vector"
        raise UsageError(f"Winograd convolution of {shape}: {refusal}; accepted: {accepted}")
    if shape.batch == 0 or shape.out_pixels == 0:
        return WinogradLaunch(0, 0)
    goes_on = resumed(e)
    bundle = bundled(shape, target.lanes)
    kernel = _kernel(e, bundle, target, tile, input_pointer, weights, write, initial)
    sizes = bundle, target.lanes, tile
    groups, runs, each = all_groups(*sizes), channel_runs(*sizes), run_tasks(*sizes)
    tasks = runs * each
    before = e.select(goes_on, e.udiv(e.sub(e.begin, 1), tasks), e.const(-1))
    with e.loop(e.udiv(e.begin, each), e.udiv(e.add(e.end, each - 1), each), 1, [before]) as loop:
        block, run = digits(e, loop.index, [all_blocks(bundle, tile), runs])
        part = _part(e, kernel, block)
        of_bundle = replace(kernel, weights=_weights_of(e, kernel, part.bundle))
        with e.when(e.compare("ne", block, loop.values[0])):  # the next run of a block finds its inputs transformed
            _transform_inputs(e, kernel, part)
        first, stop = (e.udiv(e.mul(task, groups), tasks) for task in run_part(e, block, run, tasks, each))  # `first_group`
        if tile.by_point:
            _finish(e, of_bundle, first, stop, part)
        else:
            with e.loop(first, stop) as group:
                _finish(e, of_bundle, group.index, e.add(group.index, 1), part)
        loop.carry([block])
    return WinogradLaunch(all_blocks(bundle, tile) * tasks, scratch_bytes(*sizes))


def run_part(e: Emitter, block: Value, run: Value, tasks: int, each: int) -> tuple[Value, Value]:
    """The tasks of this call that are of a run, which has `each`, counted from the first of the `tasks` of a block; the one behind them."""
    low, high = e.mul(run, each), e.mul(e.add(run, 1), each)
    if each == 1:
        return low, high
    skipped = e.mul(block, tasks)
    return e.smax(low, e.sub(e.begin, skipped)), e.smin(high, e.sub(e.end, skipped))


def _kernel(
    e: Emitter, shape: BundledShape, target: Target, tile: WinogradTile, x: Value, weights: Value, write: Write, initial: Initial | None
) -> WinogradKernel:
    vector, align = vector_type("float", target.lanes), 4 * target.lanes
    zeros = e.op(f"alloca {vector}, align {align}", POINTER)
    e.store(e.zero(vector), zeros, align)
    results = e.op(f"alloca {vector}, i64 {tile.height * tile.width}, align {align}", POINTER)
    products = e.gep(e.scratch, tile_points(shape, tile) * input_stride(shape, target.lanes, tile), "float")
    elements = Elements(shape.dtype, shape.accumulator, x)
    return WinogradKernel(shape, target, tile, elements, weights, write, initial, e.scratch, products, zeros, results)


def _weights_of(e: Emitter, kernel: WinogradKernel, bundle: Value) -> Value:
    shape, lanes = kernel.shape, kernel.lanes
    each = shape.out_blocks(lanes) * kernel.algorithm.points * winograd_depth(shape, lanes) * lanes
    return e.gep(kernel.weights, e.mul(bundle, each), "float")


@dataclass(frozen=True)
class _Part:
    """A block of the output: its bundle, its first tile and how many, its first plane and how many."""

    bundle: Value
    tile: Value
    tiles: Value
    plane: Value
    planes: Value


def _part(e: Emitter, kernel: WinogradKernel, block: Value) -> _Part:
    shape, tile, planes = kernel.shape, kernel.tile, out_planes(kernel.shape)
    total = all_tiles(shape, tile.size)
    bundle, some_tiles, some_planes = digits(e, block, [shape.bundles, -(-total // tile.tiles), -(-planes // tile.planes)])
    first, plane = e.mul(some_tiles, tile.tiles), e.mul(some_planes, tile.planes)
    tiles = e.smin(e.const(tile.tiles), e.sub(e.const(total), first))
    return _Part(bundle, first, tiles, plane, e.smin(e.const(tile.planes), e.sub(e.const(planes), plane)))


# ---- input transform
def _place(e: Emitter, kernel: WinogradKernel, tile: Value) -> tuple[Value, Value, Value]:
    """Image, first output row and first output column of a tile."""
    (dy, dx), (height, width) = tap_steps(kernel.shape), kernel.tile.size
    image, from_row, from_column, row, column = digits(e, tile, [kernel.shape.batch, *tile_grid(kernel.shape, kernel.tile.size)])
    return image, e.add(e.mul(row, height * dy), from_row), e.add(e.mul(column, width * dx), from_column)


def _transform_inputs(e: Emitter, kernel: WinogradKernel, part: _Part) -> None:
    """B d B^T for every channel block of a part and the planes it reads; neighbouring tiles follow each other, as their pixels do."""
    shape = kernel.shape
    (height, width), (dy, dx) = shape.in_size[-2:], tap_steps(shape)
    read = e.add(part.planes, plane_reach(shape)) if out_planes(shape) > 1 or plane_taps(shape) > 1 else e.const(1)
    with e.loop(0, shape.in_blocks(kernel.lanes)) as block, e.loop(0, read) as plane, e.loop(0, part.tiles) as tile:
        image, y, x = _place(e, kernel, e.add(part.tile, tile.index))
        y, x = (e.sub(e.mul(edge, shape.strides[axis]), shape.pads_begin[axis]) for axis, edge in ((-2, y), (-1, x)))
        rows = [inside(e, e.add(y, i * dy), height) for i in range(kernel.algorithm.rows.patch)]
        columns = [inside(e, e.add(x, j * dx), width) for j in range(kernel.algorithm.columns.patch)]
        number = e.add(e.mul(e.add(e.mul(image, shape.bundles), part.bundle), shape.in_blocks(kernel.lanes)), block.index)
        if len(shape.in_size) > 2:
            depth = e.sub(e.add(part.plane, plane.index), shape.pads_begin[0])
            rows = [e.binary("and", row, inside(e, depth, shape.in_size[0])) for row in rows]
            number = e.add(e.mul(number, shape.in_size[0]), depth)
        whole = rows[0]
        for condition in (rows[-1], columns[0], columns[-1]):
            whole = e.binary("and", whole, condition)
        offset = e.mul(e.add(e.mul(number, height * width), e.add(e.mul(y, width), x)), kernel.lanes)
        position = e.add(e.mul(plane.index, kernel.tile.tiles), tile.index)
        to = e.mul(e.add(e.mul(block.index, read_positions(shape, kernel.tile)), position), kernel.lanes)
        _fetch_below(e, kernel, offset)
        with e.when(whole):
            _transform_patch(e, kernel, offset, to, None)
        with e.when(e.binary("xor", whole, e.const(1, "i1"))):
            _transform_patch(e, kernel, offset, to, (rows, columns))


_LINE_BYTES = 64


def _fetch_below(e: Emitter, kernel: WinogradKernel, offset: Value) -> None:
    """Fetch what only the tile below reads of its patch, which another thread may have written; below the last row lies the next block.

    With two threads the transform of [128, 28, 28] and [256, 14, 14] takes 0.85 and 0.74 of the time, with one 0.97.
    """
    (dy, dx), dtype = tap_steps(kernel.shape), kernel.shape.dtype
    row = dy * kernel.shape.in_size[-1] * kernel.lanes
    rows, columns = kernel.algorithm.rows, kernel.algorithm.columns
    pixel = dx * kernel.lanes * dtype.nbytes
    for i in range(rows.patch, rows.patch + rows.step):
        pixels = kernel.elements.moved(e, kernel.elements.pointer, e.add(offset, i * row))
        for line in range(0, columns.step * pixel, max(pixel, _LINE_BYTES) if dx > 1 else _LINE_BYTES):
            e.prefetch(e.gep(pixels, line, "i8"))


def inside(e: Emitter, position: Value, size: int) -> Value:
    """0 <= position < size, as one unsigned comparison."""
    return e.compare("ult", position, e.const(size))


def _transform_patch(e: Emitter, kernel: WinogradKernel, offset: Value, to: Value, border: tuple[list[Value], list[Value]] | None) -> None:
    """One tile and channel block; with `border`, rows and columns whose condition is false are zero."""
    base = kernel.elements.moved(e, kernel.elements.pointer, offset)
    stride = input_stride(kernel.shape, kernel.lanes, kernel.tile)
    rows, columns = kernel.algorithm.rows, kernel.algorithm.columns

    def read(i: int, j: int) -> Value:
        return _patch_element(e, kernel, base, i, j, border)

    def write(point: int, value: Value) -> None:
        kernel.store(e, value, kernel.inputs, e.add(to, point * stride))

    if goes_by_lines(kernel.target, kernel.algorithm):  # they wait where no products are yet
        lines = [e.gep(kernel.products, number * kernel.lanes, "float") for number in range(rows.points * columns.patch)]
        transform_input_by_lines(e, kernel.target, kernel.algorithm, read, lines, write)
        return
    patch = [read(i, j) for i, j in product(range(rows.patch), range(columns.patch))]
    for point, value in enumerate(transform_input(e, kernel.target, kernel.algorithm, patch)):
        write(point, value)


def _patch_element(
    e: Emitter, kernel: WinogradKernel, base: Value, i: int, j: int, border: tuple[list[Value], list[Value]] | None
) -> Value:
    dy, dx = tap_steps(kernel.shape)
    pointer = kernel.elements.moved(e, base, (i * dy * kernel.shape.in_size[-1] + j * dx) * kernel.lanes)
    if border:
        pointer = e.select(e.binary("and", border[0][i], border[1][j]), pointer, kernel.zeros)
    return kernel.elements.vector(e, pointer, kernel.lanes)


# ---- output channels
def _finish(e: Emitter, kernel: WinogradKernel, first: Value, stop: Value, part: _Part) -> None:
    """Products and results of groups of output channel blocks."""
    begin, end = group_block(e, kernel, first), group_block(e, kernel, stop)
    with e.loop(0, kernel.algorithm.points) as point, e.loop(first, stop) as group:
        following = weights_ahead(e, kernel, point.index, group.index, (first, stop))
        _multiply_group(e, kernel, point.index, group.index, begin, following)
    _transform_outputs(e, kernel, begin, e.sub(end, begin), part)


def _multiply_group(e: Emitter, kernel: WinogradKernel, point: Value, number: Value, begin: Value, following: Value) -> None:
    """Products of a point for one group; `begin` is the first channel block of the task."""
    shape, lanes, groups = kernel.shape, kernel.lanes, all_groups(kernel.shape, kernel.lanes, kernel.tile)
    block, stop = group_block(e, kernel, number), group_block(e, kernel, e.add(number, 1))
    kept, blocks, last = e.sub(block, begin), shape.out_blocks(lanes), e.const(groups - 1)
    small, large = blocks // groups, -(-blocks // groups)
    of_last = lanes_of_last(shape, kernel.target, small)
    sizes = range(small, large + 1)
    if of_last < lanes:  # a variant of its own
        with e.when(e.compare("eq", number, last)):
            multiply_point(e, kernel, point, BlockGroup(block, kept, small, of_last), following)
        stop = e.select(e.compare("eq", number, last), block, stop)
        sizes = range(small, large + 1) if groups > 1 else range(0)
    for size in sizes:
        with e.when(e.compare("eq", e.sub(stop, block), e.const(size))):
            multiply_point(e, kernel, point, BlockGroup(block, kept, size, lanes), following)


def _transform_outputs(e: Emitter, kernel: WinogradKernel, block: Value, blocks: Value, part: _Part) -> None:
    """A m A^T for a part, written where it lies inside the output."""
    stride = product_stride(kernel.shape, kernel.lanes, kernel.tile)
    (height, width), (dy, dx) = kernel.shape.out_size[-2:], tap_steps(kernel.shape)
    planes = part.planes if out_planes(kernel.shape) > 1 else e.const(1)
    skipped = e.mul(part.bundle, kernel.shape.out_blocks(kernel.lanes))
    with e.loop(0, blocks) as j, e.loop(0, planes) as plane, e.loop(0, part.tiles) as tile:
        image, y, x = _place(e, kernel, e.add(part.tile, tile.index))
        position = e.add(e.mul(plane.index, kernel.tile.tiles), tile.index)
        at = e.mul(e.add(e.mul(j.index, kernel.tile.positions), position), kernel.lanes)
        outer = [e.add(part.plane, plane.index)] if len(kernel.shape.out_size) > 2 else []
        products = [kernel.load(e, kernel.products, e.add(at, point * stride)) for point in range(kernel.algorithm.points)]
        channel = e.mul(e.add(e.add(block, j.index), skipped), kernel.lanes)
        start = kernel.initial(e, channel) if kernel.initial else None
        for i, value in enumerate(transform_output(e, kernel.target, kernel.algorithm, products)):
            kernel.store(e, e.binary("fadd", value, start) if start else value, kernel.results, e.const(i * kernel.lanes))
        rows = e.smin(e.const(kernel.tile.height), _steps(e, y, height, dy))
        columns = e.smin(e.const(kernel.tile.width), _steps(e, x, width, dx))
        with e.loop(0, rows) as row, e.loop(0, columns) as column:
            result = kernel.load(e, kernel.results, e.mul(e.add(e.mul(row.index, kernel.tile.width), column.index), kernel.lanes))
            kernel.write(e, [image, channel, *outer, e.add(y, e.mul(row.index, dy)), e.add(x, e.mul(column.index, dx))], result)


def _steps(e: Emitter, first: Value, size: int, step: int) -> Value:
    """How many of first, first + step ... are below the size; a later phase may have a row or column of tiles less."""
    left = e.sub(e.const(size), first)
    return left if step == 1 else e.udiv(e.smax(e.add(left, step - 1), e.const(0)), step)
