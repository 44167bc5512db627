"""himpi: channels with numbers, pictures as dicts, and the codes of each module."""

from __future__ import annotations

import ctypes
import io
from types import ModuleType
from typing import Any

import numpy as np
from PIL import Image
import pytest
import simplejpeg

from anycann.media.formats import FORMATS
from anycann.media.picture import Picture
from anycann.media.video_encoder import EncoderSettings, Slices, VideoEncoder
from tests.acl.himpi_calls import bytes_at, done, gray_nv12, memory, output, picture, stream_of
from tests.media.pictures import smooth

VPC, VDEC = 0xA0078000, 0xA0058000
ILLEGAL, EXIST, UNEXIST, NOT_SUPPORT, NOT_PERM, EMPTY, NOT_READY, TIMEOUT = 3, 4, 5, 8, 9, 0xE, 0x10, 0x14


def crop(target: dict[str, int], left: int, top: int, width: int, height: int, **more: Any) -> dict[str, Any]:
    region = {"left_offset": left, "top_offset": top, "crop_width": width, "crop_height": height}
    return {"dest_pic_info": target, "crop_region": region, **more}


def test_pictures_are_scaled_cut_pasted_and_converted(mpi: ModuleType) -> None:
    assert mpi.vpc_create_chn(0, {"attr": 0, "pic_width": 0, "pic_height": 0}) == 0
    content = gray_nv12(64, 48)
    plane = content[: 64 * 48].reshape(48, 64)
    source, small, canvas = picture(mpi, 1, 64, 48, content), picture(mpi, 1, 32, 24), picture(mpi, 1, 64, 48)
    assert done(mpi, mpi.vpc_resize(0, source, small, 0.0, 0.0, 2, 100)) == 0
    assert (bytes_at(small)[: 32 * 24].reshape(24, 32) == plane[::2, ::2]).all()
    assert done(mpi, mpi.vpc_crop(0, source, [crop(small, 8, 4, 32, 24)], 1, 100)) == 0
    assert (bytes_at(small)[: 32 * 24].reshape(24, 32) == plane[4:28, 8:40]).all()
    size = {"resize_width": 16, "resize_height": 12, "interpolation": 2}
    pasted = crop(canvas, 0, 0, 32, 24, resize_info=size, dest_top_offset=6, dest_left_offset=16)
    assert done(mpi, mpi.vpc_crop_resize_paste(0, source, [pasted], 1, 100)) == 0
    assert (bytes_at(canvas)[: 64 * 48].reshape(48, 64)[6:18, 16:32] == plane[:24:2, :32:2]).all()
    assert done(mpi, mpi.vpc_crop_resize(0, source, [crop(canvas, 0, 0, 32, 24, resize_info=size)], 1, 100)) == 0
    assert (bytes_at(canvas)[: 64 * 48].reshape(48, 64)[:12, :16] == plane[:24:2, :32:2]).all()
    rgb = picture(mpi, 12, 64, 48)
    assert done(mpi, mpi.vpc_convert_color(0, source, rgb, 100)) == 0
    assert (bytes_at(rgb).reshape(48, 64, 3) == plane[..., None]).all()
    assert done(mpi, mpi.vpc_convert_color_v2(0, source, rgb, {"alpha": 0, "attr": [0] * 4}, 100)) == 0
    rgba = {**picture(mpi, 12, 64 * 4 // 3 + 1, 48), "picture_format": 16, "picture_width": 64, "picture_width_stride": 256}
    assert done(mpi, mpi.vpc_convert_color_v2(0, source, rgba, {"alpha": 7, "attr": [0] * 4}, 100)) == 0
    assert (bytes_at(rgba)[: 48 * 256].reshape(48, 64, 4) == np.dstack([plane] * 3 + [np.full_like(plane, 7)])).all()
    assert mpi.vpc_convert_color_v2(0, source, rgba, {"alpha": 256}, 100) == (0, VPC + ILLEGAL)
    assert done(mpi, mpi.vpc_convert_color_to_yuv420(0, rgb, canvas, 100)) == 0
    assert (bytes_at(canvas) == content).all()
    framed = picture(mpi, 1, 96, 64)
    border = {"top": 8, "bottom": 8, "left": 16, "right": 16, "border_type": 0, "scalar_value": {"val": [9.0, 1.0, 2.0, 0.0]}}
    assert done(mpi, mpi.vpc_copy_make_border(0, source, framed, border, 100)) == 0
    assert bytes_at(framed)[:96].tolist() == [9] * 96
    assert mpi.vpc_destroy_chn(0) == 0


def test_wrong_calls_have_the_codes_of_vpc(acl: ModuleType, mpi: ModuleType) -> None:
    source, small = picture(mpi, 1, 64, 48), picture(mpi, 1, 32, 24)
    assert mpi.vpc_resize(0, source, small, 0.0, 0.0, 0, 100) == (0, VPC + UNEXIST)
    number, ret = mpi.vpc_sys_create_chn({})
    assert ret == 0
    assert mpi.vpc_create_chn(number, {}) == VPC + EXIST
    assert mpi.vpc_create_chn(999, {}) == VPC + 2
    assert mpi.vpc_resize(number, source, small, 0.0, 0.0, 8, 100) == (0, VPC + ILLEGAL)
    message = acl.get_recent_err_msg()
    assert "interpolation 8 is not supported" in message
    assert "HI_ERR_VPC_ILLEGAL_PARAM" in message
    assert mpi.vpc_resize(number, {**source, "picture_buffer_size": 9}, small, 0.0, 0.0, 0, 100) == (0, VPC + ILLEGAL)
    assert mpi.vpc_resize(number, {**source, "picture_address": 0}, small, 0.0, 0.0, 0, 100) == (0, VPC + ILLEGAL)
    assert mpi.vpc_resize(number, {"picture_address": 1}, small, 0.0, 0.0, 0, 100) == (0, VPC + ILLEGAL)
    assert "['picture_buffer_size'] is None" in acl.get_recent_err_msg()
    assert mpi.vpc_crop(number, source, [crop(small, 40, 0, 32, 24)], 1, 100) == (0, VPC + ILLEGAL)
    assert mpi.vpc_crop(number, source, [], 1, 100) == (0, VPC + ILLEGAL)
    assert mpi.vpc_get_process_result(number, 77, 10) == VPC + ILLEGAL
    assert mpi.vpc_set_chn_opt_attr(number, {}) == VPC + NOT_SUPPORT
    assert mpi.dvpp_free(12345) == VPC + 0x11
    mpi.sys_exit()
    assert mpi.vpc_create_chn(5, {}) == VPC + NOT_READY
    assert mpi.dvpp_get_version()[3] == 0


def test_a_task_that_waits_has_a_timeout(mpi: ModuleType) -> None:
    import threading

    from anycann.acl.himpi_vpc_channel import CHANNELS

    assert mpi.vpc_create_chn(0, {}) == 0
    release = threading.Event()
    task = CHANNELS.get(0).submit(lambda: release.wait(600) and None)
    assert mpi.vpc_get_process_result(0, task, 20) == VPC + TIMEOUT
    release.set()
    assert mpi.vpc_get_process_result(0, task, -1) == 0


def attributes(kind: int) -> dict[str, Any]:
    return {"type": kind, "mode": 0, "pic_width": 128, "pic_height": 96, "stream_buf_size": 0, "frame_buf_size": 0, "frame_buf_cnt": 0}


def test_a_jpeg_file_is_decoded(acl: ModuleType, mpi: ModuleType) -> None:
    data = bytes(simplejpeg.encode_jpeg(smooth(200, 120), quality=90, colorsubsampling="420"))
    ptr, length = memory(mpi, data)
    information, ret = mpi.dvpp_get_image_info(26, stream_of(ptr, length))
    assert ret == 0
    assert [information[key] for key in ("width", "height", "width_stride", "height_stride", "pixel_format")] == [200, 120, 256, 128, 2]
    assert mpi.vdec_get_jpegd_output_info(stream_of(ptr, length), 1)[0]["pixel_format"] == 1
    assert mpi.vdec_create_chn(1, attributes(26)) == 0
    assert mpi.vdec_send_stream(1, stream_of(ptr, length), output(mpi, 256 * 192), 100) == VDEC + NOT_PERM
    assert mpi.vdec_start_recv_stream(1) == 0
    target = output(mpi, information["img_buf_size"])
    assert mpi.vdec_send_stream(1, stream_of(ptr, length), target, 100) == 0
    frame, supplement, stream, ret = mpi.vdec_get_frame(1, 5000)
    assert ret == 0
    assert (frame["v_frame"]["frame_flag"], frame["v_frame"]["width"], frame["v_frame"]["pts"], stream["addr"]) == (0, 200, 7, ptr)
    assert supplement["type"] == 26
    luma = np.frombuffer(ctypes.string_at(frame["v_frame"]["virt_addr"][0], 256 * 120), np.uint8).reshape(120, 256)[:, :200]
    assert (luma == simplejpeg.decode_jpeg(data, "GRAY")[..., 0]).all()
    assert mpi.vdec_release_frame(1, frame) == 0
    assert mpi.vdec_send_stream(1, stream_of(ptr, length // 2), target, 100) == 0
    assert mpi.vdec_get_frame(1, 5000)[0]["v_frame"]["frame_flag"] == 1
    assert mpi.vdec_get_frame(1, 10)[3] == VDEC + EMPTY
    assert mpi.vdec_query_status(1)[0]["recv_stream_frames"] == 2
    assert mpi.vdec_reset_chn(1) == VDEC + NOT_PERM
    assert [mpi.vdec_stop_recv_stream(1), mpi.vdec_reset_chn(1), mpi.vdec_destroy_chn(1)] == [0, 0, 0]
    assert mpi.vdec_destroy_chn(1) == VDEC + UNEXIST


def test_odd_sizes_are_rounded_as_the_precision_mode_says(acl: ModuleType, mpi: ModuleType) -> None:
    data = bytes(simplejpeg.encode_jpeg(smooth(65, 47), quality=90, colorsubsampling="420"))
    ptr, length = memory(mpi, data)
    assert mpi.vdec_create_chn(1, attributes(26)) == 0
    assert mpi.vdec_start_recv_stream(1) == 0
    for mode, size in ((0, (64, 46)), (1, (66, 48)), (2, (64, 46))):
        assert mpi.vdec_set_jpegd_precision_mode(1, mode) == 0
        target = output(mpi, 128 * 48 * 3 // 2)
        assert mpi.vdec_send_stream(1, stream_of(ptr, length), target, 100) == 0
        frame = mpi.vdec_get_frame(1, 5000)[0]["v_frame"]
        assert (frame["frame_flag"], frame["width"], frame["height"]) == (0, *size)
        luma = np.frombuffer(ctypes.string_at(frame["virt_addr"][0], 128 * 48), np.uint8).reshape(48, 128)
        assert (luma[:47, :65] == simplejpeg.decode_jpeg(data, "GRAY")[..., 0]).all()
        assert (luma[:, 65] == luma[:, 64]).all()
        assert (luma[47] == luma[46]).all()
    assert mpi.vdec_set_jpegd_precision_mode(1, 3) == VDEC + ILLEGAL
    assert "accepted: 0 and 2 (down), 1 (up)" in acl.get_recent_err_msg()


def test_dicts_of_decoding_have_every_field_before_anything_is_set(mpi: ModuleType) -> None:
    for number, kind in enumerate((26, 96)):
        assert mpi.vdec_create_chn(number, attributes(kind)) == 0
    assert mpi.vdec_get_chn_attr(1)[0]["video_attr"] == {"ref_frame_num": 0, "temporal_mvp_en": 0, "tmv_buf_size": 0}
    parameters, ret = mpi.vdec_get_chn_param(0)
    assert (ret, parameters) == (0, {"type": 26, "display_frame_num": 0, "pic_param": {"pixel_format": 1, "alpha": 255}})
    parameters["pic_param"]["alpha"] = 9
    assert mpi.vdec_set_chn_param(0, parameters) == 0
    assert mpi.vdec_get_chn_param(0)[0] == parameters
    assert mpi.vdec_set_chn_param(1, {"type": 96, "video_param": {"dec_mode": 1}}) == 0
    video = mpi.vdec_get_chn_param(1)[0]["video_param"]
    assert (video["dec_mode"], video["out_order"], len(video)) == (1, 0, 8)
    assert mpi.vdec_query_status(0)[0]["dec_err"]["pack_err"] == 0


def test_video_is_decoded(mpi: ModuleType) -> None:
    encoder = VideoEncoder(EncoderSettings("h264", "main", 128, 96, 250))
    assert mpi.vdec_create_chn(2, attributes(96)) == 0
    assert mpi.vdec_set_chn_param(2, {"type": 96, "display_frame_num": 3}) == 0
    assert mpi.vdec_get_chn_param(2)[0]["display_frame_num"] == 3
    assert mpi.vdec_get_chn_attr(2)[0]["pic_width"] == 128
    assert mpi.vdec_start_recv_stream(2) == 0
    size = mpi.vdec_get_pic_buf_size(96, {"width": 128, "height": 96, "pixel_format": 1})
    assert size == 128 * 96 * 3 // 2
    for number in range(5):
        level = Picture(FORMATS[1], 128, 96, 128, 96, np.full(size, 40 + 20 * number, np.uint8))
        ptr, length = memory(mpi, encoder.encode(level)[0])
        assert mpi.vdec_send_stream(2, stream_of(ptr, length), output(mpi, size), 100) == 0
    assert mpi.vdec_send_stream(2, stream_of(0, 0, 1), output(mpi, size), 100) == 0
    for number in range(5):
        frame, _, _, ret = mpi.vdec_get_frame(2, 5000)
        assert (ret, frame["v_frame"]["frame_flag"]) == (0, 0)
        assert abs(ctypes.string_at(frame["v_frame"]["virt_addr"][0], 1)[0] - 40 - 20 * number) <= 2
    _, _, stream, ret = mpi.vdec_get_frame(2, 5000)
    assert (ret, stream["end_of_stream"]) == (0, 1)
    assert mpi.vdec_create_chn(3, attributes(5)) == VDEC + ILLEGAL


def test_limits_of_a_protocol_are_kept(acl: ModuleType, mpi: ModuleType) -> None:
    for number, kind in enumerate((26, 96, 265)):
        assert mpi.vdec_create_chn(number, attributes(kind)) == 0
    assert mpi.vdec_get_protocol_param(0) == ({}, VDEC + NOT_PERM)
    assert mpi.vdec_get_protocol_param(1)[0]["h264_param"]["max_sps_num"] == 32
    limits = {"max_slice_segment_num": 4, "max_vps_num": 1, "max_sps_num": 2, "max_pps_num": 3}
    assert mpi.vdec_set_protocol_param(2, {"type": 265, "h265_param": limits}) == 0
    assert mpi.vdec_get_protocol_param(2) == ({"type": 265, "h265_param": limits}, 0)
    assert mpi.vdec_set_protocol_param(1, {"type": 265, "h265_param": limits}) == VDEC + ILLEGAL
    assert mpi.vdec_set_protocol_param(2, {"type": 265, "h265_param": {**limits, "max_vps_num": 17}}) == VDEC + ILLEGAL
    assert "max_vps_num is 17; accepted: 1 to 16" in acl.get_recent_err_msg()


@pytest.mark.parametrize("kind", [96, 265])
def test_a_stream_with_more_than_its_limits_is_not_decoded(mpi: ModuleType, kind: int) -> None:
    codec: Any = "h264" if kind == 96 else "hevc"
    assert mpi.vdec_create_chn(0, attributes(kind)) == 0
    assert mpi.vdec_start_recv_stream(0) == 0
    name, slices = ("h264_param", "max_slice_num") if kind == 96 else ("h265_param", "max_slice_segment_num")
    most = mpi.vdec_get_protocol_param(0)[0][name]
    encoder = VideoEncoder(EncoderSettings(codec, "main", 128, 128, 1, slices=Slices(0, 2) if kind == 96 else None))
    frames = [encoder.encode(Picture(FORMATS[1], 128, 128, 128, 128, gray_nv12(128, 128)))[0] for _ in range(3)]

    def send(data: bytes, **limits: int) -> None:
        assert mpi.vdec_set_protocol_param(0, {"type": kind, name: {**most, **limits}}) == 0
        ptr, size = memory(mpi, data)
        assert mpi.vdec_send_stream(0, stream_of(ptr, size), output(mpi, 1 << 16), 0) == 0

    one, two, three = frames
    send(one, max_sps_num=1, max_pps_num=1, **{slices: 4})
    send(set_of_number_three(kind) + two, max_pps_num=3)
    send(three, max_pps_num=4, **{slices: 3 if kind == 96 else 4})
    assert mpi.vdec_send_stream(0, {**stream_of(0, 0), "end_of_stream": 1}, {}, 0) == 0
    found = [mpi.vdec_get_frame(0, 60000) for _ in range(4)]
    assert [ret for *_, ret in found] == [0] * 4
    wrong = 2 if kind == 96 else 1  # frames of H.264 have four parts each
    assert sum(given["v_frame"]["frame_flag"] for given, *_ in found) == wrong
    assert mpi.vdec_query_status(0)[0]["dec_err"]["set_protocol_num_err"] == wrong


def set_of_number_three(kind: int) -> bytes:
    """The beginning of a picture parameter set with number 3: Exp-Golomb 00100."""
    return b"\0\0\0\1" + (bytes([0x68]) if kind == 96 else bytes([34 << 1, 1])) + bytes([0b00100_111, 0xFF, 0x80])


def test_the_order_of_pictures_is_one_of_two(mpi: ModuleType) -> None:
    assert mpi.vdec_create_chn(0, attributes(96)) == 0
    given, _ = mpi.vdec_get_chn_param(0)
    for order, code in ((0, 0), (1, 0), (2, VDEC + ILLEGAL)):
        given["video_param"]["out_order"] = order
        assert mpi.vdec_set_chn_param(0, given) == code
    assert mpi.vdec_get_chn_param(0)[0]["video_param"]["out_order"] == 1


def test_a_png_file_is_decoded(mpi: ModuleType) -> None:
    file, pixels = io.BytesIO(), smooth(50, 40)
    Image.fromarray(pixels).save(file, "PNG")
    ptr, length = memory(mpi, file.getvalue())
    stream = {"type": 1, "addr": ptr, "len": length, "pts": 0, "reserved": [0] * 4}
    information, ret = mpi.png_get_image_info(stream)
    assert (ret, information["width"], information["pixel_format"]) == (0, 50, 12)
    assert mpi.pngd_create_chn(1, {"stream_que_cnt": 0, "reserved": [0] * 7}) == 0
    empty = dict.fromkeys(("picture_width", "picture_height", "picture_width_stride", "picture_height_stride"), 0)
    size = information["img_buf_size"]
    wanted = {**empty, "picture_address": memory(mpi, size)[0], "picture_buffer_size": size, "picture_format": 12}
    assert mpi.pngd_send_stream(1, stream, wanted, 100) == 0
    found, source, ret = mpi.pngd_get_image_data(1, 100)
    assert (ret, source["addr"]) == (0, ptr)
    rows = bytes_at(found)[: 40 * found["picture_width_stride"]].reshape(40, -1)[:, :150].reshape(40, 50, 3)
    assert (rows == pixels).all()
    assert mpi.pngd_get_image_data(1, 0)[2] == VDEC + EMPTY
    assert mpi.pngd_send_stream(1, stream, {**wanted, "picture_buffer_size": 10}, 100) == VDEC + ILLEGAL
    assert mpi.pngd_destroy_chn(1) == 0


def test_strides_that_suit_the_chip(mpi: ModuleType) -> None:
    base = {"width": 50, "height": 33, "pixel_format": 1, "reserved": [0] * 4}
    assert mpi.sys_get_image_align_info([0], 1, base) == (
        {"width_stride": 64, "height_stride": 34, "img_buf_size": 64 * 34 * 3 // 2, "reserved": [0, 0]},
        0,
    )


def test_maps_of_quantisation_have_a_size(mpi: ModuleType) -> None:
    assert [mpi.venc_get_qpmap_stride(width) for width in (64, 256, 257, 1920, 10001)] == [16, 16, 32, 128, 0]
    assert [mpi.venc_get_qpmap_size(kind, 1920, 1080) for kind in (96, 265, 26)] == [128 * 68, 128 * 68, 0]
    assert [mpi.venc_get_qpmap_size(kind, 300, 720) for kind in (96, 265)] == [32 * 45, 32 * 46]
