"""himpi: affine transformations of pictures."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.acl.himpi_calls import bytes_at, done, picture

VPC, ILLEGAL, NOT_SUPPORT = 0xA0078000, 3, 8
WIDTH, HEIGHT = 48, 32
PIXELS = np.random.default_rng(5).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)


@pytest.fixture
def pair(mpi: ModuleType) -> dict[str, Any]:
    assert mpi.vpc_create_chn(0, {"attr": 0, "pic_width": 0, "pic_height": 0}) == 0
    return {"src": picture(mpi, 12, WIDTH, HEIGHT, PIXELS.reshape(-1)), "dst": picture(mpi, 12, WIDTH, HEIGHT)}


def settings(interpolation: int, border: int = 0) -> dict[str, Any]:
    return {"interpolation": interpolation, "border_type": border, "scalar_value": {"val": [10, 20, 30, 0]}}


def warped(mpi: ModuleType, pair: dict[str, Any], matrix: dict[str, Any], config: dict[str, Any]) -> np.ndarray:
    assert done(mpi, mpi.vpc_warp_affine(0, matrix, {**pair, "transform_config": config}, 100)) == 0
    return bytes_at(pair["dst"]).reshape(HEIGHT, WIDTH, 3)


def points(*pairs: tuple[float, float]) -> list[dict[str, float]]:
    return [{"x": x, "y": y} for x, y in pairs]


def test_points_say_where_a_picture_goes(mpi: ModuleType, pair: dict[str, Any]) -> None:
    given = {"src_point": points((0, 0), (10, 0), (0, 10)), "dest_point": points((3, 2), (13, 2), (3, 12)), "src_point_count": 3}
    matrix, ret = mpi.vpc_get_affine_transform({**given, "dest_point_count": 3})
    assert (ret, matrix["matrix_type"]) == (0, 0)
    assert np.abs(np.array(matrix["matrix"]) - [[1, 0, 3, 0], [0, 1, 2, 0], [0, 0, 0, 0]]).max() < 1e-9
    found = warped(mpi, pair, matrix, settings(1))
    assert (found[2:, 3:] == PIXELS[:-2, :-3]).all()
    assert (found[:2] == (10, 20, 30)).all()
    repeated = warped(mpi, pair, matrix, settings(1, 1))
    assert (repeated[:2, 3:] == PIXELS[0, :-3]).all()
    line = {"src_point": points((0, 0), (1, 1), (2, 2)), "dest_point": points((0, 0), (1, 1), (2, 2))}
    assert mpi.vpc_get_affine_transform(line)[1] == VPC + ILLEGAL


def test_rotations_and_scales(mpi: ModuleType, pair: dict[str, Any]) -> None:
    half_turn, ret = mpi.vpc_get_rotation_matrix({"x": (WIDTH - 1) / 2, "y": (HEIGHT - 1) / 2}, 180.0, 1.0)
    assert ret == 0
    assert (warped(mpi, pair, half_turn, settings(1)) == PIXELS[::-1, ::-1]).all()
    assert (warped(mpi, pair, half_turn, settings(0, 1)) == PIXELS[::-1, ::-1]).all()
    quarter, _ = mpi.vpc_get_rotation_matrix({"x": 15.5, "y": 15.5}, 90.0, 1.0)
    assert (warped(mpi, pair, quarter, settings(1))[:, :HEIGHT] == np.rot90(PIXELS[:, :HEIGHT])).all()
    twice, _ = mpi.vpc_get_rotation_matrix({"x": 0.0, "y": 0.0}, 0.0, 2.0)
    large = warped(mpi, pair, twice, settings(0))
    assert (large[::2, ::2] == PIXELS[: HEIGHT // 2, : WIDTH // 2]).all()
    between = (PIXELS[:8, :8].astype(float) + PIXELS[:8, 1:9]) / 2
    assert np.abs(large[:16:2, 1:17:2] - between).max() <= 0.5


def test_wrong_transformations_are_named(acl: ModuleType, mpi: ModuleType, pair: dict[str, Any]) -> None:
    whole = {"matrix_type": 0, "matrix": [[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 0, 0]]}
    wrong = (0, VPC + ILLEGAL)
    assert mpi.vpc_warp_affine(0, {"matrix_type": 0, "matrix": [[1.0]]}, {**pair, "transform_config": settings(0)}, 100) == wrong
    assert "accepted: (3, 4)" in acl.get_recent_err_msg()
    assert mpi.vpc_warp_affine(0, whole, {**pair, "transform_config": settings(7)}, 100) == wrong
    assert mpi.vpc_warp_affine(0, whole, {**pair, "transform_config": settings(0, 3)}, 100) == wrong
    flat = {"matrix_type": 0, "matrix": [[1.0, 1.0, 0, 0], [1.0, 1.0, 0, 0], [0, 0, 0, 0]]}
    assert done(mpi, mpi.vpc_warp_affine(0, flat, {**pair, "transform_config": settings(0)}, 100)) == VPC + ILLEGAL
    nv12 = {"src": picture(mpi, 1, 64, 32), "dst": picture(mpi, 1, 64, 32), "transform_config": settings(0)}
    assert done(mpi, mpi.vpc_warp_affine(0, whole, nv12, 100)) == VPC + NOT_SUPPORT
    assert mpi.vpc_get_rotation_matrix({"x": 1}, 0.0, 1.0) == ({}, VPC + ILLEGAL)
