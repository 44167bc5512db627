"""Convolutions: plain, grouped, depthwise, transposed, in two and three spatial axes."""

from __future__ import annotations

import onnx_ir as ir

from anycann.frontends.tensorflow.builder import known_array, sizes_of
from anycann.frontends.tensorflow.definition import Call, Result, operator
from anycann.frontends.tensorflow.layout import Tensor, channels_first
from anycann.frontends.tensorflow.windows import padding, spatial


@operator("Conv2D Conv3D")
def _convolution(call: Call) -> Result:
    """Filters are [spatial..., channels of a group, outputs]."""
    (picture, edges), rank = _picture(call), call.rank(0)
    kernel = _kernel(call, 1)
    filters = call.op("Transpose", call.value(1), perm=[rank - 1, rank - 2, *range(rank - 2)])
    return _convolved(call, picture, filters, kernel, _groups(call, picture, int(kernel[-2])), edges)


@operator("DepthwiseConv2dNative")
def _depthwise(call: Call) -> Result:
    """Filters are [height, width, channels, multiplier]; channel c makes results c * multiplier and on."""
    (picture, edges), kernel = _picture(call), _kernel(call, 1)
    height, width, channels, multiplier = kernel
    turned = call.op("Transpose", call.value(1), perm=[2, 3, 0, 1])
    filters = call.reshaped(turned, [channels * multiplier, 1, height, width])
    return _convolved(call, picture, filters, kernel, channels, edges)


def _picture(call: Call) -> tuple[ir.Value, list[int]]:
    """The picture, and how many zeros to add around it: those that a Pad before a VALID convolution adds."""
    padded = call.tensor(0).padded
    if padded is None or not call.channels_are_last or call.text("padding", "VALID") != "VALID":
        return call.picture(0), []
    outer, inner = (padded.edges[0], padded.edges[-1]), padded.edges[1:-1]
    if any(edge != (0, 0) for edge in outer) or any(count < 0 for edge in inner for count in edge):
        return call.picture(0), []
    return channels_first(call.builder, padded.source), [before for before, _ in inner] + [after for _, after in inner]


def _convolved(call: Call, picture: ir.Value, filters: ir.Value, kernel: list[int], groups: int, edges: list[int]) -> Tensor:
    rank = len(kernel)
    steps, gaps = spatial(call, "strides", rank), spatial(call, "dilations", rank)
    attributes = {"strides": steps, "dilations": gaps, "group": groups, "kernel_shape": kernel[:-2]}
    attributes |= {"pads": edges} if edges else padding(call, picture, kernel[:-2], steps, gaps)
    return call.as_picture(call.op("Conv", picture, filters, **attributes))


def _kernel(call: Call, number: int) -> list[int]:
    """The sizes of the filters, which must be known."""
    sizes = call.shape(number)
    if sizes is None or any(size is None for size in sizes):
        raise call.fail(f"the filters have the shape {sizes}; their sizes must be known")
    return [int(size or 0) for size in sizes]


def _groups(call: Call, picture: ir.Value, channels_of_group: int) -> int:
    channels = (sizes_of(picture) or (None, None))[1]
    if channels is None:
        return 1
    if channels % channels_of_group:
        raise call.fail(f"a picture of {channels} channels, filters for {channels_of_group}")
    return channels // channels_of_group


@operator("Conv2DBackpropInput Conv3DBackpropInputV2")
def _transposed(call: Call) -> Result:
    """Inputs: the sizes of the result, filters [spatial..., results, channels], the picture."""
    picture, rank = call.picture(2), call.rank(2)
    kernel = _kernel(call, 1)[:-2]
    steps, gaps = spatial(call, "strides", rank), spatial(call, "dilations", rank)
    filters = call.op("Transpose", call.value(1), perm=[rank - 1, rank - 2, *range(rank - 2)])
    befores, afters, added = [], [], []
    for axis, wanted in enumerate(_wanted_sizes(call, rank)):
        size = (sizes_of(picture) or ())[2 + axis]
        total = _cut(call, size, wanted, (kernel[axis] - 1) * gaps[axis] + 1, steps[axis])
        befores.append(max(total, 0) // 2)
        afters.append(max(total, 0) - max(total, 0) // 2)
        added.append(max(-total, 0))
    attributes = {"strides": steps, "dilations": gaps, "kernel_shape": kernel, "pads": [*befores, *afters], "output_padding": added}
    return call.as_picture(call.op("ConvTranspose", picture, filters, **attributes))


def _wanted_sizes(call: Call, rank: int) -> list[int | None]:
    """The spatial sizes of the result as far as they are known."""
    known = known_array(call.value(0))
    if known is None:
        return [None] * (rank - 2)
    inner = known[-rank + 1 : -1] if call.channels_are_last else known[-rank + 2 :]
    return [int(size) for size in inner]


def _cut(call: Call, size: int | None, wanted: int | None, extent: int, step: int) -> int:
    """How much of the whole result is cut away (below 0: added behind); where sizes are open, the result is `step` times the picture."""
    is_same = call.text("padding", "VALID") == "SAME"
    if size is not None and wanted is not None:
        return step * (size - 1) + extent - wanted
    return extent - step if is_same else min(extent - step, 0)
