"""acl.himpi: pictures filtered, counted, turned and mirrored."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.acl.codes import Code
from anycann.acl.entries import value_and_status
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import Dict, dict_in, errors_of, number_in, picture_of
from anycann.acl.himpi_vpc import values_of
from anycann.acl.himpi_vpc_channel import CHANNELS
from anycann.acl.media_configs import BORDER_TYPES
from anycann.acl.util import check_readable, view_at
from anycann.media.filters import BINS, histogram, look_up
from anycann.media.neighbourhoods import Outside, cross, ellipse, extreme, gaussian_weights, median, mirror, turn, weigh
from anycann.media.picture import View

_SIZES = (1, 3, 5)
_MOST_TIMES = 100
_COUNTS = ("histogram_y_or_r", "histogram_u_or_g", "histogram_v_or_b")
_TABLES = ("map_value_y_or_r", "map_value_u_or_g", "map_value_v_or_b")
_SHAPES: dict[int, Callable[[tuple[int, int]], NDArray[np.bool_]]] = {0: lambda size: np.ones(size, np.bool_), 1: cross, 2: ellipse}
_PYRAMID = np.outer([1, 4, 6, 4, 1], [1, 4, 6, 4, 1])


def _filter(channel: int, given: Dict, what: str, work: Callable[[View, View], None]) -> int:
    """Do `work` with the pictures `src` and `dst`."""
    found = CHANNELS.get(channel)
    source, target = (picture_of(dict_in(given, key, what), role) for key, role in (("src", "input"), ("dst", "output")))

    def task() -> None:
        work(source.view(), target.view())

    return found.submit(task)


def _size(given: Dict) -> tuple[int, int]:
    """Rows and columns of a kernel."""
    size = dict_in(given, "kernel_size", "the filter")
    rows, columns = number_in(size, "height", "kernel_size"), number_in(size, "width", "kernel_size")
    if rows not in _SIZES or columns not in _SIZES:
        raise AclError(Code.INVALID_PARAM, f"a kernel of {columns} x {rows}; accepted: 1, 3 or 5 each way")
    return rows, columns


def outside_of(given: Dict) -> Outside:
    """What border_type and scalar_value say of samples beyond a picture."""
    kind = BORDER_TYPES.get(number_in(given, "border_type", "the filter"), "")
    if kind == "constant":
        return Outside("constant", values_of(given))
    if kind == "replicate":
        return Outside()
    raise AclError(Code.INVALID_PARAM, f"border type {given['border_type']}; accepted: 0 (constant), 1 (replicate)")


# ---- filters
@value_and_status("acl.himpi.vpc_blur", returns="(task, ret)")
def vpc_blur(channel: int, parameters: dict[str, Any], timeout_ms: int) -> int:
    """Means of neighbours: {src, dst, blur_cfg: {kernel_size: {width, height}, border_type, scalar_value, ...}}."""
    with errors_of("VPC"):
        settings = dict_in(parameters, "blur_cfg", "hi_blur_param")
        rows, columns = _size(settings)
        weights, outside = np.full((rows, columns), 1 / (rows * columns)), outside_of(settings)
        return _filter(channel, parameters, "hi_blur_param", lambda one, other: weigh(one, other, weights, outside))


@value_and_status("acl.himpi.vpc_gaussian_blur", returns="(task, ret)")
def vpc_gaussian_blur(channel: int, parameters: dict[str, Any], timeout_ms: int) -> int:
    """Neighbours weighed by a Gaussian: {src, dst, gaussian_blur_cfg: {kernel_size, sigma_x, sigma_y, border_type, scalar_value}}."""
    with errors_of("VPC"):
        settings = dict_in(parameters, "gaussian_blur_cfg", "hi_gaussian_blur_param")
        sigma_x = float(settings.get("sigma_x", 0))
        weights = gaussian_weights(_size(settings), (float(settings.get("sigma_y", 0)) or sigma_x, sigma_x))
        outside = outside_of(settings)
        return _filter(channel, parameters, "hi_gaussian_blur_param", lambda one, other: weigh(one, other, weights, outside))


@value_and_status("acl.himpi.vpc_filter2d", returns="(task, ret)")
def vpc_filter2d(channel: int, parameters: dict[str, Any], timeout_ms: int) -> int:
    """Neighbours by weights of the program's: {src, dst, filter_2d_cfg: {kernel_size, filter, delta, border_type, scalar_value}}."""
    with errors_of("VPC"):
        settings = dict_in(parameters, "filter_2d_cfg", "hi_filter_2d_param")
        weights = np.array(settings.get("filter", ()), np.float64)
        if weights.shape != _size(settings):
            raise AclError(Code.INVALID_PARAM, f"a filter of shape {weights.shape}; accepted: that of kernel_size, {_size(settings)}")
        outside, delta = outside_of(settings), float(settings.get("delta", 0))
        return _filter(channel, parameters, "hi_filter_2d_param", lambda one, other: weigh(one, other, weights, outside, delta))


