"""Generate and run Winograd's convolutions on arrays, with everything around the data poisoned."""

from __future__ import annotations

from convolution_harness import aligned, from_blocked, load, operands, reference, to_blocked
import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution import plain_writer
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.winograd import WinogradLaunch, emit_winograd
from anycann.codegen.kernels.winograd_tile import WinogradTile, winograd_algorithm, winograd_weight_bytes
from anycann.codegen.kernels.winograd_transform import pack_winograd_weights
from anycann.target.target import Target


def emit(shape: ConvolutionShape, target: Target, tile: WinogradTile) -> tuple[Emitter, WinogradLaunch]:
    """The kernel with arguments (input, packed weights, output, bias padded to whole blocks)."""
    e = Emitter()
    x, w, y, bias = (e.argument(i) for i in range(4))
    vector = f"<{target.lanes} x float>"
    writer = plain_writer(y, shape, target.lanes)
    return e, emit_winograd(e, shape, target, tile, x, w, writer, lambda e, c: e.load(e.gep(bias, c, "float"), vector, 4))


def relative_error(shape: ConvolutionShape, target: Target, tile: WinogradTile, seed: int = 0) -> float:
    """Of all results together, against the definition in float64."""
    x, w, b = operands(shape, seed)
    want = reference(x, w, shape, b)
    return float(np.linalg.norm(results(shape, target, tile, seed) - want) / np.linalg.norm(want))


def results(shape: ConvolutionShape, target: Target, tile: WinogradTile, seed: int = 0) -> np.ndarray:
    """What the kernel computes of `operands`, in three calls."""
    lanes = target.lanes
    x, w, b = operands(shape, seed)
    e, launch = emit(shape, target, tile)
    native = load(e, target, launch.tasks, launch.scratch_bytes)
    packed = pack_winograd_weights(w, shape, lanes, winograd_algorithm(shape, tile))
    assert packed.nbytes == winograd_weight_bytes(shape, lanes, tile)
    weights = aligned(packed.size)
    weights[:] = packed.ravel()
    bias = aligned(shape.out_blocks(lanes) * lanes)
    bias[: b.size] = b
    y = aligned(shape.batch * shape.out_blocks(lanes) * lanes * shape.out_pixels)
    part = max(1, launch.tasks // 3)
    data = to_blocked(x, lanes)
    for begin in range(0, launch.tasks, part):
        native(data, weights, y, bias, begin=begin, end=min(launch.tasks, begin + part))
    return from_blocked(y, (shape.batch, shape.out_channels, *shape.out_size), lanes)
