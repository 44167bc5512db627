"""himpi: regions of interest, seen in what decoders make of the stream."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray
import pytest

from tests.acl.himpi_calls import memory
from tests.acl.test_himpi_venc import FOREVER, H264, H265, ILLEGAL, JPEG, NOT_SUPPORT, UNEXIST, VENC, attributes, fetched, frame

SIZE = 256
CODECS = {H264: "h264", H265: "hevc"}
RECT = {"x": 0, "y": 0, "width": 128, "height": 256}
REGION = {"idx": 3, "enable": 1, "is_abs_qp": 0, "qp": -15, "rect": RECT}
NOISE = np.random.default_rng(0).integers(64, 192, (SIZE, SIZE), np.uint8)


def started(mpi: ModuleType, kind: int) -> None:
    assert mpi.venc_create_chn(0, attributes(kind, SIZE, SIZE, gop=100, bit_rate=2000)) == 0
    assert mpi.venc_start_chn(0, FOREVER) == 0


def differences(mpi: ModuleType, kind: int, count: int = 8) -> tuple[float, float]:
    """By how much the last of some pictures of noise differs when it is decoded: its left half, its right half."""
    decoder: Any = av.CodecContext.create(CODECS[kind], "r")
    ptr, _ = memory(mpi, np.concatenate([NOISE.ravel(), np.full(SIZE * SIZE // 2, 128, np.uint8)]))
    pictures = []
    for number in range(count):
        if not number:
            assert mpi.venc_request_idr(0, 1) == 0
        assert mpi.venc_send_frame(0, frame(ptr, SIZE, SIZE), 0) == 0
        pictures += [each for packet in decoder.parse(fetched(mpi, 0)[0]) for each in decoder.decode(packet)]
    pictures += [each for packet in decoder.parse(b"") for each in decoder.decode(packet)] + decoder.decode(None)
    off: NDArray[np.float64] = np.abs(pictures[-1].to_ndarray()[:SIZE].astype(float) - NOISE)
    return float(off[:, : SIZE // 2].mean()), float(off[:, SIZE // 2 :].mean())


@pytest.mark.parametrize("kind", [H264, H265])
def test_a_region_is_better_than_the_rest_or_worse(mpi: ModuleType, kind: int) -> None:
    started(mpi, kind)
    left, right = differences(mpi, kind)
    assert 0.8 < left / right < 1.25
    assert mpi.venc_set_roi_attr(0, REGION) == 0
    left, right = differences(mpi, kind)
    assert left < 0.7 * right
    assert mpi.venc_set_roi_attr(0, {**REGION, "idx": 5, "qp": 15}) == 0  # the greatest number holds
    left, right = differences(mpi, kind)
    assert left > 1.3 * right
    assert mpi.venc_set_roi_attr(0, {**REGION, "idx": 5, "enable": 0}) == 0
    left, right = differences(mpi, kind)
    assert left < 0.7 * right
    assert mpi.venc_set_roi_attr(0, {**REGION, "enable": 0}) == 0
    left, right = differences(mpi, kind)
    assert 0.8 < left / right < 1.25


@pytest.mark.parametrize("kind", [H264, H265])
def test_a_region_has_a_quantiser_of_its_own(mpi: ModuleType, kind: int) -> None:
    started(mpi, kind)
    found = []
    for quantiser in (20, 30, 40):
        assert mpi.venc_set_roi_attr(0, {**REGION, "is_abs_qp": 1, "qp": quantiser}) == 0
        left, right = differences(mpi, kind)
        assert right < 1
        found.append(left)
    assert found == sorted(found)
    assert found[0] < 2
    assert found[-1] > 10


def test_regions_are_read_by_their_numbers(mpi: ModuleType) -> None:
    started(mpi, H264)
    assert mpi.venc_set_roi_attr(0, REGION) == 0
    assert mpi.venc_get_roi_attr(0, 3) == (REGION, 0)
    before, ret = mpi.venc_get_roi_attr(0, 2)
    assert (ret, before["idx"], before["enable"]) == (0, 2, 0)
    assert mpi.venc_get_roi_attr(0, 8) == ({}, VENC + ILLEGAL)


def test_wrong_regions_have_their_codes(acl: ModuleType, mpi: ModuleType) -> None:
    assert mpi.venc_set_roi_attr(0, REGION) == VENC + UNEXIST
    assert mpi.venc_get_roi_attr(0, 0) == ({}, VENC + UNEXIST)
    started(mpi, H264)
    for wrong in (
        {}, {"idx": 8}, {"idx": -1}, {"qp": 52}, {"qp": -52}, {"qp": None}, {"is_abs_qp": 1, "qp": -1}, {"rect": None},
        {"rect": {**RECT, "x": 8}}, {"rect": {**RECT, "x": -16}}, {"rect": {**RECT, "width": 0}}, {"rect": {**RECT, "width": 272}},
        {"rect": {**RECT, "y": 16}}, {"rect": {"x": 0}},
    ):  # fmt: skip
        given = {**REGION, **wrong} if wrong else wrong
        assert mpi.venc_set_roi_attr(0, given) == VENC + ILLEGAL, wrong
    assert mpi.venc_set_roi_attr(0, {**REGION, "rect": {**RECT, "y": 16}}) == VENC + ILLEGAL
    assert "128 x 256 at 0, 16; accepted: multiples of 16, within 256 x 256" in acl.get_recent_err_msg()
    assert mpi.venc_get_roi_attr(0, 3)[0]["enable"] == 0
    assert mpi.venc_create_chn(1, attributes(JPEG)) == 0
    assert mpi.venc_set_roi_attr(1, REGION) == VENC + NOT_SUPPORT
    assert mpi.venc_get_roi_attr(1, 3) == ({}, VENC + NOT_SUPPORT)
