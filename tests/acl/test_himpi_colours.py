"""himpi: colour matrices of channels, Ascend's and a program's own."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.acl.himpi_calls import bytes_at, done, picture

VPC, ILLEGAL = 0xA0078000, 3
WIDTH, HEIGHT = 32, 16
NAMES = [f"csc_matrix_r{row}_c{column}" for row in range(3) for column in range(3)] + [f"csc_bias_r{row}" for row in range(3)]


def part(weights: np.ndarray, biases: tuple[float, ...]) -> dict[str, float]:
    return dict(zip(NAMES, [*weights.reshape(-1).tolist(), *biases], strict=True))


def converted(mpi: ModuleType, source: np.ndarray, old: int, new: int) -> np.ndarray:
    one, other = picture(mpi, old, WIDTH, HEIGHT, source), picture(mpi, new, WIDTH, HEIGHT)
    assert done(mpi, mpi.vpc_convert_color(0, one, other, 100)) == 0
    return bytes_at(other).astype(float)


@pytest.fixture
def channel(mpi: ModuleType) -> ModuleType:
    assert mpi.vpc_create_chn(0, {"attr": 0, "pic_width": 0, "pic_height": 0}) == 0
    return mpi


@pytest.mark.parametrize("luma", [(1.0, 1.0, 1.0), (1.0, 0.5, 2.5)])
def test_a_matrix_of_ones_own_is_used_both_ways(channel: ModuleType, luma: tuple[float, ...]) -> None:
    to_rgb = np.column_stack([luma, np.random.default_rng().uniform(-2, 2, (3, 2))])
    to_yuv = np.random.default_rng().uniform(-0.4, 0.6, (3, 3))
    own = {"yuv_to_rgb_coefficient": part(to_rgb, (7, 128, 100)), "rgb_to_yuv_coefficient": part(to_yuv, (10, 127.5, 120))}
    assert channel.sys_set_chn_csc_matrix(7, 0, 100, own) == 0
    assert channel.sys_get_chn_csc_matrix(7, 0) == (100, own, 0)
    yuv = np.random.default_rng().integers(0, 256, WIDTH * HEIGHT * 3 // 2, np.uint8)
    chroma = yuv[WIDTH * HEIGHT :].reshape(HEIGHT // 2, WIDTH // 2, 2).repeat(2, 0).repeat(2, 1)
    pixels = np.concatenate([yuv[: WIDTH * HEIGHT].reshape(HEIGHT, WIDTH, 1), chroma], -1)
    expected = np.clip((pixels - [7, 128, 100]) @ to_rgb.T, 0, 255)
    assert np.abs(converted(channel, yuv, 1, 12).reshape(HEIGHT, WIDTH, 3) - expected).max() <= 1
    rgb = np.random.default_rng().integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    expected = np.clip(rgb @ to_yuv[0] + 10, 0, 255)
    assert np.abs(converted(channel, rgb.reshape(-1), 12, 1)[: WIDTH * HEIGHT].reshape(HEIGHT, WIDTH) - expected).max() <= 1


def test_the_coefficients_of_ascends_matrices_are_told(mpi: ModuleType, channel: ModuleType) -> None:
    assert (
        mpi.vdec_create_chn(1, {"type": 26, "mode": 1, "pic_width": 64, "pic_height": 64, "stream_buf_size": 1 << 16, "frame_buf_cnt": 1})
        == 0
    )
    for module, number in ((7, 0), (5, 1)):
        assert mpi.sys_set_chn_csc_matrix(module, number, 1, {}) == 0
        matrix, told, ret = mpi.sys_get_chn_csc_matrix(module, number)
        assert (matrix, ret) == (1, 0)
        back = [told["yuv_to_rgb_coefficient"][name] for name in NAMES]
        assert np.allclose(back, [1.164, 0, 1.596, 1.164, -0.392, -0.813, 1.164, 2.017, 0, 16, 128, 128], atol=2e-3)


def test_wrong_matrices_are_named(acl: ModuleType, channel: ModuleType) -> None:
    good: dict[str, Any] = {name: part(np.eye(3), (0, 0, 0)) for name in ("yuv_to_rgb_coefficient", "rgb_to_yuv_coefficient")}
    wrong = [
        ((7, 0, 9, good), "100 (one's own)"), ((6, 0, 1, good), "5 (VDEC), 7 (VPC)"), ((7, 0, 100, {}), "yuv_to_rgb_coefficient"),
        ((7, 0, 100, {**good, "rgb_to_yuv_coefficient": part(65 * np.eye(3), (0, 0, 0))}), "csc_matrix_r0_c0'] is 65.0"),
    ]  # fmt: skip
    for arguments, words in wrong:
        assert channel.sys_set_chn_csc_matrix(*arguments) == VPC + ILLEGAL
        assert words in acl.get_recent_err_msg()
    assert channel.sys_get_chn_csc_matrix(7, 0)[0] == 0
