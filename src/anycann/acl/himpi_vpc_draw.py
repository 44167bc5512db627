"""acl.himpi: rectangles, quadrangles, lines and mosaics in pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anycann.acl.codes import Code
from anycann.acl.entries import value_and_status
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import Dict, dict_in, errors_of, number_in, picture_of
from anycann.acl.himpi_vpc_channel import CHANNELS
from anycann.media.convert import Matrix
from anycann.media.draw import Colour, Pixels, Point, line, mosaic, paint, quadrangle, rectangle
from anycann.media.picture import Picture, Region, View
from anycann.media.scale import check_inside
from anycann.support.errors import UsageError

_MOST = 100
_RECTANGLE, _QUADRANGLE = 0, 1
_CORNERS = 4
_BLOCKS = (4, 8, 16, 32, 64, 128)
_Drawing = Callable[[View, Matrix], None]


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
