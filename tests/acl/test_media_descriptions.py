"""Descriptions, configurations, channels and memory of acl.media as a program calls them."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from tests.acl.media_calls import INVALID, Dvpp


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


def test_bytes_whose_address_was_asked_for_stay_for_a_while(acl: ModuleType) -> None:
    """acllite lets go of them before it copies."""
    pointers = [acl.util.bytes_to_ptr(bytes([number]) * 200_000) for number in range(4)]
    filled = [np.full(200_000, 9, np.uint8) for _ in range(8)]
    assert len(filled) == 8
    for number, ptr in enumerate(pointers):
        back = np.empty(200_000, np.uint8)
        assert acl.rt.memcpy(back.ctypes.data, 200_000, ptr, 200_000, 0) == 0
        assert set(back) == {number}
