"""JPEG files of a camera that was held another way: pictures come upright, as DVPP turns them."""

from __future__ import annotations

import io
import struct

import numpy as np
from PIL import Image, ImageOps
import pytest
import simplejpeg

from anycann.media import jpeg
from anycann.media.formats import FORMATS
from anycann.media.jpeg_header import read_jpeg
from tests.media.pictures import poisoned, smooth


def taken(orientation: int, size: tuple[int, int] = (96, 64), kind: str = "4:2:0") -> bytes:
    """A file that says how the camera was held."""
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(smooth(*size)).save(file, "JPEG", quality=90, exif=exif, subsampling=kind)
    return file.getvalue()


def upright(plane: np.ndarray, orientation: int) -> np.ndarray:
    """A plane as Pillow turns it."""
    image = Image.fromarray(plane)
    image.getexif()[0x0112] = orientation
    return np.asarray(ImageOps.exif_transpose(image))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(
    ("kind", "size"), [("4:2:0", (96, 64)), ("4:4:4", (97, 65)), ("4:2:2", (96, 64)), ("4:2:0", (40, 56)), ("4:2:0", (41, 55))]
)
def test_pictures_come_upright(orientation: int, kind: str, size: tuple[int, int]) -> None:
    data = taken(orientation, size, kind)
    file, stored = read_jpeg(data), simplejpeg.decode_jpeg(read_jpeg(data).with_components_as_stored(), "RGB", fastupsample=True)
    shown = file.header.shown
    assert (shown.width, shown.height) == (size if orientation < 5 else size[::-1])
    for number in jpeg.OUTPUTS[shown.subsampling]:
        target = poisoned(number, shown.width, shown.height, (40, 6))
        jpeg.decode(file, target)
        luma, chroma = target.view().planes
        assert (luma[..., 0] == upright(stored[..., 0], orientation)).all()
        form = FORMATS[number]
        if shown.subsampling != "420" and (form.across, form.down) == (2, 2):
            continue  # means, which the tests of what is stored look at
        for place, component in enumerate((1, 2) if form.order == "YUV" else (2, 1)):
            assert (chroma[..., place] == upright(stored[..., component], orientation)[:: form.down, :: form.across]).all()


def test_gray_pictures_come_upright() -> None:
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(smooth(64, 48)[..., 0]).save(file, "JPEG", exif=exif)
    target = poisoned(1, 48, 64)
    jpeg.decode(read_jpeg(file.getvalue()), target)
    luma, chroma = target.view().planes
    assert (luma[..., 0] == upright(simplejpeg.decode_jpeg(file.getvalue(), "GRAY")[..., 0], 6)).all()
    assert (chroma == 128).all()


def exif(order: str, tag: int = 0x0112, kind: int = 3, value: int = 6, entries: int = 1, at: int = 8) -> bytes:
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", at)
    return b"Exif\0\0" + head + struct.pack(f"{order}HHHIHH", entries, tag, kind, 1, value, 0)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (exif("<"), 6), (exif(">"), 6), (exif("<", tag=0x0113), 1), (exif("<", value=0), 1), (exif(">", value=9), 1),
        (exif("<", at=1 << 30), 1), (exif("<", entries=60000, tag=1), 1), (exif("<")[:-9], 1), (b"Exif\0\0XX*\0" + bytes(30), 1),
        (b"Exif\0\0", 1), (exif("<", kind=2), 1),
    ],
)  # fmt: skip
def test_what_cannot_be_read_of_the_camera_turns_nothing(body: bytes, expected: int) -> None:
    whole = simplejpeg.encode_jpeg(smooth(64, 48))
    data = whole[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + whole[2:]
    assert read_jpeg(data).header.orientation == expected
