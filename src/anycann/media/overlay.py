"""Bitmaps with alpha, as on-screen displays have them, laid over pictures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anycann.media.convert import ColourMatrix, to_yuv
from anycann.media.draw import check_drawable
from anycann.media.formats import PixelFormat
from anycann.media.picture import Bytes, Region, View
from anycann.support.errors import UnsupportedError
from anycann.support.records import dataclass

ARGB8888, ARGB4444, ARGB1555, CLUT2, CLUT4 = 14, 25, 33, 41, 42
BITS = {ARGB8888: 32, ARGB4444: 16, ARGB1555: 16, CLUT2: 2, CLUT4: 4}  # of a pixel
_MOST = 255


@dataclass(frozen=True)
class Bitmap:
    """Pixels of alpha, red, green and blue: uint8[rows, columns, 4]."""

    pixels: Bytes

    def inverted(self, colours: bool, alpha: bool) -> Bitmap:
        """The same with each of these as far from the other end."""
        mask = np.array([_MOST * alpha, *[_MOST * colours] * 3], np.uint8)
        return Bitmap(self.pixels ^ mask)


def row_bytes(number: int, columns: int) -> int:
    """Bytes of a row of a bitmap in pixel format `number`. Raises UnsupportedError for a format that has no alpha."""
    if number not in BITS:
        raise UnsupportedError(f"a bitmap in pixel format {number}; accepted: {', '.join(map(str, BITS))}")
    return -(-columns * BITS[number] // 8)


def read_bitmap(rows: Bytes, number: int, columns: int, alphas: tuple[int, int], table: NDArray[np.uint32]) -> Bitmap:
    """A bitmap of uint8[rows, row_bytes]. alphas: what the bit of ARGB1555 stands for, not set and set; table: colours by number.

    Words of 16 bits and of the table, 0xAARRGGBB, have alpha in the highest bits; of the pixels in a byte the first is in
    the highest.
    """
    if number == ARGB8888:
        return Bitmap(np.ascontiguousarray(rows).reshape(len(rows), columns, 4))
    if BITS[number] == 16:
        words = np.ascontiguousarray(rows).view("<u2").astype(np.uint32)
        return Bitmap(_of_words(words, number, alphas))
    bits = BITS[number]
    shifts = np.arange(8 - bits, -1, -bits, dtype=np.uint8)
    numbers = (rows[:, :, None] >> shifts & (1 << bits) - 1).reshape(len(rows), -1)[:, :columns]
    return Bitmap(_split(table[numbers], 8))


def _of_words(words: NDArray[np.uint32], number: int, alphas: tuple[int, int]) -> Bytes:
    if number == ARGB4444:
        return _split(words, 4) * np.uint8(17)
    fives = np.stack([words >> shift & 31 for shift in (10, 5, 0)], -1)
    alpha = np.array(alphas, np.uint8)[words >> 15]
    return np.concatenate([alpha[..., None], (fives * _MOST + 15) // 31], -1).astype(np.uint8)


def _split(words: NDArray[np.uint32], bits: int) -> Bytes:
    """The four parts of a word, the highest first."""
    return np.stack([words >> shift * bits & (1 << bits) - 1 for shift in (3, 2, 1, 0)], -1).astype(np.uint8)


def lay_over(target: View, bitmap: Bitmap, place: Region, matrix: ColourMatrix) -> None:
    """Blend a bitmap of the size of `place` into a picture. A chroma sample gets what its pixels come to on the average."""
    check_drawable(target.format)
    alpha, colours = bitmap.pixels[..., :1].astype(np.int64), _samples(bitmap, target.format, matrix)
    first = 0
    for number, plane in enumerate(target.planes):
        across, down = (target.format.across, target.format.down) if number else (1, 1)
        samples = colours[..., first : first + plane.shape[2]]
        weighted, weights = (_summed(part, place, across, down) for part in (samples * alpha, alpha))
        top, left, full = place.top // down, place.left // across, _MOST * across * down
        part = plane[top : top + len(weights), left : left + weights.shape[1]]
        weighted, weights = (each[: part.shape[0], : part.shape[1]] for each in (weighted, weights))
        part[:] = (weighted + part * (full - weights) + full // 2) // full
        first += plane.shape[2]


def _samples(bitmap: Bitmap, form: PixelFormat, matrix: ColourMatrix) -> NDArray[np.int64]:
    """Its colours as the samples of a format, in their order."""
    rgb = np.ascontiguousarray(bitmap.pixels[..., 1:])
    yuv = to_yuv(rgb, matrix)
    by_letter = dict(zip("RGBYUV", (*np.moveaxis(rgb, -1, 0), *np.moveaxis(yuv, -1, 0)), strict=True))
    by_letter["A"] = np.full(rgb.shape[:2], _MOST, np.uint8)
    return np.stack([by_letter[letter] for letter in form.order], -1).astype(np.int64)


def _summed(values: NDArray[np.int64], place: Region, across: int, down: int) -> NDArray[np.int64]:
    """Sums over the pixels that share a sample; pixels outside the place are nothing."""
    if (across, down) == (1, 1):
        return values
    above, before = place.top % down, place.left % across
    rows, columns, _ = values.shape
    padded = np.pad(values, ((above, -(above + rows) % down), (before, -(before + columns) % across), (0, 0)))
    summed: NDArray[np.int64] = padded.reshape(padded.shape[0] // down, down, padded.shape[1] // across, across, -1).sum((1, 3))
    return summed
