"""himpi: what settings of an encoder do to the stream, read from the stream itself."""

from __future__ import annotations

from fractions import Fraction
import select
import time
from types import ModuleType
from typing import Any

import av
import cv2
import numpy as np
import pytest
import simplejpeg

from tests.acl.himpi_calls import memory
from tests.acl.test_himpi_venc import EMPTY, FOREVER, FULL, H264, H265, ILLEGAL, JPEG, UNEXIST, VENC, attributes, fetched, frame

SIZE = 192
CODECS = {H264: "h264", H265: "hevc"}
SLICES = {H264: (1, 5), H265: (1, 19, 20)}  # types of units of the stream: parts of frames, the last ones of key frames
KEYS = {H264: (5,), H265: (19, 20)}


def started(mpi: ModuleType, kind: int, **rate: Any) -> None:
    assert mpi.venc_create_chn(0, attributes(kind, SIZE, SIZE, **rate)) == 0
    assert mpi.venc_start_chn(0, FOREVER) == 0


def coded(mpi: ModuleType, count: int, level: int = 0) -> list[bytes]:
    """Frames of noise, or of one colour."""
    found = []
    for number in range(count):
        noise = np.random.default_rng(number).integers(0, 256, SIZE * SIZE * 3 // 2, np.uint8)
        ptr, _ = memory(mpi, np.full(noise.size, level, np.uint8) if level else noise)
        assert mpi.venc_send_frame(0, frame(ptr, SIZE, SIZE), 0) == 0
        found.append(fetched(mpi, 0)[0])
        assert mpi.dvpp_free(ptr) == 0
    return found


def units(kind: int, data: bytes) -> list[int]:
    """Types of the parts of frames in a stream."""
    starts = [at + 3 for at in range(len(data) - 3) if data[at : at + 3] == b"\0\0\1"]
    types = [data[at] & 31 if kind == H264 else data[at] >> 1 & 63 for at in starts]
    return [each for each in types if each in SLICES[kind]]


def decoded(kind: int, frames: list[bytes]) -> tuple[Any, Any]:
    """A decoder that has seen the frames, and the last picture."""
    decoder: Any = av.CodecContext.create(CODECS[kind], "r")
    pictures = [picture for data in frames for packet in decoder.parse(data) for picture in decoder.decode(packet)]
    pictures += [picture for packet in decoder.parse(b"") for picture in decoder.decode(packet)] + decoder.decode(None)
    return decoder, pictures[-1]


@pytest.mark.parametrize("kind", [H264, H265])
def test_frames_are_split_by_rows(mpi: ModuleType, kind: int) -> None:
    started(mpi, kind)
    parts = {"split_enable": 1, "split_mode": 1, "split_size": 2, "slice_output_en": 0, "reserved": [0]}
    assert mpi.venc_set_slice_split(0, parts) == 0
    least = SIZE // 16 // 2 if kind == H264 else 1
    assert all(len(units(kind, data)) >= least for data in coded(mpi, 3))
    assert mpi.venc_set_slice_split(0, {**parts, "split_size": 0}) == VENC + ILLEGAL
    assert mpi.venc_get_slice_split(0) == (parts, 0)


def test_frames_are_split_by_bytes(mpi: ModuleType) -> None:
    started(mpi, H264)
    assert mpi.venc_set_slice_split(0, {"split_enable": 1, "split_mode": 0, "split_size": 1000, "slice_output_en": 0, "reserved": [0]}) == 0
    for data in coded(mpi, 2):
        assert len(units(H264, data)) >= len(data) // 1000


@pytest.mark.parametrize("kind", [H264, H265])
def test_key_frames_come_as_the_gop_says_or_not_at_all(mpi: ModuleType, kind: int) -> None:
    started(mpi, kind, gop=3)
    keys = [units(kind, data)[0] in KEYS[kind] for data in coded(mpi, 7)]
    assert keys == [True, False, False] * 2 + [True]
    assert mpi.venc_set_intra_refresh(0, {"refresh_enable": 1, "intra_refresh_mode": 1, "refresh_num": 2, "req_i_qp": 30}) == 0
    keys = [units(kind, data)[0] in KEYS[kind] for data in coded(mpi, 7)]
    assert keys == [True] + [False] * 6


@pytest.mark.parametrize("kind", [H264, H265])
def test_a_stream_says_what_its_colours_are(mpi: ModuleType, kind: int) -> None:
    started(mpi, kind)
    name = "h264_vui" if kind == H264 else "h265_vui"
    said, ret = getattr(mpi, f"venc_get_{name}")(0)
    assert (ret, said["vui_video_signal"]["video_signal_type_present_flag"]) == (0, 0)
    said["vui_video_signal"] |= {"video_signal_type_present_flag": 1, "video_full_range_flag": 1, "colour_description_present_flag": 1,
                                 "colour_primaries": 9, "transfer_characteristics": 14, "matrix_coefficients": 9}  # fmt: skip
    said["vui_aspect_ratio"] |= {"aspect_ratio_info_present_flag": 1, "aspect_ratio_idc": 255, "sar_width": 4, "sar_height": 3}
    assert getattr(mpi, f"venc_set_{name}")(0, said) == 0
    decoder, picture = decoded(kind, coded(mpi, 2))
    assert (picture.color_range, picture.color_primaries, picture.color_trc, picture.colorspace) == (2, 9, 14, 9)
    assert (decoder.sample_aspect_ratio.numerator, decoder.sample_aspect_ratio.denominator) == (4, 3)
    wrong = {**said, "vui_aspect_ratio": {**said["vui_aspect_ratio"], "sar_height": 0}}
    assert getattr(mpi, f"venc_set_{name}")(0, wrong) == VENC + ILLEGAL
    wrong = {**said, "vui_video_signal": {**said["vui_video_signal"], "colour_primaries": 256}}
    assert getattr(mpi, f"venc_set_{name}")(0, wrong) == VENC + ILLEGAL


@pytest.mark.parametrize(("kind", "ticks", "scale", "fixed"), [(H264, 1001, 60000, 1), (H264, 1001, 60000, 0), (H265, 1, 30, 0)])
def test_a_stream_says_what_its_times_are(mpi: ModuleType, kind: int, ticks: int, scale: int, fixed: int) -> None:
    started(mpi, kind)
    name = "h264_vui" if kind == H264 else "h265_vui"
    decoder, _ = decoded(kind, coded(mpi, 2))
    assert decoder.framerate == 25
    said, _ = getattr(mpi, f"venc_get_{name}")(0)
    said["vui_time_info"] |= {"timing_info_present_flag": 1, "num_units_in_tick": ticks, "time_scale": scale}
    said["vui_time_info"]["fixed_frame_rate_flag"] = fixed
    assert getattr(mpi, f"venc_set_{name}")(0, said) == 0
    decoder, picture = decoded(kind, coded(mpi, 3))
    assert decoder.framerate == Fraction(scale, ticks) / (2 if kind == H264 else 1)
    assert picture.width == SIZE
    beyond = {"num_ticks_poc_diff_one_minus1": (1 << 31) - 1} if kind == H265 else {"time_scale": 0}
    for wrong in ({"num_units_in_tick": 0}, {"time_scale": 1 << 31}, {"time_scale": "60"}, beyond):
        assert getattr(mpi, f"venc_set_{name}")(0, {**said, "vui_time_info": {**said["vui_time_info"], **wrong}}) == VENC + ILLEGAL


@pytest.mark.parametrize("kind", [H264, H265])
def test_blocks_that_move_far_are_found_in_scenes_that_move(mpi: ModuleType, kind: int) -> None:
    noise = np.random.default_rng(5).integers(0, 256, (SIZE, SIZE + 60), np.uint8)
    sizes = []
    name, number = ("h264_fixqp", 6) if kind == H264 else ("h265_fixqp", 16)
    fixed = {"gop": 100, "src_frame_rate": 25, "dst_frame_rate": 25, "i_qp": 28, "p_qp": 28, "b_qp": 28}
    assert mpi.venc_create_chn(0, {**attributes(kind, SIZE, SIZE), "rc_attr": {"rc_mode": number, name: fixed}}) == 0
    assert mpi.venc_start_chn(0, FOREVER) == 0
    for mode in (0, 1):
        assert mpi.venc_set_scene_mode(0, mode) == 0
        assert mpi.venc_request_idr(0, 1) == 0
        found = 0
        for number in range(2):
            whole = np.full(SIZE * SIZE * 3 // 2, 128, np.uint8)
            whole[: SIZE * SIZE] = cv2.GaussianBlur(noise, (0, 0), 6)[:, 28 * number : 28 * number + SIZE].ravel() * 2
            ptr, _ = memory(mpi, whole)
            assert mpi.venc_send_frame(0, frame(ptr, SIZE, SIZE), 0) == 0
            found = len(fetched(mpi, 0)[0])
        sizes.append(found)
    assert sizes[1] <= sizes[0]
    assert mpi.venc_get_scene_mode(0) == (1, 0)
    assert mpi.venc_set_scene_mode(0, 2) == VENC + ILLEGAL
    assert mpi.venc_set_scene_mode(5, 1) == VENC + UNEXIST


@pytest.mark.parametrize("kind", [H264, H265])
def test_the_bit_rate_may_change_while_frames_are_coded(mpi: ModuleType, kind: int) -> None:
    started(mpi, kind, gop=100, bit_rate=8000)
    before = sum(map(len, coded(mpi, 12)))
    assert mpi.venc_set_chn_attr(0, attributes(kind, SIZE, SIZE, gop=100, bit_rate=100)) == 0
    coded(mpi, 30)  # it takes some frames
    assert sum(map(len, coded(mpi, 12))) < 0.9 * before


@pytest.mark.parametrize("kind", [H264, H265])
def test_quantisers_may_be_fixed(mpi: ModuleType, kind: int) -> None:
    def channel(key: int, others: int) -> dict[str, Any]:
        given = attributes(kind, SIZE, SIZE)
        fixed = {"gop": 3, "src_frame_rate": 25, "dst_frame_rate": 25, "i_qp": key, "p_qp": others, "b_qp": others}
        return {**given, "rc_attr": {"rc_mode": 6 if kind == H264 else 16, "h264_fixqp" if kind == H264 else "h265_fixqp": fixed}}

    assert mpi.venc_create_chn(0, channel(45, 20)) == 0
    assert mpi.venc_start_chn(0, FOREVER) == 0
    sizes = [len(data) for data in coded(mpi, 4)]
    assert min(sizes[1:3]) > 1.5 * max(sizes[0], sizes[3])
    assert mpi.venc_set_chn_attr(0, channel(20, 45)) == 0
    sizes = [len(data) for data in coded(mpi, 4)]
    assert 1.5 * max(sizes[1:3]) < min(sizes[0], sizes[3])
    assert mpi.venc_create_chn(1, channel(52, 20)) == VENC + ILLEGAL


@pytest.mark.parametrize(("kind", "mode"), [(H264, "h264_cbr"), (H265, "h265_vbr")])
def test_quantisers_have_limits(mpi: ModuleType, kind: int, mode: str) -> None:
    started(mpi, kind, gop=100, bit_rate=20000)
    before = sum(map(len, coded(mpi, 4)))
    given, ret = mpi.venc_get_rc_param(0, 1)
    assert (ret, given[f"{mode}_param"]["max_qp"]) == (0, 51)
    given[f"{mode}_param"] |= {"max_reencode_times": 0, "min_qp": 45, "min_i_qp": 45}
    assert mpi.venc_set_rc_param(0, given) == 0
    assert mpi.venc_get_rc_param(0, 1) == (given, 0)
    assert sum(map(len, coded(mpi, 4))) < 0.5 * before
    given[f"{mode}_param"]["max_qp"] = 44
    assert mpi.venc_set_rc_param(0, given) == VENC + ILLEGAL


def test_a_new_scene_begins_with_a_key_frame_where_that_is_wanted(mpi: ModuleType) -> None:
    def keys() -> list[bool]:
        frames = [*coded(mpi, 20, 40), *coded(mpi, 1)]
        return [units(H264, data)[0] in KEYS[H264] for data in frames]

    started(mpi, H264, gop=100)
    assert keys() == [True] + [False] * 20
    given, _ = mpi.venc_get_rc_param(0, 1)
    given["scene_chg_detect"] = {"detect_scene_chg_en": 1, "adapt_insert_idr_frame_en": 1}
    assert mpi.venc_set_rc_param(0, given) == 0
    assert keys() == [True] + [False] * 19 + [True]


def test_pictures_become_grey(mpi: ModuleType) -> None:
    started(mpi, H264)
    parameters, _ = mpi.venc_get_chn_param(0)
    assert mpi.venc_set_chn_param(0, {**parameters, "color_to_grey_en": 1}) == 0
    _, picture = decoded(H264, coded(mpi, 2, level=60))
    planes = [np.frombuffer(plane, np.uint8)[: plane.line_size * 8].reshape(8, -1)[:, :64] for plane in picture.planes]
    assert [int(np.abs(plane.astype(int) - level).max()) <= 3 for plane, level in zip(planes, (60, 128, 128), strict=True)] == [True] * 3
    mpi.venc_destroy_chn(0)
    assert mpi.venc_create_chn(0, attributes(JPEG, SIZE, SIZE)) == 0
    assert mpi.venc_start_chn(0, FOREVER) == 0
    assert mpi.venc_set_chn_param(0, {**parameters, "color_to_grey_en": 1}) == 0
    (data,) = coded(mpi, 1, level=60)
    assert np.abs(simplejpeg.decode_jpeg(data).astype(int) - 60).max() <= 2


def test_fewer_frames_are_coded_than_come(mpi: ModuleType) -> None:
    started(mpi, H264, src_frame_rate=30, dst_frame_rate=10)

    def taken(count: int) -> list[int]:
        ptr, _ = memory(mpi, np.full(SIZE * SIZE * 3 // 2, 90, np.uint8))
        for number in range(count):
            assert mpi.venc_send_frame(0, frame(ptr, SIZE, SIZE, pts=number), 0) == 0
        while mpi.venc_query_status(0)[0]["left_pics"]:
            time.sleep(0.01)
        found: list[int] = []
        while True:
            stream, ret = mpi.venc_get_stream(0, {"pack_cnt": 1}, 0)
            if ret:
                assert ret == VENC + EMPTY
                return found
            found.append(stream["pack"][0]["pts"])
            assert mpi.venc_release_stream(0, stream) == 0

    assert taken(9) == [0, 3, 6]
    parameters, _ = mpi.venc_get_chn_param(0)
    assert parameters["frame_rate"] == {"src_frame_rate": -1, "dst_frame_rate": -1}
    assert mpi.venc_set_chn_param(0, {**parameters, "frame_rate": {"src_frame_rate": 30, "dst_frame_rate": 20}}) == 0
    assert taken(6) == [0, 2, 3, 5]
    for wrong in ({"src_frame_rate": "30"}, 30):
        assert mpi.venc_set_chn_param(0, {**parameters, "frame_rate": wrong}) == VENC + ILLEGAL
    assert mpi.venc_create_chn(1, attributes(H264, SIZE, SIZE, src_frame_rate=None)) == VENC + ILLEGAL


def test_no_more_coded_pictures_wait_than_a_channel_allows(mpi: ModuleType) -> None:
    started(mpi, H265)
    assert mpi.venc_set_chn_param(0, {"max_stream_cnt": 2}) == 0
    ptr, _ = memory(mpi, np.full(SIZE * SIZE * 3 // 2, 90, np.uint8))
    assert [mpi.venc_send_frame(0, frame(ptr, SIZE, SIZE), 0) for _ in range(3)] == [0, 0, VENC + FULL]
    fetched(mpi, 0)
    assert mpi.venc_send_frame(0, frame(ptr, SIZE, SIZE), 0) == 0


def test_a_descriptor_wakes_up_with_as_many_pictures_as_wanted(mpi: ModuleType) -> None:
    started(mpi, H264)
    for wrong in (0, -1, "2"):
        assert mpi.venc_set_chn_param(0, {"poll_wake_up_frame_cnt": wrong}) == VENC + ILLEGAL
    assert mpi.venc_set_chn_param(0, {"poll_wake_up_frame_cnt": 3}) == 0
    ptr, _ = memory(mpi, np.full(SIZE * SIZE * 3 // 2, 90, np.uint8))
    descriptor = mpi.venc_get_fd(0)

    def readable_after_one_more() -> bool:
        before = mpi.venc_query_status(0)[0]["left_stream_frames"]
        assert mpi.venc_send_frame(0, frame(ptr, SIZE, SIZE), 0) == 0
        while mpi.venc_query_status(0)[0]["left_stream_frames"] == before:
            time.sleep(0.01)
        return bool(select.select([descriptor], [], [], 0.02)[0])

    assert [readable_after_one_more() for _ in range(4)] == [False, False, True, True]
    fetched(mpi, 0)
    assert select.select([descriptor], [], [], 0)[0] == [descriptor]
    fetched(mpi, 0)
    assert select.select([descriptor], [], [], 0)[0] == []
    assert mpi.venc_set_chn_param(0, {"poll_wake_up_frame_cnt": 2}) == 0
    assert select.select([descriptor], [], [], 0)[0] == [descriptor]
    for _ in range(2):
        fetched(mpi, 0)
    assert select.select([descriptor], [], [], 0)[0] == []


def test_the_mean_quantiser_of_a_frame_is_told(mpi: ModuleType) -> None:
    for quantiser in (20, 40):
        own = {"gop": 100, "src_frame_rate": 25, "dst_frame_rate": 25, "i_qp": quantiser, "p_qp": quantiser, "b_qp": quantiser}
        given = attributes(H264, SIZE, SIZE)
        assert mpi.venc_create_chn(0, {**given, "rc_attr": {"rc_mode": 6, "h264_fixqp": own}}) == 0
        assert mpi.venc_start_chn(0, FOREVER) == 0
        assert mpi.venc_query_status(0)[0]["stream_info"]["mean_qp"] == 0
        ptr, _ = memory(mpi, np.random.default_rng(0).integers(0, 256, SIZE * SIZE * 3 // 2, np.uint8))
        assert mpi.venc_send_frame(0, frame(ptr, SIZE, SIZE), 0) == 0
        assert mpi.venc_get_stream(0, {"pack_cnt": 1}, 60000)[1] == 0
        assert mpi.venc_send_frame(0, frame(ptr, SIZE, SIZE), 0) == 0
        while not mpi.venc_query_status(0)[0]["left_stream_frames"]:
            time.sleep(0.01)
        assert abs(mpi.venc_query_status(0)[0]["stream_info"]["mean_qp"] - quantiser) <= 1
        assert mpi.venc_destroy_chn(0) == 0


WAYS = {
    "cbr": {"bit_rate": 500}, "vbr": {"max_bit_rate": 500}, "avbr": {"max_bit_rate": 500}, "qvbr": {"target_bit_rate": 500},
    "cvbr": {"max_bit_rate": 500, "short_term_stats_time": 1, "long_term_stats_time": 1, "long_term_max_bit_rate": 500,
             "long_term_min_bit_rate": 0},
}  # fmt: skip
TIMES = {"gop": 30, "stats_time": 1, "src_frame_rate": 10, "dst_frame_rate": 10}


@pytest.mark.parametrize("kind", [H264, H265])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_keeps_its_bit_rate_and_tells_its_limits(mpi: ModuleType, kind: int, way: str) -> None:
    first, name = (1, f"h264_{way}") if kind == H264 else (11, f"h265_{way}")
    mode = first + list(WAYS).index(way)
    given = attributes(kind, SIZE, SIZE)
    given["rc_attr"] = {"h264_other": {}, "h265_other": {}, name: {**TIMES, **WAYS[way]}, "rc_mode": mode}
    assert mpi.venc_create_chn(0, given) == 0
    assert mpi.venc_start_chn(0, FOREVER) == 0
    sizes = [len(data) for data in coded(mpi, 20)]
    assert sum(sizes[10:]) * 8 < 2 * 500_000  # noise, in the second second
    limits, ret = mpi.venc_get_rc_param(0, mode)
    assert (ret, limits[f"{name}_param"]["max_i_qp"], "qpmap_mode" in limits[f"{name}_param"]) == (0, 51, kind == H265)
    assert mpi.venc_set_rc_param(0, limits) == 0
    for entry in limits[f"{name}_param"]:
        wrong = {**limits, f"{name}_param": {**limits[f"{name}_param"], entry: -1}}
        assert mpi.venc_set_rc_param(0, wrong) == VENC + ILLEGAL, entry
    crossed = {**limits[f"{name}_param"], "max_i_proportion": 5, "min_i_proportion": 6}
    assert mpi.venc_set_rc_param(0, {**limits, f"{name}_param": crossed}) == VENC + ILLEGAL
    assert mpi.venc_get_rc_param(0, mode) == (limits, 0)


def test_wrong_rates_have_their_codes(acl: ModuleType, mpi: ModuleType) -> None:
    given = attributes(H264, SIZE, SIZE)
    for wrong in (
        {"gop": 0}, {"gop": 65537}, {"stats_time": 61}, {"src_frame_rate": 241}, {"dst_frame_rate": 0}, {"dst_frame_rate": 11},
        {"bit_rate": 1}, {"bit_rate": 614401}, {"bit_rate": "500"},
    ):  # fmt: skip
        given["rc_attr"] = {"rc_mode": 1, "h264_cbr": {**TIMES, **WAYS["cbr"], **wrong}}
        assert mpi.venc_create_chn(0, given) == VENC + ILLEGAL, wrong
    for mode in (0, 2, 8, 11, 18, None):
        given["rc_attr"] = {"rc_mode": mode, "h264_cbr": {**TIMES, **WAYS["cbr"]}}
        assert mpi.venc_create_chn(0, given) == VENC + ILLEGAL, mode
    given["rc_attr"]["rc_mode"] = 11
    assert mpi.venc_create_chn(0, given) == VENC + ILLEGAL
    assert "rc_mode is 11; accepted: 1 (h264_cbr), 2 (h264_vbr)" in acl.get_recent_err_msg()


@pytest.mark.parametrize("kind", [H264, H265])
def test_a_picture_is_sent_as_a_key_frame(mpi: ModuleType, kind: int) -> None:
    started(mpi, kind, gop=100)
    ptr, _ = memory(mpi, np.full(SIZE * SIZE * 3 // 2, 90, np.uint8))
    found = []
    for wanted in (1, 1, 2, 1):
        given = {"user_frame": frame(ptr, SIZE, SIZE), "user_rc_info": {"frame_type": wanted}, "user_roi_map": {"valid": 0, "phy_addr": 0}}
        assert mpi.venc_send_frame_ex(0, given, 0) == 0
        found.append(units(kind, fetched(mpi, 0)[0])[0] in KEYS[kind])
    assert found == [True, False, True, False]
    assert mpi.venc_send_frame_ex(7, given, 0) == VENC + UNEXIST


def test_weights_of_blocks_are_told_before_they_are_set(mpi: ModuleType) -> None:
    started(mpi, H265)
    before, ret = mpi.venc_get_cu_pred(0)
    assert (ret, before["pred_mode"], before["intra32_cost"], before["inter8_cost"], len(before)) == (0, 0, 8, 8, 9)
    assert mpi.venc_set_cu_pred(0, {**before, "inter64_cost": 3}) == 0
    assert mpi.venc_get_cu_pred(0) == ({**before, "inter64_cost": 3}, 0)