@value_and_status("acl.himpi.vpc_median_blur", returns="(task, ret)")
def vpc_median_blur(channel: int, parameters: dict[str, Any], timeout_ms: int) -> int:
    """Medians of neighbours: {src, dst, median_blur_cfg: {kernel_size: 3 or 5}}."""
    with errors_of("VPC"):
        size = number_in(dict_in(parameters, "median_blur_cfg", "hi_median_blur_param"), "kernel_size", "median_blur_cfg")
        if size not in (3, 5):
            raise AclError(Code.INVALID_PARAM, f"a kernel of {size}; accepted: 3, 5")
        return _filter(channel, parameters, "hi_median_blur_param", lambda one, other: median(one, other, size))


def _extreme(channel: int, parameters: Dict, greatest: bool) -> int:
    settings = dict_in(parameters, "blur_cfg", "hi_blur_param")
    size, times = _size(settings), number_in(settings, "iterations", "blur_cfg")
    kind = number_in(settings, "morph_shapes", "blur_cfg") if "morph_shapes" in settings else 0
    if kind not in _SHAPES:
        raise AclError(Code.INVALID_PARAM, f"morph_shapes {kind}; accepted: 0 (a rectangle), 1 (a cross), 2 (an ellipse)")
    if not 1 <= times <= _MOST_TIMES:
        raise AclError(Code.INVALID_PARAM, f"{times} iterations; accepted: 1 to {_MOST_TIMES}")
    shape, outside = _SHAPES[kind](size), outside_of(settings)
    return _filter(channel, parameters, "hi_blur_param", lambda one, other: extreme(one, other, shape, greatest, outside, times))


@value_and_status("acl.himpi.vpc_erode", returns="(task, ret)")
def vpc_erode(channel: int, parameters: dict[str, Any], timeout_ms: int) -> int:
    """The least of neighbours: {src, dst, blur_cfg: {kernel_size, iterations, border_type, scalar_value, morph_shapes}}.

    morph_shapes: 0 a rectangle, 1 a cross, 2 an ellipse, each as large as kernel_size.
    """
    with errors_of("VPC"):
        return _extreme(channel, parameters, greatest=False)


@value_and_status("acl.himpi.vpc_dilate", returns="(task, ret)")
def vpc_dilate(channel: int, parameters: dict[str, Any], timeout_ms: int) -> int:
    """The greatest of neighbours; see vpc_erode."""
    with errors_of("VPC"):
        return _extreme(channel, parameters, greatest=True)


