"""Bounds of numbers: of bytes, clamps and what is computed of them; none where anything may come, NaN above all."""

from __future__ import annotations

import math

import pytest

from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.number_range import number_range

BYTE = te.placeholder("b", (4,), dtypes.uint8)[0]
SIGNED = te.placeholder("s", (4,), dtypes.int8)[0]
FLOAT = te.placeholder("f", (4,), dtypes.float32)[0]
WHOLE = te.placeholder("i", (4,), dtypes.int32)[0]


def real(value: Expr) -> Expr:
    return x.cast(value, dtypes.float32)


def held(value: Expr, low: float, high: float) -> Expr:
    least, most = x.const(low, dtypes.float32), x.const(high, dtypes.float32)
    value = x.select(value > least, value, least)
    return x.select(value < most, value, most)


CASES: dict[str, tuple[Expr, tuple[float, float] | None]] = {
    "literal": (x.const(3, dtypes.int32), (3, 3)),
    "byte": (BYTE, (0, 255)),
    "signed byte": (real(SIGNED), (-128, 127)),
    "less a zero point": (x.cast(BYTE, dtypes.int32) - 3, (-3, 252)),
    "with a negative factor": (real(SIGNED) * -2.0, (-254, 256)),
    "product of two": (real(SIGNED) * real(BYTE), (-128 * 255, 127 * 255)),
    "clamped": (held(FLOAT, -4.5, 9.5), (-4.5, 9.5)),
    "rounded": (x.unary("nearest", held(FLOAT, -4.5, 9.5), dtypes.int32), (-4, 10)),
    "one end": (x.select(FLOAT > 2.0, FLOAT, x.const(2, dtypes.float32)), None),
    "difference": (real(BYTE) - real(SIGNED), (-127, 383)),
    "negated": (-real(SIGNED), (-127, 128)),
    "smaller of two": (x.minimum(real(BYTE), real(SIGNED)), (-128, 127)),
    "not below zero": (x.maximum(real(SIGNED), 0.0), (0, 127)),
    "wraps": (x.cast(x.cast(BYTE, dtypes.int32), dtypes.int8), (-128, 127)),
    "fits": (x.cast(x.cast(BYTE, dtypes.int32) - 200, dtypes.int16), (-200, 55)),
    "any float": (FLOAT, None),
    "any int32": (real(WHOLE), None),
    "a float cut off": (x.cast(held(FLOAT, -4.5, 9.5), dtypes.int32), None),
    "sum with anything": (FLOAT + real(BYTE), None),
    "infinite": (real(BYTE) * math.inf, None),
    "not a number": (x.const(math.nan, dtypes.float32), None),
    "divided": (real(BYTE) / real(BYTE), None),
    "of two clamps": (held(held(FLOAT, -100.0, 100.0), -4.0, 300.0), (-4, 100)),
    "a product that wraps": (real(x.cast(BYTE, dtypes.int32) * (1 << 24)), None),
    "a sum of bytes that wraps": (real(BYTE + BYTE), None),
    "a product that fits": (real(x.cast(BYTE, dtypes.int32) * (1 << 23)), (0, 255 << 23)),
    "cut to 32 bits": (x.cast(x.cast(BYTE, dtypes.int64) * (1 << 24), dtypes.int32), None),
    "a bool": (x.cast(BYTE, dtypes.bool_), None),
    "half": (x.cast(x.cast(BYTE, dtypes.int32) * 999, dtypes.float16), None),
    "looked up": (x.lookup(BYTE, bytes(range(256)), dtypes.uint8), None),
    "an endless bound": (held(FLOAT, 0.0, math.inf), None),
    "another bound": (x.select(FLOAT > 2.0, FLOAT, x.const(1, dtypes.float32)), None),
}


@pytest.mark.parametrize("name", CASES)
def test_bounds(name: str) -> None:
    expr, wanted = CASES[name]
    found = number_range(expr)
    if wanted is None:
        assert found is None or not (math.isfinite(found.low) and math.isfinite(found.high))
    else:
        assert found is not None
        assert (found.low, found.high) == wanted


def test_a_long_chain_with_shared_parts_is_walked_once() -> None:
    value: Expr = held(FLOAT, -1.0, 1.0)
    for _ in range(2000):
        value = value * value
    found = number_range(value)
    assert found is not None
    assert (found.low, found.high) == (-1, 1)
