"""himpi: channels that encode, what they are asked, and waiting for channels by descriptors."""

from __future__ import annotations

import ctypes
import select
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
import pytest
import simplejpeg

from anycann.media.video_decoder import VideoDecoder
from tests.acl.himpi_calls import gray_nv12, memory, stream_of
from tests.media.pictures import smooth

VENC, SYS = 0xA0088000, 0xA0028000
ILLEGAL, EXIST, UNEXIST, NOT_SUPPORT, NOT_PERM, EMPTY, FULL = 3, 4, 5, 8, 9, 0xE, 0xF
JPEG, H264, H265 = 26, 96, 265
FOREVER = {"recv_pic_num": -1}


def attributes(kind: int, width: int = 128, height: int = 128, buf_size: int = 1 << 20, **rate: Any) -> dict[str, Any]:
    sizes = {"max_pic_width": width, "pic_width": width, "max_pic_height": height, "pic_height": height}
    venc = {"type": kind, "profile": 0, **sizes, "buf_size": buf_size, "is_by_frame": 1}
    if kind == JPEG:
        return {"venc_attr": venc}
    name, mode = ("h264_cbr", 1) if kind == H264 else ("h265_vbr", 12)
    given = {"gop": 4, "stats_time": 1, "src_frame_rate": 25, "dst_frame_rate": 25, "bit_rate": 4000, **rate}
    return {"venc_attr": venc, "rc_attr": {"rc_mode": mode, name: given}, "gop_attr": {"gop_mode": 0, "normal_p": {"ip_qp_delta": 3}}}


def frame(address: int, width: int = 128, height: int = 128, stride: int = 0, **more: Any) -> dict[str, Any]:
    v_frame = {"width": width, "height": height, "field": 0, "pixel_format": 1, "width_stride": [stride or width, 0, 0],
               "height_stride": [0, 0, 0], "virt_addr": [address, 0, 0], "time_ref": 0, "pts": 5, **more}  # fmt: skip
    return {"v_frame": v_frame, "pool_id": 0, "mod_id": 8}


def fetched(mpi: ModuleType, channel: int) -> tuple[bytes, dict[str, Any]]:
    stream, ret = mpi.venc_get_stream(channel, {"pack_cnt": 1}, 60000)  # processors may be busy
    assert (ret, stream["pack_cnt"]) == (0, 1)
    pack = stream["pack"][0]
    data = ctypes.string_at(pack["addr"], pack["len"])
    assert mpi.venc_release_stream(channel, stream) == 0
    return data, stream


