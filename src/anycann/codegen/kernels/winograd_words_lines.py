"""Winograd's algorithms in whole numbers, for neighbouring results of a row: their three small matrices.

Y = A [(G g) * (B d)] in one dimension, in two with each matrix from both sides, as in `winograd_algorithm.py`; but rows of G are multiplied
so that they are whole numbers, and rows of A so that each counts every product alike. A result then is the true one times a power of two,
and times 3 where four results share their products: modulo 2^32 that has an inverse.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from anycann.codegen.kernels.convolution_shape import ConvolutionShape
from anycann.support.records import dataclass

Rows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class WordLine:
    """`results` neighbouring results of a kernel of `taps` that goes on by `stride` inputs.

    inputs: B [points, inputs]. weights: G [points, taps]. outputs: A [results, points]. shifts: of each result, the power of two that it
    comes out times. thirds: whether it is times 3 too. steps: instructions of B d and of A m.
    """

    results: int
    taps: int
    stride: int
    inputs: Rows
    weights: Rows
    outputs: Rows
    shifts: tuple[int, ...]
    thirds: bool
    steps: tuple[int, int]

    @property
    def points(self) -> int:
        """Products."""
        return len(self.inputs)

    @property
    def patch(self) -> int:
        """Inputs that the results are computed from."""
        return len(self.inputs[0])


_FOUR_OF_THREE = WordLine(  # points 0, 1, -1, 2, -2 and infinity; G times 4, 6, 6, 24, 24 and 1
    results=4,
    taps=3,
    stride=1,
    inputs=(
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
    weights=((1, 0, 0), (-1, -1, -1), (-1, 1, -1), (1, 2, 4), (1, -2, 4), (0, 0, 1)),
    outputs=((6, 4, 4, 1, 1, 0), (0, 2, -2, 1, -1, 0), (0, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 6)),
    shifts=(3, 2, 1, 1),
    thirds=True,
    steps=(17, 17),
)
_TWO_OF_THREE = WordLine(  # points 0, 1, -1 and infinity; G times 2
    results=2,
    taps=3,
    stride=1,
    inputs=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    weights=((2, 0, 0), (1, 1, 1), (1, -1, 1), (0, 0, 2)),
    outputs=((1, 1, 1, 0), (0, 1, -1, -1)),
    shifts=(1, 1),
    thirds=False,
    steps=(4, 4),
)
_TWO_OF_THREE_BY_TWO = WordLine(  # taps 0 and 2 by points 0, 1 and infinity, tap 1 as it is
    results=2,
    taps=3,
    stride=2,
    inputs=((1, 0, -1, 0, 0), (0, 0, 1, 0, 0), (0, 0, -1, 0, 1), (0, 1, 0, 0, 0), (0, 0, 0, 1, 0)),
    weights=((1, 0, 0), (1, 0, 1), (0, 0, 1), (0, 1, 0), (0, 1, 0)),
    outputs=((1, 1, 0, 1, 0), (0, 1, 1, 0, 1)),
    shifts=(0, 0),
    thirds=False,
    steps=(2, 4),
)
_LINES = (_FOUR_OF_THREE, _TWO_OF_THREE, _TWO_OF_THREE_BY_TWO)


@dataclass(frozen=True)
class WordAlgorithm:
    """Tiles of `rows.results` x `columns.results` results."""

    rows: WordLine
    columns: WordLine

    @property
    def points(self) -> int:
        """Products of a tile, for each input and output channel."""
        return self.rows.points * self.columns.points

    @property
    def results(self) -> int:
        return self.rows.results * self.columns.results

    @property
    def sum_bits(self) -> int:
        """Bits of the magnitude of a sum that comes back from 32 bits."""
        return 31 - max(self.rows.shifts) - max(self.columns.shifts)

    def transform(self, weights: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """G w G^T of [O, C, *taps]: [points, C, O], of 16 bits for bytes less their zero point."""
        rows, columns = np.array(self.rows.weights), np.array(self.columns.weights)
        outputs, channels = weights.shape[:2]
        points: npt.NDArray[np.int32] = np.einsum("ai,ocij,bj->abco", rows, weights, columns).reshape(self.points, channels, outputs)
        return points


def word_tile_sizes(shape: ConvolutionShape) -> list[int]:
    """How many results tiles can have along an axis, the usual number first; none where no algorithm is known."""
    known = {(line.taps, line.stride) for line in _LINES}
    square = len(set(zip(shape.kernel, shape.strides, strict=True))) == 1 and len(shape.kernel) == 2
    if not square or (shape.kernel[0], shape.strides[0]) not in known:
        return []
    return [line.results for line in _LINES if (line.taps, line.stride) == (shape.kernel[0], shape.strides[0])]


def word_algorithm(shape: ConvolutionShape, results: int) -> WordAlgorithm:
    """What tiles of `results` along each axis are computed by. Raises StopIteration for a size that `word_tile_sizes` does not name."""
    line = next(line for line in _LINES if (line.results, line.taps, line.stride) == (results, shape.kernel[0], shape.strides[0]))
    return WordAlgorithm(line, line)
