"""RoiAlign where each region decides how many points are sampled, in numpy: points lie in a grid, so that a region is two small products.

What it cannot take raises; `graph/prepared.py` then asks `onnx.reference`, which visits each point of each channel in Python.
"""

from __future__ import annotations

import numpy as np


def aligned(
    source: np.ndarray,
    rois: np.ndarray,
    batches: np.ndarray,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> tuple[np.ndarray]:
    """The mean of the points of each part of each region: [region, channel, output_height, output_width]."""
    if mode != "avg" or sampling_ratio > 0 or (batches.size and not 0 <= batches.min() <= batches.max() < len(source)):
        raise ValueError("not the mean of points that regions count")
    half_pixel = coordinate_transformation_mode == "half_pixel"
    result = np.zeros((len(rois), source.shape[1], output_height, output_width), source.dtype)
    left, top, right, bottom = (rois.astype(np.float64) * spatial_scale - (0.5 if half_pixel else 0.0)).T
    height, width = (bottom - top, right - left) if half_pixel else (np.maximum(bottom - top, 1.0), np.maximum(right - left, 1.0))
    rows, lines = _weights(top, height, output_height, source.shape[2], source.dtype)
    columns, places = _weights(left, width, output_width, source.shape[3], source.dtype)
    for region, batch in enumerate(batches.tolist()):
        part = source[batch, :, lines[region], places[region]]
        narrow = part.reshape(-1, part.shape[2]) @ columns[region, :, places[region]].T
        mixed = np.tensordot(rows[region, :, lines[region]], narrow.reshape(*part.shape[:2], -1), (1, 1))
        result[region] = mixed.swapaxes(0, 1)
    if not np.isfinite(result).all():  # an infinite element times a weight of 0 spoils the parts beside its own
        raise ValueError("elements that are no finite numbers")
    return (result,)


def _weights(starts: np.ndarray, lengths: np.ndarray, bins: int, extent: int, dtype: np.dtype) -> tuple[np.ndarray, list[slice]]:
    """([region, bin, element along an axis], the elements that each region may have a share in)."""
    counts = np.maximum(np.ceil(lengths / bins), 0).astype(np.int64)  # points of a bin
    region = np.repeat(np.arange(len(counts)), counts * bins)
    point = np.arange(len(region)) - np.repeat(np.cumsum(counts * bins) - counts * bins, counts * bins)
    count = counts[region]
    places = starts[region] + (point + 0.5) * lengths[region] / (count * bins)
    share = ((places >= -1) & (places <= extent)) / count
    places = np.clip(places, 0, extent - 1)
    low = places.astype(np.int64)
    row, part = (region * bins + point // count) * extent, places - low
    at = np.concatenate([row + low, row + np.minimum(low + 1, extent - 1)])
    weights = np.bincount(at, np.concatenate([(1 - part) * share, part * share]), len(counts) * bins * extent)
    first, last = (np.clip(edge, 0, extent - 1).astype(np.int64).tolist() for edge in (starts, starts + np.maximum(lengths, 0)))
    within = [slice(begin, end + 2) for begin, end in zip(first, last, strict=True)]
    return weights.reshape(len(counts), bins, extent).astype(dtype), within
