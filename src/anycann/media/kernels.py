"""Native loops over rows of bytes, compiled when they are first used."""

from __future__ import annotations

import ctypes
from functools import lru_cache

from anycann.codegen.kernel_cache import compile_kernels
from anycann.media.blend_text import BLEND, blend_ir
from anycann.media.entropy_text import ENTROPY, entropy_ir
from anycann.media.idct import Transform
from anycann.media.matrix_text import MATRIX, matrix_ir
from anycann.media.pick_texts import MEANS, PICKS, Mean, Pick, mean_ir, pick_ir
from anycann.runtime.loader import LoadedCode
from anycann.target.target import Target, host


class Kernels:
    """The native functions. Calls leave the interpreter's lock."""

    def __init__(self, target: Target):
        texts = {pick.symbol: pick_ir(pick) for pick in PICKS} | {mean.symbol: mean_ir(mean) for mean in MEANS}
        transforms = {paired: Transform(paired, target).ir() for paired in (False, True)}
        texts |= {BLEND: blend_ir(target.lanes), MATRIX: matrix_ir(), ENTROPY: entropy_ir()} | dict(transforms.values())
        self._code = LoadedCode(compile_kernels(texts, target), target)
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        take = ctypes.CFUNCTYPE(None, pointer, number, pointer, number, number, number)
        self._picks = {pick: take(self._code.address(pick.symbol)) for pick in PICKS}
        multiply = ctypes.CFUNCTYPE(None, pointer, number, pointer, number, number, number, pointer)
        self._multiply = multiply(self._code.address(MATRIX))
        reduce = ctypes.CFUNCTYPE(None, pointer, number, number, pointer, number, number, number)
        self._means = {mean: reduce(self._code.address(mean.symbol)) for mean in MEANS}
        rows = ctypes.CFUNCTYPE(None, pointer, number, number, pointer)
        self._entropy = rows(self._code.address(ENTROPY))
        self._transforms = {paired: rows(self._code.address(symbol)) for paired, (symbol, _) in transforms.items()}
        blend = ctypes.CFUNCTYPE(
            None, *(pointer, pointer, number, number, number), *(pointer, pointer), *(pointer, pointer, pointer), pointer
        )
        self._blend = blend(self._code.address(BLEND))

    def pick(self, pick: Pick, source: int, source_stride: int, target: int, target_stride: int, rows: int, columns: int) -> None:
        """Copy the bytes of `pick` out of `columns` groups in each of `rows` rows, from address `source` to address `target`."""
        self._picks[pick](source, source_stride, target, target_stride, rows, columns)

    def mean(
        self, mean: Mean, source: int, pair_stride: int, row_stride: int, target: int, target_stride: int, rows: int, columns: int
    ) -> None:
        """Write `columns` means for each of `rows` pairs of rows; pairs lie `pair_stride` bytes apart, their rows `row_stride`."""
        self._means[mean](source, pair_stride, row_stride, target, target_stride, rows, columns)

    def multiply(self, source: int, source_stride: int, target: int, target_stride: int, rows: int, columns: int, table: int) -> None:
        """Weighted sums of the three bytes of every pixel; see `matrix_text`."""
        self._multiply(source, source_stride, target, target_stride, rows, columns, table)

    def decode_coefficients(self, words: int, units: int) -> None:
        """The next `units` of the scan of a JPEG file; see `entropy_text`, whose words lie at address `words`."""
        self._entropy(words, 0, units, None)

    def transform_blocks(self, paired: bool, words: int, rows: int) -> None:
        """Blocks of coefficients of `rows` rows of units to samples; see `idct`, whose words lie at address `words`."""
        self._transforms[paired](words, 0, rows, None)

    def blend_rows(
        self, source: int, target: int, target_stride: int, rows: int, columns: int, tables: tuple[int, ...], scratch: int
    ) -> None:
        """Scale: `rows` rows of `columns` bytes, each blended of four bytes of the source.

        `tables`: addresses of int64[2 * rows] (bytes from `source` to the upper and the lower row), int32[rows] (weight of the lower row),
        int32[columns] twice (where in a row the two bytes are), int32[columns] (weight of the second). Weights are of 2 ** WEIGHT_BITS.
        scratch: the address of int32[2 * padded], where padded is `columns` and a vector.
        """
        self._blend(source, target, target_stride, rows, columns, *tables, scratch)


@lru_cache(maxsize=4)
def kernels_for(target: Target) -> Kernels:
    """The functions for `target`, compiled once."""
    return Kernels(target)


def kernels() -> Kernels:
    """The functions for this processor (or the one that ANYCANN_TARGET names)."""
    return kernels_for(host())
