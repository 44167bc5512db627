"""Convolutions over as few dimensions and taps as can be, for generators that loop over a plane of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from anycann.codegen.kernels.convolution_shape import ConvolutionShape


def as_plane(shape: ConvolutionShape) -> ConvolutionShape:
    """The same convolution over as few dimensions as can be, but two: those that it computes point by point join what lies beside them.

    A 1x1 convolution becomes one over a column of all pixels of all images. Three dimensions stay where the first and another have windows.
    """
    if len(shape.in_size) == 1:
        shape = _axes(shape, (0, None))
    alone = [_is_pointwise(shape, axis) for axis in range(len(shape.in_size))]
    if all(alone):
        pixels = (shape.batch * shape.in_pixels, 1)
        return replace(_axes(shape, (0, None)), batch=1, in_size=pixels, out_size=pixels)
    if len(alone) == 3 and alone[0]:
        return as_plane(replace(_axes(shape, (1, 2)), batch=shape.batch * shape.in_size[0]))
    if len(alone) == 3 and alone[1] and alone[2]:
        pixels = (shape.in_size[0], prod(shape.in_size[1:]))
        return replace(_axes(shape, (0, 1)), in_size=pixels, out_size=(shape.out_size[0], pixels[1]))
    return shape


def _is_pointwise(shape: ConvolutionShape, axis: int) -> bool:
    """True if each position along the axis is computed from the same one alone."""
    one = shape.kernel[axis] == 1 and shape.strides[axis] == 1 and shape.pads_begin[axis] == 0
    return one and shape.out_size[axis] == shape.in_size[axis]


def _axes(shape: ConvolutionShape, axes: Sequence[int | None]) -> ConvolutionShape:
    """The sizes along these axes alone; None stands for an axis of one position."""

    def along(sizes: tuple[int, ...], missing: int = 1) -> tuple[int, ...]:
        return tuple(missing if axis is None else sizes[axis] for axis in axes)

    return replace(
        shape,
        in_size=along(shape.in_size),
        kernel=along(shape.kernel),
        strides=along(shape.strides),
        dilations=along(shape.dilations),
        pads_begin=along(shape.pads_begin, 0),
        out_size=along(shape.out_size),
    )


def used_taps(shape: ConvolutionShape) -> tuple[slice, ...]:
    """The taps along each axis, without the first and the last that every output position reads from the padding; one at least."""
    found = []
    for axis, taps in enumerate(shape.kernel):
        used = [tap for tap in range(taps) if _reads_inside(shape, axis, tap)] or [0]
        found.append(slice(used[0], used[-1] + 1))
    return tuple(found)


def _reads_inside(shape: ConvolutionShape, axis: int, tap: int) -> bool:
    first = tap * shape.dilations[axis] - shape.pads_begin[axis]
    step, size = shape.strides[axis], shape.in_size[axis]
    return any(0 <= first + position * step < size for position in range(shape.out_size[axis]))


def with_taps(shape: ConvolutionShape, taps: Sequence[slice]) -> ConvolutionShape:
    """The convolution by these taps of its kernel."""
    kernel = tuple(len(range(size)[kept]) for size, kept in zip(shape.kernel, taps, strict=True))
    skipped = [kept.start * dilation for kept, dilation in zip(taps, shape.dilations, strict=True)]
    return replace(shape, kernel=kernel, pads_begin=tuple(pad - skip for pad, skip in zip(shape.pads_begin, skipped, strict=True)))
