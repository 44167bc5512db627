"""Groups of a convolution by Winograd's algorithm: those that fill whole channel blocks together are a bundle, an image of its own.

Groups of 32 channels are bundles of one, groups of 24 bundles of two, with 16 channels a block: three blocks. An output channel block of
two groups or three is multiplied with the channels of all of them; weights of another group are zero.
"""

from __future__ import annotations

from math import gcd, lcm

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_method import last_lanes
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.values import Value
from anycann.support.records import dataclass
from anycann.target.target import Target


@dataclass(frozen=True)
class BundledShape(ConvolutionShape):
    """The sizes of one bundle of which an image has `bundles`: its channels, and as `group` its groups."""

    bundles: int = 1


def bundled(shape: ConvolutionShape, lanes: int) -> BundledShape:
    """The sizes of a bundle: of all groups, where no fewer of them fill whole blocks; without groups it is all there is."""
    if isinstance(shape, BundledShape):
        return shape
    inputs, outputs = shape.group_inputs, shape.group_outputs
    filling = lcm(lanes // gcd(lanes, inputs), lanes // gcd(lanes, outputs))
    together = filling if shape.group % filling == 0 else shape.group
    sizes = (shape.in_size, shape.kernel, shape.strides, shape.dilations, shape.pads_begin, shape.out_size, shape.dtype)
    return BundledShape(shape.batch, together * inputs, together * outputs, together, *sizes, shape.group // together)


def channels_of(shape: ConvolutionShape, lanes: int, block: int) -> range:
    """The input channels that the groups of an output channel block read."""
    first = block * lanes // shape.group_outputs
    last = min((block * lanes + lanes - 1) // shape.group_outputs, shape.group - 1)
    return range(first * shape.group_inputs, (last + 1) * shape.group_inputs)


def emit_channels_of(e: Emitter, shape: ConvolutionShape, lanes: int, block: Value) -> tuple[Value, Value]:
    """`channels_of`: the first, and that behind the last."""
    first = e.mul(block, lanes)
    last = e.smin(e.udiv(e.add(first, lanes - 1), shape.group_outputs), e.const(shape.group - 1))
    return e.mul(e.udiv(first, shape.group_outputs), shape.group_inputs), e.mul(e.add(last, 1), shape.group_inputs)


def most_channels(shape: ConvolutionShape, lanes: int) -> int:
    """Input channels that weights are packed for in every output channel block."""
    return max(len(channels_of(shape, lanes, block)) for block in range(shape.out_blocks(lanes)))


def mean_channels(shape: ConvolutionShape, lanes: int) -> float:
    """Input channels that an output channel block is multiplied with, in the mean."""
    blocks = shape.out_blocks(lanes)
    return sum(len(channels_of(shape, lanes, block)) for block in range(blocks)) / blocks


def most_blocks(shape: BundledShape, lanes: int) -> int:
    """Output channel blocks that can be multiplied together: those of several groups have channels of their own."""
    return 1 if shape.group > 1 else min(8, shape.out_blocks(lanes))


def lanes_of_last(shape: BundledShape, target: Target, blocks: int) -> int:
    """Lanes to compute of the last of `blocks` output channel blocks."""
    return target.lanes if shape.group > 1 else last_lanes(shape, target, "dense", blocks)
