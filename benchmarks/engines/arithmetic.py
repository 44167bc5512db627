"""What the processor could do while the engines were measured: multiply-adds on as many threads, run in turn with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from anycann.codegen.objects import emit_object
from anycann.om.plan import TensorSpec
from anycann.runtime.dispatch import split
from anycann.runtime.loader import LoadedCode
from anycann.runtime.thread_pool import ThreadPool
from anycann.target.target import host
from benchmarks.peak import multiply_adds

# Some milliseconds, and units as small as they may be: behind a rest the second of two threads comes up to 0.1 ms late, and one waits for
# the other's last unit. A tenth of it in 32 units gained 1.56, 1.68 and 1.71 where this gained 1.94, 2.00 and 1.99 in the same seconds.
ITERATIONS = 1_000_000
UNITS = 1 << 16  # more than threads ever take


class Arithmetic:
    """An engine without a model, of `operations` a run: registers multiplied and added, no memory."""

    name = "multiply-adds"
    inputs: tuple[TensorSpec, ...] = ()

    def __init__(self, threads: int):
        kernel = multiply_adds(host())
        self.operations = kernel.operations * ITERATIONS
        self._code = LoadedCode({kernel.symbol: emit_object(kernel.ir, host())})
        self._operand = np.full(64, 1e-3, np.float32)
        self._arguments = np.array([self._operand.ctypes.data], np.int64)
        self._row = np.array([self._code.address(kernel.symbol), self._arguments.ctypes.data, ITERATIONS, split(UNITS)], np.int64)
        self._pool = ThreadPool(threads)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """One row, as the kernels of a model are run."""
        self._pool.run(self._row.ctypes.data, 1, 0, 0)
        return {}
