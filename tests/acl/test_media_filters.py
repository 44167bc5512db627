"""Borders, pyramids, histograms and tables of samples, as a program calls acl.media."""

from __future__ import annotations

import numpy as np

from tests.acl.media_calls import INVALID, Dvpp, gradient


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
