"""Where the sorted groups of a register tile are listed in scratch memory (`dot_sorted.py`).

A tile has three counts, of pairs, of single groups and of groups of words, a number a pixel that its sums start from, and for each of the
three the places of its groups: bytes from the first that a pixel reads and, where these are not all in one run, bytes from the first of the
weights of a panel. All are int32. Then come the words of the third list: of each group, of each pixel, its bytes 0 and 2, then 1 and 3.
"""

from __future__ import annotations

COUNTS = 3
NUMBER_BYTES = 4
WORD_NUMBERS = 2  # a group as words
_ROUNDED = 32


def entry_numbers(one_run: bool) -> int:
    """Numbers that say where a group is."""
    return 1 if one_run else 2


def list_starts(depth: int, one_run: bool, pixels: int) -> tuple[int, int, int, int]:
    """Numbers before each of the three lists, and before the words; the first two hold what is written behind their end too."""
    first, size = COUNTS + pixels, entry_numbers(one_run)
    singles = first + (depth // 2 + 1) * size
    words = singles + (depth + 1) * size
    return first, singles, words, words + depth * size


def list_bytes(depth: int, one_run: bool, pixels: int) -> int:
    """Bytes of what is listed of one register tile, in whole vectors."""
    numbers = list_starts(depth, one_run, pixels)[-1] + depth * pixels * WORD_NUMBERS
    return -(-numbers * NUMBER_BYTES // _ROUNDED) * _ROUNDED
