"""Resize: which source elements each output position mixes, and how much of each, is worked out per axis while compiling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
import math

import numpy as np

from anycann.graph.ops.common import floats, index_map, integers, normal_axes, retyped
from anycann.graph.registry import Lowering, NotLowered, Sample, operator
from anycann.support.records import dataclass
from anycann.te import dtypes
from anycann.te import expression as x
from anycann.te import tensor as te
from anycann.te.dtypes import DType
from anycann.te.expression import Expr
from anycann.te.tensor import Tensor

UNROLLED_TAPS = 16  # products of taps written out; more are a reduction


@dataclass(frozen=True)
class Taps:
    """One axis: output o is the sum over t of weights[t, o] * source[places[t, o]]; outside: where it is the extrapolation value."""

    axis: int
    places: np.ndarray
    weights: np.ndarray
    outside: np.ndarray

    @property
    def count(self) -> int:
        return len(self.places)


@dataclass(frozen=True)
class AxisResize:
    """Sizes and scale of one axis, and the part of it that tf_crop_and_resize looks at."""

    axis: int
    size: int
    out: int
    scale: float
    begin: float = 0.0
    end: float = 1.0

    @property
    def keeps(self) -> bool:
        """Whether nothing happens along the axis."""
        return self.size == self.out and self.scale == 1 and (self.begin, self.end) == (0, 1)

    @property
    def wide(self) -> float:
        """The size of the output before it is cut to a whole number."""
        return self.out if self._is_by_sizes else self.scale * self.size

    def back(self, o: np.ndarray) -> np.ndarray:
        """Distances in the output as the input's, rounded once: halves of a ratio of sizes stay halves."""
        return np.asarray(o * self.size / self.out if self._is_by_sizes else o / self.scale)

    @property
    def _is_by_sizes(self) -> bool:
        return self.scale == self.out / self.size


# ---- coordinates: ONNX specification, operator Resize
def _align_corners(a: AxisResize, o: np.ndarray) -> np.ndarray:
    return np.asarray(o * 0.0 if a.wide == 1 else o * (a.size - 1) / (a.wide - 1))


def _crop(a: AxisResize, o: np.ndarray) -> np.ndarray:
    part = (a.end - a.begin) * (a.size - 1)
    return a.begin * (a.size - 1) + (part / 2 + o * 0.0 if a.wide == 1 else o * part / (a.wide - 1))


def _half_pixel(a: AxisResize, o: np.ndarray) -> np.ndarray:
    return a.back(o + 0.5) - 0.5


def _symmetric(a: AxisResize, o: np.ndarray) -> np.ndarray:
    return a.size / 2 * (1 - a.out / a.wide) + _half_pixel(a, o)


_COORDINATES: dict[str, Callable[[AxisResize, np.ndarray], np.ndarray]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda a, o: _half_pixel(a, o) if a.wide > 1 else o * 0.0,
    "align_corners": _align_corners,
    "asymmetric": AxisResize.back,
    "tf_crop_and_resize": _crop,
}

_NEAREST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda v: np.ceil(v - 0.5),
    "round_prefer_ceil": lambda v: np.floor(v + 0.5),
}


# ---- weights of the taps first, first + 1 ... around floor(v), for the fractions of v
def _triangle(distance: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(1 - np.abs(distance), 0, 1))


def _keys(distance: np.ndarray, a: float) -> np.ndarray:
    """Cubic convolution (R. Keys, 1981)."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _interpolation(context: Lowering, part: AxisResize, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(places, weights) of linear or cubic interpolation at the coordinates v."""
    cubic, base = context.text("mode") == "cubic", np.floor(v)
    reach = 2.0 if cubic else 1.0
    shrink = min(part.scale, 1.0) if context.integer("antialias") else 1.0
    first = math.floor(-reach / shrink) + 1
    offsets = np.arange(first, 2 - first)[:, None]
    distance = (offsets - (v - base)) * shrink
    weights = _keys(distance, context.number("cubic_coeff_a", -0.75)) if cubic else _triangle(distance)
    places = base + offsets
    if context.integer("exclude_outside"):
        weights = np.where((places >= 0) & (places < part.size), weights, 0.0)
    return places, weights / weights.sum(axis=0)


