"""JPEG pictures by native code of ours: every sample is what libjpeg-turbo says, whatever the file, and damage is told."""

from __future__ import annotations

import ctypes
from dataclasses import replace
import io

import numpy as np
from PIL import Image
import pytest
import simplejpeg

from anycann.codegen.objects import emit_object
from anycann.media import jpeg_planes
from anycann.media.formats import FORMATS
from anycann.media.idct import Transform
from anycann.media.jpeg_coding import huffman_table
from anycann.media.jpeg_header import read_jpeg
from anycann.media.jpeg_planes import decode_planes
from anycann.media.picture import Picture
from anycann.media.scratch import Scratch
from anycann.runtime.loader import LoadedCode
from anycann.runtime.memory import address
from anycann.target.target import host
from tests.media.pictures import GUARD, poisoned, smooth

OWN_FORMATS = {"420": (1, 2), "422": (3, 4), "444": (5, 6), "440": (1000, 1001)}
SIZES = [(64, 48), (97, 75), (33, 32), (8, 8), (1, 1), (250, 17)]


def noise(width: int, height: int, samples: int = 3) -> np.ndarray:
    return np.random.default_rng().integers(0, 256, (height, width, samples), dtype=np.uint8)


def assert_as_libjpeg_turbo(data: bytes, number: int, spare: tuple[int, int] = (0, 0)) -> None:
    """All planes, and that nothing behind the memory was written."""
    file = read_jpeg(data)
    across, down = FORMATS[number].across, FORMATS[number].down
    target = poisoned(number, file.header.width, file.header.height, spare)
    guarded = np.full(target.data.size + 64, GUARD, np.uint8)
    target = Picture(target.format, target.width, target.height, target.width_stride, target.height_stride, guarded[:-64])
    assert decode_planes(file, target, Scratch())
    stored = simplejpeg.decode_jpeg(file.with_components_as_stored(), "RGB", fastupsample=True)
    luma, chroma = target.view().planes
    assert (luma[..., 0] == stored[..., 0]).all()
    expected = stored[::down, ::across, 1:]
    assert (chroma == (expected if target.format.order == "YUV" else expected[..., ::-1])).all()
    assert (guarded[-64:] == GUARD).all()


@pytest.mark.parametrize("kind", OWN_FORMATS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("spare", [(0, 0), (40, 30)])
def test_samples_are_those_of_libjpeg_turbo(kind: str, size: tuple[int, int], spare: tuple[int, int]) -> None:
    for quality, pixels in ((90, smooth(*size)), (3, noise(*size)), (100, noise(*size))):
        data = simplejpeg.encode_jpeg(pixels, quality=quality, colorsubsampling=kind)
        for number in OWN_FORMATS[kind]:
            assert_as_libjpeg_turbo(data, number, spare)


def test_a_chunk_may_be_a_row_of_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jpeg_planes, "_CHUNK_BYTES", 1)
    test_richer_chroma_is_halved_where_it_is_made("444", (97, 75), (0, 0))
    assert_as_libjpeg_turbo(simplejpeg.encode_jpeg(noise(97, 75), quality=80, colorsubsampling="420"), 1)


@pytest.mark.parametrize("options", [{"optimize": True}, {"restart_marker_blocks": 3}, {"restart_marker_rows": 1, "optimize": True}])
def test_own_tables_and_restarts(options: dict[str, object]) -> None:
    for pixels in (smooth(200, 130), noise(75, 49)):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=70, **options)
        assert_as_libjpeg_turbo(file.getvalue(), 1)


def test_gray() -> None:
    pixels = noise(75, 49, 1)
    data = simplejpeg.encode_jpeg(pixels, quality=70, colorspace="GRAY", colorsubsampling="Gray")
    for number in (0, 1):
        target = poisoned(number, 75, 49)
        assert decode_planes(read_jpeg(data), target, Scratch())
        assert (target.view().planes[0] == simplejpeg.decode_jpeg(data, "GRAY")).all()


@pytest.mark.parametrize("kind", ["422", "444", "440"])
@pytest.mark.parametrize("size", [*SIZES, (98, 74), (97, 74), (64, 57)])
@pytest.mark.parametrize("spare", [(0, 0), (40, 30)])
def test_richer_chroma_is_halved_where_it_is_made(kind: str, size: tuple[int, int], spare: tuple[int, int]) -> None:
    for number in (1, 2):
        file, target = read_jpeg(simplejpeg.encode_jpeg(noise(*size), 90, colorsubsampling=kind)), poisoned(number, *size, spare)
        assert decode_planes(file, target, Scratch())
        stored = simplejpeg.decode_jpeg(file.with_components_as_stored(), "RGB", fastupsample=True).astype(int)
        luma, chroma = target.view().planes
        assert (luma[..., 0] == stored[..., 0]).all()
        even = np.pad(stored, ((0, size[1] % 2), (0, size[0] % 2), (0, 0)), "edge")
        summed = sum(even[y::2, x::2, 1:] for y in (0, 1) for x in (0, 1))  # what is not halved is there twice
        assert (chroma == (summed + 2 >> 2)[..., :: 1 if number == 1 else -1]).all()


