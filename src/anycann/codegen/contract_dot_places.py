"""A convolution as the generator of dot products sees it: its sizes, its weights, and where what it computes belongs.

A transposed convolution whose windows do not meet is a product of each pixel alone: the places of a window are output channels too, all
channels of one place after those of the one before.
"""

from __future__ import annotations

from math import prod
from typing import Any, TypeAlias

import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_write import digits
from anycann.codegen.values import Value
from anycann.target.target import Target
from anycann.te.contractions import Convolution

Array: TypeAlias = np.ndarray[Any, Any]


def has_separate_windows(operator: Convolution, target: Target) -> bool:
    """True for a transposed convolution each of whose results comes from one pixel, whole vectors of them from one place of its window."""
    _, outputs, *kernel = operator.w.shape
    windows = operator.transposed and operator.group == 1 and operator.strides == tuple(kernel) and set(operator.dilations) == {1}
    ends = [size * step for size, step in zip(operator.x.shape[2:], operator.strides, strict=True)]
    return windows and not any(operator.pads_begin) and tuple(ends) == operator.out_size and outputs % target.lanes == 0


def dot_shape(operator: Convolution) -> ConvolutionShape:
    """Sizes of a convolution; of a transposed one those of its product, with a channel for each place of its window."""
    batch, channels, *size = operator.x.shape
    if not operator.transposed:
        return ConvolutionShape(
            batch, channels, operator.w.shape[0], operator.group, tuple(size), operator.w.shape[2:], operator.strides,
            operator.dilations, operator.pads_begin, operator.out_size, operator.x.dtype,
        )  # fmt: skip
    one, outputs = (1,) * len(size), prod(operator.w.shape[1:])
    return ConvolutionShape(batch, channels, outputs, 1, tuple(size), one, one, one, (0,) * len(size), tuple(size), operator.x.dtype)


def product_weights(operator: Convolution, weights: Array) -> Array:
    """Weights as `dot_shape` says: those of a transposed convolution [I, O, *kernel] become [places of a window * O, I, 1, ..]."""
    if not operator.transposed:
        return weights
    turned = np.moveaxis(weights, (0, 1), (-1, -2))
    return turned.reshape(-1, weights.shape[0], *[1] * len(operator.strides))


def output_place(
    e: Emitter, operator: Convolution, shape: ConvolutionShape, image: Value, row: Value, column: Value, channel: Value
) -> list[Value]:
    """The index [n, channel, *spatial] of what the generator, which computes `shape`, calls (image, row, column)."""
    sizes = dot_shape(operator)
    found = _pixel(e, sizes, shape, image, row, column)
    if not operator.transposed:
        return [found[0], channel, *found[1:]]
    *window, channel = digits(e, channel, [*operator.strides, operator.w.shape[1]])
    spatial = [e.add(e.mul(at, step), tap) for at, step, tap in zip(found[1:], operator.strides, window, strict=True)]
    return [found[0], channel, *spatial]


def _pixel(e: Emitter, sizes: ConvolutionShape, shape: ConvolutionShape, image: Value, row: Value, column: Value) -> list[Value]:
    """[n, *spatial] among the pixels of `sizes`."""
    if len(sizes.out_size) < 3 and shape.batch == sizes.batch and shape.out_size[: len(sizes.out_size)] == sizes.out_size:
        return [image, *(row, column)[: len(sizes.out_size)]]
    high, wide = shape.out_size[-2:]
    pixel = e.add(e.mul(e.add(e.mul(image, high), row), wide), column)
    return digits(e, pixel, [sizes.batch, *sizes.out_size])
