"""JPEG and PNG files to pictures and back, as a program calls acl.media."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image
import pytest
import simplejpeg

from tests.acl.media_calls import INVALID, UNSUPPORTED_JPEG, Dvpp, address, jpeg_file
from tests.media.pictures import smooth
from tests.media.test_jpeg_orientation import taken, upright


def test_a_file_says_what_it_holds(dvpp: Dvpp) -> None:
    data = jpeg_file(kind="422")
    assert dvpp.media.dvpp_jpeg_get_image_info(address(data), len(data)) == (200, 120, 3, 0)
    assert dvpp.media.dvpp_jpeg_get_image_info_v2(address(data), len(data)) == (200, 120, 3, 1, 0)
    assert dvpp.media.dvpp_jpeg_predict_dec_size(address(data), len(data), 1) == (256 * 128 * 3 // 2, 0)
    assert dvpp.media.dvpp_jpeg_predict_dec_size(address(data), len(data), 10000) == (256 * 128 * 2, 0)
    assert dvpp.media.dvpp_jpeg_predict_dec_size(address(data), len(data), 12) == (0, INVALID)
    assert "accepted: 4 (YVU422SP), 3 (YUV422SP), 1 " in dvpp.said()
    assert dvpp.media.dvpp_jpeg_get_image_info(address(b"no picture"), 10) == (0, 0, 0, INVALID)
    assert dvpp.media.dvpp_jpeg_get_image_info(64, 100)[-1] == INVALID
    assert dvpp.media.dvpp_jpeg_get_image_info(0, 100)[-1] == INVALID


@pytest.mark.parametrize(("soc", "stride"), [("Ascend310P3", 256), ("Ascend310", 256), ("Ascend910B3", 256)])
def test_strides_are_those_of_the_chip(dvpp: Dvpp, soc: str, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYCANN_SOC", soc)
    data = jpeg_file(150, 120)
    wanted = {"Ascend310P3": 192, "Ascend310": 256, "Ascend910B3": 192}[soc]
    pic = dvpp.media.dvpp_create_pic_desc()
    size, _ = dvpp.media.dvpp_jpeg_predict_dec_size(address(data), len(data), 2)
    assert size == wanted * 128 * 3 // 2
    dvpp.media.dvpp_set_pic_desc_data(pic, dvpp.memory(size))
    dvpp.media.dvpp_set_pic_desc_size(pic, size)
    dvpp.media.dvpp_set_pic_desc_format(pic, 2)
    assert dvpp.media.dvpp_jpeg_decode_async(dvpp.channel, dvpp.memory(len(data), data), len(data), pic, dvpp.stream) == 0
    assert dvpp.done() == 0
    assert [getattr(dvpp.media, f"dvpp_get_pic_desc_{name}")(pic) for name in ("width", "height", "width_stride", "height_stride")] == [
        150, 120, wanted, 128,
    ]  # fmt: skip
    luma = dvpp.bytes_of(pic)[: wanted * 120].reshape(120, wanted)[:, :150]
    assert (luma == simplejpeg.decode_jpeg(data, "GRAY")[..., 0]).all()


def test_a_picture_is_turned_as_the_camera_noted_it(dvpp: Dvpp) -> None:
    data = taken(6, (200, 120))
    assert dvpp.media.dvpp_jpeg_get_image_info(address(data), len(data)) == (120, 200, 3, 0)
    assert dvpp.media.dvpp_jpeg_predict_dec_size(address(data), len(data), 1) == (128 * 208 * 3 // 2, 0)
    pic = dvpp.picture(120, 200, 128, 208)
    assert dvpp.media.dvpp_jpeg_decode_async(dvpp.channel, dvpp.memory(len(data), data), len(data), pic, dvpp.stream) == 0
    assert dvpp.done() == 0
    assert (dvpp.media.dvpp_get_pic_desc_width(pic), dvpp.media.dvpp_get_pic_desc_height(pic)) == (120, 200)
    luma = dvpp.bytes_of(pic)[: 128 * 200].reshape(200, 128)[:, :120]
    assert (luma == upright(simplejpeg.decode_jpeg(data, "GRAY")[..., 0], 6)).all()


def test_an_odd_size_is_rounded_down(dvpp: Dvpp) -> None:
    data = jpeg_file(151, 121)
    pic = dvpp.picture(151, 121, 256, 128)
    assert dvpp.media.dvpp_jpeg_decode_async(dvpp.channel, dvpp.memory(len(data), data), len(data), pic, dvpp.stream) == 0
    assert dvpp.done() == 0
    assert (dvpp.media.dvpp_get_pic_desc_width(pic), dvpp.media.dvpp_get_pic_desc_height(pic)) == (150, 120)
    assert dvpp.media.dvpp_get_pic_desc_width_stride(pic) == 256  # the program's own, for there is room


def test_bad_jpeg_data_has_its_code_and_sentence(dvpp: Dvpp) -> None:
    def decode(data: bytes, size: int = 256 * 128 * 3 // 2, length: int = 0) -> int:
        pic = dvpp.picture(200, 120, 256, 128)
        dvpp.media.dvpp_set_pic_desc_size(pic, size)
        memory = dvpp.memory(len(data), data)
        return int(dvpp.media.dvpp_jpeg_decode_async(dvpp.channel, memory, length or len(data), pic, dvpp.stream))

    good = jpeg_file()
    file = io.BytesIO()
    Image.fromarray(smooth(200, 120)).save(file, "JPEG", progressive=True)
    assert decode(file.getvalue()) == UNSUPPORTED_JPEG
    assert "progressive" in dvpp.said()
    assert decode(good[:300]) == INVALID
    assert "ends after 300 bytes" in dvpp.said()
    assert decode(good, size=100) == INVALID
    assert "has 100 bytes; the decoded picture needs 49152" in dvpp.said()
    assert decode(good, length=len(good) + 1) == INVALID
    assert "1 bytes behind the allocation" in dvpp.said()
    assert decode(jpeg_file(20, 20)) == INVALID
    assert "20 x 20 pixels; accepted: 32 to 8192" in dvpp.said()
    assert decode(good[:-400]) == 0  # the header is whole: the stream tells
    assert dvpp.done() == INVALID
    assert "cannot be decoded" in dvpp.said()


def test_a_failed_picture_says_so(dvpp: Dvpp) -> None:
    data = jpeg_file()[:-400]
    pic = dvpp.picture(200, 120, 256, 128)
    assert dvpp.media.dvpp_jpeg_decode_async(dvpp.channel, dvpp.memory(len(data), data), len(data), pic, dvpp.stream) == 0
    dvpp.done()
    assert dvpp.media.dvpp_get_pic_desc_ret_code(pic) == INVALID


def test_host_memory_is_refused(dvpp: Dvpp) -> None:
    data = jpeg_file()
    pic = dvpp.picture(200, 120, 256, 128)
    assert dvpp.media.dvpp_jpeg_decode_async(dvpp.channel, address(data), len(data), pic, dvpp.stream) == INVALID
    assert "accepted: memory of acl.media.dvpp_malloc" in dvpp.said()


def test_a_picture_is_encoded(dvpp: Dvpp) -> None:
    media, level = dvpp.media, smooth(224, 160, samples=1)[..., 0]
    content = np.full(224 * 240, 128, np.uint8)
    content[: 224 * 160] = level.ravel()
    pic = dvpp.picture(224, 160, 224, 160, content=content)
    config = media.dvpp_create_jpege_config()
    room, ret = media.dvpp_jpeg_predict_enc_size(pic, config)
    assert ret == 0
    size, memory = np.array([room], np.uint32), dvpp.memory(room)
    assert media.dvpp_jpeg_encode_async(dvpp.channel, pic, memory, size.ctypes.data, config, dvpp.stream) == 0
    assert dvpp.done() == 0
    assert 1000 < size[0] < room
    decoded = simplejpeg.decode_jpeg(dvpp.acl.util.ptr_to_bytes(memory, int(size[0])), "GRAY")[..., 0]
    assert np.abs(decoded.astype(int) - level).max() <= 3
    size[0] = 500
    assert media.dvpp_jpeg_encode_async(dvpp.channel, pic, memory, size.ctypes.data, config, dvpp.stream) == 0
    assert dvpp.done() == INVALID
    assert "there is room for 500" in dvpp.said()
    assert media.dvpp_jpeg_encode_async(dvpp.channel, pic, memory, 8, config, dvpp.stream) == INVALID
    assert media.dvpp_jpeg_predict_enc_size(media.dvpp_create_pic_desc(), config) == (0, INVALID)


def test_a_png_file_is_decoded(dvpp: Dvpp) -> None:
    file = io.BytesIO()
    pixels = smooth(50, 40)
    Image.fromarray(pixels).save(file, "PNG")
    data = file.getvalue()
    assert dvpp.media.dvpp_png_get_image_info(address(data), len(data)) == (50, 40, 3, 0)
    size, ret = dvpp.media.dvpp_png_predict_dec_size(address(data), len(data), 12)
    assert (size, ret) == (64 * 3 * 48, 0)
    pic = dvpp.media.dvpp_create_pic_desc()
    for name, number in (("data", dvpp.memory(size)), ("size", size), ("format", 12)):
        getattr(dvpp.media, f"dvpp_set_pic_desc_{name}")(pic, number)
    assert dvpp.media.dvpp_png_decode_async(dvpp.channel, dvpp.memory(len(data), data), len(data), pic, dvpp.stream) == 0
    assert dvpp.done() == 0
    assert (dvpp.bytes_of(pic).reshape(48, 64, 3)[:40, :50] == pixels).all()
    dvpp.media.dvpp_set_pic_desc_size(pic, 99)
    assert dvpp.media.dvpp_png_decode_async(dvpp.channel, dvpp.memory(len(data), data), len(data), pic, dvpp.stream) == INVALID
    assert "has 99 bytes" in dvpp.said()
