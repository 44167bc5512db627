"""A convolution as the generator of dot products sees it: its sizes, its weights, and where what it computes belongs.

A transposed convolution is a sum over a few neighbours of each pixel, one alone if its windows do not meet: the places of a window are
output channels too, all channels of one place after those of the one before.
"""

from __future__ import annotations

from math import prod
from typing import Any, TypeAlias

import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_write import digits
from anycann.codegen.kernels.dot_shape import Windows
from anycann.codegen.values import Value
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.contractions import PLACE_CHANNELS, Convolution

Array: TypeAlias = np.ndarray[Any, Any]

BYTES = (dtypes.uint8, dtypes.int8)


def is_sum_of_pixels(operator: Convolution, target: Target) -> bool:
    """True for a transposed convolution whose results at one place of all windows are sums over the same neighbours of a pixel.

    Those of bytes may be sums of several, and of bfloat16 if most of them have a tap at every place; others are a product of each pixel
    alone.
    """
    if operator.x.dtype in BYTES:
        return is_sum_of_bytes(operator)
    if operator.x.dtype is dtypes.bfloat16 and len(operator.out_size) == 2 and _is_plain(operator) and _is_sum_of_neighbours(operator):
        return prod(operator.w.shape[2:]) >= _LEAST_FILLED * prod(_taps_of_places(operator)) * prod(operator.strides)
    return _is_plain(operator) and _has_separate_windows(operator) and operator.w.shape[1] % target.lanes == 0


def is_sum_of_bytes(operator: Convolution) -> bool:
    """As `is_sum_of_pixels`, of bytes: windows may meet, for taps that are not there are multiplied by zero."""
    signed = operator.x.dtype in BYTES and operator.w.dtype is dtypes.int8 and operator.weight_zero is None
    return signed and _is_plain(operator) and _is_sum_of_neighbours(operator)


_LEAST_FILLED = 0.6  # of the taps, so many that are there: products of bfloat16 take half as long as those of float32


def _is_sum_of_neighbours(operator: Convolution) -> bool:
    """True if the channels of a place are whole vectors, and windows whole ones."""
    whole = all(size % step == 0 for size, step in zip(operator.out_size, operator.strides, strict=True))
    return whole and operator.w.shape[1] % PLACE_CHANNELS == 0 and min(_last_neighbours(operator)) >= 0


def _is_plain(operator: Convolution) -> bool:
    """True for a transposed convolution without groups and dilations."""
    return operator.transposed and operator.group == 1 and set(operator.dilations) == {1}


def _has_separate_windows(operator: Convolution) -> bool:
    """True if each result comes from one pixel."""
    ends = [size * step for size, step in zip(operator.x.shape[2:], operator.strides, strict=True)]
    return operator.strides == tuple(operator.w.shape[2:]) and not any(operator.pads_begin) and tuple(ends) == operator.out_size


def _last_neighbours(operator: Convolution) -> tuple[int, ...]:
    """How many pixels back the windows that reach a place begin, along each axis: result q * stride + r gets tap d * stride + r + pad of
    pixel q - d."""
    sizes = zip(operator.w.shape[2:], operator.pads_begin, operator.strides, strict=True)
    return tuple((kernel - 1 - pad) // stride for kernel, pad, stride in sizes)


def _neighbours(operator: Convolution) -> tuple[int, ...]:
    """Pixels along each axis whose windows reach a place."""
    ahead = [(stride - 1 + pad) // stride for pad, stride in zip(operator.pads_begin, operator.strides, strict=True)]
    return tuple(last + first + 1 for last, first in zip(_last_neighbours(operator), ahead, strict=True))


def _taps_of_places(operator: Convolution) -> tuple[int, ...]:
    """Neighbours along each axis that results at one place have taps for, at most; all, unless it is a plane."""
    if len(operator.out_size) != 2:
        return _neighbours(operator)
    taps = zip(operator.w.shape[2:], operator.strides, _neighbours(operator), strict=True)
    return tuple(min(-(-kernel // stride), neighbours) for kernel, stride, neighbours in taps)


def _first_neighbours(operator: Convolution, axis: int) -> np.ndarray[Any, Any]:
    """The first of the neighbours that results at each place of an axis have taps for."""
    last, pad, stride = _last_neighbours(operator)[axis], operator.pads_begin[axis], operator.strides[axis]
    place = np.arange(stride)
    first = last - (operator.w.shape[2 + axis] - 1 - pad - place) // stride
    return np.clip(first, 0, _neighbours(operator)[axis] - _taps_of_places(operator)[axis])


def windows_of(operator: Convolution) -> Windows:
    """Where the neighbours of each place begin, of a transposed convolution of a plane; none where all begin alike."""
    if not operator.transposed or _taps_of_places(operator) == _neighbours(operator):
        return ()
    rows, columns = (_first_neighbours(operator, axis) for axis in (0, 1))
    return tuple((int(row), int(column)) for row in rows for column in columns)


def dot_shape(operator: Convolution) -> ConvolutionShape:
    """Sizes of a convolution; of a transposed one those of its sums, with a channel for each place of its window."""
    batch, channels, *size = operator.x.shape
    if not operator.transposed:
        return ConvolutionShape(
            batch, channels, operator.w.shape[0], operator.group, tuple(size), operator.w.shape[2:], operator.strides,
            operator.dilations, operator.pads_begin, operator.out_size, operator.x.dtype,
        )  # fmt: skip
    one, outputs = (1,) * len(size), prod(operator.strides) * operator.w.shape[1]
    ends = tuple(extent // stride for extent, stride in zip(operator.out_size, operator.strides, strict=True))
    kernel, begins = _taps_of_places(operator), _last_neighbours(operator)
    return ConvolutionShape(batch, channels, outputs, 1, tuple(size), kernel, one, one, begins, ends, operator.x.dtype)


def product_weights(operator: Convolution, weights: Array) -> Array:
    """Weights as `dot_shape` says: those of a transposed convolution [I, O, *kernel] become [places of a window * O, I, *neighbours]."""
    if not operator.transposed:
        return weights
    inputs, outputs, *kernel = weights.shape
    rank, neighbours = len(kernel), _taps_of_places(operator)
    for axis, (taps, stride, pad, last) in enumerate(
        zip(kernel, operator.strides, operator.pads_begin, _last_neighbours(operator), strict=True)
    ):
        place, neighbour = np.ogrid[:stride, : neighbours[axis]]
        neighbour = neighbour + (_first_neighbours(operator, axis)[:, None] if rank == 2 else 0)
        tap = (last - neighbour) * stride + place + pad
        present = (tap >= 0) & (tap < taps)
        chosen = np.take(weights, np.where(present, tap, 0).ravel(), axis=2 + axis)
        weights = chosen * present.ravel().astype(weights.dtype).reshape(-1, *[1] * (rank - 1 - axis))
    split = weights.reshape(inputs, outputs, *(n for pair in zip(operator.strides, neighbours, strict=True) for n in pair))
    turned = split.transpose(*range(2, 2 + 2 * rank, 2), 1, 0, *range(3, 2 + 2 * rank, 2))
    return turned.reshape(-1, inputs, *neighbours)


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
