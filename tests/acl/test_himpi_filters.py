"""himpi: regions framed and in batches, filters, counts, pictures turned and mirrored."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
import pytest

from tests.acl.himpi_calls import bytes_at, done, memory, picture

VPC, ILLEGAL, UNEXIST, NOT_SUPPORT, NOT_PERM = 0xA0078000, 3, 5, 8, 9
WIDTH, HEIGHT = 48, 28
REPLICATE = {"border_type": 1, "scalar_value": {"val": [0, 0, 0, 0]}}


@pytest.fixture
def vpc(mpi: ModuleType) -> ModuleType:
    assert mpi.vpc_create_chn(0, {"attr": 0, "pic_width": 0, "pic_height": 0}) == 0
    return mpi


def rgb(vpc: ModuleType, seed: int = 0) -> tuple[dict[str, int], NDArray[np.uint8]]:
    pixels = np.random.default_rng(seed).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    return picture(vpc, 12, WIDTH, HEIGHT, pixels.reshape(-1)), pixels


def pixels_of(given: dict[str, int]) -> NDArray[np.uint8]:
    return bytes_at(given).reshape(given["picture_height"], given["picture_width"], 3)


def region(target: dict[str, int], **more: Any) -> dict[str, Any]:
    crop = {"left_offset": 4, "top_offset": 2, "crop_width": 20, "crop_height": 12}
    return {"dest_pic_info": target, "crop_region": crop, **more}


def resize(width: int, height: int) -> dict[str, int]:
    return {"resize_width": width, "resize_height": height, "interpolation": 2}


def test_a_region_is_framed(vpc: ModuleType) -> None:
    (source, pixels), target = rgb(vpc), picture(vpc, 12, 32, 24)
    constant = {"border_type": 0, "scalar_value": {"val": [1.0, 2.0, 3.0, 0.0]}}
    framed = region(target, resize_info=resize(20, 12), dest_top_offset=4, dest_left_offset=6, **constant)
    assert done(vpc, vpc.vpc_crop_resize_make_border(0, source, [framed], 1, 100)) == 0
    expected = np.empty((24, 32, 3), np.uint8)
    expected[:] = (1, 2, 3)
    expected[4:16, 6:26] = pixels[2:14, 4:24]
    assert (pixels_of(target) == expected).all()
    too_far = {**framed, "dest_left_offset": 20}
    assert vpc.vpc_crop_resize_make_border(0, source, [too_far], 1, 100) == (0, VPC + ILLEGAL)


def test_batches_go_to_the_pictures_that_counts_say(acl: ModuleType, vpc: ModuleType) -> None:
    sources = [rgb(vpc, seed) for seed in (1, 2)]
    targets = [picture(vpc, 12, 20, 12) for _ in range(3)]
    infos = [region(target, resize_info=resize(20, 12), dest_top_offset=0, dest_left_offset=0, **REPLICATE) for target in targets]
    for function in (vpc.vpc_batch_crop_resize_paste, vpc.vpc_batch_crop_resize_make_border):
        assert done(vpc, function(0, [given for given, _ in sources], 2, infos, [1, 2], 100)) == 0
        for target, of in zip(targets, (0, 1, 1), strict=True):
            assert (pixels_of(target) == sources[of][1][2:14, 4:24]).all()
        assert function(0, [given for given, _ in sources], 2, infos, [1, 1], 100) == (0, VPC + ILLEGAL)
    assert "counts that add up to 2 for 3 regions" in acl.get_recent_err_msg()


def test_a_region_is_scaled_twice(vpc: ModuleType) -> None:
    (source, pixels), target = rgb(vpc), picture(vpc, 12, 40, 28)
    twice = region(target, resize_info1=resize(10, 6), resize_info2=resize(20, 12), dest_top_offset=2, dest_left_offset=4, reserved=[0, 0])
    assert done(vpc, vpc.vpc_crop_resize_resize_paste(0, source, [twice], 1, 100)) == 0
    small = pixels[2:14:2, 4:24:2]
    assert (pixels_of(target)[2:14, 4:24] == small.repeat(2, 0).repeat(2, 1)).all()


def naive(pixels: NDArray[np.uint8], size: tuple[int, int], work: Any, value: int | None = None) -> NDArray[Any]:
    """`work` of every neighbourhood, one by one."""
    above, left = size[0] // 2, size[1] // 2
    around = ((above, above), (left, left), (0, 0))
    wide = np.pad(pixels, around, "edge") if value is None else np.pad(pixels, around, constant_values=value)
    made = [[work(wide[y : y + size[0], x : x + size[1]]) for x in range(pixels.shape[1])] for y in range(pixels.shape[0])]
    return np.array(made)


def blur(size: tuple[int, int], **more: Any) -> dict[str, Any]:
    kernel = {"kernel_size": {"height": size[0], "width": size[1]}, "anchor": {"x": -1, "y": -1}, "morph_shapes": 0, "iterations": 1}
    return {**kernel, **REPLICATE, **more}


@pytest.mark.parametrize("size", [(3, 3), (5, 1), (1, 5)])
def test_means_and_extremes_of_neighbours(vpc: ModuleType, size: tuple[int, int]) -> None:
    (source, pixels), target = rgb(vpc), picture(vpc, 12, WIDTH, HEIGHT)
    pair = {"src": source, "dst": target}
    assert done(vpc, vpc.vpc_blur(0, {**pair, "blur_cfg": blur(size)}, 100)) == 0
    assert np.abs(pixels_of(target) - naive(pixels, size, lambda part: part.mean((0, 1)))).max() <= 0.5 + 1e-6
    constant = {"border_type": 0, "scalar_value": {"val": [200, 200, 200, 0]}}
    assert done(vpc, vpc.vpc_erode(0, {**pair, "blur_cfg": blur(size, **constant)}, 100)) == 0
    assert (pixels_of(target) == naive(pixels, size, lambda part: part.min((0, 1)), 200)).all()
    assert done(vpc, vpc.vpc_dilate(0, {**pair, "blur_cfg": blur(size, iterations=2)}, 100)) == 0
    once = naive(pixels, size, lambda part: part.max((0, 1)))
    assert (pixels_of(target) == naive(once, size, lambda part: part.max((0, 1)))).all()


def test_medians_gaussians_and_own_weights(vpc: ModuleType) -> None:
    (source, pixels), target = rgb(vpc), picture(vpc, 12, WIDTH, HEIGHT)
    pair = {"src": source, "dst": target}
    assert done(vpc, vpc.vpc_median_blur(0, {**pair, "median_blur_cfg": {"kernel_size": 3}}, 100)) == 0
    assert (pixels_of(target) == naive(pixels, (3, 3), lambda part: np.median(part, (0, 1)))).all()
    x = np.arange(-2, 3)
    row = np.exp(-(x**2) / (2 * 1.5**2))
    weights = np.outer(row, row) / row.sum() ** 2
    gaussian = {"kernel_size": {"height": 5, "width": 5}, "sigma_x": 1.5, "sigma_y": 0.0, "reserved": [0] * 4, **REPLICATE}
    assert done(vpc, vpc.vpc_gaussian_blur(0, {**pair, "gaussian_blur_cfg": gaussian}, 100)) == 0
    assert np.abs(pixels_of(target) - naive(pixels, (5, 5), lambda part: (part * weights[..., None]).sum((0, 1)))).max() <= 0.5 + 1e-6
    sharp = np.array([[0.0, -1, 0], [-1, 5, -1], [0, -1, 0]])
    own = {"kernel_size": {"height": 3, "width": 3}, "filter": sharp.tolist(), "anchor": {"x": -1, "y": -1}, "delta": 3.0, **REPLICATE}
    assert done(vpc, vpc.vpc_filter2d(0, {**pair, "filter_2d_cfg": own}, 100)) == 0
    expected = naive(pixels, (3, 3), lambda part: (part * sharp[..., None]).sum((0, 1)) + 3)
    assert (pixels_of(target) == np.clip(expected, 0, 255)).all()


def test_a_pyramid(vpc: ModuleType) -> None:
    source, pixels = rgb(vpc)
    targets = [picture(vpc, 12, WIDTH // 2, 14), picture(vpc, 12, WIDTH // 4, 7)]
    assert done(vpc, vpc.vpc_pyrdown(0, source, targets, 2, None, 0, REPLICATE, 100)) == 0
    weights = np.outer([1, 4, 6, 4, 1], [1, 4, 6, 4, 1]) / 256
    level = pixels
    for target in targets:
        level = np.rint(naive(level, (5, 5), lambda part: (part * weights[..., None]).sum((0, 1))))[::2, ::2].astype(np.uint8)
        assert (pixels_of(target) == level).all()
    only = np.zeros((5, 5), int)
    only[2, 2] = 2
    assert done(vpc, vpc.vpc_pyrdown(0, source, targets[:1], 1, only.tolist(), 2, REPLICATE, 100)) == 0
    assert (pixels_of(targets[0]) == pixels[::2, ::2]).all()
    assert vpc.vpc_pyrdown(0, source, targets[1:], 1, None, 0, REPLICATE, 100) == (0, VPC + ILLEGAL)


def test_samples_are_counted_and_looked_up(vpc: ModuleType) -> None:
    (source, pixels), target = rgb(vpc), picture(vpc, 12, WIDTH, HEIGHT)
    wanted = [np.bincount(pixels[..., channel].ravel(), minlength=256).tolist() for channel in range(3)]
    counts, task, ret = vpc.vpc_calc_hist(0, source, 100)
    assert (ret, done(vpc, (task, ret))) == (0, 0)
    assert [counts[name] for name in ("histogram_y_or_r", "histogram_u_or_g", "histogram_v_or_b")] == wanted
    ptr, _ = memory(vpc, 3 * 256 * 4)
    assert done(vpc, vpc.vpc_calc_hist_v2(0, source, 100, ptr)) == 0
    assert np.frombuffer(ctypes.string_at(ptr, 3072), np.uint32).reshape(3, 256).tolist() == wanted
    tables = {"map_value_y_or_r": list(range(255, -1, -1)), "map_value_u_or_g": [7] * 256, "map_value_v_or_b": list(range(256))}
    assert done(vpc, vpc.vpc_equalize_hist(0, source, target, tables, 100)) == 0
    expected = pixels.copy()
    expected[..., 0], expected[..., 1] = 255 - pixels[..., 0], 7
    assert (pixels_of(target) == expected).all()
    assert vpc.vpc_equalize_hist(0, source, target, {**tables, "map_value_y_or_r": [300] * 256}, 100) == (0, VPC + ILLEGAL)


def test_pictures_are_mirrored(vpc: ModuleType) -> None:
    content = np.random.default_rng().integers(0, 256, WIDTH * HEIGHT * 3 // 2, np.uint8)
    source = picture(vpc, 1, WIDTH, HEIGHT, content)
    luma, chroma = content[: WIDTH * HEIGHT].reshape(HEIGHT, WIDTH), content[WIDTH * HEIGHT :].reshape(HEIGHT // 2, WIDTH // 2, 2)
    for mode, way in ((0, np.s_[:, ::-1]), (1, np.s_[::-1]), (2, np.s_[::-1, ::-1])):
        target = picture(vpc, 1, WIDTH, HEIGHT)
        assert done(vpc, vpc.vpc_flip(0, {"src": source, "dst": target, "flip_mode": mode}, 100)) == 0
        assert (bytes_at(target) == np.concatenate([luma[way].ravel(), chroma[way].ravel()])).all()


def test_pictures_are_turned(vpc: ModuleType) -> None:
    source, pixels = rgb(vpc)
    for angle in (0, 1, 2):
        target = picture(vpc, 12, *((WIDTH, HEIGHT) if angle == 1 else (HEIGHT, WIDTH)))
        assert done(vpc, vpc.vpc_rotate(0, {"src": source, "dst": target, "angle": angle}, 100)) == 0
        assert (pixels_of(target) == np.rot90(pixels, -angle - 1)).all()
    luma_and_chroma = np.random.default_rng().integers(0, 256, 32 * 32 * 3 // 2, np.uint8)
    source, target = picture(vpc, 1, 32, 32, luma_and_chroma), picture(vpc, 1, 32, 32)
    assert done(vpc, vpc.vpc_rotate(0, {"src": source, "dst": target, "angle": 0}, 100)) == 0
    planes = luma_and_chroma[:1024].reshape(32, 32), luma_and_chroma[1024:].reshape(16, 16, 2)
    assert (bytes_at(target) == np.concatenate([np.rot90(plane, -1).ravel() for plane in planes])).all()


@pytest.mark.parametrize("size", [(3, 3), (5, 5), (5, 3), (3, 5), (5, 1), (1, 5), (1, 1)])
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_neighbours_have_the_shape_that_was_asked_for(vpc: ModuleType, kind: int, size: tuple[int, int]) -> None:
    (source, pixels), target = rgb(vpc), picture(vpc, 12, WIDTH, HEIGHT)
    shape = cv2.getStructuringElement((cv2.MORPH_RECT, cv2.MORPH_CROSS, cv2.MORPH_ELLIPSE)[kind], size[::-1])
    for call, reference in ((vpc.vpc_erode, cv2.erode), (vpc.vpc_dilate, cv2.dilate)):
        assert done(vpc, call(0, {"src": source, "dst": target, "blur_cfg": blur(size, morph_shapes=kind)}, 100)) == 0
        assert (pixels_of(target) == reference(pixels, shape, borderType=cv2.BORDER_REPLICATE)).all()


def test_wrong_settings_are_named(acl: ModuleType, vpc: ModuleType) -> None:
    (source, _), target = rgb(vpc), picture(vpc, 12, WIDTH, HEIGHT)
    pair = {"src": source, "dst": target}
    wrong = (0, VPC + ILLEGAL)
    assert vpc.vpc_blur(0, {**pair, "blur_cfg": blur((7, 7))}, 100) == wrong
    assert "a kernel of 7 x 7; accepted: 1, 3 or 5 each way" in acl.get_recent_err_msg()
    assert vpc.vpc_erode(0, {**pair, "blur_cfg": blur((3, 3), morph_shapes=3)}, 100) == wrong
    assert vpc.vpc_dilate(0, {**pair, "blur_cfg": blur((3, 3), morph_shapes=[1])}, 100) == wrong
    assert vpc.vpc_erode(0, {**pair, "blur_cfg": blur((3, 3), iterations=0)}, 100) == wrong
    assert vpc.vpc_blur(0, {**pair, "blur_cfg": blur((3, 3), border_type=2)}, 100) == wrong
    assert vpc.vpc_median_blur(0, {**pair, "median_blur_cfg": {"kernel_size": 4}}, 100) == wrong
    assert vpc.vpc_flip(0, {**pair, "flip_mode": 3}, 100) == wrong
    assert vpc.vpc_rotate(0, {**pair, "angle": 3}, 100) == wrong
    assert vpc.vpc_filter2d(0, {"src": source}, 100) == wrong
    small = picture(vpc, 12, 20, 14)
    assert done(vpc, vpc.vpc_flip(0, {"src": source, "dst": small, "flip_mode": 0}, 100)) == VPC + ILLEGAL
    assert vpc.vpc_calc_hist_v2(0, source, 100, 16)[1] != 0
    assert vpc.vpc_set_chn_workspace(0, [{}], 2) == VPC + ILLEGAL
    assert vpc.vpc_set_chn_workspace(0, [5], 1) == VPC + ILLEGAL
    assert vpc.vpc_set_chn_workspace(7, [{}], 1) == VPC + UNEXIST
    assert vpc.vpc_set_chn_workspace(0, [{"func": 0}], 1) == 0
    assert vpc.vpc_set_chn_workspace(0, [{"func": 0}], 1) == VPC + NOT_PERM  # once for a channel
    assert vpc.vpc_set_chn_opt_attr(0, {}) == VPC + NOT_SUPPORT
