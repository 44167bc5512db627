"""How the lanes of a vector get their input, by the channels and groups of a convolution; and what follows for the packed weights."""

from __future__ import annotations

from typing import Literal, TypeAlias

from anycann.codegen.kernels.arithmetic_rate import is_halved
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.target.target import Target

Method: TypeAlias = Literal["dense", "inner", "lanes", "blend", "gather"]


def method(shape: ConvolutionShape, lanes: int, blocked_input: bool) -> Method:
    """How the lanes of a vector of output channels get their input.

    dense: all lanes see the same input channels, one scalar serves them all; inner: there are so few output channels that the lanes run
    over input channels instead, and are added up at the end; lanes: input and output channels lie in equal lanes
    (depthwise) or in the same few lanes (small groups); blend: the lanes of a vector belong to few groups, each with a scalar of its own;
    gather: anything else.
    """
    if shape.group == 1 and blocked_input and _few_outputs(shape, lanes):
        return "inner"
    if shape.group == 1 or shape.group_outputs % lanes == 0:
        return "dense"
    if blocked_input and shape.group_inputs == shape.group_outputs and lanes % shape.group_outputs == 0:
        return "lanes"
    return "blend" if groups_of_vector(shape, lanes) <= _MOST_BLENDED else "gather"


_MOST_BLENDED = 4
# Cycles to add up the lanes of one vector.
ADDING_CYCLES = 8


def reads_channels_last(shape: ConvolutionShape, lanes: int) -> bool:
    """True if the direct kernel reads [N, *spatial, C] as it is: channels that stay in their lanes, at least a vector of them."""
    return shape.in_channels >= lanes and method(shape, lanes, blocked_input=True) == "lanes"


_SHORT_VECTOR = 8


def _few_outputs(shape: ConvolutionShape, lanes: int) -> bool:
    """True if a product for each output channel over whole input blocks is clearly less work than one for each input channel.

    Five of them with vectors of 8 leave registers for one pixel, too few sums: with AVX2 lanes along outputs take 0.70 to 0.77 of the time.
    """
    if lanes == _SHORT_VECTOR and shape.out_channels > lanes // 2:
        return False
    inner = shape.out_channels * (shape.in_blocks(lanes) * shape.taps + ADDING_CYCLES)
    return 3 * inner < 2 * shape.in_channels * shape.taps


def groups_of_vector(shape: ConvolutionShape, lanes: int) -> int:
    """The most groups that one vector of output channels has lanes of."""
    first_lanes = range(0, shape.out_channels, lanes)
    last_lanes = (min(first + lanes, shape.out_channels) - 1 for first in first_lanes)
    return max(last // shape.group_outputs - first // shape.group_outputs + 1 for first, last in zip(first_lanes, last_lanes, strict=True))


def channel_block(shape: ConvolutionShape, lanes: int) -> int:
    """Input channels that lie together in the packed weights: `lanes`, or all channels of a group where they are fewer."""
    return min(shape.group_inputs, lanes)


def packed_size(shape: ConvolutionShape, lanes: int, blocked_input: bool = True) -> int:
    """Elements of the packed weights."""
    if method(shape, lanes, blocked_input) == "inner":
        return shape.out_channels * shape.in_blocks(lanes) * shape.taps * lanes
    inner = channel_block(shape, lanes)
    return shape.out_blocks(lanes) * -(-shape.group_inputs // inner) * shape.taps * inner * lanes


def aligned_groups(shape: ConvolutionShape, lanes: int) -> bool:
    """True if every group's input channels begin at a channel block."""
    return shape.group == 1 or shape.group_inputs % lanes == 0


def last_lanes(shape: ConvolutionShape, target: Target, how: Method, blocks: int) -> int:
    """Lanes to compute of the last of `blocks` output channel blocks: half of them if that is enough and half vectors are faster.

    They are where the processor takes 512-bit vectors in halves. Others do as many FMAs of either width, and broadcast an input a second
    time for the other width where both are in one loop, by a unit that would multiply: 1x1 from 144 to 24 channels took 1.14 times as long.
    """
    lanes, real = target.lanes, shape.group_outputs % target.lanes
    faster = how == "dense" and lanes == 16 and (blocks == 1 or is_halved(target))
    return lanes // 2 if faster and 0 < real <= lanes // 2 else lanes
