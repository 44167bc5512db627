"""MaxPool with the indices of its maxima, which `onnx.reference` gets wrong for some windows; the windows themselves; MaxRoiPool."""

from __future__ import annotations

from collections.abc import Sequence
import itertools
import math

import numpy as np
from onnx.reference.op_run import OpRun


class MaxPool(OpRun):
    """MaxPool(X): the maximum of each window of X [N, C, *spatial], and where in X it is as a flat index (the first one, of several)."""

    def _run(
        self,
        x: np.ndarray,
        kernel_shape: Sequence[int],
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        storage_order: int = 0,
        strides: Sequence[int] | None = None,
    ) -> tuple[np.ndarray, ...]:
        axes = windows(x.shape[2:], kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
        shape = (*x.shape[:2], *map(len, axes))
        y, indices = np.empty(shape, x.dtype), np.empty(shape, np.int64)
        for place in itertools.product(*map(range, shape)):
            taps = [axis[position] for axis, position in zip(axes, place[2:], strict=True)]
            y[place], indices[place] = _largest(x, place[:2], taps, bool(storage_order))
        return (y, indices) if len(self.onnx_node.output) > 1 else (y,)


def _largest(x: np.ndarray, channel: tuple[int, ...], taps: list[list[int]], column_major: bool) -> tuple[np.generic, int]:
    """The first largest element of x[channel] at the product of `taps`, and its flat index in x."""
    places = list(itertools.product(*taps))
    best = max(places, key=lambda place: x[(*channel, *place)])
    spatial = x.shape[2:]
    inner = np.ravel_multi_index(best, spatial, order="F" if column_major else "C")
    return x[(*channel, *best)], int(np.ravel_multi_index(channel, x.shape[:2])) * math.prod(spatial) + int(inner)


def windows(
    sizes: Sequence[int],
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> list[list[list[int]]]:
    """For each axis, for each window along it, the places inside the axis that the window covers."""
    rank = len(kernel_shape)
    strides, dilations, pads = strides or [1] * rank, dilations or [1] * rank, pads or [0] * (2 * rank)
    axes = []
    for n, size in enumerate(sizes):
        taps = [k * dilations[n] for k in range(kernel_shape[n])]
        starts = _window_starts(size, taps[-1] + 1, strides[n], (pads[n], pads[n + rank]), auto_pad, bool(ceil_mode))
        axes.append([[start + tap for tap in taps if 0 <= start + tap < size] for start in starts])
    return axes


def average_pool(x: np.ndarray, axes: list[list[list[int]]], divisor: int | None = None) -> np.ndarray:
    """The mean of each window of x [N, C, *spatial]; `axes` as from `windows`, `divisor` the number of elements if padding counts."""
    batch, channels = x.shape[:2]
    means = []
    for taps in itertools.product(*axes):
        window = x[np.ix_(range(batch), range(channels), *taps)].reshape(batch, channels, -1)
        means.append(window.sum(axis=-1) / (divisor or window.shape[-1]))
    return np.stack(means, axis=-1).reshape(batch, channels, *map(len, axes)).astype(x.dtype)


def _window_starts(size: int, reach: int, stride: int, pads: tuple[int, int], auto_pad: str, ceil_mode: bool) -> list[int]:
    """The first element of each window along an axis of `size`; `reach` is the extent of a dilated window."""
    before, after = pads
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        count = -(-size // stride)
        total = max((count - 1) * stride + reach - size, 0)
        before = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        return [n * stride - before for n in range(count)]
    if auto_pad == "VALID":
        before = after = 0
    room = size + before + after - reach
    count = (-(-room // stride) if ceil_mode else room // stride) + 1
    if ceil_mode and (count - 1) * stride >= size + before:  # a window that would start in the padding behind
        count -= 1
    return [n * stride - before for n in range(count)]


class MaxRoiPool(OpRun):
    """MaxRoiPool(X, rois): the maximum of each part of each region [image, x1, y1, x2, y2], ends included; 0 for an empty part.

    The rounding of Fast R-CNN (R. Girshick, 2015): corners to the nearest place, parts outwards.
    """

    def _run(self, x: np.ndarray, rois: np.ndarray, pooled_shape: Sequence[int], spatial_scale: float = 1.0) -> tuple[np.ndarray]:
        made = np.zeros((len(rois), x.shape[1], *pooled_shape), x.dtype)
        for region, (image, *corners) in enumerate(rois):
            left, top, right, bottom = (math.floor(float(corner * x.dtype.type(spatial_scale)) + 0.5) for corner in corners)
            rows = _parts(top, bottom, pooled_shape[0], x.shape[2])
            columns = _parts(left, right, pooled_shape[1], x.shape[3])
            for (i, row), (j, column) in itertools.product(enumerate(rows), enumerate(columns)):
                part = x[int(image), :, row, column]
                if part.size:
                    made[region, :, i, j] = part.max(axis=(1, 2))
        return (made,)


def _parts(start: int, end: int, count: int, extent: int) -> list[slice]:
    """The places inside the axis that each of `count` parts of start..end covers."""
    length = max(end - start + 1, 1)
    edges = [(start + length * n // count, start - -length * (n + 1) // count) for n in range(count)]
    return [slice(min(max(first, 0), extent), min(max(last, 0), extent)) for first, last in edges]
