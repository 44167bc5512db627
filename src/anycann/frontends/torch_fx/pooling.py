"""Pooling and resizing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from anycann.frontends.torch_fx.builder import Builder, meta, shape_of
from anycann.frontends.torch_fx.products import spread
from anycann.frontends.torch_fx.table import DEVICE, Call, NotTranslated, Translation, translation


def windows(call: Call, rank: int) -> dict[str, Any]:
    """Attributes of a pooling; an absent stride is the size of the window."""
    kernel = spread(call.kernel_size, rank)
    strides = spread(call.stride, rank) if call.stride else kernel
    return {"kernel_shape": kernel, "strides": strides, "pads": spread(call.padding, rank) * 2, "ceil_mode": int(call.ceil_mode)}


def batched(call: Call, rank: int) -> None:
    """Raises NotTranslated for a single picture, and for integers."""
    if len(shape_of(call.self)) != rank + 2 or not meta(call.self).dtype.is_floating_point:
        raise NotTranslated("pooling without a batch dimension, or of integers")


@translation("max_pool2d_with_indices.default")
def _max_pool(b: Builder, call: Call) -> Sequence[ir.Value | None]:
    batched(call, 2)
    attributes = {**windows(call, 2), "dilations": spread(call.dilation, 2)}
    value = b.value(call.self)
    if 1 not in call.used:
        return [b.op("MaxPool", value, **attributes), None]
    return b.ops("MaxPoolWithIndices", value, count=2, domain=DEVICE, **attributes)


@translation("max_pool2d.default")
def _max_pool_values(b: Builder, call: Call) -> ir.Value:
    batched(call, 2)
    return b.op("MaxPool", b.value(call.self), **windows(call, 2), dilations=spread(call.dilation, 2))


@translation("avg_pool2d.default")
def _average_pool(b: Builder, call: Call) -> ir.Value:
    batched(call, 2)
    if call.divisor_override is not None or call.ceil_mode:
        raise NotTranslated("avg_pool2d with another divisor, or with ceil_mode")
    return b.op("AveragePool", b.value(call.self), **windows(call, 2), count_include_pad=int(call.count_include_pad))


@translation("_adaptive_avg_pool2d.default", "adaptive_avg_pool2d.default")
def _adaptive_average_pool(b: Builder, call: Call) -> ir.Value:
    batched(call, 2)
    sizes, wanted = shape_of(call.self)[2:], [int(size) for size in call.output_size]
    if wanted == [1, 1]:
        return b.op("ReduceMean", b.value(call.self), b.integers(2, 3), keepdims=1)
    if any(size % count for size, count in zip(sizes, wanted, strict=True)):
        return b.op("AdaptiveAveragePool", b.value(call.self), domain=DEVICE, output_size=wanted)
    windows = [size // count for size, count in zip(sizes, wanted, strict=True)]
    return b.op("AveragePool", b.value(call.self), kernel_shape=windows, strides=windows)


# ---- resizing
NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
NEAREST_EXACT = {"mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}


def resizing(call: Call, nearest: dict[str, str] | None, size: Sequence[int], out: Sequence[int]) -> dict[str, str]:
    """Attributes of Resize for planes of `size` that become `out`; bilinear without `nearest`.

    Raises NotTranslated for scales by which the planes would not become just so large: torch takes coordinates by them; and where its
    nearest elements are others.
    """
    if nearest is None and call.align_corners:
        return {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    scales = (getattr(call, "scales_h", None), getattr(call, "scales_w", None))
    if any(scale and abs(scale * before - after) > 1e-6 for scale, before, after in zip(scales, size, out, strict=True)):
        raise NotTranslated("resizing by scales that are not the ratio of the sizes")
    if nearest and any(_reads_others(nearest, *axis) for axis in zip(size, out, scales, strict=True)):
        raise NotTranslated("nearest elements that torch rounds to others")
    return nearest or {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}


def _reads_others(nearest: dict[str, str], size: int, out: int, scale: float | None = None) -> bool:
    """Whether torch, which multiplies by a ratio of 32 bits, reads other elements than those that are nearest."""
    if nearest is NEAREST and out == 2 * size:
        return False
    ratio = np.float32(1 / scale) if scale else np.float32(size) / np.float32(out)
    twice = 2 * np.arange(out) + (nearest is NEAREST_EXACT)  # coordinates, doubled to be integers
    by_torch = np.floor(np.float32(twice / 2 * np.float64(ratio)))
    return bool((np.minimum(by_torch, size - 1) != twice * size // (2 * out)).any())


def _resized(nearest: dict[str, str] | None) -> Translation:
    def translate(b: Builder, call: Call) -> ir.Value:
        shape = [int(size) for size in call.result.shape]
        attributes = resizing(call, nearest, shape_of(call.self)[2:], shape[2:])
        return b.op("Resize", b.value(call.self), None, None, b.integers(*shape), **attributes)

    return translate


translation("upsample_nearest2d.default")(_resized(NEAREST))
translation("_upsample_nearest_exact2d.default")(_resized(NEAREST_EXACT))
translation("upsample_bilinear2d.default")(_resized(None))
