"""What a picture is and what becomes of it, in a row of int32 that a kernel reads while it runs: dynamic AIPP.

Pixels of `FORMAT` -> `ROWS` x `COLUMNS` of them from (`FIRST_ROW`, `FIRST_COLUMN`) on -> floor(`MATRIX` . (samples - `INPUT_BIAS`) / 256)
+ `OUTPUT_BIAS`, limited to 0 and 255, if it `CONVERTS` -> (x - `SUBTRACTED`) * `FACTORS` -> `PADDING` around, `ABOVE` and `BEFORE` so many.

Numbers with a fraction are the bits of a float32.
"""

from __future__ import annotations

from enum import IntEnum

WORDS = 40  # of a picture


class Word(IntEnum):
    """Where a number is. The offset is counted from the beginning of the memory of all pictures."""

    FORMAT = 0  # Format; no pixels for any other number
    STRIDE = 1  # bytes from row to row
    OFFSET = 2  # 2: bytes in front of the first row, 64 bits, the lower half first
    COLOURS = 4  # bytes from there to the pairs of YUV420SP
    FIRST_ROW = 5
    FIRST_COLUMN = 6  # even for YUV420SP
    ROWS = 7
    COLUMNS = 8
    ABOVE = 9
    BEFORE = 10
    ORDER = 11  # 4: which sample of a pixel comes first, second ...
    CONVERTS = 15  # 0: no colour conversion
    MATRIX = 16  # 9 fractions, row by row
    INPUT_BIAS = 25  # 3 fractions
    OUTPUT_BIAS = 28  # 3 fractions
    SUBTRACTED = 31  # 4 fractions
    FACTORS = 35  # 4 fractions
    PADDING = 39  # a fraction


class Format(IntEnum):
    """Ascend's numbers."""

    YUV420SP_U8 = 1
    XRGB8888_U8 = 2
    RGB888_U8 = 3
    YUV400_U8 = 4


PIXEL_BYTES = {Format.YUV420SP_U8: 1, Format.XRGB8888_U8: 4, Format.RGB888_U8: 3, Format.YUV400_U8: 1}  # in a row of the first plane
