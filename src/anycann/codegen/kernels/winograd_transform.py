"""The small matrices of Winograd's F(4x4, 3x3), as sums on vectors (Lavin and Gray, "Fast algorithms for convolutional neural networks").

Y = A^T [(G g G^T) * (B^T d B)] A, with the interpolation points 0, 1, -1, 2, -2 and infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from anycann.codegen.emitter import Emitter
from anycann.codegen.kernels.convolution_products import multiply_add
from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.codegen.kernels.winograd_tile import PATCH, POINTS, winograd_depth
from anycann.codegen.values import Value
from anycann.target.target import Target

_G = np.array(
    [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ]
)
_BOTH_WAYS = np.kron(_G, _G)
_COLUMNS = 768  # of one product: it stays in the cache, and is too small for a BLAS to wake its threads


def pack_winograd_weights(weights: np.ndarray, shape: ConvolutionShape, lanes: int) -> np.ndarray:
    """Weights [O, I, *planes, 3, 3] as float32 [O blocks, 36 points, planes * I, lanes]: transformed in double precision, absent output
    channels zero.

    G g G^T of many filters is one product: (G kron G) [36, 9] times the filters [9, planes * I * lanes].
    """
    depth, taps_of_plane = winograd_depth(shape), len(_BOTH_WAYS[0])
    packed = np.empty((shape.out_blocks(lanes), POINTS, depth, lanes), np.float32)
    planes = weights.reshape(shape.out_channels, shape.in_channels, -1, taps_of_plane).transpose(3, 2, 1, 0)
    filters = planes.reshape(taps_of_plane, depth, shape.out_channels)
    step = max(1, _COLUMNS // lanes)
    for block, start in product(range(len(packed)), range(0, depth, step)):
        some = filters[:, start : start + step, block * lanes : (block + 1) * lanes]
        taps = np.zeros((*some.shape[:2], lanes))
        taps[:, :, : some.shape[2]] = some
        packed[block, :, start : start + step] = (_BOTH_WAYS @ taps.reshape(taps_of_plane, -1)).reshape(POINTS, -1, lanes)
    return packed


Rows = Sequence[Sequence[Value]]
Transform = Callable[[Emitter, Target, Sequence[Value]], list[Value]]


def transform_input(e: Emitter, target: Target, patch: Rows) -> list[Value]:
    """B^T d B of a 6x6 patch, row by row."""
    return _both_ways(e, target, patch, _input)


def transform_output(e: Emitter, target: Target, products: Sequence[Value]) -> list[Value]:
    """A^T m A of 36 products: the 4x4 results, row by row."""
    return _both_ways(e, target, [products[i * PATCH : (i + 1) * PATCH] for i in range(PATCH)], _output)


def transform_weights(e: Emitter, target: Target, taps: Sequence[Value]) -> list[Value]:
    """G g G^T of nine taps: 36 values, row by row."""
    columns = [_weights(e, target, [taps[3 * i + j] for i in range(3)]) for j in range(3)]
    return [value for i in range(PATCH) for value in _weights(e, target, [column[i] for column in columns])]


def _weights(e: Emitter, target: Target, g: Sequence[Value]) -> list[Value]:
    """G g: [g0 / 4, -(g0 + g1 + g2) / 6, -(g0 - g1 + g2) / 6, g0 / 24 + g1 / 12 + g2 / 6, g0 / 24 - g1 / 12 + g2 / 6, g2]."""

    def times(value: Value, factor: float) -> Value:
        return e.binary("fmul", value, e.const(factor, value.type))

    ends = times(e.binary("fadd", g[0], g[2]), -1 / 6)
    far = _scaled(e, target, g[0], 1 / 24, times(g[2], 1 / 6))
    return [
        times(g[0], 1 / 4),
        _scaled(e, target, g[1], -1 / 6, ends),
        _scaled(e, target, g[1], 1 / 6, ends),
        _scaled(e, target, g[1], 1 / 12, far),
        _scaled(e, target, g[1], -1 / 12, far),
        g[2],
    ]


def _both_ways(e: Emitter, target: Target, rows: Rows, transform: Transform) -> list[Value]:
    """`transform` on every column, then on every row of the result."""
    columns = [transform(e, target, [row[j] for row in rows]) for j in range(PATCH)]
    return [value for i in range(len(columns[0])) for value in transform(e, target, [column[i] for column in columns])]


def _input(e: Emitter, target: Target, d: Sequence[Value]) -> list[Value]:
    """B^T d: [4 d0 - 5 d2 + d4, -4 d1 - 4 d2 + d3 + d4, 4 d1 - 4 d2 - d3 + d4, ...] with shared parts."""
    even, odd = _scaled(e, target, d[2], -4, d[4]), _scaled(e, target, d[1], -4, d[3])
    outer, inner = e.binary("fsub", d[4], d[2]), e.binary("fsub", d[3], d[1])
    return [
        _scaled(e, target, d[0], 4, _scaled(e, target, d[2], -5, d[4])),
        e.binary("fadd", even, odd),
        e.binary("fsub", even, odd),
        _scaled(e, target, inner, 2, outer),
        _scaled(e, target, inner, -2, outer),
        _scaled(e, target, d[1], 4, _scaled(e, target, d[3], -5, d[5])),
    ]


def _output(e: Emitter, target: Target, m: Sequence[Value]) -> list[Value]:
    """A^T m: [m0 + m1 + m2 + m3 + m4, m1 - m2 + 2 m3 - 2 m4, m1 + m2 + 4 m3 + 4 m4, m1 - m2 + 8 m3 - 8 m4 + m5]."""
    near, far = e.binary("fadd", m[1], m[2]), e.binary("fadd", m[3], m[4])
    near_odd, far_odd = e.binary("fsub", m[1], m[2]), e.binary("fsub", m[3], m[4])
    return [
        e.binary("fadd", m[0], e.binary("fadd", near, far)),
        _scaled(e, target, far_odd, 2, near_odd),
        _scaled(e, target, far, 4, near),
        _scaled(e, target, far_odd, 8, e.binary("fadd", near_odd, m[5])),
    ]


def _scaled(e: Emitter, target: Target, x: Value, factor: float, plus: Value) -> Value:
    """x * factor + plus."""
    return multiply_add(e, target, x, e.const(factor, x.type), plus)
