"""JPEG pictures against libjpeg-turbo itself, and damaged ones."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image
import pytest
import simplejpeg

from anycann.media import jpeg
from anycann.media.formats import FORMATS
from anycann.media.jpeg_header import read_jpeg
from anycann.support.errors import AnyCANNError, UnsupportedError, UsageError
from tests.media.pictures import poisoned, random_picture, smooth

KINDS = ("420", "422", "444", "440", "411")


def coded(width: int, height: int, kind: str = "420") -> bytes:
    return bytes(simplejpeg.encode_jpeg(smooth(width, height), quality=90, colorsubsampling=kind))


def decoded(data: bytes, number: int, spare: tuple[int, int] = (0, 0)) -> tuple[NDArray[np.uint8], ...]:
    file = read_jpeg(data)
    target = poisoned(number, file.header.width, file.header.height, spare)
    jpeg.decode(file, target)
    return target.view().planes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(64, 48), (97, 75), (33, 32)])
def test_luma_is_what_libjpeg_turbo_says(kind: str, size: tuple[int, int]) -> None:
    data = coded(*size, kind)
    assert read_jpeg(data).header.subsampling == kind
    expected = simplejpeg.decode_jpeg(data, "GRAY")[..., 0]
    for number in jpeg.OUTPUTS[kind]:
        assert (decoded(data, number, (7, 2))[0][..., 0] == expected).all()


def test_chroma_of_444_is_what_libjpeg_turbo_says() -> None:
    data = coded(97, 75, "444")
    picture = Image.open(io.BytesIO(data))
    picture.draft("YCbCr", None)
    expected = np.asarray(picture)
    assert (decoded(data, 5)[1] == expected[..., 1:]).all()
    assert (decoded(data, 6)[1] == expected[..., 2:0:-1]).all()


@pytest.mark.parametrize("kind", ["420", "422", "440"])
@pytest.mark.parametrize("size", [(64, 48), (97, 75)])
def test_chroma_is_as_it_is_stored(kind: str, size: tuple[int, int]) -> None:
    """Encoding YUV planes and decoding them again: what is read is what a flat block holds."""
    width, height = size
    form = FORMATS[jpeg.OUTPUTS[kind][0]]
    rows, columns = -(-height // form.down), -(-width // form.across)
    u, v = (np.full((rows, columns), level, np.uint8) for level in (40, 200))
    u[: 8 * (rows // 16)] = 90  # along blocks
    data = simplejpeg.encode_jpeg_yuv_planes(smooth(width, height, samples=1)[..., 0], u, v, quality=100)
    chroma = decoded(data, form.number)[1]
    assert np.abs(chroma[..., 0].astype(int) - v).max() <= 1
    assert np.abs(chroma[..., 1].astype(int) - u).max() <= 1


@pytest.mark.parametrize("kind", ["422", "444", "440"])
def test_richer_chroma_becomes_420_by_its_mean(kind: str) -> None:
    for size in ((64, 48), (97, 75)):
        data = coded(*size, kind)
        full = simplejpeg.decode_jpeg(read_jpeg(data).with_components_as_stored(), "RGB", fastupsample=True)[..., 1:].astype(int)
        padded = np.pad(full, ((0, size[1] % 2), (0, size[0] % 2), (0, 0)), "edge")
        expected = (padded[::2, ::2] + padded[1::2, ::2] + padded[::2, 1::2] + padded[1::2, 1::2] + 2) // 4
        assert (decoded(data, 1)[1] == expected).all()
        assert (decoded(data, 2)[1] == expected[..., ::-1]).all()


def test_gray_has_neutral_chroma() -> None:
    data = simplejpeg.encode_jpeg(smooth(50, 40, samples=1), colorspace="GRAY", colorsubsampling="Gray")
    luma, chroma = decoded(data, 1)
    assert (chroma == 128).all()
    assert (luma == decoded(data, 0)[0]).all()


def test_an_odd_edge_is_repeated_where_there_is_room() -> None:
    data = coded(97, 75)
    target = poisoned(1, 97, 75, (30, 4))
    jpeg.decode(read_jpeg(data), target)
    rows = target.data[: target.width_stride * 76].reshape(76, -1)
    assert (rows[75, :97] == rows[74, :97]).all()
    assert (rows[:, 97] == rows[:, 96]).all()


@pytest.mark.parametrize("number", [1, 2, 7, 10, 0])
def test_pictures_survive_encoding(number: int) -> None:
    source = random_picture(number, 64, 48)
    for plane in source.view().planes:
        plane[:] = smooth(plane.shape[1], plane.shape[0], samples=plane.shape[2]) // 2 + 60
    data = jpeg.encode(source, 100)
    assert len(data) <= jpeg.most_bytes(64, 48)
    header = read_jpeg(data).header
    assert (header.width, header.height) == (64, 48)
    expected = source.view().planes[0][..., {1: 0, 2: 0, 0: 0, 7: [0, 2], 10: [1, 3]}[number]].reshape(48, 64)
    assert np.abs(simplejpeg.decode_jpeg(data, "GRAY")[..., 0].astype(int) - expected).max() <= 3


def pillow(mode: str, **options: object) -> bytes:
    file = io.BytesIO()
    shape = {"CMYK": 4, "RGB": 3}[mode]
    Image.fromarray(smooth(64, 48, samples=shape), mode if shape == 4 else None).save(file, "JPEG", **options)
    return file.getvalue()


def with_bits(bits: int) -> bytes:
    data = bytearray(coded(64, 48))
    data[data.index(b"\xff\xc0") + 4] = bits
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda: pillow("RGB", progressive=True), "progressive .* accepted: baseline"),
        (lambda: pillow("CMYK"), "4 components"),
        (lambda: with_bits(12), "12 bits a sample; accepted: 8"),
        (lambda: pillow("RGB", keep_rgb=True), "stored as RGB"),
        (lambda: coded(64, 48).replace(b"\xff\xc0", b"\xff\xc9"), "arithmetic"),
    ],
)
def test_what_is_not_decoded_is_named(data: object, words: str) -> None:
    file = read_jpeg(data())  # type: ignore[operator]
    with pytest.raises(UnsupportedError, match=words):
        jpeg.decode(file, poisoned(1, 64, 48))


def test_no_cut_or_damage_is_more_than_an_error() -> None:
    whole = coded(97, 75)
    for length in (*range(0, 700, 7), *range(700, len(whole) - 2, 97)):
        with pytest.raises(AnyCANNError):
            jpeg.decode(read_jpeg(whole[:length]), poisoned(1, 97, 75))
    random = np.random.default_rng()
    for _ in range(300):
        damaged = bytearray(whole)
        for place in random.integers(0, len(whole), 3):
            damaged[place] = random.integers(0, 256)
        try:
            file = read_jpeg(bytes(damaged))
            jpeg.decode(file, poisoned(1, 97, 75))
        except (UsageError, UnsupportedError):
            continue


def test_a_target_of_another_size_is_refused() -> None:
    with pytest.raises(UsageError, match="97 x 75 pixels; the target 64 x 48"):
        jpeg.decode(read_jpeg(coded(97, 75)), poisoned(1, 64, 48))
