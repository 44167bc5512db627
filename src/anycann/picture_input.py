"""Dynamic AIPP: the settings of a program as the operator `anycann.DynamicAipp` reads them while it runs (te/picture_table.py)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from anycann.frontends.aipp.configuration import Aipp, check_block
from anycann.frontends.aipp.graph import made_size, operator_attributes, picture_size
from anycann.support.errors import context
from anycann.te.picture_table import PIXEL_BYTES, WORDS, Format, Word

__all__ = ["Aipp", "made_size", "picture_table"]


def picture_table(blocks: Sequence[Aipp], sizes: tuple[int, int, int]) -> tuple[NDArray[np.int32], int]:
    """(int32[pictures, WORDS], bytes of all pictures), which lie one behind the other, each with the settings of its block.

    sizes: channels, height and width of the result. Raises UsageError for settings that do not make it of a picture.
    """
    table, offset = np.empty((len(blocks), WORDS), np.int32), 0
    for number, block in enumerate(blocks):
        with context(f"while looking at picture {number} of the dynamic AIPP"):
            table[number], nbytes = _row(block, sizes)
        table[number, Word.OFFSET : Word.OFFSET + 2].view(np.int64)[0] = offset
        offset += nbytes
    return table, offset


@lru_cache(maxsize=256)
def _row(block: Aipp, sizes: tuple[int, int, int]) -> tuple[NDArray[np.int32], int]:
    """The settings of a picture that begins the memory, and its bytes. Programs give the same for picture after picture."""
    channels, height, width = sizes
    check_block(block, "the dynamic AIPP")
    rows, columns = (int(size or 0) for size in picture_size(block, height, width))
    found = operator_attributes(block, channels, rows, columns)
    form, row = Format[block.input_format], np.zeros(WORDS, np.int32)
    stride = columns * PIXEL_BYTES[form]
    above, before, _, _ = found.get("pads", (0, 0, 0, 0))
    row[: Word.ORDER] = [form, stride, 0, 0, rows * stride, *found.get("crop", (0, 0, rows, columns)), above, before]
    _write(row, Word.ORDER, found["order"])
    row[Word.CONVERTS] = "matrix" in found
    fractions = row.view(np.float32)
    fractions[Word.FACTORS : Word.PADDING] = 1
    for word in (Word.MATRIX, Word.INPUT_BIAS, Word.OUTPUT_BIAS, Word.SUBTRACTED, Word.FACTORS):
        _write(fractions, word, found.get(word.name.lower(), ()))
    fractions[Word.PADDING] = found.get("padding", 0)
    return row, block.source_bytes(1, rows, columns)


def _write(row: NDArray[np.int32] | NDArray[np.float32], word: Word, numbers: Sequence[float]) -> None:
    row[word : word + len(numbers)] = numbers
