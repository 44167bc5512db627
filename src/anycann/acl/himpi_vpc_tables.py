"""acl.himpi: tables of where each pixel comes from, and pictures moved by them.

A table is two float32 for each pixel of the output: x and y in the input. Programs make and use tables by these functions alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.acl.codes import Code
from anycann.acl.entries import value_and_status
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import Dict, errors_of, number_in
from anycann.acl.himpi_vpc_channel import CHANNELS
from anycann.acl.himpi_vpc_warp import nearest_of, points_of, transformation
from anycann.acl.util import check_readable, view_at
from anycann.media.warp import Places, affine_of, origins, perspective_of, remap

_FLOAT = np.dtype(np.float32)
_SIZES = ("src_pic_width", "src_pic_height", "dest_pic_width", "dest_pic_height")


def _bytes(width: int, height: int) -> int:
    if min(width, height) < 1:
        raise AclError(Code.INVALID_PARAM, f"a table for {width} x {height} pixels; accepted: at least 1 x 1")
    return 2 * width * height * _FLOAT.itemsize


def _table(given: Dict) -> NDArray[np.float32]:
    """x and y [2, rows, columns] of the pixels of an output."""
    *_, width, height = (number_in(given, name, "hi_remap_lut") for name in _SIZES)
    ptr, size = number_in(given, "lut", "hi_remap_lut"), number_in(given, "lut_size", "hi_remap_lut")
    if size < _bytes(width, height):
        raise AclError(Code.INVALID_PARAM, f"lut_size {size}; accepted: at least {_bytes(width, height)}, as vpc_get_lut_mem_size says")
    check_readable(ptr, size, "the table")
    table: NDArray[np.float32] = view_at(ptr, _FLOAT, (2, height, width))
    return table


def _filled(given: Dict, matrix: NDArray[np.float64]) -> dict[str, Any]:
    table = _table(given)
    table[:] = origins(matrix, (table.shape[2], table.shape[1]))
    return dict(given)


@value_and_status("acl.himpi.vpc_get_lut_mem_size", returns="(bytes, ret)")
def vpc_get_lut_mem_size(width: int, height: int) -> int:
    """Bytes of a table for an output of this size."""
    with errors_of("VPC"):
        return _bytes(width, height)


@value_and_status("acl.himpi.vpc_get_affine_lut", failed=({},), returns="(dict, ret)")
def vpc_get_affine_lut(pairs: dict[str, Any], interpolation: int, table: dict[str, Any]) -> dict[str, Any]:
    """Fill {lut, lut_size, src_pic_width, src_pic_height, dest_pic_width, dest_pic_height}: three points src_point go to dest_point."""
    with errors_of("VPC"):
        nearest_of(interpolation)
        return _filled(table, np.vstack([affine_of(*points_of(pairs)), [0.0, 0.0, 1.0]]))


@value_and_status("acl.himpi.vpc_get_perspective_lut", failed=({},), returns="(dict, ret)")
def vpc_get_perspective_lut(pairs: dict[str, Any], interpolation: int, table: dict[str, Any]) -> dict[str, Any]:
    """As vpc_get_affine_lut, for four points."""
    with errors_of("VPC"):
        nearest_of(interpolation)
        return _filled(table, perspective_of(*points_of(pairs)))


@value_and_status("acl.himpi.vpc_get_remap_lut", failed=({},), returns="(dict, ret)", limits="maps are float32")
def vpc_get_remap_lut(maps: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """Fill a table from {map1, map2, map_size, ...}: addresses of x and of y for each pixel of the output, map_size bytes each."""
    with errors_of("VPC"):
        found = _table(table)
        size = number_in(maps, "map_size", "hi_map_param")
        if size != found[0].nbytes:
            raise AclError(Code.INVALID_PARAM, f"map_size {size}; accepted: {found[0].nbytes}, four bytes for each pixel of the output")
        for name, plane in zip(("map1", "map2"), found, strict=True):
            ptr = number_in(maps, name, "hi_map_param")
            check_readable(ptr, size, name)
            plane[:] = view_at(ptr, _FLOAT, plane.shape)
        return dict(table)


@value_and_status("acl.himpi.vpc_lut_remap", returns="(task, ret)")
def vpc_lut_remap(channel: int, parameters: dict[str, Any], table: dict[str, Any], timeout_ms: int) -> int:
    """Move a picture by a table; parameters as of vpc_warp_affine."""
    with errors_of("VPC"):
        source, target, nearest, outside = transformation(parameters)
        sizes = [number_in(table, name, "hi_remap_lut") for name in _SIZES]
        if sizes != [source.width, source.height, target.width, target.height]:
            raise AclError(
                Code.INVALID_PARAM,
                f"a table from {sizes[0]} x {sizes[1]} to {sizes[2]} x {sizes[3]} pixels; accepted: from {source.width} x {source.height} "
                f"to {target.width} x {target.height}, the pictures' sizes",
            )
        found = _table(table)

        def task() -> None:
            places: Places = (found[0].astype(np.float64), found[1].astype(np.float64))
            remap(source.view(), target.view(), places, nearest, outside)

        return CHANNELS.get(channel).submit(task)
