"""Pictures and files for tests, made on the spot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anycann.media.formats import FORMATS
from anycann.media.picture import Picture

GUARD = 0xA5


def smooth(width: int, height: int, seed: int = 0, samples: int = 3) -> NDArray[np.uint8]:
    """[rows, columns, samples] that look like a photograph: waves and a little noise."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 100 * np.sin(x / (7 + 3 * n) + n) * np.cos(y / (11 - 2 * n) + seed) for n in range(samples)]
    noisy = np.stack(waves, -1) + random.normal(0, 4, (height, width, samples))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def random_picture(number: int, width: int, height: int, seed: int = 0, spare: tuple[int, int] = (0, 0)) -> Picture:
    """A picture of random samples in format `number`; strides are larger than needed by `spare`."""
    form = FORMATS[number]
    stride = form.row_bytes(-(-width // form.across) * form.across) + spare[0] * form.row_bytes_per_pixel
    rows = -(-height // form.down) * form.down + spare[1]
    data = np.random.default_rng(seed).integers(0, 256, form.nbytes(stride, rows), dtype=np.uint8)
    return Picture(form, width, height, stride, rows, data)


def poisoned(number: int, width: int, height: int, spare: tuple[int, int] = (0, 0)) -> Picture:
    """As random_picture, every byte GUARD."""
    picture = random_picture(number, width, height, 0, spare)
    picture.data[:] = GUARD
    return picture
