"""What a deformable convolution multiplies: for each tap of its kernel the picture, read where the tap has been moved to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import itertools
import math

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.common import floats, integer
from anycann.graph.ops.device import DOMAIN
from anycann.graph.ops.sampling import Tap, taps_around, weighted
from anycann.graph.ops.windows import Window, window
from anycann.graph.registry import Lowering, NotLowered, Sample, TensorType, operator
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor

MOVED_TAPS = "MovedTaps"


def _infer(node: ir.Node, inputs: Sequence[TensorType | None]) -> Sequence[TensorType]:
    source, offsets, *_ = inputs
    assert source is not None
    assert offsets is not None
    taps = math.prod(node.attributes.get_ints("kernel_shape", ()))
    return [TensorType(source.dtype, (source.shape[0], source.shape[1] * taps, *offsets.shape[2:]))]


def _reference(
    source: np.ndarray,
    offsets: np.ndarray,
    mask: np.ndarray | None = None,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] = (1, 1),
    dilations: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    group: int = 1,
    offset_group: int = 1,
) -> np.ndarray:
    images, channels, *size = source.shape
    made, taps = np.zeros((images, channels, math.prod(kernel_shape), *offsets.shape[2:]), source.dtype), math.prod(kernel_shape)
    for n, c, t, *place in np.ndindex(*made.shape):
        first = (c // (channels // offset_group) * taps + t) * 2
        tap = np.unravel_index(t, kernel_shape)
        at = [place[a] * strides[a] - pads[a] + tap[a] * dilations[a] + np.float64(offsets[(n, first + a, *place)]) for a in range(2)]
        low = np.floor(at).astype(int)
        for corner in itertools.product((0, 1), repeat=2):
            where = low + corner
            if (where >= 0).all() and (where < size).all():
                made[(n, c, t, *place)] += source[(n, c, *where)] * np.prod(1 - np.abs(at - where))
        if mask is not None:
            made[(n, c, t, *place)] *= mask[(n, first // 2, *place)]
    apart = made.reshape(images, group, channels // group, taps, *offsets.shape[2:])
    return np.ascontiguousarray(apart.swapaxes(2, 3)).reshape(images, -1, *offsets.shape[2:])


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    for channels, groups, kernel, masked, attributes in (
        (5, (1, 1), (3, 3), True, {"pads": [1, 1, 1, 1]}),
        (32, (1, 2), (2, 3), False, {"strides": [2, 1], "dilations": [1, 2], "pads": [0, 1, 2, 1]}),
        (12, (2, 4), (1, 3), True, {}),
    ):
        pads, strides, dilations = (attributes.get(name, [1, 1]) for name in ("pads", "strides", "dilations"))
        pads = pads if "pads" in attributes else [0, 0, 0, 0]
        spans = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
        out = [(n + pads[a] + pads[a + 2] - spans[a]) // strides[a] + 1 for a, n in enumerate((6, 7))]
        moved = groups[1] * math.prod(kernel)
        operands = [floats(rng, 2, channels, 6, 7), floats(rng, 2, moved * 2, *out, low=-2, high=2)]
        operands += [floats(rng, 2, moved, *out)] if masked else []
        stated: dict[str, object] = {"kernel_shape": list(kernel), "group": groups[0], "offset_group": groups[1], **attributes}
        yield Sample(tuple(operands), stated)


@operator(MOVED_TAPS, domain=DOMAIN, samples=_samples, infer=_infer, reference=_reference)
def moved_taps(context: Lowering) -> Tensor:
    """[image, channel of x by group, tap and channel of the group, row, column] of x, offsets and perhaps a mask of DeformConv."""
    source, offsets, type_ = context.operand(0), context.operand(1), context.outputs[0]
    kernel = context.integers("kernel_shape") or ()
    if source.rank != 4 or len(kernel) != 2:
        raise NotLowered(f"a deformable convolution of {source.rank - 2} spatial axes")
    mask, taps = (context.operand(2) if context.has(2) else None), math.prod(kernel)
    inner, channels = source.shape[1] // context.integer("group", 1), source.shape[1] // context.integer("offset_group", 1)
    form = window(context, source.shape[2:], kernel, type_.shape[2:])

    def element(n: Expr, number: Expr, *place: Expr) -> Expr:
        tap = number // inner % taps
        channel = number // (inner * taps) * inner + number % inner
        moved = channel // channels * taps + tap
        axes = [
            _taps(form, axis, (tap // kernel[1], tap % kernel[1])[axis], place, offsets[(n, moved * 2 + axis, *place)]) for axis in (0, 1)
        ]
        value = weighted(source, (n, channel), axes)
        return value if mask is None else value * mask[(n, moved, *place)]

    return te.compute(type_.shape, element)


def _taps(form: Window, axis: int, tap: Expr, place: Sequence[Expr], offset: Expr) -> list[Tap]:
    """The two elements around where a tap reads along an axis."""
    whole = place[axis] * form.strides[axis] + tap * form.dilations[axis] - integer(form.begins[axis])
    return taps_around(x.cast(whole, offset.dtype) + offset, form.size[axis])
