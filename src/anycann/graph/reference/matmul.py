"""Matrix products of com.microsoft with their fused surroundings."""

from __future__ import annotations

import numpy as np

from anycann.graph.reference.base import MicrosoftOp


def _arranged(x: np.ndarray, transpose: int, transpose_batch: int) -> np.ndarray:
    """`x` with its first axis moved behind the batch axes, and its last two axes exchanged, as asked."""
    if transpose_batch and x.ndim > 2:
        x = np.moveaxis(x, 0, -2)
    return np.swapaxes(x, -1, -2) if transpose and x.ndim > 1 else x


class FusedMatMul(MicrosoftOp):
    """FusedMatMul(A, B): alpha * A' @ B', each first transposed as its attributes say."""

    def _run(
        self,
        a: np.ndarray,
        b: np.ndarray,
        alpha: float = 1.0,
        transA: int = 0,
        transB: int = 0,
        transBatchA: int = 0,
        transBatchB: int = 0,
    ) -> tuple[np.ndarray]:
        product = np.matmul(_arranged(a, transA, transBatchA), _arranged(b, transB, transBatchB))
        return ((alpha * product).astype(a.dtype),)


class TransposeMatMul(FusedMatMul):
    """The former name of FusedMatMul."""
