from __future__ import annotations

import io

import numpy as np
from PIL import Image
import pytest

from anycann.media import png
from anycann.media.formats import FORMATS
from anycann.support.errors import UnsupportedError, UsageError
from tests.media.pictures import poisoned, smooth


def coded(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("samples", [1, 2, 3, 4])
def test_pixels_are_those_of_the_file(samples: int) -> None:
    pixels = smooth(47, 33, samples=samples)
    data = coded(pixels[..., 0] if samples == 1 else pixels)
    target = poisoned(16, 47, 33, (1, 1))
    png.decode(data, target)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))
    assert (target.view().planes[0] == expected).all()
    assert png.read_header(data).components == samples


def test_sixteen_bits_are_cut() -> None:
    wide = (smooth(40, 30, samples=1)[..., 0].astype(np.uint16) << 8) + 200
    target = poisoned(12, 40, 30)
    png.decode(coded(wide), target)
    assert (target.view().planes[0] == (wide >> 8)[..., None]).all()


def test_damage_is_named() -> None:
    data = coded(smooth(47, 33))
    for cut in (0, 5, 20, 40, len(data) // 2):
        with pytest.raises(UsageError):
            png.decode(data[:cut], poisoned(12, 47, 33))
    with pytest.raises(UsageError, match="47 x 33 pixels; the target 10 x 10"):
        png.decode(data, poisoned(12, 10, 10))
    interlaced = bytearray(data)
    interlaced[28] = 1
    with pytest.raises(UnsupportedError, match="interlaced"):
        png.decode(bytes(interlaced), poisoned(12, 47, 33))
    with pytest.raises(UnsupportedError, match=r"accepted: 12 .*, 16"):
        png.read_header(data).output_format(1)
    assert png.read_header(data).output_format(10000) is FORMATS[12]
