"""Convolution weights in the order the kernels read them."""

from __future__ import annotations

import numpy as np

from anycann.codegen.kernels.convolution_shape import ConvolutionShape


def channel_block(shape: ConvolutionShape, lanes: int) -> int:
    """Input channels that lie together in the packed weights: `lanes`, or all channels of a group where they are fewer."""
    return min(shape.group_inputs, lanes)


def packed_size(shape: ConvolutionShape, lanes: int) -> int:
    """Elements of the packed weights."""
    inner = channel_block(shape, lanes)
    return shape.out_blocks(lanes) * -(-shape.group_inputs // inner) * shape.taps * inner * lanes


def pack_weights(weights: np.ndarray, shape: ConvolutionShape, lanes: int) -> np.ndarray:
    """Weights [O, I/group, *kernel] as [O blocks, I blocks, taps, I in block, lanes] of `shape.accumulator`, absent channels zero.

    The order does not depend on the sizes of the images, so that kernels for several of them share it.
    """
    inner = channel_block(shape, lanes)
    out_blocks, in_blocks = shape.out_blocks(lanes), -(-shape.group_inputs // inner)
    padded = np.zeros((out_blocks * lanes, in_blocks * inner, shape.taps), shape.accumulator.numpy)
    padded[: shape.out_channels, : shape.group_inputs] = weights.reshape(shape.out_channels, shape.group_inputs, shape.taps)
    blocked = padded.reshape(out_blocks, lanes, in_blocks, inner, shape.taps)
    return np.ascontiguousarray(blocked.transpose(0, 2, 4, 3, 1))
