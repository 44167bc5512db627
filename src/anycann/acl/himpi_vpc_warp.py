"""acl.himpi: pictures moved by affine transformations, and their matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.entries import value_and_status
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import Dict, dict_in, errors_of, number_in, picture_of
from anycann.acl.himpi_vpc_channel import CHANNELS
from anycann.acl.himpi_vpc_filters import outside_of
from anycann.media.neighbourhoods import Outside
from anycann.media.picture import Picture
from anycann.media.warp import Affine, Point, affine_of, rotation, warp

_TWO_BY_THREE = 0
_SHAPE = (3, 4)  # of a matrix as programs see it, of whatever type


def _described(matrix: Affine) -> dict[str, object]:
    whole = np.zeros(_SHAPE)
    whole[:2, :3] = matrix
    return {"matrix_type": _TWO_BY_THREE, "matrix": whole.tolist()}


def _matrix(given: Dict) -> Affine:
    whole = np.array(given.get("matrix", ()), np.float64)
    if whole.shape != _SHAPE:
        raise AclError(Code.INVALID_PARAM, f"a matrix of shape {whole.shape}; accepted: {_SHAPE}, the upper left 2 x 3 being used")
    return whole[:2, :3]


def _point(given: object) -> Point:
    if not isinstance(given, dict) or not all(isinstance(given.get(axis), int | float) for axis in "xy"):
        raise AclError(Code.INVALID_PARAM, f"a point is {given!r:.60}; accepted: {{'x': number, 'y': number}}")
    return float(given["x"]), float(given["y"])


def points_of(pairs: Dict) -> tuple[list[Point], list[Point]]:
    """src_point and dest_point."""
    sources, targets = ([_point(each) for each in pairs.get(name, ())] for name in ("src_point", "dest_point"))
    return sources, targets


@value_and_status("acl.himpi.vpc_get_affine_transform", failed=({},), returns="(dict, ret)")
def vpc_get_affine_transform(pairs: dict[str, Any]) -> dict[str, object]:
    """The matrix that moves three points of src_point, {x, y} each, to those of dest_point."""
    with errors_of("VPC"):
        return _described(affine_of(*points_of(pairs)))


@value_and_status("acl.himpi.vpc_get_rotation_matrix", failed=({},), returns="(dict, ret)")
def vpc_get_rotation_matrix(centre: dict[str, Any], angle: float, scale: float) -> dict[str, object]:
    """The matrix that turns by `angle` degrees around {x, y}, counter-clockwise, and scales."""
    with errors_of("VPC"):
        return _described(rotation(_point(centre), angle, scale))


@value_and_status("acl.himpi.vpc_warp_affine", returns="(task, ret)")
def vpc_warp_affine(channel: int, matrix: dict[str, Any], parameters: dict[str, Any], timeout_ms: int) -> int:
    """Move a picture: {src, dst, transform_config: {interpolation: 0 bilinear, 1 nearest, border_type, scalar_value}}."""
    with errors_of("VPC"):
        wanted = _matrix(matrix)
        source, target, nearest, outside = transformation(parameters)
        return CHANNELS.get(channel).submit(lambda: warp(source.view(), target.view(), wanted, nearest, outside))


def transformation(parameters: Dict) -> tuple[Picture, Picture, bool, Outside]:
    """What a hi_warp_transform_param says: input, output, whether the nearest sample is taken, what is beyond the picture."""
    source, target = (
        picture_of(dict_in(parameters, key, "the transformation"), role) for key, role in (("src", "input"), ("dst", "output"))
    )
    settings = dict_in(parameters, "transform_config", "hi_warp_transform_param")
    return source, target, nearest_of(number_in(settings, "interpolation", "transform_config")), outside_of(settings)


def nearest_of(interpolation: int) -> bool:
    """Whether an interpolation takes the nearest sample. Raises AclError for one that is not known."""
    if interpolation not in (0, 1):
        raise AclError(Code.INVALID_PARAM, f"interpolation {interpolation}; accepted: 0 (bilinear), 1 (nearest)")
    return interpolation == 1
