"""Colours: pictures from one pixel format to another."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from anycann.media.formats import PixelFormat
from anycann.media.picture import View
from anycann.media.resize import halve
from anycann.media.triples import COEFFICIENT_BITS, multiply, multiply_planes, split
from anycann.support.records import dataclass

Samples = NDArray[np.uint8]


class Matrix(IntEnum):
    """Which RGB a YUV is. Wide: 0 to 255 is used; narrow: 16 to 235 for Y, 16 to 240 for U and V."""

    BT601_WIDE = 0
    BT601_NARROW = 1
    BT709_WIDE = 2
    BT709_NARROW = 3
    BT2020_WIDE = 4
    BT2020_NARROW = 5


Numbers = tuple[float, ...]


@dataclass(frozen=True)
class OwnMatrix:
    """Weights row by row, and three biases: RGB = to_rgb . (YUV - its biases), YUV = to_yuv . RGB + its biases."""

    to_rgb: Numbers
    to_yuv: Numbers


ColourMatrix: TypeAlias = Matrix | OwnMatrix


@dataclass(frozen=True)
class Coefficients:
    """Tables for `multiply`: [k, :3] weights and [k, 3] what is added, in 1 / 2 ** 14."""

    to_yuv: NDArray[np.int32]  # from R G B
    to_rgb: NDArray[np.int32]  # from Y U V


@lru_cache(maxsize=8)
def numbers_of(matrix: Matrix) -> OwnMatrix:
    """By ITU-R BT.601, BT.709, BT.2020: the weights of red and blue in Y say everything."""
    red, blue = {0: (0.299, 0.114), 1: (0.2126, 0.0722), 2: (0.2627, 0.0593)}[matrix // 2]
    narrow = matrix % 2 == 1
    luma, chroma = (219 / 255, 224 / 255) if narrow else (1.0, 1.0)
    weights = np.array([red, 1 - red - blue, blue])
    u = (np.array([0, 0, 1]) - weights) / (2 * (1 - blue))
    v = (np.array([1, 0, 0]) - weights) / (2 * (1 - red))
    forward = np.stack([weights * luma, u * chroma, v * chroma])
    offsets = (16.0 if narrow else 0.0, 128.0, 128.0)
    return OwnMatrix((*np.linalg.inv(forward).ravel().tolist(), *offsets), (*forward.ravel().tolist(), *offsets))


@lru_cache(maxsize=16)
def coefficients(matrix: ColourMatrix) -> Coefficients:
    """The tables of a matrix."""
    numbers = numbers_of(matrix) if isinstance(matrix, Matrix) else matrix
    (back, subtracted), (forward, added) = ((np.reshape(each[:9], (3, 3)), np.array(each[9:])) for each in (numbers.to_rgb, numbers.to_yuv))
    return Coefficients(_table(forward, added), _table(back, -(_fixed(back) @ subtracted) / (1 << COEFFICIENT_BITS)))


def _fixed(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.rint(weights * (1 << COEFFICIENT_BITS))


def _table(weights: NDArray[np.float64], added: NDArray[np.float64]) -> NDArray[np.int32]:
    half = 1 << (COEFFICIENT_BITS - 1)
    table = np.concatenate([_fixed(weights), (np.rint(added * (1 << COEFFICIENT_BITS)) + half)[:, None]], axis=1)
    return np.ascontiguousarray(table.astype(np.int32))


def convert(source: View, target: View, matrix: ColourMatrix = Matrix.BT601_WIDE) -> None:
    """Write the pixels of `source` to `target`, of the same size and any format.

    Chroma is repeated where the target has more of it, and the mean where it has less. Alpha is 255.
    """
    if source.format == target.format:
        for plane, other in zip(target.planes, source.planes, strict=True):
            plane[:] = other
    elif source.format.is_rgb and target.format.is_rgb:
        _rgb_to_rgb(source, target)
    elif target.format.is_rgb:
        _yuv_to_rgb(source, target, matrix)
    elif source.format.is_rgb:
        _rgb_to_yuv(source, target, matrix)
    else:
        _convert_yuv(source, target)


def _rgb_to_rgb(source: View, target: View) -> None:
    if _is_triple(source.format) and _is_triple(target.format):
        order = [source.format.order.index(letter) for letter in target.format.order]
        multiply(source.planes[0], target.planes[0], _table(np.eye(3)[order], np.zeros(3)))
    else:
        store_rgb(rgb_of(source), target)


def _is_triple(form: PixelFormat) -> bool:
    return form.layout == "packed" and len(form.order) == 3


def _yuv_to_rgb(source: View, target: View, matrix: ColourMatrix) -> None:
    if not _is_triple(target.format):
        store_rgb(_multiplied(full_yuv(source), coefficients(matrix).to_rgb), target)
    elif source.format.layout == "semi-planar" and _luma_is_alike(matrix):
        multiply_planes(source, target.planes[0], _ordered(matrix, target.format.order, source.format.order))
    else:
        multiply(full_yuv(source), target.planes[0], _ordered(matrix, target.format.order, "YUV"))


def _luma_is_alike(matrix: ColourMatrix) -> bool:
    """Whether Y has one weight of 16 bits in R, G and B."""
    weights = coefficients(matrix).to_rgb[:, 0]
    return bool((weights == weights[0]).all() and abs(int(weights[0])) < 1 << 15)


@lru_cache(maxsize=64)
def _ordered(matrix: ColourMatrix, results: str, samples: str) -> NDArray[np.int32]:
    """The table that makes R, G and B in the order of `results` from Y, U and V in that of `samples`."""
    rows, columns = ["RGB".index(letter) for letter in results], ["YUV".index(letter) for letter in samples]
    return np.ascontiguousarray(coefficients(matrix).to_rgb[rows][:, [*columns, 3]])


def _rgb_to_yuv(source: View, target: View, matrix: ColourMatrix) -> None:
    table = coefficients(matrix).to_yuv
    if _is_triple(source.format):
        columns = ["RGB".index(letter) for letter in source.format.order]
        pixels = _multiplied(source.planes[0], np.ascontiguousarray(table[:, [*columns, 3]]))
    else:
        pixels = _multiplied(np.ascontiguousarray(rgb_of(source)), table)
    if target.format.layout == "semi-planar" and (target.format.across, target.format.down) in ((1, 1), (2, 2)):
        split(pixels, target, 1, 1)
    else:
        luma, u, v = np.moveaxis(pixels, -1, 0)
        store_yuv(luma, u, v, target)


def _multiplied(pixels: Samples, table: NDArray[np.int32]) -> Samples:
    result = np.empty(pixels.shape, np.uint8)
    multiply(pixels, result, table)
    return result


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
    luma, *chroma = yuv_planes(source)
    pixels = np.empty((*luma.shape, 3), np.uint8)
    pixels[..., 0] = luma
    across, down = source.format.across, source.format.down
    for number, plane in enumerate(chroma, 1):
        for y in range(down):
            for x in range(across):
                part = pixels[y::down, x::across, number]
                part[:] = plane[: part.shape[0], : part.shape[1]]
    return pixels


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


def to_yuv(pixels: Samples, matrix: ColourMatrix) -> Samples:
    """[rows, columns, R G B] as [rows, columns, Y U V]."""
    return _multiplied(np.ascontiguousarray(pixels), coefficients(matrix).to_yuv)


def to_rgb(pixels: Samples, matrix: ColourMatrix) -> Samples:
    """[rows, columns, Y U V] as [rows, columns, R G B]."""
    return _multiplied(np.ascontiguousarray(pixels), coefficients(matrix).to_rgb)
