"""A row of output pixels cut into register tiles, so that no tile ever loads outside the input.

Which taps a pixel may read is known when the kernel is generated. Tiles in the middle of a row read all of them; a tile at a border gets
its own code in which each tap runs over just the pixels that it is valid for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from anycann.codegen.kernels.convolution_shape import Axis
from anycann.support.records import dataclass


@dataclass(frozen=True)
class TapSpan:
    """Taps first_tap..stop_tap are valid for the pixels first_pixel..stop_pixel of a tile, and for no others of it."""

    first_tap: int
    stop_tap: int
    first_pixel: int
    stop_pixel: int


@dataclass(frozen=True)
class TileKind:
    """What a tile does: its number of pixels, and the spans that cover every valid (tap, pixel) once."""

    pixels: int
    spans: tuple[TapSpan, ...]


@dataclass(frozen=True)
class Segment:
    """Tiles first..stop of a row, all of one kind; without a kind its pixels go one by one, the taps clipped at run time."""

    first: int
    stop: int
    kind: TileKind | None


# A row may have this many times the code of an inner tile; rows with more (wide kernels) do their border pixel by pixel.
_MOST_CODE = 10


@lru_cache(maxsize=4096)
def segments(axis: Axis, width: int) -> tuple[Segment, ...]:
    """The tiles of `width` pixels (the last one may be smaller) of a row along `axis`, in order and complete."""
    result: list[Segment] = []
    for first, stop, kind in _kinds(axis, width):
        if result and result[-1].kind == kind:
            result[-1] = Segment(result[-1].first, stop, kind)
        else:
            result.append(Segment(first, stop, kind))
    code = {s.kind: sum(span.stop_pixel - span.first_pixel for span in s.kind.spans) for s in result if s.kind}
    if sum(code.values()) > _MOST_CODE * width:
        return _border_by_pixel(axis, width, result)
    return tuple(result)


def tile_count(axis: Axis, width: int) -> int:
    """Tiles of a row."""
    return -(-axis.out_size // width)


def _kinds(axis: Axis, width: int) -> Iterator[tuple[int, int, TileKind]]:
    """(first tile, stop, kind): the run of inner tiles at once, the others one by one."""
    count = tile_count(axis, width)
    inner_first, inner_stop = _inner(axis, width)
    tile = 0
    while tile < count:
        stop = inner_stop if tile == inner_first and inner_stop > inner_first else tile + 1
        yield tile, stop, _kind(axis, tile * width, min(width, axis.out_size - tile * width))
        tile = stop


def _inner(axis: Axis, width: int) -> tuple[int, int]:
    """The run of tiles of full width whose every tap is valid for every pixel."""
    first = max(0, -(-axis.pad // (axis.stride * width)))
    last_start = axis.in_size - 1 - (axis.kernel - 1) * axis.dilation + axis.pad  # of an output position, times the stride
    positions = min(axis.out_size, last_start // axis.stride + 1)
    return first, max(first, positions // width)


def _kind(axis: Axis, start: int, pixels: int) -> TileKind:
    spans: list[TapSpan] = []
    for tap in range(axis.kernel):
        valid = axis.pixels(tap, start, pixels)
        if not valid:
            continue
        last = spans[-1] if spans else None
        if last and (last.stop_tap, last.first_pixel, last.stop_pixel) == (tap, valid.start, valid.stop):
            spans[-1] = TapSpan(last.first_tap, tap + 1, valid.start, valid.stop)
        else:
            spans.append(TapSpan(tap, tap + 1, valid.start, valid.stop))
    return TileKind(pixels, tuple(spans))


def _border_by_pixel(axis: Axis, width: int, tiles: list[Segment]) -> tuple[Segment, ...]:
    """Inner tiles as they are; everything before and after them without a kind."""
    inner_first, inner_stop = _inner(axis, width)
    inner = [s for s in tiles if s.first == inner_first and s.stop == inner_stop and inner_stop > inner_first]
    if not inner:
        return (Segment(0, tile_count(axis, width), None),)
    around = (Segment(0, inner_first, None), inner[0], Segment(inner_stop, tile_count(axis, width), None))
    return tuple(s for s in around if s.stop > s.first)