def nv12(width: int, height: int, level: int) -> NDArray[np.uint8]:
    return np.full(width * height * 3 // 2, level, np.uint8)


def test_a_jpeg_file_is_encoded(mpi: ModuleType) -> None:
    assert mpi.venc_create_chn(0, attributes(JPEG)) == 0
    parameters, ret = mpi.venc_get_jpeg_param(0)
    assert (ret, parameters["qfactor"], len(parameters["y_qt"])) == (0, 100, 64)
    assert mpi.venc_set_jpeg_param(0, {**parameters, "qfactor": 95}) == 0
    assert mpi.venc_get_jpeg_param(0)[0]["qfactor"] == 95
    content = gray_nv12(128, 128)
    content[: 128 * 128] = smooth(128, 128, samples=1).ravel()
    ptr, _ = memory(mpi, content)
    assert mpi.venc_send_frame(0, frame(ptr), 0) == VENC + NOT_PERM
    assert mpi.venc_start_chn(0, FOREVER) == 0
    assert mpi.venc_send_frame(0, frame(ptr), 0) == 0
    data, stream = fetched(mpi, 0)
    assert (stream["pack"][0]["pts"], stream["seq"], stream["pack"][0]["is_frame_end"]) == (5, 0, 1)
    decoded = simplejpeg.decode_jpeg(data, "GRAY")[..., 0].astype(int)
    assert np.abs(decoded - content[: 128 * 128].reshape(128, 128)).max() <= 12
    assert mpi.venc_stop_chn(0) == 0
    assert mpi.venc_send_frame(0, frame(ptr), 0) == VENC + NOT_PERM
    assert mpi.venc_destroy_chn(0) == 0


def test_a_jpeg_file_is_encoded_where_a_program_wants_it(mpi: ModuleType) -> None:
    assert mpi.venc_create_chn(0, attributes(JPEG, buf_size=0)) == 0
    assert mpi.venc_start_chn(0, FOREVER) == 0
    ptr, _ = memory(mpi, gray_nv12(64, 64))
    given = frame(ptr, 64, 64)
    size, ret = mpi.venc_get_jpege_predicted_size(given, {})
    assert ret == 0
    place, _ = memory(mpi, size)
    assert mpi.venc_send_jpege_frame(0, given, {"addr": place, "len": size}, 0) == 0
    data, stream = fetched(mpi, 0)
    assert stream["pack"][0]["addr"] == place
    assert simplejpeg.decode_jpeg(data, "GRAY").shape == (64, 64, 1)
    assert mpi.venc_send_jpege_frame(0, given, {"addr": place, "len": 100}, 0) == 0
    assert mpi.venc_get_stream(0, {"pack_cnt": 1}, 50)[1] == VENC + EMPTY  # it does not fit, and does not come
    assert mpi.dvpp_free(place) == 0
    assert mpi.venc_create_chn(1, attributes(JPEG)) == 0
    assert mpi.venc_start_chn(1, FOREVER) == 0
    assert mpi.venc_send_jpege_frame(1, given, {"addr": ptr, "len": 100}, 0) == VENC + NOT_SUPPORT


@pytest.mark.parametrize(("kind", "codec"), [(H264, "h264"), (H265, "hevc")])
def test_video_is_encoded_and_asked_for_key_frames(mpi: ModuleType, kind: int, codec: Any) -> None:
    assert mpi.venc_create_chn(0, attributes(kind, gop=100)) == 0
    assert mpi.venc_start_chn(0, {"recv_pic_num": 4}) == 0
    decoder, levels, sizes = VideoDecoder(codec), [], []
    for number in range(4):
        ptr, _ = memory(mpi, nv12(192, 160, 40 + 30 * number))  # strides are larger than the picture
        if number == 3:
            assert mpi.venc_request_idr(0, 1) == 0
        chroma = ptr + 192 * 144
        assert mpi.venc_send_frame(0, frame(ptr, stride=192, virt_addr=[ptr, chroma, 0]), 0) == 0
        data, stream = fetched(mpi, 0)
        assert stream["seq"] == number
        sizes.append(len(data))
        levels += [int(view.planes[0][5, 5, 0]) for view in decoder.decode(data)]
    levels += [int(view.planes[0][5, 5, 0]) for view in decoder.flush()]
    assert np.abs(np.array(levels) - np.array([40, 70, 100, 130])).max() <= 3
    assert mpi.venc_send_frame(0, frame(ptr), 0) == VENC + NOT_PERM  # four were to come
    key = VideoDecoder(codec)
    assert len(key.decode(data) + key.flush()) == 1  # the last one stands alone


def test_channels_are_waited_for_by_descriptors(mpi: ModuleType) -> None:
    assert mpi.venc_create_chn(0, attributes(JPEG)) == 0
    assert mpi.vdec_create_chn(1, {"type": JPEG, "mode": 0, "pic_width": 64, "pic_height": 64}) == 0
    assert [mpi.venc_start_chn(0, FOREVER), mpi.vdec_start_recv_stream(1)] == [0, 0]
    encoding, decoding = mpi.venc_get_fd(0), mpi.vdec_get_fd(1)
    epoll, ret = mpi.sys_create_epoll(10)
    assert ret == 0
    for fd in (encoding, decoding):
        assert mpi.sys_ctl_epoll(epoll, 1, fd, {"events": 1, "data": fd}) == 0
    assert mpi.sys_ctl_epoll(epoll, 1, encoding, {"events": 1, "data": 0}) == SYS + EXIST
    assert mpi.sys_wait_epoll(epoll, 3, 10) == ([], 0, 0)
    ptr, _ = memory(mpi, gray_nv12(64, 64))
    assert mpi.venc_send_frame(0, frame(ptr, 64, 64), 0) == 0
    assert mpi.sys_wait_epoll(epoll, 3, 60000) == ([{"events": 1, "data": encoding}], 1, 0)
    assert select.select([encoding], [], [], 0)[0] == [encoding]
    assert mpi.venc_query_status(0)[0]["cur_packs"] == 1
    data, _ = fetched(mpi, 0)
    assert mpi.sys_wait_epoll(epoll, 3, 0)[1] == 0
    file, length = memory(mpi, data)
    target = {**dict.fromkeys(("width", "height", "width_stride", "height_stride"), 0), "vir_addr": memory(mpi, 1 << 16)[0]}
    assert mpi.vdec_send_stream(1, stream_of(file, length), {**target, "buffer_size": 1 << 16, "pixel_format": 1}, 0) == 0
    assert mpi.sys_wait_epoll(epoll, 3, 60000)[0] == [{"events": 1, "data": decoding}]
    assert mpi.sys_ctl_epoll(epoll, 2, decoding, {"events": 1, "data": "other"}) == 0
    assert mpi.sys_wait_epoll(epoll, 3, 60000)[0] == [{"events": 1, "data": "other"}]
    assert mpi.sys_ctl_epoll(epoll, 3, decoding, None) == 0
    assert mpi.sys_wait_epoll(epoll, 3, 0)[1] == 0
    assert [mpi.venc_close_fd(0), mpi.vdec_close_fd(1), mpi.sys_close_epoll(epoll)] == [0, 0, 0]


def test_wrong_waiting_has_its_codes(acl: ModuleType, mpi: ModuleType) -> None:
    assert mpi.sys_wait_epoll(77, 1, 0) == ([], 0, SYS + UNEXIST)
    assert mpi.sys_close_epoll(77) == SYS + UNEXIST
    epoll, _ = mpi.sys_create_epoll(1)
    assert mpi.sys_ctl_epoll(epoll, 9, 0, {"events": 1, "data": 0}) == SYS + ILLEGAL
    assert mpi.sys_ctl_epoll(epoll, 1, 0, None) == SYS + ILLEGAL
    assert mpi.sys_ctl_epoll(epoll, 1, 9999, {"events": 1, "data": 0}) == SYS + ILLEGAL
    assert "descriptor 9999 cannot be waited for" in acl.get_recent_err_msg()
    assert mpi.sys_ctl_epoll(epoll, 3, 5, None) == SYS + UNEXIST
    assert mpi.sys_wait_epoll(epoll, 0, 0)[2] == SYS + ILLEGAL
    assert mpi.venc_get_fd(4) == -1


def test_what_is_waiting_is_told_and_given_back(acl: ModuleType, mpi: ModuleType) -> None:
    assert mpi.venc_create_chn(0, attributes(JPEG)) == 0
    assert mpi.venc_start_chn(0, FOREVER) == 0
    ptr, _ = memory(mpi, gray_nv12(128, 128))
    before = acl.rt.get_mem_info(1)[0]
    for _ in range(3):
        assert mpi.venc_send_frame(0, frame(ptr), 0) == 0
    stream, _ = mpi.venc_get_stream(0, {"pack_cnt": 1}, -1)
    mpi.venc_get_stream(0, {"pack_cnt": 1}, -1)
    status, ret = mpi.venc_query_status(0)
    assert (ret, status["left_stream_frames"] + status["left_pics"]) == (0, 1)
    assert mpi.venc_release_stream(0, stream) == 0
    assert mpi.venc_release_stream(0, stream) == VENC + ILLEGAL
    assert mpi.venc_destroy_chn(0) == 0
    assert acl.rt.get_mem_info(1)[0] == before


def test_settings_are_read_as_they_were_set(mpi: ModuleType) -> None:
    assert mpi.venc_create_chn(0, attributes(H264)) == 0
    for name in ("chn_param", "rc_param", "h264_vui", "intra_refresh", "ref_param", "slice_split"):
        mode = (1,) if name == "rc_param" else ()
        assert getattr(mpi, f"venc_get_{name}")(0, *mode)[1] == 0
        assert getattr(mpi, f"venc_set_{name}")(0, {"own": [1, 2]}) == 0
        assert getattr(mpi, f"venc_get_{name}")(0, *mode) == ({"own": [1, 2]}, 0)
    assert [mpi.venc_set_scene_mode(0, 1), mpi.venc_get_scene_mode(0), mpi.venc_set_scene_mode(0, 5)] == [0, (1, 0), VENC + ILLEGAL]
    module, ret = mpi.venc_get_mod_param({"mod_type": 3})
    assert (ret, module["h265_mod_param"]["one_stream_buf"]) == (0, 0)
    module["h265_mod_param"]["one_stream_buf"] = 1
    assert mpi.venc_set_mod_param(module) == 0
    assert mpi.venc_get_mod_param({"mod_type": 3})[0] == module
    assert mpi.venc_get_mod_param({"mod_type": 9}) == ({}, VENC + ILLEGAL)
    own, _ = mpi.venc_get_chn_attr(0)
    assert own["venc_attr"]["pic_width"] == 128
    assert mpi.venc_set_chn_attr(0, own) == 0
    assert mpi.venc_set_chn_attr(0, attributes(H264, 256)) == VENC + ILLEGAL
    assert mpi.venc_set_jpeg_param(0, {"qfactor": 50}) == VENC + ILLEGAL


def test_wrong_calls_have_the_codes_of_venc(acl: ModuleType, mpi: ModuleType) -> None:
    assert mpi.venc_start_chn(0, FOREVER) == VENC + UNEXIST
    assert mpi.venc_create_chn(0, {"venc_attr": {}}) == VENC + ILLEGAL
    assert mpi.venc_create_chn(0, attributes(7)) == VENC + ILLEGAL
    assert mpi.venc_create_chn(0, attributes(H264, 64, 64)) == VENC + ILLEGAL
    assert "64 x 64 for H.264; accepted: 128 to 4096" in acl.get_recent_err_msg()
    assert mpi.venc_create_chn(999, attributes(JPEG)) == VENC + 2
    assert mpi.venc_create_chn(0, attributes(H264, gop=0)) == VENC + ILLEGAL
    wrong = attributes(H264)
    wrong["venc_attr"]["profile"] = 3
    assert mpi.venc_create_chn(0, wrong) == VENC + NOT_SUPPORT
    assert mpi.venc_create_chn(0, attributes(H264)) == 0
    assert mpi.venc_create_chn(0, attributes(H264)) == VENC + EXIST
    assert mpi.venc_start_chn(0, {"recv_pic_num": 0}) == VENC + ILLEGAL
    assert mpi.venc_start_chn(0, FOREVER) == 0
    ptr, size = memory(mpi, gray_nv12(128, 128))
    wrong_frames: tuple[dict[str, Any], ...] = (
        frame(0), frame(ptr, 64, 64), frame(ptr, stride=64), frame(ptr, height_stride=[130, 0, 0]), frame(ptr + size), {"v_frame": {}},
        frame(ptr, virt_addr=5),
    )  # fmt: skip
    for wrong_frame in wrong_frames:
        assert mpi.venc_send_frame(0, wrong_frame, 0) == VENC + ILLEGAL, wrong_frame
    assert mpi.venc_send_frame(0, frame(ptr, pixel_format=12), 0) == VENC + NOT_SUPPORT
    assert mpi.venc_send_frame_ex(0, {"user_frame": frame(ptr), "user_rc_info": {}, "user_roi_map": {}}, 0) == 0
    assert mpi.venc_get_stream(0, {"pack_cnt": 0}, 0) == ({}, VENC + ILLEGAL)
    fetched(mpi, 0)
    assert mpi.venc_get_stream(0, {"pack_cnt": 1}, 10) == ({}, VENC + EMPTY)
    mpi.sys_exit()
    assert mpi.venc_create_chn(1, attributes(JPEG)) == VENC + 0x10