def taps_of(context: Lowering, part: AxisResize) -> Taps:
    """Of one axis, as the attributes say. Raises NotLowered for an unknown coordinate transformation."""
    mode = context.text("coordinate_transformation_mode", "half_pixel")
    if mode not in _COORDINATES:
        raise NotLowered(f"the coordinate transformation {mode!r}")
    v = _COORDINATES[mode](part, np.arange(part.out, dtype=np.float64))
    if context.text("mode", "nearest") == "nearest":
        places, weights = _NEAREST[context.text("nearest_mode", "round_prefer_floor")](v)[None], np.ones((1, part.out))
    else:
        places, weights = _interpolation(context, part, v)
    used = (weights != 0).any(axis=1)
    outside = (v < 0) | (v > part.size - 1) if mode == "tf_crop_and_resize" else np.zeros(part.out, bool)
    return Taps(part.axis, np.clip(places, 0, part.size - 1).astype(np.int64)[used], weights[used], outside)


# ---- operands
def _axes_to_resize(context: Lowering) -> list[AxisResize]:
    source, shape = context.operand(0), context.outputs[0].shape
    axes = normal_axes(context.integers("axes"), source.rank)
    scales, sizes = context.constant(2), context.constant(3)
    region = context.constant(1) if context.text("coordinate_transformation_mode") == "tf_crop_and_resize" else None
    if sizes is not None and sizes.size:
        factors = [float(size) / source.shape[axis] for size, axis in zip(sizes, axes, strict=True)]
        policy = context.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factors = [min(factors) if policy == "not_larger" else max(factors)] * len(factors)
    elif scales is not None and scales.size:
        factors = [float(scale) for scale in scales]
    else:
        raise NotLowered("neither scales nor sizes are given")
    corners = [(0.0, 1.0)] * len(axes) if region is None else [(float(region[n]), float(region[n + len(axes)])) for n in range(len(axes))]
    return [AxisResize(a, source.shape[a], shape[a], f, *c) for a, f, c in zip(axes, factors, corners, strict=True)]


def _resize_samples(rng: np.random.Generator) -> Iterable[Sample]:
    def one(
        shape: tuple[int, ...],
        scales: list[float] | None,
        sizes: list[int] | None = None,
        roi: list[float] | None = None,
        **attributes: object,
    ) -> Sample:
        lists = (roi, scales, sizes)
        kinds = (np.float32, np.float32, np.int64)
        operands = [None if v is None else np.array(v, kind) for v, kind in zip(lists, kinds, strict=True)]
        return Sample((floats(rng, *shape), *operands), attributes, constant=(1, 2, 3))

    for number, nearest in enumerate(_NEAREST):
        mode = ("half_pixel", "asymmetric", "align_corners", "half_pixel")[number]
        yield one((1, 1, 5, 4), [1, 1, 1.7, 0.6], nearest_mode=nearest, coordinate_transformation_mode=mode)
    yield one((1, 18, 2, 2), [1, 1, 2, 2], nearest_mode="floor", coordinate_transformation_mode="asymmetric")
    for kind in ("linear", "cubic"):
        for mode in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric"):
            yield one((1, 1, 4, 4), [1, 1, 2.3, 0.7], mode=kind, coordinate_transformation_mode=mode)
        yield one((1, 1, 5, 6), None, [1, 1, 2, 3], mode=kind, antialias=1)
        crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
        for columns in (4, 6):  # of 6: as many are another part
            yield one((1, 1, 5, 6), None, [1, 1, 3, columns], [0, 0, 0.4, 0.6, 1, 1, 1.2, 0.9], mode=kind, **crop)
    yield one((1, 1, 4, 5), [1, 1, 0.6, 1.5], mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5)
    yield one((1, 17, 2, 2), [2, 2], mode="linear", axes=[2, 3])
    yield one((2, 3, 5), [1, 1, 2.5], mode="linear")
    for policy in ("not_larger", "not_smaller"):
        yield one((1, 1, 4, 6), None, [6, 7], mode="linear", axes=[2, 3], keep_aspect_ratio_policy=policy)
    yield from retyped(one((1, 1, 2, 4), [1, 1, 2, 2]), ("uint8", "int32", "float64"), 0)
    yield Sample((integers(rng, 1, 1, 3, 3, low=0, high=255, dtype="uint8"), None, np.array([1, 1, 2, 2], np.float32)), constant=(2,))


def _all_taps(context: Lowering) -> list[Taps]:
    """Of the axes that change, or of which a part is taken."""
    return [taps_of(context, part) for part in _axes_to_resize(context) if not part.keeps]


