"""Quotients and remainders of integers, lane by lane: extremes of each type, every sign, and divisors that are zero or minus one."""

from __future__ import annotations

import numpy as np
import pytest

from anycann.codegen.emitter import Emitter
from anycann.codegen.operations import emit_op
from anycann.codegen.values import vector_type
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te import expression as x
from tests.codegen.kernels.jit import Compiled, runnable

TYPES = [np.dtype(name) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")]
NAMES = ("div", "rem", "floordiv", "floormod")
SIZE = 1008  # a multiple of all lanes


def operands(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Random bits shifted by random amounts, so that all magnitudes meet, and the numbers around the ends of the type and around zero."""
    rng, info, bits = np.random.default_rng(), np.iinfo(dtype), 8 * dtype.itemsize
    ends = [info.min, info.min + 1, info.max - 1, info.max, 0, 1, 2, 3, 7] + ([-1, -2, -3] if info.min else [])
    found = []
    for _ in range(2):
        random = rng.integers(info.min, info.max, SIZE, dtype, endpoint=True) >> rng.integers(0, bits, SIZE).astype(dtype)
        random[: len(ends) ** 2] = np.array(ends, dtype)[np.arange(len(ends) ** 2) // (1 if found else len(ends)) % len(ends)]
        found.append(random)
    products = found[1][500:] * (found[0][500:] >> dtype.type(bits // 2))  # multiples of the divisor, and what lies beside them
    found[0][500:] = products + rng.integers(0, 3, SIZE - 500).astype(dtype)
    return found[0], found[1]


def expected(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """By Python's integers; x / 0 is x and leaves 0."""
    results = []
    for p, q in zip(a.tolist(), b.tolist(), strict=True):
        q = q or 1
        quotient = p // q if name.startswith("floor") else abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
        results.append(quotient if name.endswith("div") else p - quotient * q)
    bits = 8 * a.dtype.itemsize
    return np.array([r % (1 << bits) for r in results], f"uint{bits}").view(a.dtype)


def divided(name: str, a: np.ndarray, b: np.ndarray, lanes: int, target: Target) -> np.ndarray:
    """The operation on vectors of `lanes` elements."""
    e, kind = Emitter(), dtypes.BY_NAME[a.dtype.name]
    pointers, (left, right) = [e.argument(n) for n in range(3)], (x.Var(text, 1, kind) for text in "ab")
    with e.loop(e.begin, e.end) as loop:
        places = [e.gep(pointer, e.mul(loop.index, lanes), kind.storage) for pointer in pointers]
        values = [e.load(place, vector_type(kind.storage, lanes), kind.nbytes) for place in places[:2]]
        e.store(emit_op(e, x.Op(name, (left, right), kind), values), places[2], kind.nbytes)
    result = np.full_like(a, 77)
    Compiled(e, "division", target)([a, b, result], a.size // lanes)
    return result


@pytest.mark.parametrize("target", runnable(), ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_quotients_and_remainders_are_those_of_whole_numbers(dtype: np.dtype, target: Target) -> None:
    a, b = operands(dtype)
    for name in NAMES:
        np.testing.assert_array_equal(divided(name, a, b, target.lanes, target), expected(name, a, b), err_msg=name)
