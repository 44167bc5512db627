"""Descriptions, channels, JPEG, PNG and VPC as a program calls them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
import io
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from PIL import Image
import pytest
import simplejpeg

from tests.media.pictures import smooth

INVALID, UNSUPPORTED_JPEG = 100000, 148052


@dataclass
class Dvpp:
    """What a program has at hand: a channel and a stream."""

    acl: ModuleType
    channel: int
    stream: int

    @property
    def media(self) -> ModuleType:
        return self.acl.media

    def memory(self, nbytes: int, content: bytes | NDArray[np.uint8] | None = None) -> int:
        ptr, ret = self.media.dvpp_malloc(nbytes)
        assert ret == 0
        if content is not None:
            data = np.frombuffer(content, np.uint8) if isinstance(content, bytes) else content
            assert self.acl.rt.memcpy(ptr, nbytes, data.ctypes.data, data.nbytes, 1) == 0
        return int(ptr)

    def picture(self, width: int, height: int, stride: int, rows: int, form: int = 1, content: NDArray[np.uint8] | None = None) -> int:
        size = {12: 2, 13: 2}.get(form, 3) * stride * rows // 2
        pic = self.media.dvpp_create_pic_desc()
        data = self.memory(size, content)
        for name, number in (
            ("data", data), ("size", size), ("format", form), ("width", width), ("height", height), ("width_stride", stride),
            ("height_stride", rows),
        ):  # fmt: skip
            assert getattr(self.media, f"dvpp_set_pic_desc_{name}")(pic, number) == 0
            assert getattr(self.media, f"dvpp_get_pic_desc_{name}")(pic) == number
        return int(pic)

    def bytes_of(self, pic: int) -> NDArray[np.uint8]:
        size = self.media.dvpp_get_pic_desc_size(pic)
        back = np.empty(size, np.uint8)
        assert self.acl.rt.memcpy(back.ctypes.data, size, self.media.dvpp_get_pic_desc_data(pic), size, 2) == 0
        return back

    def done(self) -> int:
        return int(self.acl.rt.synchronize_stream(self.stream))

    def said(self) -> str:
        return str(self.acl.get_recent_err_msg())


@pytest.fixture
def dvpp(acl: ModuleType) -> Dvpp:
    stream, _ = acl.rt.create_stream()
    channel = acl.media.dvpp_create_channel_desc()
    assert acl.media.dvpp_create_channel(channel) == 0
    return Dvpp(acl, channel, stream)


def jpeg_file(width: int = 200, height: int = 120, kind: str = "420") -> bytes:
    return bytes(simplejpeg.encode_jpeg(smooth(width, height), quality=90, colorsubsampling=kind))


def address(data: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


# ---- descriptions
def test_a_stream_description_keeps_what_is_set(acl: ModuleType) -> None:
    desc = acl.media.dvpp_create_stream_desc()
    for name, number in (("data", 4096), ("size", 12), ("format", 3), ("timestamp", 1 << 40), ("ret_code", 7), ("eos", 1)):
        assert getattr(acl.media, f"dvpp_set_stream_desc_{name}")(desc, number) == 0
        assert getattr(acl.media, f"dvpp_get_stream_desc_{name}")(desc) == number
    assert acl.media.dvpp_set_stream_desc_format(desc, 4) == INVALID
    assert "accepted: 0 (H.265 main), 1" in acl.get_recent_err_msg()
    assert acl.media.dvpp_destroy_stream_desc(desc) == 0
    assert acl.media.dvpp_destroy_stream_desc(desc) == INVALID
    assert acl.media.dvpp_set_pic_desc_width(desc, 3) == INVALID
    assert "accepted: a picture description" in acl.get_recent_err_msg()


def test_a_batch_has_descriptions_of_its_own(acl: ModuleType) -> None:
    batch = acl.media.dvpp_create_batch_pic_desc(2)
    pictures = [acl.media.dvpp_get_pic_desc(batch, index) for index in range(2)]
    assert acl.media.dvpp_set_pic_desc_width(pictures[1], 64) == 0
    assert acl.media.dvpp_get_pic_desc(batch, 2) == 0
    assert "0 to 1" in acl.get_recent_err_msg()
    assert acl.media.dvpp_destroy_batch_pic_desc(batch) == 0
    assert acl.media.dvpp_set_pic_desc_width(pictures[1], 64) == INVALID
    assert acl.media.dvpp_create_batch_pic_desc(0) == 0


def test_configurations_say_what_they_accept(acl: ModuleType) -> None:
    resize, jpege = acl.media.dvpp_create_resize_config(), acl.media.dvpp_create_jpege_config()
    assert acl.media.dvpp_set_resize_config_interpolation(resize, 2) == 0
    assert acl.media.dvpp_get_resize_config_interpolation(resize) == 2
    assert acl.media.dvpp_set_resize_config_interpolation(resize, 3) == INVALID
    assert "Ascend310P3 accepts 0, 1, 2" in acl.get_recent_err_msg()
    assert acl.media.dvpp_set_jpege_config_level(jpege, 101) == INVALID
    assert acl.media.dvpp_set_jpege_config_level(jpege, 30) == 0
    assert acl.media.dvpp_get_jpege_config_level(jpege) == 30
    roi = acl.media.dvpp_create_roi_config(0, 3, 0, 5)
    assert acl.media.dvpp_set_roi_config(roi, 2, 1, 0, 5) == INVALID
    assert acl.media.dvpp_set_roi_config_left(roi, 2) == 0
    assert acl.media.dvpp_create_roi_config(4, 3, 0, 5) == 0
    assert [acl.media.dvpp_destroy_roi_config(roi), acl.media.dvpp_destroy_jpege_config(jpege)] == [0, 0]
    assert acl.media.dvpp_destroy_resize_config(resize) == 0
    border = acl.media.dvpp_create_border_config()
    assert acl.media.dvpp_set_border_config_value(border, 3, 9.5) == 0
    assert acl.media.dvpp_get_border_config_value(border, 3) == 9.5
    assert acl.media.dvpp_set_border_config_border_type(border, 9) == INVALID
    assert acl.media.dvpp_destroy_border_config(border) == 0


def test_a_channel_is_for_what_it_was_made_for(dvpp: Dvpp) -> None:
    media = dvpp.media
    other = media.dvpp_create_channel_desc()
    assert media.dvpp_set_channel_desc_mode(other, 16) == INVALID
    assert media.dvpp_set_channel_desc_mode(other, 2) == 0
    pictures = [dvpp.picture(32, 32, 32, 32) for _ in range(2)]
    config = media.dvpp_create_resize_config()
    assert media.dvpp_vpc_resize_async(other, *pictures, config, dvpp.stream) == INVALID
    assert "dvpp_create_channel first" in dvpp.said()
    assert media.dvpp_create_channel(other) == 0
    assert media.dvpp_get_channel_desc_channel_id(other) != media.dvpp_get_channel_desc_channel_id(dvpp.channel)
    assert media.dvpp_vpc_resize_async(other, *pictures, config, dvpp.stream) == INVALID
    assert "created for JPEGD; this needs one for VPC" in dvpp.said()
    assert media.dvpp_set_channel_desc_param(other, 0, 3) == (other, 0)
    assert media.dvpp_get_channel_desc_param(other, 0) == (4, 3, 0)
    assert media.dvpp_set_channel_desc_param(other, 0, 6)[1] == INVALID
    assert [media.dvpp_destroy_channel(other), media.dvpp_destroy_channel(other)] == [0, INVALID]


def test_memory_for_pictures_is_not_memory_of_the_host(acl: ModuleType) -> None:
    ptr, ret = acl.media.dvpp_malloc(100)
    assert ret == 0
    assert acl.rt.free_host(ptr) == 107000
    assert "accepted: an address that acl.rt.malloc_host gave" in acl.get_recent_err_msg()
    assert acl.media.dvpp_free(ptr) == 0
    assert acl.media.dvpp_free(ptr) == 107000
    assert acl.media.dvpp_malloc(0)[1] == INVALID
    assert acl.media.dvpp_malloc_with_cfg(10, 0, {})[1] == 0


# ---- JPEG
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


# ---- VPC
def gradient(width: int, height: int) -> NDArray[np.uint8]:
    y, x = np.mgrid[0:height, 0:width]
    luma = ((x + 2 * y) % 200).astype(np.uint8)
    chroma = np.stack([x[: height // 2, : width // 2] % 100, 50 + y[: height // 2, : width // 2] % 100], -1).astype(np.uint8)
    return np.concatenate([luma.ravel(), chroma.ravel()])


def test_resizing_is_by_pixel(dvpp: Dvpp) -> None:
    source = dvpp.picture(64, 48, 64, 48, content=gradient(64, 48))
    target, config = dvpp.picture(32, 24, 32, 24), dvpp.media.dvpp_create_resize_config()
    assert dvpp.media.dvpp_vpc_resize_async(dvpp.channel, source, target, config, dvpp.stream) == 0
    assert dvpp.done() == 0
    luma = gradient(64, 48)[: 64 * 48].reshape(24, 2, 32, 2).astype(int)
    assert np.abs(dvpp.bytes_of(target)[: 32 * 24].reshape(24, 32) - luma.mean((1, 3)))[:, :-1].max() <= 1
    assert dvpp.media.dvpp_get_pic_desc_ret_code(target) == 0
    dvpp.media.dvpp_set_resize_config_interpolation(config, 2)
    assert dvpp.media.dvpp_vpc_resize_async(dvpp.channel, source, target, config, dvpp.stream) == 0
    dvpp.done()
    assert (dvpp.bytes_of(target)[: 32 * 24].reshape(24, 32) == luma[:, 0, :, 0]).all()


def test_cropping_pasting_and_converting(dvpp: Dvpp) -> None:
    media, content = dvpp.media, gradient(64, 48)
    source = dvpp.picture(64, 48, 64, 48, content=content)
    plane = content[: 64 * 48].reshape(48, 64)
    crop, paste = media.dvpp_create_roi_config(8, 23, 4, 11), media.dvpp_create_roi_config(16, 31, 2, 9)
    config = media.dvpp_create_resize_config()
    small, canvas = dvpp.picture(16, 8, 16, 8), dvpp.picture(48, 16, 48, 16, content=np.zeros(48 * 24, np.uint8))
    assert media.dvpp_vpc_crop_async(dvpp.channel, source, small, crop, dvpp.stream) == 0
    assert dvpp.done() == 0
    assert (dvpp.bytes_of(small)[:128].reshape(8, 16) == plane[4:12, 8:24]).all()
    assert media.dvpp_vpc_crop_and_paste_async(dvpp.channel, source, canvas, crop, paste, dvpp.stream) == 0
    assert media.dvpp_vpc_crop_resize_paste_async(dvpp.channel, source, canvas, crop, paste, config, dvpp.stream) == 0
    assert media.dvpp_vpc_crop_resize_async(dvpp.channel, source, small, crop, config, dvpp.stream) == 0
    assert dvpp.done() == 0
    pasted = dvpp.bytes_of(canvas)[: 48 * 16].reshape(16, 48)
    assert (pasted[2:10, 16:32] == plane[4:12, 8:24]).all()
    assert pasted.astype(int).sum() == plane[4:12, 8:24].astype(int).sum()
    rgb = dvpp.picture(64, 48, 192, 48, form=12)
    assert media.dvpp_vpc_convert_color_async(dvpp.channel, source, rgb, dvpp.stream) == 0
    assert dvpp.done() == 0
    assert media.dvpp_vpc_convert_color_async(dvpp.channel, small, rgb, dvpp.stream) == INVALID
    assert "accepted: the same size" in dvpp.said()


def test_batches(dvpp: Dvpp) -> None:
    media, content = dvpp.media, gradient(64, 48)
    plane = content[: 64 * 48].reshape(48, 64)
    sources, targets = media.dvpp_create_batch_pic_desc(2), media.dvpp_create_batch_pic_desc(3)
    for batch, count, size in ((sources, 2, (64, 48)), (targets, 3, (32, 16))):
        for index in range(count):
            made, pic = dvpp.picture(*size, *size, content=content if batch == sources else None), media.dvpp_get_pic_desc(batch, index)
            for name in ("data", "size", "width", "height", "width_stride", "height_stride"):
                getattr(media, f"dvpp_set_pic_desc_{name}")(pic, getattr(media, f"dvpp_get_pic_desc_{name}")(made))
    crops = [media.dvpp_create_roi_config(2 * n, 2 * n + 31, 4 * n, 4 * n + 15) for n in range(3)]
    assert media.dvpp_vpc_batch_crop_async(dvpp.channel, sources, [1, 2], targets, crops, dvpp.stream) == (targets, 0)
    config = media.dvpp_create_resize_config()
    assert media.dvpp_vpc_batch_crop_resize_async(dvpp.channel, sources, [1, 2], targets, crops, config, dvpp.stream) == 0
    assert dvpp.done() == 0
    for n in range(3):
        cut = dvpp.bytes_of(media.dvpp_get_pic_desc(targets, n))[: 32 * 16].reshape(16, 32)
        assert (cut == plane[4 * n : 4 * n + 16, 2 * n : 2 * n + 32]).all()
    pastes = [media.dvpp_create_roi_config(16, 31, 0, 7)] * 3
    arguments = (dvpp.channel, sources, [1, 2], targets, crops, pastes)
    assert media.dvpp_vpc_batch_crop_and_paste_async(*arguments, dvpp.stream) == (targets, 0)
    assert media.dvpp_vpc_batch_crop_resize_paste_async(*arguments, config, dvpp.stream) == 0
    assert dvpp.done() == 0
    assert media.dvpp_vpc_batch_crop_async(dvpp.channel, sources, [1, 1], targets, crops, dvpp.stream) == (0, INVALID)
    assert "add up to 2, for 2 pictures and 3 regions" in dvpp.said()


def test_bad_pictures_and_regions_are_named(dvpp: Dvpp) -> None:
    media, config = dvpp.media, dvpp.media.dvpp_create_resize_config()
    source, target = dvpp.picture(64, 48, 64, 48), dvpp.picture(32, 24, 32, 24)

    def resize(**fields: int) -> str:
        other = dvpp.picture(32, 24, 32, 24)
        for name, number in fields.items():
            getattr(media, f"dvpp_set_pic_desc_{name}")(other, number)
        assert media.dvpp_vpc_resize_async(dvpp.channel, source, other, config, dvpp.stream) == INVALID
        return dvpp.said()

    assert "has 10 bytes; YUV420SP NV12 with strides 32 x 24 needs 1152" in resize(size=10)
    assert "strides 16 x 24 for 32 x 24 pixels of YUV420SP NV12; accepted: at least 32 x 24" in resize(width_stride=16)
    assert "Ascend310P3 accepts multiples of 16 x 2" in resize(width_stride=40, size=1 << 16)
    assert "address of output is null" in resize(data=0)
    assert "8 x 24 pixels; accepted: 10 x 6 to 4096" in resize(width=8)
    for roi, words in (((1, 20, 0, 9), "begins at left 1"), ((0, 64, 0, 9), "inside the 64 x 48"), ((0, 9, 3, 9), "top 3")):
        crop = media.dvpp_create_roi_config(*roi)
        assert media.dvpp_vpc_crop_async(dvpp.channel, source, target, crop, dvpp.stream) == INVALID
        assert words in dvpp.said()
    crop, paste = media.dvpp_create_roi_config(0, 15, 0, 15), media.dvpp_create_roi_config(8, 23, 0, 15)
    assert media.dvpp_vpc_crop_and_paste_async(dvpp.channel, source, target, crop, paste, dvpp.stream) == INVALID
    assert "multiples of 16" in dvpp.said()
    assert media.dvpp_vpc_resize_async(dvpp.channel, source, target, 0, dvpp.stream) == INVALID
    assert media.dvpp_vpc_resize_async(dvpp.channel, source, target, config, 77) == 107000


def test_memory_freed_before_its_turn_is_an_error_of_the_stream(dvpp: Dvpp) -> None:
    import threading

    from anycann.acl.process import PROCESS

    release = threading.Event()
    PROCESS.stream(dvpp.stream).submit(lambda: release.wait(10) and None)
    source, target = dvpp.picture(64, 48, 64, 48), dvpp.picture(32, 24, 32, 24)
    config = dvpp.media.dvpp_create_resize_config()
    assert dvpp.media.dvpp_vpc_resize_async(dvpp.channel, source, target, config, dvpp.stream) == 0
    assert dvpp.media.dvpp_free(dvpp.media.dvpp_get_pic_desc_data(target)) == 0
    release.set()
    assert dvpp.done() == INVALID
    assert "no live memory" in dvpp.said()
    assert dvpp.media.dvpp_get_pic_desc_ret_code(target) == INVALID


def test_bytes_whose_address_was_asked_for_stay_for_a_while(acl: ModuleType) -> None:
    """acllite lets go of them before it copies."""
    pointers = [acl.util.bytes_to_ptr(bytes([number]) * 200_000) for number in range(4)]
    filled = [np.full(200_000, 9, np.uint8) for _ in range(8)]
    assert len(filled) == 8
    for number, ptr in enumerate(pointers):
        back = np.empty(200_000, np.uint8)
        assert acl.rt.memcpy(back.ctypes.data, 200_000, ptr, 200_000, 0) == 0
        assert set(back) == {number}


# ---- borders, pyramids, histograms
def test_borders_and_halves(dvpp: Dvpp) -> None:
    media = dvpp.media
    source = dvpp.picture(64, 48, 64, 48, content=gradient(64, 48))
    framed, half = dvpp.picture(96, 64, 96, 64), dvpp.picture(32, 24, 32, 24)
    border = media.dvpp_create_border_config()
    for name, number in (("top", 8), ("bottom", 8), ("left", 16), ("right", 16), ("border_type", 0)):
        assert getattr(media, f"dvpp_set_border_config_{name}")(border, number) == 0
        assert getattr(media, f"dvpp_get_border_config_{name}")(border) == number
    media.dvpp_set_border_config_value(border, 0, 77)
    assert media.dvpp_vpc_make_border_async(dvpp.channel, source, framed, border, dvpp.stream) == 0
    assert media.dvpp_vpc_pyr_down_async(dvpp.channel, source, half, 0, dvpp.stream) == 0
    assert dvpp.done() == 0
    luma = dvpp.bytes_of(framed)[: 96 * 64].reshape(64, 96)
    assert (luma[8:56, 16:80] == gradient(64, 48)[: 64 * 48].reshape(48, 64)).all()
    assert set(luma[:8].ravel()) == {77}
    assert media.dvpp_vpc_make_border_async(dvpp.channel, source, half, border, dvpp.stream) == 0
    assert dvpp.done() == INVALID
    assert "with its border is 96 x 64" in dvpp.said()


def test_a_batch_is_cut_scaled_and_framed(dvpp: Dvpp) -> None:
    media = dvpp.media
    sources, targets = media.dvpp_create_batch_pic_desc(1), media.dvpp_create_batch_pic_desc(1)
    for batch, size in ((sources, (64, 48)), (targets, (64, 32))):
        made, pic = dvpp.picture(*size, *size, content=np.full(size[0] * size[1] * 3 // 2, 50, np.uint8)), media.dvpp_get_pic_desc(batch, 0)
        for name in ("data", "size", "width", "height", "width_stride", "height_stride"):
            getattr(media, f"dvpp_set_pic_desc_{name}")(pic, getattr(media, f"dvpp_get_pic_desc_{name}")(made))
    border, config = media.dvpp_create_border_config(), media.dvpp_create_resize_config()
    media.dvpp_set_border_config_left(border, 16)
    crop = media.dvpp_create_roi_config(0, 31, 0, 15)
    arguments = (dvpp.channel, sources, [1], targets, [crop])
    assert media.dvpp_vpc_batch_crop_resize_make_border_async(*arguments, [border], config, dvpp.stream) == 0
    assert dvpp.done() == 0
    luma = dvpp.bytes_of(media.dvpp_get_pic_desc(targets, 0))[: 64 * 32].reshape(32, 64)
    assert set(luma[:, :16].ravel()) == {0}
    assert set(luma[:, 16:].ravel()) == {50}
    assert media.dvpp_vpc_batch_crop_resize_make_border_async(*arguments, [], config, dvpp.stream) == INVALID


def test_histograms_and_tables(dvpp: Dvpp) -> None:
    media, content = dvpp.media, gradient(64, 48)
    source, target = dvpp.picture(64, 48, 64, 48, content=content), dvpp.picture(64, 48, 64, 48)
    hist, lut = media.dvpp_create_hist(), media.dvpp_create_lut_map()
    assert media.dvpp_vpc_calc_hist_async(dvpp.channel, source, hist, 0, dvpp.stream) == 0
    assert dvpp.done() == 0
    ptr, length, ret = media.dvpp_get_hist_data(hist, 0)
    assert (length, ret, media.dvpp_get_hist_ret_code(hist), media.dvpp_get_hist_dims(hist)) == (256, 0, 0, 3)
    assert (dvpp.acl.util.ptr_to_numpy(ptr, (256,), 6) == np.bincount(content[: 64 * 48], minlength=256)).all()
    assert media.dvpp_clear_hist(hist) == 0
    assert dvpp.acl.util.ptr_to_numpy(ptr, (256,), 6).sum() == 0
    assert media.dvpp_get_hist_data(hist, 3)[2] == INVALID
    ptr, length, ret = media.dvpp_get_lut_map_data(lut, 0)
    assert (length, ret, media.dvpp_get_lut_map_dims(lut)) == (256, 0, 3)
    dvpp.acl.util.ptr_to_numpy(ptr, (256,), 2)[:] = np.arange(255, -1, -1)
    assert media.dvpp_vpc_equalize_hist_async(dvpp.channel, source, target, lut, dvpp.stream) == 0
    assert dvpp.done() == 0
    assert (dvpp.bytes_of(target)[: 64 * 48] == 255 - content[: 64 * 48]).all()
    assert [media.dvpp_destroy_hist(hist), media.dvpp_destroy_lut_map(lut)] == [0, 0]
