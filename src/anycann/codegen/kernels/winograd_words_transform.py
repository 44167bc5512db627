"""What goes through the matrices of Winograd's algorithms in whole numbers (`winograd_words_lines.py`): patches, weights and products.

Transformed inputs and weights are integers of 16 bits, and a transformed result is the true one times a power of 3 and a power of two,
modulo 2^32: times the inverse of the first, and shifted, it is the true one, as long as its bits are not shifted out (`sums_fit`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.winograd_words_lines import WordAlgorithm, WordLine
from anycann.codegen.kernels.winograd_words_tile import WordWinograd
from anycann.codegen.values import Value

Transform: TypeAlias = Callable[[Emitter, WordLine, Sequence[Value]], list[Value]]


def sums_fit(weights: npt.NDArray[np.int32], algorithm: WordAlgorithm) -> bool:
    """True if no sum of these weights [O, ...] times bytes less their zero point leaves the range that comes back."""
    flat = weights.reshape(len(weights), -1).astype(np.int64)
    most = np.maximum(np.maximum(flat, 0).sum(1), np.maximum(-flat, 0).sum(1)).max(initial=0)
    return bool(255 * most < 1 << algorithm.sum_bits)


def pack_words(plan: WordWinograd, weights: npt.NDArray[np.int32]) -> npt.NDArray[np.int16]:
    """Weights [O, C, 3, 3] less their zero point -> [groups, points, C / 2, columns of a group, 2]."""
    outputs, channels = weights.shape[:2]
    points = plan.algorithm.points
    padded = np.zeros((points, channels, plan.groups * plan.width), np.int16)
    padded[..., :outputs] = plan.algorithm.transform(weights)
    pairs = padded.reshape(points, channels // 2, 2, plan.groups, plan.width)
    return np.ascontiguousarray(pairs.transpose(3, 0, 1, 4, 2))


def transform_bytes(e: Emitter, algorithm: WordAlgorithm, patch: Sequence[Value]) -> list[Value]:
    """B d B^T of the inputs of a patch, row by row, as i16."""
    return _both_ways(e, algorithm, patch, algorithm.columns.patch, _input)


def transform_sums(e: Emitter, algorithm: WordAlgorithm, products: Sequence[Value]) -> list[Value]:
    """A m A^T of sums of products: the results, row by row, as i32."""
    rows, columns = algorithm.rows, algorithm.columns
    factor = 3 ** (rows.thirds + columns.thirds)
    results = []
    for number, value in enumerate(_both_ways(e, algorithm, products, columns.points, _output)):
        i, j = divmod(number, columns.results)
        value = e.binary("mul", value, e.const(pow(factor, -1, 1 << 32), value.type)) if factor > 1 else value
        shift = rows.shifts[i] + columns.shifts[j]
        results.append(e.binary("ashr", value, e.const(shift, value.type)) if shift else value)
    return results


def _both_ways(e: Emitter, algorithm: WordAlgorithm, patch: Sequence[Value], width: int, transform: Transform) -> list[Value]:
    """`transform` on every column of a patch so wide, then on every row of the result."""
    columns = [transform(e, algorithm.rows, patch[j::width]) for j in range(width)]
    return [value for i in range(len(columns[0])) for value in transform(e, algorithm.columns, [column[i] for column in columns])]


def _input(e: Emitter, line: WordLine, d: Sequence[Value]) -> list[Value]:
    """B d."""
    if line.results < 4:
        return [_combined(e, row, d) for row in line.inputs]
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


def _output(e: Emitter, line: WordLine, m: Sequence[Value]) -> list[Value]:
    """A m."""
    if line.results < 4:
        return [_combined(e, row, m) for row in line.outputs]
    near, far = _plus(e, m[1], m[2]), _plus(e, m[3], m[4])
    near_odd, far_odd = _less(e, m[1], m[2]), _less(e, m[3], m[4])
    return [
        _plus(e, _plus(e, _times(e, _plus(e, m[0], near), 4), _times(e, m[0], 2)), far),
        _plus(e, _times(e, near_odd, 2), far_odd),
        _plus(e, near, far),
        _plus(e, near_odd, _times(e, _plus(e, _plus(e, far_odd, m[5]), _times(e, m[5], 2)), 2)),
    ]


def _combined(e: Emitter, row: Sequence[int], values: Sequence[Value]) -> Value:
    """The sum of what a row of 1, 0 and -1 takes; it takes something."""
    taken = sorted(((sign, value) for sign, value in zip(row, values, strict=True) if sign), key=lambda pair: -pair[0])
    total = taken[0][1]
    for sign, value in taken[1:]:
        total = _plus(e, total, value) if sign > 0 else _less(e, total, value)
    return total


def _plus(e: Emitter, a: Value, b: Value) -> Value:
    return e.binary("add", a, b)


def _less(e: Emitter, a: Value, b: Value) -> Value:
    return e.binary("sub", a, b)


def _times(e: Emitter, a: Value, power: int) -> Value:
    """a * power, a power of two."""
    return e.binary("shl", a, e.const(power.bit_length() - 1, a.type))
