"""How fast this processor multiplies and adds: a generated kernel of independent fused multiply-adds, on one or more threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
import ctypes
import time

import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.objects import emit_object
from anycann.codegen.values import vector_type
from anycann.runtime.loader import LoadedCode
from anycann.target.target import Target, host

ITERATIONS = 2_000_000
REPEATS = 5
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)  # ctypes lets go of Python's lock


def kernel_text(target: Target) -> tuple[str, str, int]:
    """Symbol, IR and multiply-adds an iteration: three quarters of the vector registers accumulate, which hides the latency."""
    emitter = Emitter()
    pointer = emitter.argument(0)
    type_ = vector_type("float", target.lanes)
    factor = emitter.load(pointer, type_, 4)
    accumulators = target.registers * 3 // 4
    with emitter.loop(emitter.begin, emitter.end, carried=[factor] * accumulators) as loop:
        loop.carry([emitter.fma(factor, factor, value) for value in loop.values])
    total = loop.values[0]
    for value in loop.values[1:]:
        total = emitter.binary("fadd", total, value)
    emitter.store(total, pointer, 4)
    symbol, text = emitter.finish("peak")
    return symbol, text, accumulators * target.lanes


def peak_flops(threads: int, target: Target | None = None) -> float:
    """Best float32 operations a second (a multiply-add is two) that `threads` threads reach together."""
    target = target or host()
    symbol, text, per_iteration = kernel_text(target)
    code = LoadedCode({symbol: emit_object(text, target)})
    kernel = KERNEL(code.address(symbol))
    with ThreadPoolExecutor(threads) as pool:
        rates = [_rate(kernel, pool, threads, per_iteration) for _ in range(REPEATS)]
    return max(rates)


def _rate(kernel: Callable[..., None], pool: ThreadPoolExecutor, threads: int, per_iteration: int) -> float:
    buffers = [np.full(64, 1e-3, np.float32) for _ in range(threads)]
    arguments = [(ctypes.c_void_p * 1)(buffer.ctypes.data) for buffer in buffers]
    started = time.perf_counter()
    list(pool.map(lambda argument: kernel(argument, 0, ITERATIONS, None), arguments))
    return 2 * per_iteration * ITERATIONS * threads / (time.perf_counter() - started)


if __name__ == "__main__":
    for count in (1, 2):
        print(f"{count} thread(s): {peak_flops(count) / 1e9:.1f} GFLOP/s")
