"""Products of few columns: neighbours of k side by side in the lanes, which the columns alone would leave empty.

A step takes `group` neighbours of k: lane c * group + i of B holds B[k + i, c], and every `group` lanes of A the same A[m, k..k+group].
In the end the lanes of a column are added, and the columns move together.
"""

from __future__ import annotations

import numpy as np

from anycann.codegen.kernels.matmul_shape import MatmulShape, folded, lanes_of
from anycann.support.arrangement import Arrangement
from anycann.target.target import Target

# So many rows for each column repay the copy of a B that is computed, one element at a time: with 8 columns 8 rows lose by it and 16 win.
_ROWS_A_COLUMN, _LEAST_K = 2, 32


def k_group(shape: MatmulShape, target: Target) -> int:
    """How many neighbours of k a register holds for each column; 1 where the lanes run along n alone."""
    shape, lanes = folded(shape), lanes_of(shape.accumulator, target.lanes)
    suits = (
        shape.accumulator.is_float
        and not shape.grouped
        and not shape.scale_rows
        and shape.a.column == 1
        and shape.k >= _LEAST_K
        and shape.n > 1
    )
    if not suits or shape.m < (2 if shape.packed else _ROWS_A_COLUMN * shape.n):
        return 1
    return max(1, lanes // (1 << (shape.n - 1).bit_length()))


def pack_narrow(b: np.ndarray, lanes: int, group: int) -> np.ndarray:
    """[..., K, N] -> [..., ceil(K / group), lanes] of the same type: `group` neighbours of k for each column, zero beyond K and N."""
    *batch, k, n = b.shape
    steps, columns = -(-k // group), lanes // group
    padded = np.zeros((*batch, steps * group, columns), b.dtype)
    padded[..., :k, :n] = b
    return np.ascontiguousarray(np.swapaxes(padded.reshape(*batch, steps, group, columns), -1, -2)).reshape(*batch, steps, lanes)


def narrow_arrangement(shape: tuple[int, ...], lanes: int, group: int, transposed: bool) -> Arrangement:
    """Where B of this shape, [..., K, N] or `transposed` [..., N, K], lies in what `pack_narrow` makes of its columns."""
    batch, k = shape[:-2], shape[-1 if transposed else -2]
    steps, columns, outer = -(-k // group), lanes // group, len(batch)
    axes = (outer + 1, outer, outer + 2) if transposed else (outer, outer + 2, outer + 1)
    padded = (columns, steps * group) if transposed else (steps * group, columns)
    return Arrangement((*batch, steps, columns, group), (*range(outer), *axes), (*batch, *padded), shape)
