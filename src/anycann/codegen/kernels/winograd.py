"""Winograd's convolution F(4x4, 3x3): 36 multiplications for 16 results instead of 144.

A task takes a block of 4x4 output tiles (numbered through the whole batch) and some output channels: it transforms the 6x6 patches of the
input, multiplies them at each of the 36 points with the transformed weights as small matrices, and transforms the products back.
Padding is read as zeros from a zero vector; nothing outside the input is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_inputs import Elements
from anycann.codegen.kernels.convolution_kernel import Initial, Write
from anycann.codegen.kernels.convolution_method import last_lanes
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_write import digits
from anycann.codegen.kernels.winograd_products import BlockGroup, WinogradKernel, multiply_point
from anycann.codegen.kernels.winograd_tile import (
    OUT,
    PATCH,
    POINTS,
    WinogradTile,
    all_tiles,
    input_stride,
    product_stride,
    scratch_bytes,
    tile_grid,
    winograd_refusal,
)
from anycann.codegen.kernels.winograd_transform import transform_input, transform_output
from anycann.codegen.resuming import resumed
from anycann.codegen.values import POINTER, Value, vector_type
from anycann.support.errors import UsageError
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
    `initial` as in `emit_convolution`. Raises UsageError for a convolution that F(4x4, 3x3) cannot compute (`winograd_refusal`).
    """
    refusal = winograd_refusal(shape, target)
    if refusal:
        raise UsageError(f"Winograd convolution of {shape}: {refusal}; accepted: 3x3, stride 1, dilation 1, one group, full vectors")
    if shape.batch == 0 or shape.out_pixels == 0:
        return WinogradLaunch(0, 0)
    goes_on = resumed(e)
    kernel = _kernel(e, shape, target, tile, input_pointer, weights, write, initial)
    before = e.select(goes_on, e.udiv(e.sub(e.begin, 1), tile.splits), e.const(-1))
    groups = -(-shape.out_blocks(target.lanes) // tile.blocks)
    per_task = -(-groups // tile.splits)
    with e.loop(e.begin, e.end, 1, [before]) as tasks:
        block, split = digits(e, tasks.index, [-(-all_tiles(shape) // tile.tiles), tile.splits])
        first = e.mul(block, tile.tiles)
        count = e.smin(e.const(tile.tiles), e.sub(e.const(all_tiles(shape)), first))
        with e.when(e.compare("ne", block, tasks.values[0])):  # the next split of a block finds its inputs transformed
            _transform_inputs(e, kernel, first, count)
        stop = e.smin(e.const(groups), e.mul(e.add(split, 1), per_task))
        with e.loop(e.mul(split, per_task), stop) as group:
            _group(e, kernel, group.index, first, count)
        tasks.carry([block])
    return WinogradLaunch(-(-all_tiles(shape) // tile.tiles) * tile.splits, scratch_bytes(shape, target.lanes, tile))


def _kernel(
    e: Emitter, shape: ConvolutionShape, target: Target, tile: WinogradTile, x: Value, weights: Value, write: Write, initial: Initial | None
) -> WinogradKernel:
    vector, align = vector_type("float", target.lanes), 4 * target.lanes
    zeros = e.op(f"alloca {vector}, align {align}", POINTER)
    e.store(e.zero(vector), zeros, align)
    results = e.op(f"alloca {vector}, i64 {OUT * OUT}, align {align}", POINTER)
    products = e.gep(e.scratch, POINTS * input_stride(shape, target.lanes, tile), "float")
    elements = Elements(shape.dtype, shape.accumulator, x)
    return WinogradKernel(shape, target, tile, elements, weights, write, initial, e.scratch, products, zeros, results)


# ---- input transform
def _place(e: Emitter, kernel: WinogradKernel, tile: Value) -> tuple[Value, Value, Value]:
    """Image, first output row and first output column of a tile."""
    image, row, column = digits(e, tile, [kernel.shape.batch, *tile_grid(kernel.shape)])
    return image, e.mul(row, OUT), e.mul(column, OUT)


def _transform_inputs(e: Emitter, kernel: WinogradKernel, first: Value, count: Value) -> None:
    """B^T d B for every channel block of the tiles first..first+count; neighbouring tiles follow each other, as their pixels do."""
    height, width = kernel.shape.in_size
    with e.loop(0, kernel.shape.in_blocks(kernel.lanes)) as block, e.loop(0, count) as tile:
        image, y, x = _place(e, kernel, e.add(first, tile.index))
        y, x = e.sub(y, kernel.shape.pads_begin[0]), e.sub(x, kernel.shape.pads_begin[1])
        rows = [_inside(e, e.add(y, i), height) for i in range(PATCH)]
        columns = [_inside(e, e.add(x, j), width) for j in range(PATCH)]
        inside = rows[0]
        for condition in (rows[-1], columns[0], columns[-1]):
            inside = e.binary("and", inside, condition)
        plane = e.add(e.mul(image, kernel.shape.in_blocks(kernel.lanes)), block.index)
        offset = e.mul(e.add(e.mul(plane, height * width), e.add(e.mul(y, width), x)), kernel.lanes)
        to = e.mul(e.add(e.mul(block.index, kernel.tile.tiles), tile.index), kernel.lanes)
        with e.when(inside):
            _transform_patch(e, kernel, offset, to, None)
        with e.when(e.binary("xor", inside, e.const(1, "i1"))):
            _transform_patch(e, kernel, offset, to, (rows, columns))


def _inside(e: Emitter, position: Value, size: int) -> Value:
    """0 <= position < size, as one unsigned comparison."""
    return e.compare("ult", position, e.const(size))


def _transform_patch(e: Emitter, kernel: WinogradKernel, offset: Value, to: Value, border: tuple[list[Value], list[Value]] | None) -> None:
    """One tile and channel block; with `border`, rows and columns whose condition is false are zero."""
    base = kernel.elements.moved(e, kernel.elements.pointer, offset)
    stride = input_stride(kernel.shape, kernel.lanes, kernel.tile)
    patch = []
    for i in range(PATCH):
        patch.append([_patch_element(e, kernel, base, i, j, border) for j in range(PATCH)])
    for point, value in enumerate(transform_input(e, kernel.target, patch)):
        kernel.store(e, value, kernel.inputs, e.add(to, point * stride))


def _patch_element(
    e: Emitter, kernel: WinogradKernel, base: Value, i: int, j: int, border: tuple[list[Value], list[Value]] | None
) -> Value:
    pointer = kernel.elements.moved(e, base, (i * kernel.shape.in_size[1] + j) * kernel.lanes)
    if border:
        pointer = e.select(e.binary("and", border[0][i], border[1][j]), pointer, kernel.zeros)
    return kernel.elements.vector(e, pointer, kernel.lanes)


# ---- output channels
def _group(e: Emitter, kernel: WinogradKernel, number: Value, first: Value, count: Value) -> None:
    """Products and results of one group of output channel blocks; the last group may be smaller."""
    shape, lanes, size = kernel.shape, kernel.lanes, kernel.tile.blocks
    groups, block = -(-shape.out_blocks(lanes) // size), e.mul(number, size)
    regular = BlockGroup(block, size, lanes)
    last_size = shape.out_blocks(lanes) - (groups - 1) * size
    last = BlockGroup(block, last_size, last_lanes(shape, kernel.target, "dense", last_size))
    variants = [("slt", regular), ("eq", last)] if groups > 1 and last != regular else [("sle", last)]
    for predicate, group in variants:
        with e.when(e.compare(predicate, number, e.const(groups - 1))):
            with e.loop(0, POINTS) as point:
                multiply_point(e, kernel, point.index, group)
            _transform_outputs(e, kernel, block, group.blocks, first, count)


def _transform_outputs(e: Emitter, kernel: WinogradKernel, block: Value, blocks: int, first: Value, count: Value) -> None:
    """A^T m A for the tiles first..first+count, written where they lie inside the output."""
    stride = product_stride(kernel.lanes, kernel.tile)
    height, width = kernel.shape.out_size
    with e.loop(0, blocks) as j, e.loop(0, count) as tile:
        image, y, x = _place(e, kernel, e.add(first, tile.index))
        at = e.mul(e.add(e.mul(j.index, kernel.tile.tiles), tile.index), kernel.lanes)
        products = [kernel.load(e, kernel.products, e.add(at, point * stride)) for point in range(POINTS)]
        channel = e.mul(e.add(block, j.index), kernel.lanes)
        start = kernel.initial(e, channel) if kernel.initial else None
        for i, value in enumerate(transform_output(e, kernel.target, products)):
            kernel.store(e, e.binary("fadd", value, start) if start else value, kernel.results, e.const(i * kernel.lanes))
        rows, columns = (e.smin(e.const(OUT), e.sub(e.const(n), edge)) for n, edge in ((height, y), (width, x)))
        with e.loop(0, rows) as row, e.loop(0, columns) as column:
            result = kernel.load(e, kernel.results, e.mul(e.add(e.mul(row.index, OUT), column.index), kernel.lanes))
            kernel.write(e, [image, channel, e.add(y, row.index), e.add(x, column.index)], result)
