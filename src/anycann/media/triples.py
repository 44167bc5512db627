"""Pixels of three samples that lie together, Y U V: sorted into planes, and multiplied by a matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anycann.media.formats import PixelFormat
from anycann.media.kernels import kernels
from anycann.media.pick_texts import (
    FIRST_OF_3,
    MEAN_OF_4,
    PAIR_OF_3,
    PAIR_OF_6,
    SWAPPED_MEAN_OF_4,
    SWAPPED_PAIR_OF_3,
    SWAPPED_PAIR_OF_6,
)
from anycann.media.picture import View
from anycann.runtime.memory import address

Samples = NDArray[np.uint8]


def multiply(source: Samples, target: Samples, table: NDArray[np.int32]) -> None:
    """target[y, x, k] = (table[k, :3] . source[y, x] + table[k, 3]) >> 14, limited to 0 and 255. Rows may lie any distance apart.

    `table`: contiguous [3, 4].
    """
    rows, columns, _ = source.shape
    kernels().multiply(address(source), source.strides[0], address(target), target.strides[0], rows, columns, address(table))


def split(pixels: Samples, target: View, across: int, down: int) -> None:
    """Write [rows, columns, Y U V] to `target`, gray or semi-planar. Chroma was stored for `across` x `down` pixels, and is alike in them.

    Where `target` has as much chroma, it is as it was stored; where it has less (420), the mean of two by two pixels, the last one of an
    odd edge counted twice.
    """
    rows, columns, _ = pixels.shape
    luma, *chroma = target.planes
    source, stride = address(pixels), pixels.strides[0]
    kernels().pick(FIRST_OF_3, source, stride, address(luma), luma.strides[0], rows, columns)
    if chroma and (across, down) == (target.format.across, target.format.down):
        _pick_chroma(pixels, chroma[0], target.format)
    elif chroma:
        _mean_chroma(pixels, chroma[0], target.format)


def _pick_chroma(pixels: Samples, chroma: Samples, form: PixelFormat) -> None:
    """The chroma of the first pixel of those that share it."""
    swapped = form.order == "YVU"
    pick = {1: (PAIR_OF_3, SWAPPED_PAIR_OF_3), 2: (PAIR_OF_6, SWAPPED_PAIR_OF_6)}[form.across][swapped]
    rows, columns, _ = chroma.shape
    whole = pixels.shape[1] // form.across  # an odd width: the last pixel has a chroma sample of its own
    source, stride = address(pixels), pixels.strides[0] * form.down
    kernels().pick(pick, source, stride, address(chroma), chroma.strides[0], rows, min(whole, columns))
    if whole < columns:
        chroma[:, -1] = pixels[:: form.down, -1, 2:0:-1] if swapped else pixels[:: form.down, -1, 1:]


def _mean_chroma(pixels: Samples, chroma: Samples, form: PixelFormat) -> None:
    """Chroma of 420 from what was stored with more: the mean of two by two pixels; at an odd edge the last one counts twice."""
    mean = SWAPPED_MEAN_OF_4 if form.order == "YVU" else MEAN_OF_4
    height, width, _ = pixels.shape
    source, stride = address(pixels), pixels.strides[0]
    into, into_stride = address(chroma), chroma.strides[0]
    kernels().mean(mean, source, 2 * stride, stride, into, into_stride, height // 2, width // 2)
    if height % 2:
        kernels().mean(mean, source + (height - 1) * stride, stride, 0, into + height // 2 * into_stride, into_stride, 1, width // 2)
    if width % 2 and chroma.shape[1] > width // 2:
        edge = pixels[:, -1, 2:0:-1] if form.order == "YVU" else pixels[:, -1, 1:]
        chroma[:, -1] = _mean_of_pairs(edge)


def _mean_of_pairs(edge: Samples) -> Samples:
    upper = edge[::2].astype(np.uint16)
    lower = np.concatenate([edge[1::2], edge[-1:]])[: len(upper)]
    means: Samples = ((upper + lower + 1) // 2).astype(np.uint8)
    return means
