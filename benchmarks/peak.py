"""How fast this processor multiplies and adds: generated kernels of independent instructions, on one or more threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
import ctypes
from dataclasses import dataclass
import time

import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.dot_products import DotProducts
from anycann.codegen.kernels.dot_tiles import TILE_GROUPS, TILE_ROWS, TileRegisters, has_tiles
from anycann.codegen.objects import emit_object
from anycann.codegen.values import vector_type
from anycann.runtime.loader import LoadedCode
from anycann.target.target import Target, host
from anycann.te import dtypes
from anycann.te.dtypes import DType

ITERATIONS = 1_000_000
LONG = 100  # times as many in one run: some tenths of a second, in which a processor may lower its clock for wide vectors
REPEATS = 20  # short runs, the best of which nothing interrupted
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)  # ctypes lets go of Python's lock


@dataclass(frozen=True)
class PeakKernel:
    """A kernel that does nothing but multiply and add; a multiply-add is two operations."""

    symbol: str
    ir: str
    operations: int  # of one iteration


def multiply_adds(target: Target) -> PeakKernel:
    """float32: three quarters of the vector registers accumulate, which hides the latency."""
    e = Emitter()
    pointer = e.argument(0)
    factor = e.load(pointer, vector_type("float", target.lanes), 4)
    accumulators = target.registers * 3 // 4
    with e.loop(e.begin, e.end, carried=[factor] * accumulators) as loop:
        loop.carry([e.intrinsic("fmuladd", [factor, factor, value]) for value in loop.values])
    total = loop.values[0]
    for value in loop.values[1:]:
        total = e.binary("fadd", total, value)
    e.store(total, pointer, 4)
    return PeakKernel(*e.finish("peak"), 2 * accumulators * target.lanes)


def dot_products(target: Target, dtype: DType) -> PeakKernel | None:
    """The instruction for dot products of bytes or bfloat16; None where there is none."""
    dots = DotProducts(dtype, target)
    if not dots.is_one_instruction:
        return None
    e = Emitter()
    pointer = e.argument(0)
    first, second = dots.spread(e, pointer), dots.second(e, pointer)
    accumulators = target.registers * 3 // 4
    with e.loop(e.begin, e.end, carried=[e.zero(dots.sums)] * accumulators) as loop:
        loop.carry([dots.add(e, value, first, second) for value in loop.values])
    total = loop.values[0]
    for value in loop.values[1:]:
        total = e.binary("fadd" if dots.accumulator is dtypes.float32 else "add", total, value)
    e.store(total, pointer, 4)
    return PeakKernel(*e.finish("peak"), 2 * accumulators * target.lanes * dots.group)


def tile_products(target: Target, dtype: DType) -> PeakKernel | None:
    """Matrix tiles: four sums of two by two operands; None where there are none."""
    if not has_tiles(target, dtype):
        return None
    e = Emitter()
    pointer = e.argument(0)
    tiles = TileRegisters(dtype, TILE_ROWS, TILE_GROUPS)
    tiles.configure(e)
    for number in range(4):
        tiles.clear(e, number)
    for number in range(2):
        tiles.load_rows(e, number, pointer, 0)
        tiles.load_columns(e, number, pointer, 0)
    with e.loop(e.begin, e.end):
        for number in range(4):
            tiles.multiply(e, number, number // 2, number % 2)
    tiles.release(e)
    return PeakKernel(*e.finish("peak"), 4 * 2 * TILE_ROWS * TILE_ROWS * TILE_GROUPS * 4 // dtype.nbytes)


# by precision: what it is reached with, and the kernel
KERNELS: dict[str, dict[str, Callable[[Target], PeakKernel | None]]] = {
    "fp32": {"multiply-adds": multiply_adds},
    "bf16": {
        "dot products": lambda target: dot_products(target, dtypes.bfloat16),
        "matrix tiles": lambda target: tile_products(target, dtypes.bfloat16),
    },
    "int8": {
        "dot products": lambda target: dot_products(target, dtypes.uint8),
        "matrix tiles": lambda target: tile_products(target, dtypes.uint8),
    },
}


def peak_rates(threads: int, target: Target | None = None) -> dict[str, dict[str, float]]:
    """Best operations a second that `threads` threads reach together, by precision and by what does it; only what there is."""
    target = target or host()
    found: dict[str, dict[str, float]] = {}
    for precision, makers in KERNELS.items():
        for name, make in makers.items():
            kernel = make(target)
            if kernel is not None:
                found.setdefault(precision, {})[name] = rate(kernel, threads, target)
    found["fp32"]["multiply-adds in one long run"] = rate(multiply_adds(target), threads, target, LONG, 1)
    return found


def peak_flops(threads: int, target: Target | None = None) -> float:
    """Best float32 operations a second that `threads` threads reach together."""
    target = target or host()
    return rate(multiply_adds(target), threads, target)


def rate(kernel: PeakKernel, threads: int, target: Target, times: int = 1, repeats: int = REPEATS) -> float:
    """The best of some runs of `times` a short one's length, in operations a second."""
    code = LoadedCode({kernel.symbol: emit_object(kernel.ir, target)}, target)
    function = KERNEL(code.address(kernel.symbol))
    with ThreadPoolExecutor(threads) as pool:
        return max(_rate(function, pool, threads, kernel.operations, times * ITERATIONS) for _ in range(repeats))


def _rate(kernel: Callable[..., None], pool: ThreadPoolExecutor, threads: int, operations: int, iterations: int) -> float:
    buffers = [np.full(64, 1e-3, np.float32) for _ in range(threads)]
    arguments = [(ctypes.c_void_p * 1)(buffer.ctypes.data) for buffer in buffers]
    started = time.perf_counter()
    list(pool.map(lambda argument: kernel(argument, 0, iterations, None), arguments))
    return operations * iterations * threads / (time.perf_counter() - started)


if __name__ == "__main__":
    for count in (1, 2):
        for kind, rates in peak_rates(count).items():
            print(f"{count} thread(s), {kind}: {', '.join(f'{name} {each / 1e9:.0f} GFLOP/s' for name, each in rates.items())}")
