"""Scaling planes of bytes, with the sampling points of OpenCV or of TensorFlow 1."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from anycann.media.blend_text import WEIGHT_BITS
from anycann.media.kernels import kernels
from anycann.runtime.memory import address

_VECTOR = 16  # int32 of the widest register


class Interpolation(Enum):
    """What a pixel of the result is made of. Half pixels: OpenCV's sampling points; corners: TensorFlow 1's."""

    BILINEAR = "bilinear, half pixels"
    NEAREST = "nearest"
    BILINEAR_CORNERS = "bilinear, corners"


@dataclass(frozen=True)
class Samples:
    """Along one axis: result i is between source `first[i]` and `second[i]`, with `weight[i]` of 2048 for the second."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    weight: NDArray[np.int32]


def samples(size: int, wanted: int, interpolation: Interpolation) -> Samples:
    """Where the `wanted` samples of a scaled axis of `size` lie."""
    places = np.arange(wanted, dtype=np.float64)
    scale = size / wanted
    if interpolation is Interpolation.NEAREST:
        first = np.minimum(np.floor(places * scale).astype(np.int64), size - 1)
        return Samples(first, first, np.zeros(wanted, np.int32))
    places = (places + 0.5) * scale - 0.5 if interpolation is Interpolation.BILINEAR else places * scale
    places = np.clip(places, 0, size - 1)
    first = np.floor(places).astype(np.int64)
    weight = np.rint((places - first) * (1 << WEIGHT_BITS)).astype(np.int32)
    return Samples(first, np.minimum(first + 1, size - 1), weight)


def resize_plane(source: NDArray[np.uint8], target: NDArray[np.uint8], interpolation: Interpolation) -> None:
    """Scale `source` [rows, columns, samples] into `target` [rows', columns', samples]; rows may lie any distance apart.

    The samples of a pixel are next to each other, and pixels of a row too. Source and target may not overlap.
    """
    if source.shape == target.shape:
        target[:] = source
        return
    plan = _plan(source.shape, target.shape, source.strides[0], interpolation.value)
    scratch = np.empty(plan.scratch_length, np.int32)
    rows, columns, count = target.shape
    kernels().blend_rows(address(source), address(target), target.strides[0], rows, columns * count, plan.addresses, address(scratch))


@dataclass(frozen=True)
class _Plan:
    """The tables of one scaling, and where they are."""

    tables: tuple[NDArray[np.generic], ...]  # row starts, row weights, byte starts, next bytes, byte weights
    addresses: tuple[int, ...]  # of the tables
    scratch_length: int


@lru_cache(maxsize=64)
def _plan(source: tuple[int, ...], target: tuple[int, ...], source_stride: int, interpolation: str) -> _Plan:
    down, across = (samples(source[axis], target[axis], Interpolation(interpolation)) for axis in (0, 1))
    row_starts = np.ascontiguousarray(np.stack([down.first, down.second], 1) * source_stride)
    sample = np.arange(target[2])
    starts, nexts = ((place[:, None] * target[2] + sample).ravel().astype(np.int32) for place in (across.first, across.second))
    tables = (row_starts, down.weight, starts, nexts, np.repeat(across.weight, target[2]))
    return _Plan(tables, tuple(address(table) for table in tables), 2 * (len(starts) + _VECTOR))


def halve(source: NDArray[np.uint8], target: NDArray[np.uint8]) -> None:
    """Write to `target` [rows, columns, samples] the rounded means of the samples of `source`, with twice as many on an axis or both.

    What is missing of the last pair of an odd size is its first sample again.
    """
    rows, columns, _ = target.shape
    factors = [2 if size > wanted else 1 for size, wanted in zip(source.shape, (rows, columns), strict=False)]
    lacking = (rows * factors[0] - source.shape[0], columns * factors[1] - source.shape[1])
    if any(lacking):
        source = np.pad(source, ((0, lacking[0]), (0, lacking[1]), (0, 0)), "edge")
    resize_plane(source, target, Interpolation.BILINEAR)
