"""Rectangles, quadrangles and lines of one colour, and mosaics, drawn into pictures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from anycann.media.convert import ColourMatrix, to_yuv
from anycann.media.formats import PixelFormat
from anycann.media.picture import Bytes, Region, View
from anycann.support.errors import UnsupportedError, UsageError
from anycann.support.records import dataclass

Point = tuple[int, int]
Mask = NDArray[np.bool_]  # [rows, columns], True where something is drawn
Colour = tuple[int, int, int]  # red, green, blue


@dataclass(frozen=True)
class Pixels:
    """Some of the pixels of a picture: those of `mask`, which begins at `left`, `top`."""

    left: int
    top: int
    mask: Mask


def rectangle(region: Region) -> Pixels:
    """All pixels of a region."""
    return Pixels(region.left, region.top, np.ones((region.height, region.width), bool))


def line(start: Point, end: Point, thick: int, size: tuple[int, int]) -> Pixels:
    """A line so many pixels thick, both ends belonging to it, as far as it lies in a picture of `size` (width, height)."""
    left, top, x, y = _box((start, end), thick, size)
    return Pixels(left, top, _strip(x, y, start, end, thick))


def quadrangle(corners: Sequence[Point], thick: int | None, size: tuple[int, int]) -> Pixels:
    """Four corners in order: the edges, so many pixels thick, or (thick None) everything inside, as far as it lies in the picture."""
    left, top, x, y = _box(corners, thick or 1, size)
    edges = list(pairwise((*corners, corners[0])))
    mask = np.zeros(np.broadcast_shapes(x.shape, y.shape), bool)
    if thick is None:
        for (x0, y0), (x1, y1) in edges:  # inside: an odd number of edges lies to the right
            if y0 != y1:
                mask ^= ((y0 > y) != (y1 > y)) & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
    for one, other in edges:
        mask |= _strip(x, y, one, other, thick or 1)
        if thick is not None:
            mask |= _near(x - one[0], thick) & _near(y - one[1], thick)
    return Pixels(left, top, mask)


def _box(points: Sequence[Point], thick: int, size: tuple[int, int]) -> tuple[int, int, NDArray[np.int64], NDArray[np.int64]]:
    """Left and top of what may be drawn of the picture, and the columns [1, n] and rows [m, 1] in question."""
    spans = []
    for axis in (0, 1):
        places = [point[axis] for point in points]
        spans.append((max(0, min(places) - thick), min(size[axis], max(places) + thick + 1)))
    (left, right), (top, bottom) = spans
    return left, top, np.arange(left, max(left, right))[None], np.arange(top, max(top, bottom))[:, None]


def _near(distance: NDArray[np.float64] | NDArray[np.int64], thick: int) -> Mask:
    return (distance >= -(thick / 2)) & (distance < thick / 2)


def _strip(x: NDArray[np.int64], y: NDArray[np.int64], start: Point, end: Point, thick: int) -> Mask:
    """Pixels beside the way from one point to the other."""
    across, down = end[0] - start[0], end[1] - start[1]
    length = float(np.hypot(across, down))
    if length == 0.0:
        return _near(x - start[0], thick) & _near(y - start[1], thick)
    along = ((x - start[0]) * across + (y - start[1]) * down) / length
    beside = ((y - start[1]) * across - (x - start[0]) * down) / length
    if across < 0 or (across == 0 and down > 0):  # of two rows or columns as far away, the upper or left one, whichever way it is drawn
        beside = -beside
    return (along > -0.5) & (along < length + 0.5) & _near(beside, thick)


def paint(target: View, pixels: Pixels, colour: Colour, matrix: ColourMatrix) -> None:
    """Give pixels a colour. A chroma sample gets it where any of its pixels does. Raises UnsupportedError for packed YUV 4:2:2."""
    check_drawable(target.format)
    values = _samples(target.format, colour, matrix)
    first = 0
    for number, plane in enumerate(target.planes):
        across, down = (target.format.across, target.format.down) if number else (1, 1)
        mask, left, top = _covered(pixels, across, down)
        part = plane[top : top + mask.shape[0], left : left + mask.shape[1]]
        part[mask[: part.shape[0], : part.shape[1]]] = values[first : first + plane.shape[2]]
        first += plane.shape[2]


def check_drawable(form: PixelFormat) -> None:
    """Raises UnsupportedError for packed YUV 4:2:2."""
    if form.layout == "packed 422":
        raise UnsupportedError(f"nothing is drawn in {form.name}; accepted: gray, semi-planar, packed RGB and YUV, planar RGB")


def _samples(form: PixelFormat, colour: Colour, matrix: ColourMatrix) -> Bytes:
    """What `colour` is in a format, in the order of its samples."""
    yuv = to_yuv(np.array([[colour]], np.uint8), matrix).reshape(-1)
    values = dict(zip("RGBYUVA", (*colour, *yuv.tolist(), 255), strict=True))
    return np.array([values[letter] for letter in form.order], np.uint8)


def _covered(pixels: Pixels, across: int, down: int) -> tuple[Mask, int, int]:
    """The same for samples of so many pixels."""
    if (across, down) == (1, 1):
        return pixels.mask, pixels.left, pixels.top
    rows, columns = pixels.mask.shape
    before, above = pixels.left % across, pixels.top % down
    padded = np.pad(pixels.mask, ((above, -(rows + above) % down), (before, -(columns + before) % across)))
    grouped = padded.reshape(padded.shape[0] // down, down, padded.shape[1] // across, across)
    mask: Mask = np.any(grouped, axis=(1, 3))
    return mask, pixels.left // across, pixels.top // down


def mosaic(target: View, region: Region, block: int) -> None:
    """Give every block of so many pixels each way the mean of its samples. Raises UsageError for a region that begins inside a sample."""
    check_drawable(target.format)
    if region.left % target.format.across or region.top % target.format.down:
        raise UsageError(
            f"a mosaic from left {region.left}, top {region.top} on in {target.format.name}; accepted: multiples of "
            f"{target.format.across} and {target.format.down}"
        )
    for number, plane in enumerate(target.planes):
        across, down = (target.format.across, target.format.down) if number else (1, 1)
        left, top = region.left // across, region.top // down
        part = plane[top : top + -(-region.height // down), left : left + -(-region.width // across)]
        _blocks(part, block // down, block // across)


def _blocks(part: Bytes, rows: int, columns: int) -> None:
    down, across = np.arange(0, part.shape[0], rows), np.arange(0, part.shape[1], columns)
    sums = np.add.reduceat(np.add.reduceat(part.astype(np.int64), down, axis=0), across, axis=1)
    high, wide = np.diff(down, append=part.shape[0]), np.diff(across, append=part.shape[1])
    counts = (high[:, None] * wide)[..., None]
    part[:] = ((sums + counts // 2) // counts).repeat(high, axis=0).repeat(wide, axis=1)
