"""Convolution weights in the order the kernels read them."""

from __future__ import annotations

import numpy as np

from anycann.codegen.kernels.convolution_method import channel_block, method
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.support.arrangement import Arrangement


def pack_weights(weights: np.ndarray, shape: ConvolutionShape, lanes: int, blocked_input: bool = True) -> np.ndarray:
    """Weights [O, I/group, *kernel] as [O blocks, I blocks, taps, I in block, lanes] of `shape.accumulator`, absent channels zero.

    Where the lanes run over input channels (`method` "inner"), [O, I blocks, taps, lanes].
    The order does not depend on the sizes of the images, so that kernels for several of them share it.
    """
    if method(shape, lanes, blocked_input) == "inner":
        return _pack_inner(weights, shape, lanes)
    inner = channel_block(shape, lanes)
    out_blocks, in_blocks = shape.out_blocks(lanes), -(-shape.group_inputs // inner)
    plain = weights.reshape(shape.out_channels, shape.group_inputs, shape.taps)
    padding = out_blocks * lanes - shape.out_channels, in_blocks * inner - shape.group_inputs
    padded = np.pad(plain, ((0, padding[0]), (0, padding[1]), (0, 0))) if any(padding) else plain
    blocked = padded.reshape(out_blocks, lanes, in_blocks, inner, shape.taps).transpose(0, 2, 4, 3, 1)
    return np.array(blocked, shape.accumulator.numpy, order="C")


def weights_arrangement(shape: ConvolutionShape, lanes: int, blocked_input: bool = True) -> Arrangement | None:
    """Where the weights lie in what `pack_weights` makes of them."""
    if method(shape, lanes, blocked_input) == "inner":
        return None
    inner, out_blocks = channel_block(shape, lanes), shape.out_blocks(lanes)
    in_blocks = -(-shape.group_inputs // inner)
    padded = (out_blocks * lanes, in_blocks * inner, shape.taps)
    kept = (shape.out_channels, shape.group_inputs, shape.taps)
    return Arrangement((out_blocks, in_blocks, shape.taps, inner, lanes), (0, 4, 1, 3, 2), padded, kept)


def _pack_inner(weights: np.ndarray, shape: ConvolutionShape, lanes: int) -> np.ndarray:
    blocks = shape.in_blocks(lanes)
    padded = np.zeros((shape.out_channels, blocks * lanes, shape.taps), shape.accumulator.numpy)
    padded[:, : shape.in_channels] = weights.reshape(shape.out_channels, shape.in_channels, shape.taps)
    return np.ascontiguousarray(padded.reshape(shape.out_channels, blocks, lanes, shape.taps).swapaxes(2, 3))
