"""himpi: JPEG files with tables of the program's own, read from the files themselves, and decoded by libjpeg-turbo."""

from __future__ import annotations

import io
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
import pytest
import simplejpeg

from anycann.media.formats import FORMATS
from anycann.media.jpeg import encode
from anycann.media.jpeg_encoder import Huffman, Tables, encode_planes, tables_of
from anycann.media.picture import Picture
from tests.acl.himpi_calls import gray_nv12, memory
from tests.acl.test_himpi_venc import FOREVER, H264, ILLEGAL, JPEG, UNEXIST, VENC, attributes, fetched, frame
from tests.media.pictures import smooth

OWN = 0xFFFFFFFF


def segments(data: bytes) -> list[tuple[int, bytes]]:
    """Codes and bodies, up to the scan."""
    found, at = [], 2
    while data[at + 1] != 0xDA:
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        found.append((data[at + 1], data[at + 4 : at + 2 + length]))
        at += 2 + length
    return found


def coded(mpi: ModuleType) -> tuple[bytes, NDArray[np.uint8]]:
    """A file of a smooth picture, and its Y."""
    content = gray_nv12(128, 128)
    content[: 128 * 128] = smooth(128, 128, samples=1).ravel()
    ptr, _ = memory(mpi, content)
    assert mpi.venc_send_frame(0, frame(ptr), 0) == 0
    data, _ = fetched(mpi, 0)
    assert mpi.dvpp_free(ptr) == 0
    return data, content[: 128 * 128].reshape(128, 128)


@pytest.fixture
def channel(mpi: ModuleType) -> ModuleType:
    assert mpi.venc_create_chn(0, attributes(JPEG)) == 0
    assert mpi.venc_start_chn(0, FOREVER) == 0
    return mpi


def test_files_have_the_steps_that_were_given(channel: ModuleType) -> None:
    given, _ = channel.venc_get_jpeg_param(0)
    rng = np.random.default_rng()
    own = {name: rng.integers(1, 40, 64).tolist() for name in ("y_qt", "cb_qt", "cr_qt")}
    assert channel.venc_set_jpeg_param(0, {**given, "qfactor": OWN, **own}) == 0
    assert channel.venc_get_jpeg_param(0)[0]["y_qt"] == own["y_qt"]
    data, luma = coded(channel)
    image = Image.open(io.BytesIO(data))
    assert [image.quantization[n] for n in range(3)] == [own[name] for name in ("y_qt", "cb_qt", "cr_qt")]  # Pillow has them row by row
    assert np.abs(simplejpeg.decode_jpeg(data, "GRAY")[..., 0].astype(int) - luma).max() <= 40 * 8 / 2  # half a step of 64 coefficients
    assert channel.venc_set_jpeg_param(0, {**given, "qfactor": OWN, **{name: [1] * 64 for name in own}}) == 0
    data, luma = coded(channel)
    assert np.abs(simplejpeg.decode_jpeg(data, "GRAY")[..., 0].astype(int) - luma).max() <= 2
    assert channel.venc_set_jpeg_param(0, {**given, "qfactor": 60}) == 0
    assert coded(channel)[0] == encode(nv12(luma), 60)  # by libjpeg-turbo again


def nv12(luma: NDArray[np.uint8]) -> Picture:
    height, width = luma.shape
    content = gray_nv12(width, height)
    content[: luma.size] = luma.ravel()
    return Picture(FORMATS[1], width, height, width, height, content)


def test_files_have_the_codes_that_were_given(channel: ModuleType) -> None:
    usual, ret = channel.venc_get_jpeg_huffman_param(0)
    assert (ret, len(usual["dc_tables"]), len(usual["ac_tables"][0]["ac_value"])) == (0, 3, 162)
    before = coded(channel)[0]
    swapped = {"dc_tables": usual["dc_tables"][::-1], "ac_tables": usual["ac_tables"][::-1], "reserved": [0, 0]}
    swapped["dc_tables"][1] = swapped["dc_tables"][2] = usual["dc_tables"][0]
    swapped["ac_tables"][1] = swapped["ac_tables"][2] = usual["ac_tables"][0]
    assert channel.venc_set_jpeg_huffman_param(0, swapped) == 0
    assert channel.venc_get_jpeg_huffman_param(0) == (swapped, 0)
    data, luma = coded(channel)
    tables = {body[0]: body[1:] for code, body in segments(data) if code == 0xC4}
    assert tables[0] == bytes(usual["dc_tables"][1]["dc_bits"] + usual["dc_tables"][1]["dc_value"])
    assert tables[0x11] == bytes(usual["ac_tables"][0]["ac_bits"] + usual["ac_tables"][0]["ac_value"])
    one, other = (simplejpeg.decode_jpeg(each, "GRAY")[..., 0].astype(int) for each in (data, before))
    assert np.abs(one - other).max() <= 2
    assert np.abs(one - luma).max() <= 2


