"""Reading a picture at computed coordinates: GridSample and the grid of AffineGrid, RoiAlign."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import itertools

import numpy as np

from anycann.graph.ops import regions_on_host
from anycann.graph.ops.common import floats, guarded, inside, integer
from anycann.graph.registry import Lowering, NotLowered, Sample, operator
from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor

CUBIC_A = -0.75


@dataclass(frozen=True)
class Tap:
    """One element along an axis that takes part: where, how much, and whether it is there (None: always)."""

    place: Expr
    weight: Expr | None
    present: Expr | None


def weighted(source: Tensor, outer: tuple[Expr, ...], axes: Sequence[Sequence[Tap]]) -> Expr:
    """The sum over every combination of taps of the axes; absent elements count as zero."""
    total: Expr | None = None
    for taps in itertools.product(*axes):
        present = x.all_of([tap.present for tap in taps if tap.present is not None])
        value = guarded(present, source[(*outer, *(tap.place for tap in taps))], 0)
        for tap in taps:
            value = value if tap.weight is None else value * tap.weight
        total = value if total is None else total + value
    assert total is not None
    return total


def taps_around(value: Expr, extent: int) -> list[Tap]:
    """The two elements around a coordinate, for linear interpolation; there are zeros beside the axis."""
    base = x.unary("floor", value)
    first = _near(base, extent)
    return [Tap(first + offset, weight, inside(first + offset, extent)) for offset, weight in _weights("linear", value - base)]


def _near(whole: Expr, extent: int) -> Expr:
    """A whole number as a place; what is farther than an axis' length from it is no nearer so, and all places fit 32 bits."""
    return x.clamp(x.cast(x.cast(whole, dtypes.int32), dtypes.int64), -extent - 2, 2 * extent + 2)


# ---- GridSample
def _reflected(value: Expr, low: float, high: float) -> Expr:
    """A coordinate mirrored at the borders until it is within them."""
    span = high - low
    if span <= 0:
        return x.const(low, value.dtype)
    periods = x.unary("floor", (value - low) / (2 * span))
    distance = x.unary("abs", value - low - periods * (2 * span) - span)
    return (span - distance) + low


def _place(place: Expr, extent: int, padding: str, align: bool) -> tuple[Expr, Expr | None]:
    """(where an integer coordinate reads, whether anything is there)."""
    if padding == "zeros":
        return place, inside(place, extent)
    if padding == "reflection" and extent > 1:
        period, last = (2 * (extent - 1), 2 * (extent - 1)) if align else (2 * extent, 2 * extent - 1)
        place = place % period
        place = x.minimum(place, last - place)
    return x.clamp(place, 0, extent - 1), None


def _weights(mode: str, fraction: Expr) -> list[tuple[int, Expr]]:
    """(offset from floor, weight) of linear or cubic interpolation."""
    one = x.const(1, fraction.dtype)
    if mode == "linear":
        return [(0, one - fraction), (1, fraction)]

    def near(d: Expr) -> Expr:
        return ((CUBIC_A + 2) * d - (CUBIC_A + 3)) * d * d + 1.0

    def far(d: Expr) -> Expr:
        return ((CUBIC_A * d - 5 * CUBIC_A) * d + 8 * CUBIC_A) * d - 4 * CUBIC_A

    return [(-1, far(fraction + 1.0)), (0, near(fraction)), (1, near(one - fraction)), (2, far(2.0 - fraction))]


def _axis_taps(coordinate: Expr, extent: int, mode: str, padding: str, align: bool) -> list[Tap]:
    """Taps along one axis for a coordinate in -1..1."""
    value = (coordinate + 1.0) * ((extent - 1) / 2) if align else ((coordinate + 1.0) * float(extent) - 1.0) * 0.5
    low, high = (0.0, extent - 1.0) if align else (-0.5, extent - 0.5)
    value = x.unary("round", value) if mode == "nearest" else value
    if padding != "zeros":  # what is within half an element of the border stays, as in the specification's reference
        moved = _reflected(value, low, high) if padding == "reflection" else x.clamp(value, 0.0, extent - 1.0)
        value = x.select((value >= low) & (value <= high), value, moved)
    if mode == "nearest":
        return [Tap(*_tap(_near(value, extent), None, extent, padding, align))]
    base = x.unary("floor", value)
    first = _near(base, extent)
    return [Tap(*_tap(first + offset, weight, extent, padding, align)) for offset, weight in _weights(mode, value - base)]


def _tap(place: Expr, weight: Expr | None, extent: int, padding: str, align: bool) -> tuple[Expr, Expr | None, Expr | None]:
    where, present = _place(place, extent, padding, align)
    return where, weight, present


def _grid_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for mode, padding, align in itertools.product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (0, 1)):
        attributes: dict[str, object] = {"mode": mode, "padding_mode": padding, "align_corners": align}
        yield Sample((floats(rng, 1, 2, 4, 5), floats(rng, 1, 3, 3, 2, low=-1.7, high=1.7)), attributes)
    yield Sample((floats(rng, 2, 17, 3, 4), floats(rng, 2, 2, 2, 2, low=-1.3, high=1.3)), {"mode": "linear"})
    yield Sample((floats(rng, 1, 2, 3, 4, 2), floats(rng, 1, 2, 3, 2, 3, low=-1.3, high=1.3)), {"mode": "linear"})


