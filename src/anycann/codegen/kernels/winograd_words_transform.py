"""The small matrices of Winograd's F(4x4, 3x3) in whole numbers, and the weights that go through them.

The matrices of `winograd_transform.py` times whole numbers: rows of G times 4, 6, 6, 24, 24 and 1. Transformed inputs and weights then are
integers of 16 bits, and a transformed result is the true one times 9 and a power of two, modulo 2^32: times the inverse of 9, and shifted,
it is the true one, as long as that has 26 bits (`sums_fit`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.winograd_words_tile import OUT, PATCH, POINTS, WordWinograd
from anycann.codegen.values import Value

Transform: TypeAlias = Callable[[Emitter, Sequence[Value]], list[Value]]

_G = np.array([[1, 0, 0], [-1, -1, -1], [-1, 1, -1], [1, 2, 4], [1, -2, 4], [0, 0, 1]])
_SHIFTS = (3, 2, 1, 1)  # the power of two that a row or a column of results is multiplied with
_INVERSE_OF_9 = 0x38E38E39
_SUM_BITS = 31 - 2 * max(_SHIFTS)


def sums_fit(weights: npt.NDArray[np.int32]) -> bool:
    """True if no sum of these weights [O, ...] times bytes less their zero point leaves the range that comes back."""
    flat = weights.reshape(len(weights), -1).astype(np.int64)
    most = np.maximum(np.maximum(flat, 0).sum(1), np.maximum(-flat, 0).sum(1)).max(initial=0)
    return bool(255 * most < 1 << _SUM_BITS)


def pack_words(plan: WordWinograd, weights: npt.NDArray[np.int32]) -> npt.NDArray[np.int16]:
    """Weights [O, C, 3, 3] less their zero point -> [groups, 36 points, C / 2, columns of a group, 2]."""
    outputs, channels = weights.shape[:2]
    transformed = np.einsum("ai,ocij,bj->abco", _G, weights, _G).reshape(POINTS, channels, outputs)
    padded = np.zeros((POINTS, channels, plan.groups * plan.width), np.int16)
    padded[..., :outputs] = transformed
    pairs = padded.reshape(POINTS, channels // 2, 2, plan.groups, plan.width)
    return np.ascontiguousarray(pairs.transpose(3, 0, 1, 4, 2))


def transform_bytes(e: Emitter, patch: Sequence[Value]) -> list[Value]:
    """B^T d B of the 36 inputs of a patch, row by row, as i16."""
    return _both_ways(e, patch, _input)


def transform_sums(e: Emitter, products: Sequence[Value]) -> list[Value]:
    """A^T m A of 36 sums of products: the 16 results, row by row, as i32."""
    results = []
    for number, value in enumerate(_both_ways(e, products, _output)):
        i, j = divmod(number, OUT)
        value = e.binary("mul", value, e.const(_INVERSE_OF_9, value.type))
        results.append(e.binary("ashr", value, e.const(_SHIFTS[i] + _SHIFTS[j], value.type)))
    return results


def _both_ways(e: Emitter, patch: Sequence[Value], transform: Transform) -> list[Value]:
    """`transform` on every column of a 6x6 patch, then on every row of the result."""
    columns = [transform(e, [patch[PATCH * i + j] for i in range(PATCH)]) for j in range(PATCH)]
    return [value for i in range(len(columns[0])) for value in transform(e, [column[i] for column in columns])]


def _input(e: Emitter, d: Sequence[Value]) -> list[Value]:
    """B^T d, as in `winograd_transform.py`."""
    even, odd = _less(e, d[4], _times(e, d[2], 4)), _less(e, d[3], _times(e, d[1], 4))
    outer, inner = _less(e, d[4], d[2]), _less(e, d[3], d[1])
    twice = _times(e, inner, 2)
    return [
        _plus(e, _times(e, _less(e, d[0], d[2]), 4), outer),
        _plus(e, even, odd),
        _less(e, even, odd),
        _plus(e, outer, twice),
        _less(e, outer, twice),
        _less(e, _less(e, d[5], d[3]), _times(e, inner, 4)),
    ]


def _output(e: Emitter, m: Sequence[Value]) -> list[Value]:
    """A^T m of products whose weights were multiplied: rows of it times 24, 12, 6 and 6."""
    near, far = _plus(e, m[1], m[2]), _plus(e, m[3], m[4])
    near_odd, far_odd = _less(e, m[1], m[2]), _less(e, m[3], m[4])
    return [
        _plus(e, _plus(e, _times(e, _plus(e, m[0], near), 4), _times(e, m[0], 2)), far),
        _plus(e, _times(e, near_odd, 2), far_odd),
        _plus(e, near, far),
        _plus(e, near_odd, _times(e, _plus(e, _plus(e, far_odd, m[5]), _times(e, m[5], 2)), 2)),
    ]


def _plus(e: Emitter, a: Value, b: Value) -> Value:
    return e.binary("add", a, b)


def _less(e: Emitter, a: Value, b: Value) -> Value:
    return e.binary("sub", a, b)


def _times(e: Emitter, a: Value, power: int) -> Value:
    """a * power, a power of two."""
    return e.binary("shl", a, e.const(power.bit_length() - 1, a.type))