def test_tables_that_are_alike_are_written_once(channel: ModuleType) -> None:
    given, _ = channel.venc_get_jpeg_param(0)
    usual, _ = channel.venc_get_jpeg_huffman_param(0)
    assert channel.venc_set_jpeg_param(0, {**given, "qfactor": OWN, **{name: [7] * 64 for name in ("y_qt", "cb_qt", "cr_qt")}}) == 0
    alike = {"dc_tables": [usual["dc_tables"][0]] * 3, "ac_tables": [usual["ac_tables"][0]] * 3}
    assert channel.venc_set_jpeg_huffman_param(0, alike) == 0
    counts, pictures = [], []
    for enable in (0, 1):
        assert channel.venc_compact_jpeg_tables(0, 0, enable) == 0
        data, _ = coded(channel)
        codes = [code for code, _ in segments(data)]
        counts.append((codes.count(0xDB), codes.count(0xC4)))
        pictures.append(simplejpeg.decode_jpeg(data, "RGB"))
    assert counts == [(3, 4), (1, 2)]
    assert (pictures[0] == pictures[1]).all()


def test_wrong_tables_have_the_codes_of_venc(acl: ModuleType, channel: ModuleType) -> None:
    given, _ = channel.venc_get_jpeg_param(0)
    usual, _ = channel.venc_get_jpeg_huffman_param(0)
    wrong_steps: tuple[Any, ...] = ([0] * 64, [256] * 64, [1] * 63, 5, ["1"] * 64)
    for steps in wrong_steps:
        assert channel.venc_set_jpeg_param(0, {**given, "qfactor": OWN, "cb_qt": steps}) == VENC + ILLEGAL
    assert "cb_qt is" in acl.get_recent_err_msg()
    assert channel.venc_set_jpeg_param(0, {**given, "qfactor": 101}) == VENC + ILLEGAL
    luma, chroma = usual["dc_tables"][0], usual["dc_tables"][1]
    few = {"dc_bits": [0, 1] + [0] * 14, "dc_value": [0] * 12}
    crowded = {**luma, "dc_bits": [3, 9] + [0] * 14}
    wrong: tuple[Any, ...] = ([luma] * 2, [luma, luma, chroma], [few] * 3, [crowded] * 3, [{}] * 3, [5] * 3, {"dc_bits": []})
    for tables in wrong:
        assert channel.venc_set_jpeg_huffman_param(0, {**usual, "dc_tables": tables}) == VENC + ILLEGAL, tables
    assert channel.venc_get_jpeg_huffman_param(0) == (usual, 0)
    assert [channel.venc_compact_jpeg_tables(0, *setting) for setting in ((1, 1), (0, 2))] == [VENC + ILLEGAL] * 2
    assert channel.venc_create_chn(1, attributes(H264)) == 0
    for answer in (
        channel.venc_compact_jpeg_tables(1, 0, 1), channel.venc_set_jpeg_huffman_param(1, usual), channel.venc_set_jpeg_param(1, given),
        channel.venc_get_jpeg_huffman_param(1)[1],
    ):  # fmt: skip
        assert answer == VENC + ILLEGAL
    assert channel.venc_compact_jpeg_tables(9, 0, 1) == VENC + UNEXIST
    assert channel.venc_get_jpeg_huffman_param(9) == ({}, VENC + UNEXIST)


@pytest.mark.parametrize(
    ("steps", "size"),
    [((1, 1), (1, 1)), ((2, 2), (61, 43)), ((2, 1), (33, 8)), ((2, 2), (16, 16)), ((1, 2), (40, 24)), ((2, 2), (1100, 1000))],
)
@pytest.mark.parametrize("quality", [10, 75, 100])
def test_a_file_is_as_near_to_its_picture_as_that_of_libjpeg(steps: tuple[int, int], size: tuple[int, int], quality: int) -> None:
    rng = np.random.default_rng()
    width, height = size
    chroma = (-(-height // steps[1]), -(-width // steps[0]))
    planes = [rng.integers(0, 256, shape, np.uint8) for shape in ((height, width), chroma, chroma)]
    ours = encode_planes(planes, steps, tables_of(quality))
    theirs = simplejpeg.encode_jpeg_yuv_planes(*planes, quality) if steps != (1, 2) else None
    found = simplejpeg.decode_jpeg(ours, "GRAY")[..., 0].astype(float)
    assert found.shape == (height, width)
    error = np.square(found - planes[0]).mean()
    if theirs is not None:
        other = np.square(simplejpeg.decode_jpeg(theirs, "GRAY")[..., 0].astype(float) - planes[0]).mean()
        assert error <= 1.05 * other + 2
    assert Image.open(io.BytesIO(ours)).convert("RGB").size == size


def test_long_runs_of_zeros_and_the_last_coefficient_are_coded() -> None:
    """Blocks whose only coefficients are far apart, and the last one of all, come back exactly."""
    basis = np.zeros((8, 8))
    basis[7, 7], basis[3, 3], basis[0, 0] = 300, -120, 64
    cosines = np.array([[np.cos(np.pi * (2 * x + 1) * u / 16) * np.sqrt((1 if u == 0 else 2) / 8) for x in range(8)] for u in range(8)])
    block = np.clip(np.rint(cosines.T @ basis @ cosines + 128), 0, 255).astype(np.uint8)
    plane = np.tile(block, (2, 3))
    data = encode_planes([plane], (1, 1), tables_of(100))
    assert np.abs(simplejpeg.decode_jpeg(data, "GRAY")[..., 0].astype(int) - plane).max() <= 1


def test_a_table_without_a_code_that_may_be_needed_is_refused() -> None:
    usual = tables_of(50)
    assert isinstance(usual, Tables)
    with pytest.raises(Exception, match=r"lacks \[11\]"):
        Huffman(bytes([0, 0, 0, 11]) + bytes(12), bytes(range(11))).check(for_differences=True)
    usual.coefficients[0].check(for_differences=False)