@operator("GridSample", samples=_grid_samples)
def grid_sample(context: Lowering) -> Tensor:
    """The grid's last axis holds coordinates in -1..1, the fastest axis of the picture first."""
    source, grid = context.operand(0), context.operand(1)
    mode, padding, align = context.text("mode", "linear"), context.text("padding_mode", "zeros"), context.integer("align_corners") == 1
    if mode not in ("linear", "nearest", "cubic"):
        raise NotLowered(f"the mode {mode!r} of GridSample")
    sizes = source.shape[2:]

    def element(*index: Expr) -> Expr:
        n, c, *place = index
        axes = []
        for axis, extent in enumerate(sizes):
            coordinate = x.cast(grid[(n, *place, integer(len(sizes) - 1 - axis))], source.dtype)
            axes.append(_axis_taps(coordinate, extent, mode, padding, align))
        return weighted(source, (n, c), axes)

    return te.compute(context.outputs[0].shape, element)


# ---- AffineGrid
def _affine_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for align in (0, 1):
        for size in ((2, 3, 5, 19), (1, 2, 4, 3, 5)):
            theta = floats(rng, size[0], len(size) - 2, len(size) - 1)
            yield Sample((theta, np.array(size, np.int64)), {"align_corners": align}, constant=(1,))
    yield Sample((floats(rng, 1, 2, 3), np.array((1, 1, 1, 4), np.int64)), constant=(1,))


@operator("AffineGrid", samples=_affine_samples)
def affine_grid(context: Lowering) -> Tensor:
    """theta times the coordinates in -1..1 of each place and a one: theta's first row and column belong to the fastest axis."""
    theta, (_, *sizes, _) = context.operand(0), context.outputs[0].shape
    align = context.integer("align_corners") == 1

    def coordinate(place: Expr, extent: int) -> Expr:
        if align and extent == 1:
            return x.const(0, theta.dtype)
        first, step = (-1.0, 2.0 / (extent - 1)) if align else (1.0 / extent - 1.0, 2.0 / extent)
        return x.cast(place, theta.dtype) * step + first

    def element(n: Expr, *index: Expr) -> Expr:
        *places, row = index
        total: Expr = theta[n, row, integer(len(sizes))]
        for column, (place, extent) in enumerate(zip(reversed(places), reversed(sizes), strict=True)):
            total = total + theta[n, row, integer(column)] * coordinate(place, extent)
        return total

    return te.compute(context.outputs[0].shape, element)


# ---- RoiAlign
def _roi_samples(rng: np.random.Generator) -> Iterable[Sample]:
    corners = rng.uniform(-1, 6, (5, 2))
    rois = np.concatenate([corners, corners + rng.uniform(0.3, 6, (5, 2))], axis=1).astype(np.float32)
    batches = np.array([0, 1, 1, 0, 1], np.int64)
    for mode, transformation in (("avg", "half_pixel"), ("avg", "output_half_pixel"), ("max", "half_pixel")):
        attributes: dict[str, object] = {
            "mode": mode, "coordinate_transformation_mode": transformation, "sampling_ratio": 2, "output_height": 3, "output_width": 2,
            "spatial_scale": 0.75,
        }  # fmt: skip
        yield Sample((floats(rng, 2, 17, 6, 7), rois, batches), attributes)


def _bin_taps(start: Expr, length: Expr, position: Expr, step: Expr, bins: int, ratio: int, extent: int) -> tuple[list[Tap], Expr]:
    """(the two elements around a sampling point, whether the point is on the picture)."""
    size = length / float(bins)
    value = start + x.cast(position, size.dtype) * size + (x.cast(step, size.dtype) + 0.5) * size / float(ratio)
    valid = (value >= -1.0) & (value <= float(extent))
    value = x.clamp(value, 0.0, extent - 1.0)
    base = x.unary("floor", value)
    low = x.clamp(x.cast(x.cast(base, dtypes.int32), dtypes.int64), 0, extent - 1)
    fraction = value - base
    return [Tap(low, x.const(1, value.dtype) - fraction, None), Tap(x.minimum(low + 1, extent - 1), fraction, None)], valid


@operator("RoiAlign", samples=_roi_samples, host=regions_on_host.aligned)
def roi_align(context: Lowering) -> Tensor:
    """The mean, or the largest weighted corner, of points spread over each part of a region."""
    source, rois, batches, type_ = context.operand(0), context.operand(1), context.operand(2), context.outputs[0]
    ratio, scale = context.integer("sampling_ratio"), context.number("spatial_scale", 1.0)
    if ratio <= 0:
        raise NotLowered("regions that decide at run time how many points are sampled")
    half_pixel, largest = context.text("coordinate_transformation_mode", "half_pixel") == "half_pixel", context.text("mode", "avg") == "max"

    def span(roi: Expr, axis: int) -> tuple[Expr, Expr]:
        shift = 0.5 if half_pixel else 0.0
        start, end = (rois[roi, integer(number)] * scale - shift for number in (1 - axis, 3 - axis))
        return start, end - start if half_pixel else x.maximum(end - start, 1.0)

    def element(*index: Expr) -> Expr:
        n, c, *places = index
        points = [
            _bin_taps(*span(n, axis), places[axis], places[axis + 2], type_.shape[axis + 2], ratio, source.shape[axis + 2])
            for axis in (0, 1)
        ]
        batch = x.clamp(x.cast(batches[n], dtypes.int64), 0, source.shape[0] - 1)
        taps = [p[0] for p in points]
        value = _largest_corner(source, (batch, c), taps) if largest else weighted(source, (batch, c), taps)
        return x.select(points[0][1] & points[1][1], value, 0)

    result = te.reduce("max" if largest else "sum", type_.shape, (ratio, ratio), element)
    return te.compute(type_.shape, lambda *index: result[index] if largest else result[index] / (ratio * ratio))


def _largest_corner(source: Tensor, outer: tuple[Expr, ...], axes: Sequence[Sequence[Tap]]) -> Expr:
    corners = [weighted(source, outer, [[tap] for tap in taps]) for taps in itertools.product(*axes)]
    result = corners[0]
    for corner in corners[1:]:
        result = x.maximum(result, corner)
    return result