@pytest.mark.parametrize(("kind", "number"), [("411", 1), ("420", 5), ("420", 3), ("444", 7)])
def test_other_chroma_than_half_of_what_the_file_has_is_left_to_others(kind: str, number: int) -> None:
    data = simplejpeg.encode_jpeg(noise(64, 48), colorsubsampling=kind)
    assert not decode_planes(read_jpeg(data), poisoned(number, 64, 48), Scratch())


def test_data_that_end_early_are_told() -> None:
    data = bytes(simplejpeg.encode_jpeg(noise(97, 75), quality=90, colorsubsampling="420"))
    start = read_jpeg(data).segments[-1].end
    for end in range(start, len(data) - 2, 41):  # the last two bytes are the end marker
        assert not decode_planes(read_jpeg(data[:end]), poisoned(1, 97, 75), Scratch())
        assert not decode_planes(read_jpeg(data[:end] + b"\xff\xd9"), poisoned(1, 97, 75), Scratch())
    assert not decode_planes(read_jpeg(data[:-2] + b"\x00\x00\xff\xd9"), poisoned(1, 97, 75), Scratch())


def test_a_restart_that_is_missing_or_another_is_told() -> None:
    file = io.BytesIO()
    Image.fromarray(smooth(97, 75)).save(file, "JPEG", restart_marker_blocks=2)
    data, start = file.getvalue(), read_jpeg(file.getvalue()).segments[-1].end
    at = data.index(b"\xff\xd1", start)
    for wrong in (data[:at] + b"\xff\xd2" + data[at + 2 :], data[:at] + data[at + 2 :]):
        assert not decode_planes(read_jpeg(wrong), poisoned(1, 97, 75), Scratch())


def test_damage_never_reaches_beyond_the_target() -> None:
    """What was damaged without being noticed is decoded as libjpeg-turbo does: the same samples."""
    random = np.random.default_rng()
    whole = bytes(simplejpeg.encode_jpeg(smooth(97, 75), quality=60, colorsubsampling="420"))
    start = read_jpeg(whole).segments[-1].end
    decoded = 0
    for _ in range(300):
        damaged = bytearray(whole)
        for place in random.integers(start, len(whole), 2):
            damaged[place] = random.integers(0, 256)
        target = poisoned(1, 97, 75)
        if decode_planes(read_jpeg(bytes(damaged)), target, Scratch()):
            stored = simplejpeg.decode_jpeg(read_jpeg(bytes(damaged)).with_components_as_stored(), "RGB", fastupsample=True)
            assert (target.view().planes[0][..., 0] == stored[..., 0]).all()
            decoded += 1
    assert decoded


def test_tables_that_cannot_be_are_refused() -> None:
    assert huffman_table(bytes([3] + [0] * 15), bytes(3), True) is None  # three codes of one bit
    assert huffman_table(bytes([2] + [0] * 15), bytes(2), True) is None  # the code of ones alone is none
    assert huffman_table(bytes([1] + [0] * 15), b"\x10", True) is None  # a difference has at most 15 bits
    assert huffman_table(bytes([0, 1] + [0] * 14), b"\x05", False) is not None


@pytest.mark.parametrize("paired", [False, True])
def test_processors_without_instructions_of_x86_compute_the_same(paired: bool) -> None:
    target = host()
    blocks = np.random.default_rng().integers(-400, 400, (4, 64)).astype(np.int16)
    pictures = []
    for wanted in (target, replace(target, triple="aarch64-unknown-linux-gnu")):
        symbol, text = Transform(paired).ir(wanted)
        assert ("llvm.x86" in text) == wanted.is_x86
        code = LoadedCode({symbol: emit_object(text, target)}, target)
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(code.address(symbol))
        units, per_unit = (2, 2) if paired else (4, 1)
        samples = np.full((8, 8 * 4), GUARD, np.uint8)
        words = np.array([address(blocks), address(samples), 32, units, per_unit, 0, 1, 0, 1], np.int64)
        function(address(words), 0, 1, None)
        pictures.append(samples)
    assert (pictures[0] == pictures[1]).all()
    assert len(np.unique(pictures[0])) > 50
