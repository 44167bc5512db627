"""Generate, compile and run convolution kernels on arrays, with everything around the data poisoned."""

from __future__ import annotations

from collections.abc import Sequence
import ctypes
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution import emit_convolution, plain_writer
from anycann.codegen.kernels.convolution_estimate import ConvolutionTile
from anycann.codegen.kernels.convolution_packing import pack_weights
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.convolution_tile import default_tile
from anycann.codegen.objects import emit_object
from anycann.runtime.loader import LoadedCode
from anycann.target.target import Target, by_name
from tests.codegen.kernels.jit import runs


def shape_of(in_channels, out_channels, size, kernel, *, batch=1, group=1, strides=1, dilations=1, pads=0, ends=None):
    """A ConvolutionShape with ONNX's output size; a plain number stands for the same on every axis."""
    rank = len(size)
    kernel, strides, dilations, pads = (v if isinstance(v, tuple) else (v,) * rank for v in (kernel, strides, dilations, pads))
    ends = pads if ends is None else ends
    out = tuple(max(0, (size[i] + pads[i] + ends[i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1) for i in range(rank))
    return ConvolutionShape(batch, in_channels, out_channels, group, tuple(size), kernel, strides, dilations, pads, out)


def aligned(count: int, dtype: type = np.float32) -> np.ndarray:
    """A poisoned array of `count` elements on a 64-byte boundary, with 64 bytes after it."""
    size = np.dtype(dtype).itemsize
    raw = np.empty(count * size + 192, np.uint8)
    start = -raw.ctypes.data % 64
    array = raw[start : start + count * size].view(dtype)
    array.fill(np.nan if array.dtype.kind == "f" else np.iinfo(dtype).max)
    return array


def to_blocked(x: np.ndarray, lanes: int) -> np.ndarray:
    """[N, C, *spatial] -> aligned [N, C1, *spatial, lanes] with NaN in the lanes beyond C."""
    n, c, *spatial = x.shape
    blocks = -(-c // lanes)
    full = np.full((n, blocks * lanes, *spatial), np.nan, np.float32)
    full[:, :c] = x
    result = aligned(full.size)
    result[:] = np.moveaxis(full.reshape(n, blocks, lanes, *spatial), 2, -1).ravel()
    return result


def from_blocked(data: np.ndarray, shape: tuple[int, ...], lanes: int) -> np.ndarray:
    n, c, *spatial = shape
    blocks = -(-c // lanes)
    return np.moveaxis(data.reshape(n, blocks, *spatial, lanes), -1, 2).reshape(n, blocks * lanes, *spatial)[:, :c]


@dataclass
class Native:
    """A compiled kernel; keep it as long as it may run."""

    code: LoadedCode
    address: int
    tasks: int
    scratch_bytes: int = 0

    def __call__(self, *arrays: np.ndarray, begin: int = 0, end: int | None = None) -> None:
        scratch = aligned(self.scratch_bytes // 4 + 16)
        self.call(arrays, begin, self.tasks if end is None else end, scratch.ctypes.data)

    def one_behind_the_other(self, *arrays: np.ndarray, step: int, begin: int = 0) -> None:
        """All tasks from `begin` on, `step` in a call, as one thread runs a kernel that resumes: every call but the first is told so."""
        scratch = aligned(self.scratch_bytes // 4 + 16)
        for first in range(begin, self.tasks, step):
            self.call(arrays, first, min(first + step, self.tasks), scratch.ctypes.data + (first > begin))

    def call(self, arrays: Sequence[np.ndarray], begin: int, end: int, scratch_address: int) -> None:
        """Tasks `begin` to `end`, as the runtime calls it."""
        pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(self.address)
        function(pointers, begin, end, scratch_address)


def load(e: Emitter, target: Target, tasks: int, scratch_bytes: int = 0) -> Native:
    """Compile what `e` holds and load it into this process."""
    symbol, text = e.finish("convolution")
    code = LoadedCode({symbol: emit_object(text, target)}, target)
    return Native(code, code.address(symbol), tasks, scratch_bytes)


def build(shape: ConvolutionShape, target: Target, *given: Any, **named: Any) -> Native:
    """What `generate` writes, compiled."""
    e, tasks = generate(shape, target, *given, **named)
    return load(e, target, tasks)


def generate(
    shape: ConvolutionShape,
    target: Target,
    tile: ConvolutionTile | None = None,
    blocked: bool = True,
    bias: bool = False,
    channels_last: bool = False,
) -> tuple[Emitter, int]:
    """The kernel of `shape` with arguments (input, packed weights, output[, bias padded to whole blocks]), and its tasks."""
    e = Emitter()
    x, w, y = (e.argument(i) for i in range(3))
    bias_pointer = e.argument(3) if bias else None

    def initial(e: Emitter, channel):
        return e.load(e.gep(bias_pointer, channel, "float"), f"<{target.lanes} x float>", 4)

    tasks = emit_convolution(
        e,
        shape,
        target,
        tile or default_tile(shape, target, blocked),
        x,
        w,
        plain_writer(y, shape, target.lanes),
        blocked,
        initial if bias else None,
        channels_last=channels_last,
    )
    return e, tasks


def packed(weights: np.ndarray, shape: ConvolutionShape, lanes: int, blocked: bool = True) -> np.ndarray:
    """The packed weights at an aligned address, as kernels demand."""
    data = pack_weights(weights, shape, lanes, blocked).ravel()
    result = aligned(data.size)
    result[:] = data
    return result


def reference(x: np.ndarray, w: np.ndarray, shape: ConvolutionShape, bias: np.ndarray | None = None) -> np.ndarray:
    """The definition of a convolution in float64: one slice of the padded input for each tap."""
    rank = len(shape.kernel)
    ends = [
        max(0, (o - 1) * s + (k - 1) * d + 1 - p - i)
        for o, s, k, d, p, i in zip(
            shape.out_size, shape.strides, shape.kernel, shape.dilations, shape.pads_begin, shape.in_size, strict=True
        )
    ]
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *zip(shape.pads_begin, ends, strict=True)])
    y = np.zeros((shape.batch, shape.out_channels, *shape.out_size))
    ig, og = shape.group_inputs, shape.group_outputs
    for tap in product(*(range(k) for k in shape.kernel)):
        window = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(tap, shape.dilations, shape.out_size, shape.strides, strict=True)
        )
        seen = padded[(slice(None), slice(None), *window)]
        for g in range(shape.group):
            part = w[(slice(g * og, (g + 1) * og), slice(None), *tap)].astype(np.float64)
            y[:, g * og : (g + 1) * og] += np.tensordot(part, seen[:, g * ig : (g + 1) * ig], (1, 1)).swapaxes(0, 1)
    if bias is not None:
        y += bias.reshape(1, -1, *[1] * rank)
    return y


def operands(shape: ConvolutionShape, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random input, weights and bias."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((shape.batch, shape.in_channels, *shape.in_size), np.float32)
    w = rng.standard_normal((shape.out_channels, shape.group_inputs, *shape.kernel), np.float32)
    return x, w, rng.standard_normal(shape.out_channels, np.float32)


def run(shape, target, tile=None, blocked=True, bias=False, seed=0) -> tuple[np.ndarray, np.ndarray]:
    """(result of the kernel, reference) on random operands, all memory around them NaN."""
    lanes = target.lanes
    x, w, b = operands(shape, seed)
    native = build(shape, target, tile, blocked, bias)
    data = to_blocked(x, lanes) if blocked else aligned(x.size)
    if not blocked:
        data[:] = x.ravel()
    weights = packed(w, shape, lanes, blocked)
    padded_bias = aligned(shape.out_blocks(lanes) * lanes)
    padded_bias[: b.size] = b
    y = aligned(shape.batch * shape.out_blocks(lanes) * lanes * shape.out_pixels)
    third = max(1, native.tasks // 3)
    for begin in range(0, native.tasks, third):  # in parts, as threads would
        native(data, weights, y, padded_bias, begin=begin, end=min(native.tasks, begin + third))
    result = from_blocked(y, (shape.batch, shape.out_channels, *shape.out_size), lanes)
    return result, reference(x, w, shape, b if bias else None)


@lru_cache(maxsize=1)
def runnable_targets() -> tuple[Target, ...]:
    """The x86 targets that this processor can run."""
    return tuple(target for target in map(by_name, ("sse", "avx2", "avx512")) if runs(target))


def replaced(tile: ConvolutionTile, **changes) -> ConvolutionTile:
    return replace(tile, **changes)