@value_and_status("acl.himpi.vpc_pyrdown", returns="(task, ret)")
def vpc_pyrdown(
    channel: int, source: dict[str, Any], targets: list[Any], levels: int, weights: object, divisor: int, border: dict[str, Any],
    timeout_ms: int,
) -> int:  # fmt: skip
    """Smooth a picture and take every second pixel, `levels` times, each into a picture of its own. weights: 5 x 5 ints, None: Gaussian."""
    with errors_of("VPC"):
        if not 1 <= levels <= len(targets):
            raise AclError(Code.INVALID_PARAM, f"{levels} levels for {len(targets)} pictures; accepted: 1 to the number of pictures")
        kernel = _PYRAMID if weights is None else np.array(weights, np.float64)
        if kernel.shape != _PYRAMID.shape or (weights is not None and divisor < 1):
            raise AclError(Code.INVALID_PARAM, f"a filter of shape {kernel.shape} over {divisor}; accepted: (5, 5) over at least 1")
        scaled, outside = kernel / (divisor if weights is not None else kernel.sum()), outside_of(border)
        pictures = [picture_of(source, "input"), *(picture_of(target, "output") for target in targets[:levels])]
        for one, other in pairwise(pictures):
            if (other.width, other.height) != (-(-one.width // 2), -(-one.height // 2)) or one.format != other.format:
                raise AclError(Code.INVALID_PARAM, f"half of {one.width} x {one.height} goes to {other.width} x {other.height}")

        def task() -> None:
            for one, other in pairwise(pictures):
                _halve(one.view(), other.view(), scaled, outside)

        return CHANNELS.get(channel).submit(task)


def _halve(source: View, target: View, weights: NDArray[np.float64], outside: Outside) -> None:
    smooth = View(source.format, source.width, source.height, tuple(np.empty_like(plane) for plane in source.planes))
    weigh(source, smooth, weights, outside)
    for plane, other in zip(smooth.planes, target.planes, strict=True):
        other[:] = plane[::2, ::2][: other.shape[0], : other.shape[1]]


# ---- samples
@value_and_status("acl.himpi.vpc_calc_hist", failed=({}, 0), returns="(dict, task, ret)")
def vpc_calc_hist(channel: int, source: dict[str, Any], timeout_ms: int) -> tuple[dict[str, list[int]], int]:
    """Count the samples of a picture, at once: three channels of RGB, the Y of YUV."""
    with errors_of("VPC"):
        found, counts = CHANNELS.get(channel), np.zeros((len(_COUNTS), BINS), np.uint32)
        own = histogram(picture_of(source, "input").view())
        counts[: len(own)] = own
        return {name: row.tolist() for name, row in zip(_COUNTS, counts, strict=True)}, found.submit(lambda: None)


@value_and_status("acl.himpi.vpc_calc_hist_v2", returns="(task, ret)")
def vpc_calc_hist_v2(channel: int, source: dict[str, Any], timeout_ms: int, ptr: int) -> int:
    """Count the samples of a picture into 3 x 256 uint32 at `ptr`."""
    with errors_of("VPC"):
        check_readable(ptr, len(_COUNTS) * BINS * 4, "the histogram")
        picture, into = picture_of(source, "input"), view_at(ptr, np.dtype(np.uint32), (len(_COUNTS), BINS))

        def task() -> None:
            own = histogram(picture.view())
            into[:] = 0
            into[: len(own)] = own

        return CHANNELS.get(channel).submit(task)


@value_and_status("acl.himpi.vpc_equalize_hist", returns="(task, ret)")
def vpc_equalize_hist(channel: int, source: dict[str, Any], target: dict[str, Any], tables: dict[str, Any], timeout_ms: int) -> int:
    """Replace every sample by what its table has for it: {map_value_y_or_r, map_value_u_or_g, map_value_v_or_b}, 256 samples each."""
    with errors_of("VPC"):
        given = [tables.get(name) for name in _TABLES]
        if any(not isinstance(table, list) or len(table) != BINS or not all(0 <= sample < BINS for sample in table) for table in given):
            raise AclError(Code.INVALID_PARAM, f"the tables are not {', '.join(_TABLES)} of {BINS} samples of 0 to 255 each")
        found = np.array(given, np.uint8)
        pair = {"src": source, "dst": target}
        return _filter(channel, pair, "the pictures", lambda one, other: look_up(one, other, found))


# ---- turned and mirrored
@value_and_status("acl.himpi.vpc_flip", returns="(task, ret)")
def vpc_flip(channel: int, parameters: dict[str, Any], timeout_ms: int) -> int:
    """{src, dst, flip_mode}: 0 left to right, 1 top to bottom, 2 both."""
    with errors_of("VPC"):
        mode = number_in(parameters, "flip_mode", "hi_flip_param")
        if mode not in (0, 1, 2):
            raise AclError(Code.INVALID_PARAM, f"flip_mode {mode}; accepted: 0 (left to right), 1 (top to bottom), 2 (both)")
        return _filter(channel, parameters, "hi_flip_param", lambda one, other: mirror(one, other, mode != 1, mode != 0))


@value_and_status("acl.himpi.vpc_rotate", returns="(task, ret)")
def vpc_rotate(channel: int, parameters: dict[str, Any], timeout_ms: int) -> int:
    """{src, dst, angle}, clockwise: 0 by 90 degrees, 1 by 180, 2 by 270."""
    with errors_of("VPC"):
        angle = number_in(parameters, "angle", "hi_rotate_param")
        if angle not in (0, 1, 2):
            raise AclError(Code.INVALID_PARAM, f"angle {angle}; accepted: 0 (90 degrees), 1 (180), 2 (270)")
        return _filter(channel, parameters, "hi_rotate_param", lambda one, other: turn(one, other, angle + 1))
