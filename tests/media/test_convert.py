"""Colours against formulas in float64, and every format to every other."""

from __future__ import annotations

import numpy as np
import pytest

from anycann.media.convert import Matrix, convert, full_yuv, rgb_of, to_rgb, to_yuv
from anycann.media.formats import FORMATS
from anycann.support.errors import UnsupportedError, UsageError
from tests.media.pictures import GUARD, poisoned, random_picture

WEIGHTS = {0: (0.299, 0.587, 0.114), 1: (0.2126, 0.7152, 0.0722), 2: (0.2627, 0.678, 0.0593)}


@pytest.mark.parametrize("matrix", Matrix)
def test_yuv_is_what_the_standard_says(matrix: Matrix) -> None:
    rgb = np.random.default_rng().integers(0, 256, (17, 29, 3), dtype=np.uint8)
    red, green, blue = WEIGHTS[matrix // 2]
    r, g, b = np.moveaxis(rgb.astype(float), -1, 0)
    y = red * r + green * g + blue * b
    u, v = (b - y) / (2 * (1 - blue)), (r - y) / (2 * (1 - red))
    if matrix % 2:
        expected = np.stack([16 + y * 219 / 255, 128 + u * 224 / 255, 128 + v * 224 / 255], -1)
    else:
        expected = np.stack([y, u + 128, v + 128], -1)
    assert np.abs(to_yuv(rgb, matrix) - expected.clip(0, 255)).max() <= 1
    assert np.abs(to_rgb(to_yuv(rgb, matrix), matrix).astype(int) - rgb).max() <= 4


@pytest.mark.parametrize("matrix", Matrix)
def test_every_yuv_has_its_rgb(matrix: Matrix) -> None:
    yuv = np.random.default_rng().integers(0, 256, (19, 37, 3), dtype=np.uint8)
    red, green, blue = WEIGHTS[matrix // 2]
    y, u, v = np.moveaxis(yuv.astype(float), -1, 0)
    y, u, v = ((y - 16) * 255 / 219, (u - 128) * 255 / 224, (v - 128) * 255 / 224) if matrix % 2 else (y, u - 128, v - 128)
    r, b = y + 2 * (1 - red) * v, y + 2 * (1 - blue) * u
    expected = np.stack([r, (y - red * r - blue * b) / green, b], -1).clip(0, 255)
    assert np.abs(to_rgb(yuv, matrix) - expected).max() <= 1


@pytest.mark.parametrize("number", FORMATS)
@pytest.mark.parametrize("other", FORMATS)
def test_every_format_becomes_every_other(number: int, other: int) -> None:
    source, target = random_picture(number, 13, 9, 1, (3, 2)), poisoned(other, 13, 9, (2, 4))
    convert(source.view(), target.view())
    back = poisoned(number, 13, 9)
    convert(target.view(), back.view())
    if number == other or (not FORMATS[number].is_rgb and _richer(other, number)):
        before, after = source.view().planes, back.view().planes
        assert all(_alike(one, two, FORMATS[number].layout) for one, two in zip(before, after, strict=True))
    rows = np.ndarray((9, target.width_stride), np.uint8, target.data.data, 0, (target.width_stride, 1))
    used = target.format.row_bytes(14)
    assert (rows[:, used:] == GUARD).all()


def _richer(number: int, other: int) -> bool:
    """Format `number` keeps all that YUV format `other` has."""
    rich, poor = FORMATS[number], FORMATS[other]
    return not rich.is_rgb and rich.layout != "gray" and rich.across <= poor.across and rich.down <= poor.down


def _alike(one: np.ndarray, other: np.ndarray, layout: str) -> bool:
    if layout == "packed 422":  # 13 is odd: the second pixel of the last group is not of the picture
        one, other = one[:, :-1], other[:, :-1]
    return bool((one == other).all())


def test_a_known_pixel() -> None:
    red = random_picture(12, 2, 2)
    red.view().planes[0][:] = (255, 0, 0)
    nv21 = poisoned(2, 2, 2)
    convert(red.view(), nv21.view())
    assert nv21.data.tolist() == [76] * 4 + [255, 85]
    assert rgb_of(red.view())[0, 0].tolist() == [255, 0, 0]
    assert full_yuv(nv21.view())[1, 1].tolist() == [76, 85, 255]


def test_an_alpha_is_filled() -> None:
    target = poisoned(17, 3, 2)
    convert(random_picture(12, 3, 2).view(), target.view())
    assert (target.view().planes[0][..., 3] == 255).all()


def test_wrong_pictures_are_named() -> None:
    from anycann.media.formats import pixel_format
    from anycann.media.picture import Picture

    with pytest.raises(UnsupportedError, match=r"pixel format 18 .* accepted: 0 "):
        pixel_format(18)
    with pytest.raises(UsageError, match="100 bytes for RGB888 with strides 30 x 10; accepted: at least 300"):
        Picture(FORMATS[12], 10, 10, 30, 10, np.zeros(100, np.uint8))
    with pytest.raises(UsageError, match=r"strides 20 x 10 .* accepted: at least 30 x 10"):
        Picture(FORMATS[12], 10, 10, 20, 10, np.zeros(300, np.uint8))
