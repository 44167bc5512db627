"""himpi: pictures moved by tables."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import cv2
import numpy as np
import pytest

from tests.acl.himpi_calls import bytes_at, done, memory, picture

VPC, ILLEGAL = 0xA0078000, 3
WIDTH, HEIGHT = 48, 32
WIDE, HIGH = 40, 28
PIXELS = np.asarray(cv2.GaussianBlur(np.random.default_rng(5).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8), (5, 5), 0), np.uint8)
PAIRS = (((0, 0), (47, 0), (47, 31), (0, 31)), ((3, 2), (36, 5), (33, 27), (1, 22)))


@pytest.fixture
def pair(mpi: ModuleType) -> dict[str, Any]:
    assert mpi.vpc_create_chn(0, {"attr": 0, "pic_width": 0, "pic_height": 0}) == 0
    return {"src": picture(mpi, 12, WIDTH, HEIGHT, PIXELS.reshape(-1)), "dst": picture(mpi, 12, WIDE, HIGH)}


@pytest.fixture
def table(mpi: ModuleType) -> dict[str, Any]:
    size, ret = mpi.vpc_get_lut_mem_size(WIDE, HIGH)
    assert ret == 0
    ptr, _ = memory(mpi, size)
    sizes = {"src_pic_width": WIDTH, "src_pic_height": HEIGHT, "dest_pic_width": WIDE, "dest_pic_height": HIGH}
    return {**sizes, "lut": ptr, "lut_size": size, "reserved": 0}


def points(number: int) -> dict[str, Any]:
    given = {name: [{"x": x, "y": y} for x, y in places[:number]] for name, places in zip(("src_point", "dest_point"), PAIRS, strict=True)}
    return {**given, "src_point_count": number, "dest_point_count": number}


def config(interpolation: int) -> dict[str, Any]:
    return {"interpolation": interpolation, "border_type": 0, "scalar_value": {"val": [10, 20, 30, 0]}}


def moved(mpi: ModuleType, pair: dict[str, Any], table: dict[str, Any], interpolation: int) -> np.ndarray:
    assert done(mpi, mpi.vpc_lut_remap(0, {**pair, "transform_config": config(interpolation)}, table, 100)) == 0
    pixels: np.ndarray = bytes_at(pair["dst"]).reshape(HIGH, WIDE, 3)
    return pixels


def close(ours: np.ndarray, theirs: np.ndarray, most: int) -> bool:
    """Alike but for pixels at the edges, where roundings decide what is inside."""
    return bool((np.abs(ours.astype(int) - theirs.astype(int)).max(-1) > most).mean() < 0.02)


def test_three_points_make_an_affine_table(mpi: ModuleType, pair: dict[str, Any], table: dict[str, Any]) -> None:
    filled, ret = mpi.vpc_get_affine_lut(points(3), 0, table)
    assert (ret, filled) == (0, table)
    matrix = cv2.getAffineTransform(np.array(PAIRS[0][:3], np.float32), np.array(PAIRS[1][:3], np.float32))
    for interpolation, flag in ((0, cv2.INTER_LINEAR), (1, cv2.INTER_NEAREST)):
        theirs = cv2.warpAffine(PIXELS, matrix, (WIDE, HIGH), flags=flag, borderValue=(10, 20, 30))
        assert close(moved(mpi, pair, filled, interpolation), theirs, 4)


def test_four_points_make_a_perspective_table(mpi: ModuleType, pair: dict[str, Any], table: dict[str, Any]) -> None:
    filled, ret = mpi.vpc_get_perspective_lut(points(4), 0, table)
    assert ret == 0
    matrix = cv2.getPerspectiveTransform(np.array(PAIRS[0], np.float32), np.array(PAIRS[1], np.float32))
    theirs = cv2.warpPerspective(PIXELS, matrix, (WIDE, HIGH), borderValue=(10, 20, 30))
    assert close(moved(mpi, pair, filled, 0), theirs, 4)


def test_maps_make_a_table(mpi: ModuleType, pair: dict[str, Any], table: dict[str, Any]) -> None:
    rows, columns = np.mgrid[0:HIGH, 0:WIDE].astype(np.float32)
    x, y = columns + 2 * np.sin(rows / 4), rows + 2 * np.cos(columns / 5)
    ptrs = [memory(mpi, each.astype(np.float32).tobytes())[0] for each in (x, y)]
    maps = {"map1": ptrs[0], "map2": ptrs[1], "map_size": x.nbytes, **{name: table[name] for name in table if "pic" in name}, "reserved": 0}
    filled, ret = mpi.vpc_get_remap_lut(maps, table)
    assert ret == 0
    theirs = cv2.remap(PIXELS, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=(10, 20, 30))
    assert close(moved(mpi, pair, filled, 0), theirs, 4)
    nowhere = {**maps, "map1": memory(mpi, np.full((HIGH, WIDE), np.nan, np.float32).tobytes())[0]}
    assert (moved(mpi, pair, mpi.vpc_get_remap_lut(nowhere, table)[0], 0) == (10, 20, 30)).all()
    assert mpi.vpc_get_remap_lut({**maps, "map_size": 7}, table) == ({}, VPC + ILLEGAL)


def test_wrong_tables_are_named(acl: ModuleType, mpi: ModuleType, pair: dict[str, Any], table: dict[str, Any]) -> None:
    assert mpi.vpc_get_lut_mem_size(0, 4) == (0, VPC + ILLEGAL)
    assert mpi.vpc_get_affine_lut(points(3), 0, {**table, "lut_size": 8}) == ({}, VPC + ILLEGAL)
    assert "vpc_get_lut_mem_size" in acl.get_recent_err_msg()
    assert mpi.vpc_get_affine_lut(points(3), 9, table) == ({}, VPC + ILLEGAL)
    assert mpi.vpc_get_affine_lut(points(4), 0, table) == ({}, VPC + ILLEGAL)
    assert mpi.vpc_get_perspective_lut(points(3), 0, table) == ({}, VPC + ILLEGAL)
    line = {name: [{"x": at, "y": at} for at in range(4)] for name in ("src_point", "dest_point")}
    assert mpi.vpc_get_perspective_lut(line, 0, table) == ({}, VPC + ILLEGAL)
    swapped = {**pair, "src": pair["dst"], "transform_config": config(0)}
    assert mpi.vpc_lut_remap(0, swapped, table, 100) == (0, VPC + ILLEGAL)
    assert "the pictures' sizes" in acl.get_recent_err_msg()
