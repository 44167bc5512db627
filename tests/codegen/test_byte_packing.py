"""32-bit integers packed to bytes, and vectors joined, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from anycann.codegen.byte_packing import pack_bytes, packs_bytes
from anycann.codegen.emitter import Emitter
from anycann.target.target import Target
from tests.codegen.kernels.jit import Compiled, runnable

WIDE = [target for target in runnable() if target.has("avx512bw")]
ENDS = [
    -(1 << 31),
    -(1 << 31) + 1,
    -32769,
    -32768,
    -129,
    -128,
    -127,
    -1,
    0,
    1,
    126,
    127,
    128,
    254,
    255,
    256,
    32767,
    32768,
    65535,
    (1 << 31) - 1,
]


@pytest.mark.parametrize("target", WIDE, ids=str)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("registers", [2, 3, 4])
def test_integers_are_held_within_bytes(registers: int, dtype: type, target: Target) -> None:
    lanes, bounds, e = 16 * registers, np.iinfo(dtype), Emitter()
    assert packs_bytes(lanes)
    whole = e.load(e.argument(0), f"<{lanes} x i32>", 4)
    e.store(pack_bytes(e, whole, dtype is np.int8), e.argument(1), 1)
    kernel = Compiled(e, "packing", target)
    rng = np.random.default_rng()
    for scale in (7, 9, 17, 31):
        x = rng.integers(-(1 << scale), 1 << scale, lanes, dtype=np.int64).astype(np.int32)
        x[rng.permutation(lanes)[: len(ENDS)]] = ENDS
        y = np.full(lanes + 1, 99, dtype)
        kernel.run([x.ctypes.data, y.ctypes.data], 1)
        np.testing.assert_array_equal(y, [*np.clip(x, bounds.min, bounds.max).astype(dtype), 99])


def test_one_register_is_narrowed_by_itself() -> None:
    assert [lanes for lanes in range(1, 200) if packs_bytes(lanes)] == [32, 48, 64]


@pytest.mark.parametrize("target", runnable(), ids=str)
@pytest.mark.parametrize("count", range(1, 9))
def test_vectors_are_joined_one_behind_the_other(count: int, target: Target) -> None:
    e, lanes = Emitter(), 4
    parts = [e.load(e.gep(e.argument(0), lanes * number, "i32"), f"<{lanes} x i32>", 4) for number in range(count)]
    e.store(e.join(parts), e.argument(1), 4)
    x, y = np.arange(lanes * count, dtype=np.int32), np.full(lanes * count + 1, 99, np.int32)
    Compiled(e, "joining", target).run([x.ctypes.data, y.ctypes.data], 1)
    np.testing.assert_array_equal(y, [*x, 99])
