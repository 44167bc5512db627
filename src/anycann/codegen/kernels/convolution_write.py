"""Finished vectors of a convolution on their way to the caller's code: one by one, or through the stack if that code is long."""

from __future__ import annotations

from collections.abc import Sequence

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_columns import segments
from anycann.codegen.kernels.convolution_kernel import DirectKernel, Write
from anycann.codegen.kernels.convolution_shape import IMAGES, ConvolutionShape
from anycann.codegen.kernels.convolution_sums import Window
from anycann.codegen.values import INDEX, POINTER, Value
from anycann.support.records import dataclass


def plain_writer(pointer: Value, shape: ConvolutionShape, lanes: int) -> Write:
    """Store finished vectors in NC1HWC0 order [batch, channel blocks, *out_size, lanes]; `pointer` aligned to a vector."""

    def write(e: Emitter, index: Sequence[Value], vector: Value) -> None:
        offset = e.add(e.mul(index[0], shape.out_blocks(lanes)), e.udiv(index[1], lanes))
        for size, position in zip(shape.out_size, index[2:], strict=True):
            offset = e.add(e.mul(offset, size), position)
        e.store(vector, e.gep(pointer, e.mul(offset, lanes), vector.element), min(64, shape.accumulator.nbytes * lanes))

    return write


def write_vector(e: Emitter, window: Window, block: Value, column: Value, vector: Value) -> None:
    """Hand a finished vector to the caller, at its position in the dimensions of the shape."""
    kernel, place = window.kernel, window.place
    channel = e.mul(e.add(place.block, block), kernel.lanes)
    spatial: dict[int, Value] = {}
    for axis, position in zip(kernel.axes, [*place.rows, column], strict=True):
        spatial.update(zip(axis.members, digits(e, position, axis.member_sizes), strict=True))
    image = spatial.pop(IMAGES, place.batch)
    kernel.write(e, [image, channel, *(spatial[d] for d in sorted(spatial))], vector)


def digits(e: Emitter, number: Value, sizes: Sequence[int]) -> list[Value]:
    """`number`, which is below the product of `sizes`, in their mixed base, the last changing fastest."""
    if len(sizes) > 1 and sizes[0] == 1:
        return [e.const(0), *digits(e, number, sizes[1:])]
    found: list[Value] = []
    for size in reversed(sizes[1:]):
        quotient = e.udiv(number, size)
        found.insert(0, e.sub(number, e.mul(quotient, size)) if size > 1 else e.const(0))
        number = quotient
    return [number if sizes[0] > 1 else e.const(0), *found]


# Above this many lines, the code that writes results stands once in a loop instead of once for each vector of a tile.
_MOST_WRITE_LINES = 1500


def spill_area(e: Emitter, kernels: Sequence[DirectKernel]) -> Spill | None:
    """A place for finished sums, if the caller's `write` for every vector of every kind of tile would be too much code.

    To be called in the entry block: memory of the stack is given back only when the function returns.
    """
    lines = 0
    for kernel in kernels:
        trial = Emitter()
        kernel.write(trial, [Value("%trial", INDEX)] * (2 + len(kernel.shape.out_size)), Value("%trial", kernel.vector))
        pixels = sum(s.kind.pixels if s.kind else 1 for s in segments(kernel.axes[-1], kernel.tile.columns))
        lines += len(trial.lines) * pixels * kernel.blocks
    if lines <= _MOST_WRITE_LINES:
        return None
    vector = kernels[0].vector
    count = max(kernel.tile.columns * kernel.blocks for kernel in kernels)
    return Spill(e.op(f"alloca {vector}, i64 {count}, align {kernels[0].alignment}", POINTER))


@dataclass(frozen=True)
class Spill:
    """Memory on the stack for the sums of a tile, from which a loop hands them to the caller one by one."""

    pointer: Value

    def keep(self, e: Emitter, window: Window, pixel: Value, sums: Sequence[Value]) -> None:
        """Store the sums [pixel][block] of pixels `pixel`.. of a tile."""
        kernel = window.kernel
        for i, vector in enumerate(sums):
            at = e.add(e.mul(pixel, window.blocks), i)
            e.store(vector, e.gep(self.pointer, at, kernel.vector), kernel.alignment)

    def take(self, e: Emitter, window: Window, pixel: Value, block: Value) -> Value:
        """The sum of a pixel and channel block."""
        kernel = window.kernel
        at = e.add(e.mul(pixel, window.blocks), block)
        return e.load(e.gep(self.pointer, at, kernel.vector), kernel.vector, kernel.alignment)
