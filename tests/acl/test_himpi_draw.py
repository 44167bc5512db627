"""himpi: what is drawn into pictures."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import cv2
import numpy as np
import pytest

from tests.acl.himpi_calls import bytes_at, done, memory, picture

VPC, ILLEGAL, NOT_SUPPORT = 0xA0078000, 3, 8
WIDTH, HEIGHT = 64, 48
PIXELS = np.random.default_rng(3).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
COLOUR = (200, 100, 50)
CODE = 0xC86432


@pytest.fixture
def pair(mpi: ModuleType) -> dict[str, Any]:
    assert mpi.vpc_create_chn(0, {"attr": 0, "pic_width": 0, "pic_height": 0}) == 0
    return {"src": picture(mpi, 12, WIDTH, HEIGHT, PIXELS.reshape(-1)), "dst": picture(mpi, 12, WIDTH, HEIGHT)}


def drawn(mpi: ModuleType, pair: dict[str, Any], what: str, *shapes: dict[str, Any]) -> np.ndarray:
    task = getattr(mpi, f"vpc_draw_{what}")(0, {**pair, "count": len(shapes), what: list(shapes)}, 100)
    assert done(mpi, task) == 0
    pixels: np.ndarray = bytes_at(pair["dst"]).reshape(HEIGHT, WIDTH, 3)
    return pixels


def changed(mpi: ModuleType, pair: dict[str, Any], what: str, *shapes: dict[str, Any]) -> np.ndarray:
    """Where the colour is; everything else is as it was."""
    found = drawn(mpi, pair, what, *shapes)
    mask: np.ndarray = (found == COLOUR).all(-1)
    assert (found[~mask] == PIXELS[~mask]).all()
    return mask


def rect(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "width": width, "height": height}


def quad(points: list[tuple[int, int]], solid: int, thick: int = 2) -> dict[str, Any]:
    corners = [{"x": x, "y": y} for x, y in points]
    return {"type": 1, "color": CODE, "quad": {"is_solid": solid, "thick": thick, "point": corners}}


def line(start: tuple[int, int], end: tuple[int, int], thick: int) -> dict[str, Any]:
    ends = {name: {"x": x, "y": y} for name, (x, y) in (("start_point", start), ("end_point", end))}
    return {**ends, "thick": thick, "color": CODE}


def test_rectangles_cover_a_picture(mpi: ModuleType, pair: dict[str, Any]) -> None:
    mask = changed(
        mpi, pair, "cover", {"type": 0, "rect": rect(5, 7, 20, 9), "color": CODE}, {"type": 0, "rect": rect(60, 40, 4, 8), "color": CODE}
    )
    assert mask[7:16, 5:25].all()
    assert mask[40:, 60:].all()
    assert mask.sum() == 20 * 9 + 4 * 8


def test_quadrangles_are_solid_or_hollow(mpi: ModuleType, pair: dict[str, Any]) -> None:
    upright = [(10, 8), (40, 8), (40, 30), (10, 30)]
    solid = changed(mpi, pair, "cover", quad(upright, 1))
    assert solid[8:31, 10:41].all()
    assert solid.sum() == 23 * 31
    hollow = changed(mpi, pair, "cover", quad(upright, 0, 2))
    frame = np.zeros((HEIGHT, WIDTH), bool)
    frame[7:31, 9:41] = True
    frame[9:29, 11:39] = False
    assert (hollow == frame).all()
    slanted = [(20, 4), (50, 16), (38, 44), (6, 30)]
    ours = changed(mpi, pair, "cover", quad(slanted, 1))
    theirs = cv2.fillPoly(np.zeros((HEIGHT, WIDTH), np.uint8), [np.array(slanted)], 1).astype(bool)
    assert (ours != theirs).sum() < 0.01 * theirs.sum()
    beyond = changed(mpi, pair, "cover", quad([(-20, -20), (100, -20), (100, 20), (-20, 20)], 1))
    assert beyond[:21].all()
    assert not beyond[21:].any()


@pytest.mark.parametrize(("start", "end"), [((10, 20), (40, 20)), ((40, 20), (10, 20))])
def test_lines_are_as_thick_as_said(mpi: ModuleType, pair: dict[str, Any], start: tuple[int, int], end: tuple[int, int]) -> None:
    for thick in (1, 2, 6):
        mask = changed(mpi, pair, "line", line(start, end, thick))
        assert mask.sum() == 31 * thick
        assert mask[20 - thick // 2 : 20 - thick // 2 + thick, 10:41].all()
        turned = changed(mpi, pair, "line", line(start[::-1], end[::-1], thick))
        assert turned.sum() == 31 * thick
        assert turned[10:41, 20 - thick // 2 : 20 - thick // 2 + thick].all()


def test_lines_end_where_the_picture_does(mpi: ModuleType, pair: dict[str, Any]) -> None:
    mask = changed(mpi, pair, "line", line((-10, -10), (100, 100), 1))
    assert mask[np.arange(HEIGHT), np.arange(HEIGHT)].all()
    assert not changed(mpi, pair, "line", line((-10, -10), (-50, -30), 2)).any()
    assert changed(mpi, pair, "line", line((9, 9), (9, 9), 2)).sum() == 4


def test_mosaics_are_means_of_blocks(mpi: ModuleType, pair: dict[str, Any]) -> None:
    found = drawn(mpi, pair, "mosaic", {"blk_size": 1, "rect": rect(3, 5, 20, 16)})
    for top in (5, 13):
        for left, wide in ((3, 8), (11, 8), (19, 4)):
            mean = PIXELS[top : top + 8, left : left + wide].reshape(-1, 3).mean(0)
            assert np.abs(found[top : top + 8, left : left + wide] - mean).max() <= 0.5
    left_alone = np.ones((HEIGHT, WIDTH), bool)
    left_alone[5:21, 3:23] = False
    assert (found[left_alone] == PIXELS[left_alone]).all()


def test_colours_become_yuv(mpi: ModuleType) -> None:
    assert mpi.vpc_create_chn(0, {"attr": 0, "pic_width": 0, "pic_height": 0}) == 0
    pair = {"src": picture(mpi, 1, WIDTH, HEIGHT, np.full(WIDTH * HEIGHT * 3 // 2, 7, np.uint8)), "dst": picture(mpi, 1, WIDTH, HEIGHT)}
    given = {**pair, "count": 1, "cover": [{"type": 0, "rect": rect(9, 6, 11, 8), "color": CODE}]}
    assert done(mpi, mpi.vpc_draw_cover(0, given, 100)) == 0
    data = bytes_at(pair["dst"])
    luma, chroma = data[: WIDTH * HEIGHT].reshape(HEIGHT, WIDTH), data[WIDTH * HEIGHT :].reshape(HEIGHT // 2, WIDTH // 2, 2)
    y, cr, cb = cv2.cvtColor(np.array([[COLOUR]], np.uint8), cv2.COLOR_RGB2YCrCb)[0, 0].astype(int)
    assert np.abs(luma[6:14, 9:20].astype(int) - y).max() <= 1
    assert np.abs(chroma[3:7, 4:10].astype(int) - (cb, cr)).max() <= 1
    assert (luma == 7).sum() == luma.size - 8 * 11
    assert (chroma == 7).sum() == chroma.size - 4 * 6 * 2
    blocks = {**pair, "src": pair["dst"], "count": 1, "mosaic": [{"blk_size": 3, "rect": rect(0, 0, WIDTH, HEIGHT)}]}
    mean = luma[:32, :32].mean()
    assert done(mpi, mpi.vpc_draw_mosaic(0, blocks, 100)) == 0
    assert np.abs(bytes_at(pair["dst"])[:32] - mean).max() <= 0.5


def test_wrong_drawings_are_named(acl: ModuleType, mpi: ModuleType, pair: dict[str, Any]) -> None:
    def refused(what: str, *shapes: dict[str, Any], count: int | None = None, pictures: dict[str, Any] = pair) -> str:
        given = {**pictures, "count": len(shapes) if count is None else count, what: list(shapes)}
        assert getattr(mpi, f"vpc_draw_{what}")(0, given, 100) == (0, VPC + ILLEGAL)
        return str(acl.get_recent_err_msg())

    good = {"type": 0, "rect": rect(0, 0, 8, 8), "color": 0}
    assert "a list of 1 to 100" in refused("cover")
    assert "count 2" in refused("cover", good, count=2)
    assert "inside the 64 x 48" in refused("cover", {**good, "rect": rect(60, 0, 8, 8)})
    assert "0xRRGGBB" in refused("cover", {**good, "color": 1 << 24})
    assert "1 (quadrangle)" in refused("cover", {**good, "type": 2})
    assert "accepted: 4" in refused("cover", quad([(0, 0), (4, 4)], 1))
    assert "at least 1" in refused("line", line((0, 0), (4, 4), 0))
    assert "'x': int" in refused("line", {**line((0, 0), (4, 4), 2), "end_point": None})
    assert "5 (128)" in refused("mosaic", {"blk_size": 6, "rect": rect(0, 0, 8, 8)})
    small = {**pair, "dst": picture(mpi, 12, WIDTH, HEIGHT - 2)}
    assert "another format or size" in refused("cover", good, pictures=small)
    nv12 = {"src": picture(mpi, 1, WIDTH, HEIGHT), "dst": picture(mpi, 1, WIDTH, HEIGHT)}
    odd = mpi.vpc_draw_mosaic(0, {**nv12, "count": 1, "mosaic": [{"blk_size": 0, "rect": rect(1, 0, 8, 8)}]}, 100)
    assert done(mpi, odd) == VPC + ILLEGAL


# ---- bitmaps
TABLE = [0xFF000000 + 0x0F1E2D * n for n in range(15)] + [0x40FFFFFF]


def blended(below: np.ndarray, argb: np.ndarray) -> np.ndarray:
    """[rows, columns, A R G B] over RGB."""
    alpha = argb[..., :1] / 255
    return below * (1 - alpha) + argb[..., 1:] * alpha


def osd(mpi: ModuleType, form: int, data: np.ndarray, place: dict[str, int], **more: int) -> dict[str, Any]:
    """A bitmap whose rows are followed by three bytes of anything."""
    rows = np.pad(data.view(np.uint8).reshape(place["height"], -1), ((0, 0), (0, 3)), constant_values=99)
    address, _ = memory(mpi, rows.reshape(-1))
    alphas = {"bg_alpha": 30, "fg_alpha": 200, "osd_inverted_color": 0}
    return {"rect": place, "pixel_format": form, "picture_address": address, "stride": rows.shape[1], **alphas, **more}


def bitmaps() -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Of 7 x 5 random pixels by pixel format: how they lie, and their alpha, red, green and blue."""
    random = np.random.default_rng()
    argb = random.integers(0, 256, (5, 7, 4), np.uint8)
    words = random.integers(0, 1 << 16, (5, 7), np.uint16)
    fours = np.stack([words >> shift & 15 for shift in (12, 8, 4, 0)], -1) * 17
    fives = np.stack([np.where(words >> 15, 200, 30), *((words >> shift & 31) * 255 / 31 for shift in (10, 5, 0))], -1)
    found = {14: (argb, argb), 25: (words, fours), 33: (words, fives)}
    table = np.array(TABLE, ">u4").view(np.uint8).reshape(16, 4)
    for form, bits in ((41, 2), (42, 4)):
        numbers = random.integers(0, 1 << bits, (5, 8), np.uint8)
        places = 1 << np.arange(8 - bits, -1, -bits)
        found[form] = (numbers.reshape(5, -1, 8 // bits) @ places).astype(np.uint8), table[numbers[:, :7]]
    return found


@pytest.mark.parametrize("form", [14, 25, 33, 41, 42])
def test_bitmaps_are_laid_over_a_picture(mpi: ModuleType, pair: dict[str, Any], form: int) -> None:
    data, argb = bitmaps()[form]
    argb = argb.astype(float)
    for kind, flipped in ((0, []), (1, [1, 2, 3]), (2, [0]), (3, [0, 1, 2, 3])):
        inverted = argb.copy()
        inverted[..., flipped] = 255 - argb[..., flipped]
        found = drawn(mpi, {**pair, "clut": TABLE}, "osd", osd(mpi, form, data, rect(9, 6, 7, 5), osd_inverted_color=kind))
        expected = PIXELS.astype(float)
        expected[6:11, 9:16] = blended(expected[6:11, 9:16], inverted)
        assert np.abs(found - expected).max() <= 1.01
        assert (found[11:] == PIXELS[11:]).all()


def test_a_bitmap_over_yuv_is_mixed_by_samples(mpi: ModuleType) -> None:
    assert mpi.vpc_create_chn(0, {"attr": 0, "pic_width": 0, "pic_height": 0}) == 0
    pair = {"src": picture(mpi, 1, WIDTH, HEIGHT, np.full(WIDTH * HEIGHT * 3 // 2, 7, np.uint8)), "dst": picture(mpi, 1, WIDTH, HEIGHT)}
    pixels = np.full((3, 4, 4), (255, *COLOUR), np.uint8)
    given = {**pair, "clut": TABLE, "count": 1, "osd": [osd(mpi, 14, pixels, rect(9, 6, 4, 3))]}
    assert done(mpi, mpi.vpc_draw_osd(0, given, 100)) == 0
    data = bytes_at(pair["dst"])
    luma, chroma = data[: WIDTH * HEIGHT].reshape(HEIGHT, WIDTH), data[WIDTH * HEIGHT :].reshape(HEIGHT // 2, WIDTH // 2, 2)
    y, cr, cb = cv2.cvtColor(np.array([[COLOUR]], np.uint8), cv2.COLOR_RGB2YCrCb)[0, 0].astype(float)
    assert np.abs(luma[6:9, 9:13] - y).max() <= 1
    share = np.outer([1, 0.5], [0.5, 1, 0.5])[..., None]  # of each sample's pixels
    assert np.abs(chroma[3:5, 4:7] - (share * (cb, cr) + (1 - share) * 7)).max() <= 1.01
    assert (chroma == 7).sum() == chroma.size - 2 * 3 * 2


def test_wrong_bitmaps_are_named(acl: ModuleType, mpi: ModuleType, pair: dict[str, Any]) -> None:
    good = osd(mpi, 14, np.zeros((5, 7, 4), np.uint8), rect(0, 0, 7, 5))
    wrong: list[tuple[dict[str, Any], list[int], str]] = [
        ({"pixel_format": 12}, TABLE, "accepted: 14, 25, 33, 41, 42"), ({"stride": 27}, TABLE, "at least 28 for 7 pixels"),
        ({"picture_address": 0}, TABLE, "the bitmap"), ({"bg_alpha": 256}, TABLE, "0 to 255"),
        ({"osd_inverted_color": 4}, TABLE, "3 (both)"), ({}, TABLE[1:], "a list of 16"),
    ]  # fmt: skip
    for change, table, words in wrong:
        task, code = mpi.vpc_draw_osd(0, {**pair, "clut": table, "count": 1, "osd": [{**good, **change}]}, 100)
        assert task == 0
        assert code in (VPC + ILLEGAL, VPC + NOT_SUPPORT, VPC + 0x11)
        assert words in acl.get_recent_err_msg()
