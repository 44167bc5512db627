"""Colours: pictures from one pixel format to another."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from anycann.media.picture import View
from anycann.media.resize import halve

Samples = NDArray[np.uint8]
_BITS = 14  # of a coefficient


class Matrix(IntEnum):
    """Which RGB a YUV is. Wide: 0 to 255 is used; narrow: 16 to 235 for Y, 16 to 240 for U and V."""

    BT601_WIDE = 0
    BT601_NARROW = 1
    BT709_WIDE = 2
    BT709_NARROW = 3
    BT2020_WIDE = 4
    BT2020_NARROW = 5


@dataclass(frozen=True)
class Coefficients:
    """Y' = luma . RGB + offset and so on, in 1 / 2 ** 14; and back."""

    forward: NDArray[np.int32]  # [Y U V, R G B]
    backward: NDArray[np.int32]  # [R G B, Y U V]
    floor: int  # of Y


def coefficients(matrix: Matrix) -> Coefficients:
    """By ITU-R BT.601, BT.709, BT.2020: the weights of red and blue in Y say everything."""
    red, blue = {0: (0.299, 0.114), 1: (0.2126, 0.0722), 2: (0.2627, 0.0593)}[matrix // 2]
    narrow = matrix % 2 == 1
    luma, chroma = (219 / 255, 224 / 255) if narrow else (1.0, 1.0)
    weights = np.array([red, 1 - red - blue, blue])
    u = (np.array([0, 0, 1]) - weights) / (2 * (1 - blue))
    v = (np.array([1, 0, 0]) - weights) / (2 * (1 - red))
    forward = np.stack([weights * luma, u * chroma, v * chroma])
    scale = 1 << _BITS
    back = np.rint(np.linalg.inv(forward) * scale).astype(np.int32)
    return Coefficients(np.rint(forward * scale).astype(np.int32), back, 16 if narrow else 0)


def convert(source: View, target: View, matrix: Matrix = Matrix.BT601_WIDE) -> None:
    """Write the pixels of `source` to `target`, of the same size and any format.

    Chroma is repeated where the target has more of it, and the mean where it has less. Alpha is 255.
    """
    if source.format == target.format:
        for plane, other in zip(target.planes, source.planes, strict=True):
            plane[:] = other
    elif source.format.is_rgb and target.format.is_rgb:
        store_rgb(rgb_of(source), target)
    elif target.format.is_rgb:
        store_rgb(to_rgb(full_yuv(source), matrix), target)
    elif source.format.is_rgb:
        luma, u, v = np.moveaxis(to_yuv(rgb_of(source), matrix), -1, 0)
        store_yuv(luma, u, v, target)
    else:
        _convert_yuv(source, target)


def _convert_yuv(source: View, target: View) -> None:
    luma, u, v = yuv_planes(source)
    size = luma.shape
    steps = source.format.across, source.format.down
    if steps != (target.format.across, target.format.down):
        u, v = (_repeat(plane, *steps, size) for plane in (u, v))
        store_yuv(luma, u, v, target)
    else:
        _store_planes(luma, u, v, target)


# ---- YUV
def gray_of(source: View) -> Samples:
    """Y alone, [rows, columns]. `source` is YUV."""
    return yuv_planes(source)[0]


def yuv_planes(source: View) -> tuple[Samples, Samples, Samples]:
    """Y [rows, columns], and U and V of as many samples as there are; gray has one of each, 128, for every pixel."""
    form = source.format
    planes = source.planes
    if form.layout == "gray":
        neutral = np.broadcast_to(np.uint8(128), planes[0].shape[:2])
        return planes[0][..., 0], neutral, neutral
    if form.layout == "packed 422":
        group = planes[0]
        letters = form.order
        first = letters.index("Y")
        luma = group[..., first : first + 3 : 2].reshape(group.shape[0], -1)[:, : source.width]
        return luma, group[..., letters.index("U")], group[..., letters.index("V")]
    if form.layout == "packed":
        return planes[0][..., 0], planes[0][..., form.order.index("U")], planes[0][..., form.order.index("V")]
    u, v = (0, 1) if form.order == "YUV" else (1, 0)
    return planes[0][..., 0], planes[1][..., u], planes[1][..., v]


def full_yuv(source: View) -> Samples:
    """[rows, columns, Y U V] with chroma repeated."""
    luma, u, v = yuv_planes(source)
    steps = source.format.across, source.format.down
    return np.stack([luma, _repeat(u, *steps, luma.shape), _repeat(v, *steps, luma.shape)], axis=-1)


def _repeat(plane: Samples, across: int, down: int, size: tuple[int, ...]) -> Samples:
    wide = plane.repeat(down, axis=0) if down > 1 else plane
    return (wide.repeat(across, axis=1) if across > 1 else wide)[: size[0], : size[1]]


def store_yuv(luma: Samples, u: Samples, v: Samples, target: View) -> None:
    """Write planes of full size."""
    steps = target.format.across, target.format.down
    _store_planes(luma, _mean(u, *steps), _mean(v, *steps), target)


def _mean(plane: Samples, across: int, down: int) -> Samples:
    if across == down == 1:
        return plane
    means = np.empty((-(-plane.shape[0] // down), -(-plane.shape[1] // across), 1), np.uint8)
    halve(np.ascontiguousarray(plane)[..., None], means)
    return means[..., 0]


def _store_planes(luma: Samples, u: Samples, v: Samples, target: View) -> None:
    form, planes = target.format, target.planes
    if form.layout == "packed 422":
        group = planes[0]
        first = form.order.index("Y")
        even = np.pad(luma, ((0, 0), (0, luma.shape[1] % 2)), "edge")
        group[..., first], group[..., first + 2] = even[:, 0::2], even[:, 1::2]
        group[..., form.order.index("U")], group[..., form.order.index("V")] = u, v
        return
    planes[0][..., 0] = luma
    chroma = planes[-1]
    if form.layout != "gray":
        chroma[..., form.order.index("U") - (form.layout == "semi-planar")] = u
        chroma[..., form.order.index("V") - (form.layout == "semi-planar")] = v


# ---- RGB
def rgb_of(source: View) -> Samples:
    """[rows, columns, R G B] of an RGB picture."""
    planes = source.planes
    if source.format.layout == "planar":
        return np.concatenate([planes[source.format.order.index(letter)] for letter in "RGB"], axis=-1)
    places = [source.format.order.index(letter) for letter in "RGB"]
    return np.take(planes[0], places, axis=-1)


def store_rgb(pixels: Samples, target: View) -> None:
    """Write [rows, columns, R G B] to an RGB picture."""
    planes = target.planes
    for number, letter in enumerate("RGB"):
        place = target.format.order.index(letter)
        plane = planes[place][..., 0] if target.format.layout == "planar" else planes[0][..., place]
        plane[:] = pixels[..., number]
    if "A" in target.format.order:
        planes[0][..., target.format.order.index("A")] = 255


def to_yuv(pixels: Samples, matrix: Matrix) -> Samples:
    """[..., R G B] as [..., Y U V]."""
    table = coefficients(matrix)
    wide = pixels.astype(np.int32) @ table.forward.T
    offsets = np.array([table.floor, 128, 128], np.int32) << _BITS
    return _rounded(wide + offsets)


def to_rgb(pixels: Samples, matrix: Matrix) -> Samples:
    """[..., Y U V] as [..., R G B]."""
    table = coefficients(matrix)
    centred = pixels.astype(np.int32) - np.array([table.floor, 128, 128], np.int32)
    return _rounded(centred @ table.backward.T)


def _rounded(wide: NDArray[np.int32]) -> Samples:
    limited: Samples = np.clip((wide + (1 << (_BITS - 1))) >> _BITS, 0, 255).astype(np.uint8)
    return limited