def _folded(context: Lowering) -> list[np.ndarray]:
    """One axis after the other, by numpy: the reference takes some 10 us an element and axis. Exporters resize position embeddings."""
    source, type_ = context.constant(0), context.outputs[0]
    assert source is not None
    all_taps = _all_taps(context)
    value = source if all(taps.count == 1 for taps in all_taps) else source.astype(np.float64)
    for taps in all_taps:
        along = [len(taps.weights[0]) if axis == taps.axis else 1 for axis in range(value.ndim)]
        terms = zip(taps.places, taps.weights.reshape(-1, *along), strict=True)
        value = sum(
            (np.take(value, places, taps.axis) * weights.astype(value.dtype) for places, weights in terms), np.zeros((), value.dtype)
        )
    for taps in all_taps:
        outside = taps.outside.reshape([-1 if axis == taps.axis else 1 for axis in range(value.ndim)])
        value = np.where(outside, np.asarray(context.number("extrapolation_value"), value.dtype), value)
    return [value.astype(type_.dtype.numpy)]


@operator("Resize", samples=_resize_samples, fold=_folded)
def resize(context: Lowering) -> Tensor:
    """Nearest, linear or cubic along each axis; weights and places are constants."""
    source, type_ = context.operand(0), context.outputs[0]
    all_taps = _all_taps(context)
    work = source.dtype if source.dtype.is_float else dtypes.float32
    if all(taps.count == 1 for taps in all_taps):
        work = source.dtype
    result = mixed(source, all_taps, type_.shape, work)
    border = x.const(context.number("extrapolation_value"), work)

    def element(*index: Expr) -> Expr:
        value: Expr = result[index]
        for taps in all_taps:
            if taps.outside.any():
                value = x.select(te.table(taps.outside)[index[taps.axis]], border, value)
        return x.cast(value, type_.dtype)

    return te.compute(type_.shape, element)


def mixed(source: Tensor, all_taps: Sequence[Taps], shape: tuple[int, ...], dtype: DType) -> Tensor:
    """Every element of `shape` as the sum of the source's elements that its taps name, in `dtype`."""
    few = math.prod(taps.count for taps in all_taps) <= UNROLLED_TAPS
    return (_written_out if few else _reduced)(source, all_taps, shape, dtype)


def _weight(weights: np.ndarray, index: Expr, dtype: DType) -> Expr | None:
    """The weight at an output position; None for 1."""
    if (weights == weights[0]).all():
        return None if weights[0] == 1 else x.const(float(weights[0]), dtype)
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    return x.cast(te.table(weights.astype(wide.numpy))[index], dtype)


def _written_out(source: Tensor, all_taps: Sequence[Taps], shape: tuple[int, ...], dtype: DType) -> Tensor:
    def mix(index: tuple[Expr, ...], place: tuple[Expr, ...], rest: Sequence[Taps]) -> Expr:
        if not rest:
            return x.cast(source[place], dtype)
        taps, total = rest[0], None
        for places, weights in zip(taps.places, taps.weights, strict=True):
            moved = (*place[: taps.axis], index_map(places, index[taps.axis]), *place[taps.axis + 1 :])
            value, weight = mix(index, moved, rest[1:]), _weight(weights, index[taps.axis], dtype)
            value = value if weight is None else value * weight
            total = value if total is None else total + value
        assert total is not None
        return total

    return te.compute(shape, lambda *index: mix(index, index, all_taps))


def _reduced(source: Tensor, all_taps: Sequence[Taps], shape: tuple[int, ...], dtype: DType) -> Tensor:
    """The same as a sum over taps, with tables of places and weights for [tap, output position]."""
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    places = [te.table(taps.places) for taps in all_taps]
    weights = [te.table(taps.weights.astype(wide.numpy)) for taps in all_taps]

    def element(*index: Expr) -> Expr:
        own, picked = list(index[: len(shape)]), index[len(shape) :]
        factor: Expr | None = None
        for taps, tap, place, weight in zip(all_taps, picked, places, weights, strict=True):
            value = x.cast(weight[tap, index[taps.axis]], dtype)
            factor = value if factor is None else factor * value
            own[taps.axis] = place[tap, index[taps.axis]]
        loaded = x.cast(source[tuple(own)], dtype)
        return loaded if factor is None else loaded * factor

    return te.reduce("sum", shape, [taps.count for taps in all_taps], element)
