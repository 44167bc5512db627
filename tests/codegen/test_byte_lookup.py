"""Bytes looked up in a table of 256, by each way there is, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from anycann.codegen.byte_lookup import lookup
from anycann.codegen.emitter import Emitter
from anycann.target.target import Target
from tests.codegen.kernels.jit import Compiled, runnable

RANDOM = np.random.default_rng(5).integers(0, 256, 256).astype(np.uint8)
HALF = np.where(np.arange(256) < 150, 7, RANDOM).astype(np.uint8)  # most rows of 16 are one number
SIXTEEN = np.repeat(np.arange(16, dtype=np.uint8), 16)  # all are, each another one


@pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)
@pytest.mark.parametrize("table", [RANDOM, HALF, SIXTEEN, np.full(256, 3, np.uint8)], ids=["random", "half", "rows", "one number"])
@pytest.mark.parametrize("lanes", [1, 4, 8, 12, 16, 24, 32])
def test_each_byte_finds_its_entry(lanes: int, table: np.ndarray, target: Target) -> None:
    e, type_ = Emitter(), "i8" if lanes == 1 else f"<{lanes} x i8>"
    number = int.from_bytes(table.tobytes(), "little")
    index = e.load(e.argument(0), type_, 1)
    e.store(lookup(e, index, number, target.has("avx512vbmi"), target.has("avx2")), e.argument(1), 1)
    for first in range(256):
        x = ((first + 37 * np.arange(lanes)) % 256).astype(np.uint8)
        y = np.full(lanes + 1, 99, np.uint8)
        if first == 0:
            kernel = Compiled(e, "lookup", target)
        kernel.run([x.ctypes.data, y.ctypes.data], 1)
        np.testing.assert_array_equal(y, [*table[x], 99])
