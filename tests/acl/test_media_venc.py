"""VENC as a program calls it: callbacks in the thread that it named, and no hang whatever it does."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.acl.video_calls import (
    HEIGHT,
    INVALID,
    WIDTH,
    Reporter,
    encoder_channel,
    input_picture,
)


@pytest.mark.parametrize(("entype", "codec"), [(0, "hevc"), (3, "h264")])
def test_pictures_are_encoded_and_reported(acl: ModuleType, reporter: Reporter, entype: int, codec: str) -> None:
    from anycann.media.video_decoder import VideoDecoder

    media, coded, users = acl.media, list[bytes](), list[object]()

    def callback(pic: int, stream_desc: int, user_data: object) -> None:
        assert media.dvpp_get_stream_desc_ret_code(stream_desc) == 0
        size = media.dvpp_get_stream_desc_size(stream_desc)
        coded.append(acl.util.ptr_to_bytes(media.dvpp_get_stream_desc_data(stream_desc), size))
        users.append(user_data)

    channel = encoder_channel(acl, reporter, callback, entype)
    assert media.venc_create_channel(channel) == 0
    config = media.venc_create_frame_config()
    for number in range(6):
        assert media.venc_send_frame(channel, input_picture(acl, 30 + 20 * number), 0, config, number) == 0
    assert media.venc_set_frame_config_eos(config, 1) == 0
    assert media.venc_get_frame_config_eos(config) == 1
    assert media.venc_send_frame(channel, 0, 0, config, None) == 0
    assert users == list(range(6))
    decoder = VideoDecoder(codec)  # type: ignore[arg-type]
    seen = [view for data in coded for view in decoder.decode(data)] + decoder.flush()
    assert [abs(int(view.planes[0][9, 9, 0]) - 30 - 20 * number) <= 3 for number, view in enumerate(seen)] == [True] * 6
    assert media.venc_destroy_channel(channel) == 0
    assert [media.venc_destroy_channel_desc(channel), media.venc_destroy_frame_config(config)] == [0, 0]


def test_bad_calls_of_an_encoder_are_named(acl: ModuleType, reporter: Reporter) -> None:
    media = acl.media
    channel = encoder_channel(acl, reporter, print)
    config = media.venc_create_frame_config()
    assert media.venc_send_frame(channel, 0, 0, config, None) == INVALID
    assert "venc_create_channel first" in acl.get_recent_err_msg()
    media.venc_set_channel_desc_pic_width(channel, 33)
    assert media.venc_create_channel(channel) == INVALID
    assert "the width of the pictures is 33; accepted: even numbers" in acl.get_recent_err_msg()
    media.venc_set_channel_desc_pic_width(channel, WIDTH)
    media.venc_set_channel_desc_pic_height(channel, HEIGHT)
    assert media.venc_create_channel(channel) == 0
    assert media.venc_get_channel_desc_channel_id(channel) == 0
    assert media.venc_send_frame(channel, 0, 0, config, None) == INVALID
    assert "accepted: a picture, or eos" in acl.get_recent_err_msg()
    pic = input_picture(acl, 9)
    media.dvpp_set_pic_desc_size(pic, 10)
    assert media.venc_send_frame(channel, pic, 0, config, None) == INVALID
    assert "the picture has 10 bytes" in acl.get_recent_err_msg()
    assert media.venc_set_frame_config_force_i_frame(config, 2) == INVALID
    assert media.venc_destroy_channel(channel) == 0
    assert media.venc_destroy_channel(channel) == INVALID


def test_fields_of_a_channel_are_set_by_their_numbers(acl: ModuleType) -> None:
    media = acl.media
    channel = media.venc_create_channel_desc()
    names = {
        0: "thread_id", 1: "callback", 2: "pic_format", 3: "entype", 4: "pic_width", 5: "pic_height", 6: "key_frame_interval",
        7: "buf_addr", 8: "buf_size", 9: "rc_mode", 10: "src_rate", 11: "max_bit_rate",
    }  # fmt: skip
    given = {0: 7, 1: print, 2: 2, 3: 3, 4: 128, 5: 96, 6: 30, 7: 4096, 8: 500, 9: 2, 10: 50, 11: 2000, 12: 9}
    for number, of in given.items():
        assert media.venc_set_channel_desc_param(channel, number, of) == 0
    for number, of in given.items():
        assert media.venc_get_channel_desc_param(channel, number) == (of, 0)
        if number in names:
            assert getattr(media, f"venc_get_channel_desc_{names[number]}")(channel) == of
    for number, wrong in ((1, 5), (2, 12), (3, 9), (4, -1), (6, 0), (9, 3), (10, 241), (12, 0), (12, 101), (13, 1), (-1, 1), (4, None)):
        assert media.venc_set_channel_desc_param(channel, number, wrong) == INVALID
    assert media.venc_get_channel_desc_param(channel, 13) == (0, INVALID)
    assert "accepted: 0 (thread_id), 2 (pic_format), 3 (entype)" in acl.get_recent_err_msg()
    assert [media.venc_get_channel_desc_param(channel, number) for number in given] == [(of, 0) for of in given.values()]
    assert media.venc_destroy_channel_desc(channel) == 0
    assert media.venc_set_channel_desc_param(channel, 4, 128) == INVALID
    assert media.venc_get_channel_desc_param(channel, 4) == (0, INVALID)
