"""Pictures scaled, cut, pasted and converted, as a program calls acl.media."""

from __future__ import annotations

import numpy as np

from tests.acl.media_calls import INVALID, Dvpp, gradient


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
    PROCESS.stream(dvpp.stream).submit(lambda: release.wait(600) and None)
    source, target = dvpp.picture(64, 48, 64, 48), dvpp.picture(32, 24, 32, 24)
    config = dvpp.media.dvpp_create_resize_config()
    assert dvpp.media.dvpp_vpc_resize_async(dvpp.channel, source, target, config, dvpp.stream) == 0
    assert dvpp.media.dvpp_free(dvpp.media.dvpp_get_pic_desc_data(target)) == 0
    release.set()
    assert dvpp.done() == INVALID
    assert "no live memory" in dvpp.said()
    assert dvpp.media.dvpp_get_pic_desc_ret_code(target) == INVALID
