from __future__ import annotations

import numpy as np
import pytest

from anycann.media.picture import Region
from anycann.media.resize import Interpolation, resize_plane
from anycann.media.scale import transfer
from anycann.support.errors import UsageError
from tests.media.pictures import GUARD, poisoned, random_picture


def test_a_crop_is_pasted_and_the_rest_stays() -> None:
    source, target = random_picture(1, 64, 48, 1, (16, 2)), poisoned(1, 32, 32)
    transfer(source, target, Region(8, 15, 4, 9), Region(16, 23, 6, 11))
    luma, chroma = target.view().planes
    assert (luma[6:12, 16:24] == source.view().planes[0][4:10, 8:16]).all()
    assert (chroma[3:6, 8:12] == source.view().planes[1][2:5, 4:8]).all()
    luma[6:12, 16:24], chroma[3:6, 8:12] = GUARD, GUARD
    assert (target.data == GUARD).all()


def test_planes_are_scaled_each_by_itself() -> None:
    source, target = random_picture(2, 50, 38, 2), poisoned(2, 31, 77)
    transfer(source, target, Region(4, 33, 2, 21))
    for plane, scaled, (top, left, rows, columns) in zip(
        source.view().planes, target.view().planes, ((2, 4, 20, 30), (1, 2, 10, 15)), strict=True
    ):
        expected = np.empty_like(scaled)
        resize_plane(np.ascontiguousarray(plane[top : top + rows, left : left + columns]), expected, Interpolation.BILINEAR)
        assert (scaled == expected).all()


def test_packed_422_and_other_formats_are_scaled_too() -> None:
    yuyv, rgb = random_picture(7, 40, 30, 3), poisoned(12, 20, 20)
    yuyv.view().planes[0][..., 0::2], yuyv.view().planes[0][..., 1::2] = 90, 128
    transfer(yuyv, rgb)
    assert (rgb.data == 90).all()
    small = poisoned(7, 10, 8)
    transfer(yuyv, small)
    assert small.data.reshape(-1, 2)[:, 0].tolist() == [90] * 80


@pytest.mark.parametrize("region", [Region(0, 64, 0, 9), Region(0, 9, 0, 48), Region(9, 8, 0, 3)])
def test_a_region_outside_is_refused(region: Region) -> None:
    with pytest.raises(UsageError, match="inside the 64 x 48 pixels"):
        transfer(random_picture(1, 64, 48), poisoned(1, 32, 32), region)
