"""Convolution kernels alone, on one thread, beside the peak of the processor: `python -m benchmarks.convolutions [target]`."""

from __future__ import annotations

from collections.abc import Callable
import ctypes
from dataclasses import dataclass
import sys
import time

import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution import emit_convolution, plain_writer
from anycann.codegen.kernels.convolution_method import packed_size
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_tile import default_tile
from anycann.codegen.kernels.winograd import emit_winograd
from anycann.codegen.kernels.winograd_blocking import default_winograd_tile, winograd_profitable
from anycann.codegen.kernels.winograd_tile import winograd_weight_bytes
from anycann.codegen.objects import emit_object
from anycann.runtime.loader import LoadedCode
from anycann.target.target import Target, by_name
from benchmarks.peak import KERNEL, peak_flops

REPEATS = 9
COLUMNS = ("in, out, size, kernel, stride, group", "method", "ms", "GFLOP/s", "of peak", "compile s")
# in channels, out channels, height, width, kernel, stride, group, blocked input
LAYERS = [
    (3, 64, 224, 224, 7, 2, 1, False),  # ResNet-50
    (64, 64, 56, 56, 3, 1, 1, True),
    (128, 128, 28, 28, 3, 1, 1, True),
    (256, 256, 14, 14, 3, 1, 1, True),
    (512, 512, 7, 7, 3, 1, 1, True),
    (128, 128, 56, 56, 3, 2, 1, True),
    (64, 256, 56, 56, 1, 1, 1, True),
    (1024, 256, 14, 14, 1, 1, 1, True),
    (2048, 512, 7, 7, 1, 1, 1, True),
    (256, 512, 56, 56, 1, 2, 1, True),
    (32, 32, 112, 112, 3, 1, 32, True),  # MobileNet
    (96, 96, 112, 112, 3, 2, 96, True),
    (192, 192, 28, 28, 3, 1, 192, True),
    (480, 480, 14, 14, 5, 1, 480, True),
    (48, 96, 24, 160, 1, 1, 1, True),  # text recognition and detection
    (96, 96, 24, 160, 5, 1, 96, True),
    (96, 24, 120, 120, 3, 1, 1, True),
    (64, 1, 160, 160, 3, 1, 1, True),
    (256, 512, 13, 13, 3, 1, 1, True),
    (128, 128, 28, 28, 3, 1, 32, True),  # ResNeXt, RegNet
    (96, 96, 28, 28, 3, 1, 4, True),
]


@dataclass(frozen=True)
class Measured:
    """The best time of one launch, and how long compiling took."""

    seconds: float
    compile_seconds: float


def shape_of(layer: tuple[int, int, int, int, int, int, int, bool]) -> ConvolutionShape:
    """A layer with the usual padding of half the kernel."""
    inputs, outputs, height, width, kernel, stride, group, _ = layer
    out = tuple((size + kernel // 2 * 2 - kernel) // stride + 1 for size in (height, width))
    pads = (kernel // 2,) * 2
    return ConvolutionShape(1, inputs, outputs, group, (height, width), (kernel,) * 2, (stride,) * 2, (1, 1), pads, out)


def measure(shape: ConvolutionShape, target: Target, blocked: bool, winograd: bool) -> Measured:
    """Compile one kernel and run all its tasks on this thread."""
    started, lanes, scratch = time.perf_counter(), target.lanes, 0
    e = Emitter()
    x, w, y = (e.argument(i) for i in range(3))
    writer = plain_writer(y, shape, lanes)
    if winograd:
        tile = default_winograd_tile(shape, target)
        launch = emit_winograd(e, shape, target, tile, x, w, writer)
        tasks, scratch = launch.tasks, launch.scratch_bytes
    else:
        tasks = emit_convolution(e, shape, target, default_tile(shape, target, blocked), x, w, writer, blocked)
    symbol, text = e.finish("convolution")
    code = LoadedCode({symbol: emit_object(text, target)}, target)
    compiled = time.perf_counter() - started
    channels = shape.in_blocks(lanes) * lanes if blocked else shape.in_channels
    weights = winograd_weight_bytes(shape, lanes, tile) // 4 if winograd else packed_size(shape, lanes, blocked)
    buffers = [_aligned(n) for n in (channels * shape.in_pixels, weights, shape.out_blocks(lanes) * lanes * shape.out_pixels)]
    arguments = (ctypes.c_void_p * 3)(*(buffer.ctypes.data for buffer in buffers))
    kernel, memory = KERNEL(code.address(symbol)), _aligned(scratch // 4 + 16)
    return Measured(min(_seconds(kernel, arguments, tasks, memory) for _ in range(REPEATS)), compiled)


def _aligned(count: int) -> np.ndarray:
    raw = np.full(count + 32, 0.5, np.float32)
    start = -raw.ctypes.data % 64 // 4
    return raw[start : start + count]


def _seconds(kernel: Callable[..., None], arguments: object, tasks: int, memory: np.ndarray) -> float:
    started = time.perf_counter()
    kernel(arguments, 0, tasks, memory.ctypes.data)
    return time.perf_counter() - started


def main(name: str) -> None:
    """Print one row for each layer and algorithm."""
    target = by_name(name)
    peak = peak_flops(1) / 1e9
    print(f"{target.name}: peak of this processor {peak:.1f} GFLOP/s on one thread")
    print("{:44} {:9} {:>8} {:>8} {:>8} {:>9}".format(*COLUMNS))
    for layer in LAYERS:
        shape, blocked = shape_of(layer), layer[-1]
        for winograd in (False, True) if blocked and winograd_profitable(shape, target) else (False,):
            result = measure(shape, target, blocked, winograd)
            rate = shape.flops / result.seconds / 1e9
            sizes = ", ".join(str(part) for part in layer[:-1])
            row = (sizes, "winograd" if winograd else "direct", result.seconds * 1e3, rate, rate / peak, result.compile_seconds)
            print("{:44} {:9} {:8.3f} {:8.1f} {:8.0%} {:9.2f}".format(*row))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "host")
