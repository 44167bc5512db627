"""Scaling planes of bytes, with the sampling points of OpenCV or of TensorFlow 1."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.media import blend
from anycann.media.blend import WEIGHT_BITS
from anycann.media.kernels import Words, run
from anycann.runtime.memory import address
from anycann.support.records import dataclass

_VECTOR = 16  # int32 of the widest register
_READ_BYTES = 4  # at once


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
    if source.shape[1] * source.shape[2] < _READ_BYTES:
        source = np.pad(source, ((0, 0), (0, _READ_BYTES), (0, 0)))[:, : source.shape[1]]
    plan = _plan(source.shape, target.shape, source.strides[0], interpolation.value)
    scratch, words = np.empty(plan.scratch_length, np.int32), plan.words.copy()
    words[[blend.SOURCE, blend.TARGET, blend.STRIDE, blend.SCRATCH]] = address(source), address(target), target.strides[0], address(scratch)
    run(blend.Blend(target.shape[2] <= blend.NEAR_BYTES), words, target.shape[0])


@dataclass(frozen=True)
class _Plan:
    """The tables of one scaling, and what the loop is told of them."""

    tables: tuple[NDArray[Any], ...]
    words: Words
    scratch_length: int


@lru_cache(maxsize=64)
def _plan(source: tuple[int, ...], target: tuple[int, ...], source_stride: int, interpolation: str) -> _Plan:
    down, across = (samples(source[axis], target[axis], Interpolation(interpolation)) for axis in (0, 1))
    count, sample = target[2], np.arange(target[2])
    last = max(source[1] * count, _READ_BYTES) - _READ_BYTES  # where four bytes of a row begin that end it
    places = [(place[:, None] * count + sample).ravel() for place in (across.first, across.second)]
    columns = [part for place in places for part in (np.minimum(place, last), 8 * np.maximum(place - last, 0))]
    row_starts = np.ascontiguousarray(np.stack([down.first, down.second], 1) * source_stride)
    tables: list[NDArray[Any]] = [
        row_starts,
        down.weight,
        *(_whole_vectors(column) for column in (*columns, np.repeat(across.weight, count))),
    ]
    words = np.zeros(blend.SCRATCH + 1, np.int64)
    words[blend.COLUMNS], words[blend.DISTANCE] = target[1] * count, count
    words[blend.ROW_STARTS : blend.SCRATCH] = [address(table) for table in tables]
    return _Plan(tuple(tables), words, 2 * tables[-1].size)


def _whole_vectors(column: NDArray[np.generic]) -> NDArray[np.int32]:
    return np.pad(column.astype(np.int32), (0, -column.size % _VECTOR), "edge")


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
