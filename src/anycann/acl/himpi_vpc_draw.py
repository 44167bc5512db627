"""acl.himpi: rectangles, quadrangles, lines, mosaics and bitmaps in pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.acl.codes import Code
from anycann.acl.entries import value_and_status
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import Dict, dict_in, errors_of, number_in, picture_of
from anycann.acl.himpi_vpc_channel import CHANNELS
from anycann.acl.media_memory import device_bytes
from anycann.media.convert import ColourMatrix
from anycann.media.draw import Colour, Pixels, Point, line, mosaic, paint, quadrangle, rectangle
from anycann.media.overlay import lay_over, read_bitmap, row_bytes
from anycann.media.picture import Picture, Region, View
from anycann.media.scale import check_inside
from anycann.support.errors import UsageError

_MOST = 100
_RECTANGLE, _QUADRANGLE = 0, 1
_CORNERS = 4
_MOST_ALPHA, _COLOURS = 255, 16
_BLOCKS = (4, 8, 16, 32, 64, 128)
_Drawing = Callable[[View, ColourMatrix], None]


def _draw(channel: int, given: Dict, name: str, drawing_of: Callable[[Dict, Picture], _Drawing]) -> int:
    """Copy `src` to `dst` and draw there what the list `name` has, in order."""
    found = CHANNELS.get(channel)
    wanted = given.get(name)
    if not isinstance(wanted, list) or not 1 <= len(wanted) <= _MOST or number_in(given, "count", name) != len(wanted):
        raise AclError(Code.INVALID_PARAM, f"count {given.get('count')} with {name} {wanted!r:.60}; accepted: a list of 1 to {_MOST}")
    source, target = (picture_of(dict_in(given, key, name), role) for key, role in (("src", "input"), ("dst", "output")))
    if (source.format, source.width, source.height) != (target.format, target.width, target.height):
        raise AclError(Code.INVALID_PARAM, "the output has another format or size than the input; accepted: the same")
    drawings = [drawing_of(each, target) for each in wanted]

    def task() -> None:
        view = target.view()
        for plane, other in zip(source.view().planes, view.planes, strict=True):
            other[:] = plane
        for drawing in drawings:
            drawing(view, found.matrix)

    return found.submit(task)


def _point(given: object) -> Point:
    if not isinstance(given, dict):
        raise AclError(Code.INVALID_PARAM, f"a point is {given!r:.60}; accepted: {{'x': int, 'y': int}}")
    return number_in(given, "x", "hi_point"), number_in(given, "y", "hi_point")


def _region(given: Dict, target: Picture) -> Region:
    rect = dict_in(given, "rect", "the drawing")
    x, y, width, height = (number_in(rect, key, "hi_rect") for key in ("x", "y", "width", "height"))
    region = Region(x, x + width - 1, y, y + height - 1)
    check_inside(region, target, "drawn")
    return region


def _thick(given: Dict) -> int:
    thick = number_in(given, "thick", "the drawing")
    if thick < 1:
        raise UsageError(f"{thick} pixels thick; accepted: at least 1")
    return thick


def _colour(given: Dict) -> Colour:
    number = number_in(given, "color", "the drawing")
    if not 0 <= number <= 0xFFFFFF:
        raise UsageError(f"color {number:#x}; accepted: 0 to 0xffffff, that is 0xRRGGBB")
    return number >> 16, number >> 8 & 0xFF, number & 0xFF


def _painted(pixels: Pixels, colour: Colour) -> _Drawing:
    return lambda view, matrix: paint(view, pixels, colour, matrix)


@value_and_status("acl.himpi.vpc_draw_cover", returns="(task, ret)")
def vpc_draw_cover(channel: int, parameters: dict[str, Any], timeout_ms: int) -> int:
    """Cover parts of a picture: {src, dst, count, cover: [{type: 0, rect, color} or {type: 1, quad, color}]}, color: 0xRRGGBB.

    rect: {x, y, width, height}. quad: {is_solid, thick, point: four of {x, y}, in order}.
    """

    def drawing(given: Dict, target: Picture) -> _Drawing:
        kind, colour = number_in(given, "type", "hi_cover"), _colour(given)
        if kind == _RECTANGLE:
            return _painted(rectangle(_region(given, target)), colour)
        if kind != _QUADRANGLE:
            raise UsageError(f"cover type {kind}; accepted: 0 (rectangle), 1 (quadrangle)")
        quad = dict_in(given, "quad", "hi_cover")
        corners = [_point(point) for point in quad.get("point", ())]
        if len(corners) != _CORNERS:
            raise UsageError(f"{len(corners)} points of a quadrangle; accepted: {_CORNERS}")
        thick = None if number_in(quad, "is_solid", "hi_quad_cover") else _thick(quad)
        return _painted(quadrangle(corners, thick, (target.width, target.height)), colour)

    with errors_of("VPC"):
        return _draw(channel, parameters, "cover", drawing)


@value_and_status("acl.himpi.vpc_draw_line", returns="(task, ret)")
def vpc_draw_line(channel: int, parameters: dict[str, Any], timeout_ms: int) -> int:
    """Draw lines: {src, dst, count, line: [{start_point: {x, y}, end_point, thick, color: 0xRRGGBB}]}."""

    def drawing(given: Dict, target: Picture) -> _Drawing:
        start, end = (_point(given.get(name)) for name in ("start_point", "end_point"))
        return _painted(line(start, end, _thick(given), (target.width, target.height)), _colour(given))

    with errors_of("VPC"):
        return _draw(channel, parameters, "line", drawing)


@value_and_status("acl.himpi.vpc_draw_mosaic", returns="(task, ret)")
def vpc_draw_mosaic(channel: int, parameters: dict[str, Any], timeout_ms: int) -> int:
    """Make parts of a picture blocks of their mean: {src, dst, count, mosaic: [{blk_size: 0 to 5 for 4 to 128 pixels, rect}]}."""

    def drawing(given: Dict, target: Picture) -> _Drawing:
        size, region = number_in(given, "blk_size", "hi_mosaic"), _region(given, target)
        if not 0 <= size < len(_BLOCKS):
            raise UsageError(f"blk_size {size}; accepted: {', '.join(f'{number} ({each})' for number, each in enumerate(_BLOCKS))}")
        return lambda view, _: mosaic(view, region, _BLOCKS[size])

    with errors_of("VPC"):
        return _draw(channel, parameters, "mosaic", drawing)


@value_and_status("acl.himpi.vpc_draw_osd", returns="(task, ret)")
def vpc_draw_osd(channel: int, parameters: dict[str, Any], timeout_ms: int) -> int:
    """Lay bitmaps over a picture: {src, dst, count, clut: 16 of 0xAARRGGBB, osd: [{rect, pixel_format, picture_address, stride, ...}]}.

    pixel_format: 14 ARGB8888, 25 ARGB4444, 33 ARGB1555, whose bit stands for bg_alpha or fg_alpha (0 to 255), 41 and 42 numbers of `clut`
    with 2 and 4 bits. osd_inverted_color: 1 colours, 2 alpha, 3 both are inverted.
    """

    def drawing(given: Dict, target: Picture) -> _Drawing:
        region, form, inverted = _region(given, target), number_in(given, "pixel_format", "hi_osd"), _inverted(given)
        stride, least = number_in(given, "stride", "hi_osd"), row_bytes(form, region.width)
        if stride < least:
            raise UsageError(f"a stride of {stride} bytes; accepted: at least {least} for {region.width} pixels in format {form}")
        address, nbytes = number_in(given, "picture_address", "hi_osd"), stride * (region.height - 1) + least
        device_bytes(address, nbytes, "the bitmap")
        alphas, table = _alphas(given), _table(parameters)

        def lay(view: View, matrix: ColourMatrix) -> None:
            data = device_bytes(address, nbytes, "the bitmap")
            rows = np.lib.stride_tricks.as_strided(data, (region.height, least), (stride, 1))
            lay_over(view, read_bitmap(rows, form, region.width, alphas, table).inverted(*inverted), region, matrix)

        return lay

    with errors_of("VPC"):
        return _draw(channel, parameters, "osd", drawing)


def _inverted(given: Dict) -> tuple[bool, bool]:
    """Whether colours, whether alpha."""
    kind = number_in(given, "osd_inverted_color", "hi_osd")
    if kind not in range(4):
        raise UsageError(f"osd_inverted_color {kind}; accepted: 0 (none), 1 (colours), 2 (alpha), 3 (both)")
    return bool(kind & 1), bool(kind & 2)


def _alphas(given: Dict) -> tuple[int, int]:
    back, front = (number_in(given, name, "hi_osd") for name in ("bg_alpha", "fg_alpha"))
    if not (0 <= back <= _MOST_ALPHA and 0 <= front <= _MOST_ALPHA):
        raise UsageError(f"bg_alpha {back} and fg_alpha {front}; accepted: 0 to {_MOST_ALPHA}")
    return back, front


def _table(parameters: Dict) -> NDArray[np.uint32]:
    colours = parameters.get("clut")
    if not isinstance(colours, list) or len(colours) != _COLOURS or not all(isinstance(c, int) and 0 <= c < 1 << 32 for c in colours):
        raise UsageError(f"clut is {colours!r:.60}; accepted: a list of {_COLOURS} numbers 0xAARRGGBB")
    return np.array(colours, np.uint32)
