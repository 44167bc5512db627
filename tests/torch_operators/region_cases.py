"""Regions of pictures and displaced convolutions, sample by sample."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tests.torch_operators.box_cases import _some_boxes
from tests.torch_operators.product_cases import _convolved
from tests.torch_operators.walk import case, rand, randn

Array = np.ndarray


def _sample(x: Array, y: float, c: float) -> Array:
    """(C,) bilinear value of x (C, H, W), zeros outside."""
    top, left, out = math.floor(y), math.floor(c), np.zeros(x.shape[0])
    for i in (top, top + 1):
        for j in (left, left + 1):
            if 0 <= i < x.shape[1] and 0 <= j < x.shape[2]:
                out += x[:, i, j] * (1 - abs(y - i)) * (1 - abs(c - j))
    return out


def _aligned(x: Array, rois: Array, scale: float, ph: int, pw: int, n: int, mode: int) -> Array:
    out = np.zeros((len(rois), x.shape[1], ph, pw))
    height, width = x.shape[2:]
    for r, roi in enumerate(rois):
        shift, more = (0.5 if mode == 3 else 0.0), (1 if mode == 1 else 0)
        x0, y0, x1, y1 = roi[1] * scale - shift, roi[2] * scale - shift, (roi[3] + more) * scale - shift, (roi[4] + more) * scale - shift
        w, h = (x1 - x0, y1 - y0) if mode == 3 else (max(x1 - x0, 1.0), max(y1 - y0, 1.0))
        for i, j, a, b in np.ndindex(ph, pw, n, n):
            row, column = y0 + h / ph * (i + (a + 0.5) / n), x0 + w / pw * (j + (b + 0.5) / n)
            if -1 <= row <= height and -1 <= column <= width:
                out[r, :, i, j] += _sample(x[int(roi[0])], min(max(row, 0), height - 1), min(max(column, 0), width - 1)) / n / n
    return out


_ROIS = torch.cat((torch.tensor([[0.0], [1.0], [1.0]]), _some_boxes(3, 24)), 1)
for _mode in (0, 1, 3):
    case("npu_roi_align", randn(2, 3, 7, 6), _ROIS, 0.25, 3, 2, 2, _mode, reference=_aligned, differentiable=_mode == 3, held=(1,))
_SIX = torch.arange(1.0, 37).reshape(1, 1, 6, 6)
# numbers of the public test
case(
    "npu_roi_align",
    _SIX,
    torch.tensor([[0, -2.0, -2, 22, 22]]),
    0.25,
    3,
    3,
    2,
    0,
    reference=lambda *_: np.array([[[[4.5, 6.5, 8.5], [16.5, 18.5, 20.5], [28.5, 30.5, 32.5]]]]),
)


def _aligned_backward(above: Array, rois: Array, shape: Any, pw: int, ph: int, scale: float, n: int, mode: int = 1) -> Array:
    out = np.zeros(shape)
    for place in np.ndindex(*shape):
        unit = np.zeros(shape)
        unit[place] = 1
        out[place] = (_aligned(unit, rois, scale, ph, pw, n, mode) * above).sum()
    return out


case("npu_roi_alignbk", randn(2, 1, 3, 2), _ROIS[:2], [2, 1, 5, 4], 2, 3, 0.25, 2, 3, reference=_aligned_backward)


def _pooled(x: Array, rois: Array, scale: float, g: int, d: int) -> Array:
    flat = rois.transpose(0, 2, 1).reshape(-1, 5)
    out = np.zeros((len(flat), d, g, g))
    for r, (b, x0, y0, x1, y1) in enumerate(flat):
        if not 0 <= b < len(x):
            continue
        x0, y0, x1, y1 = round(x0) * scale, round(y0) * scale, (round(x1) + 1) * scale, (round(y1) + 1) * scale
        w, h = max(x1 - x0, 0.1) / g, max(y1 - y0, 0.1) / g
        for i, j in np.ndindex(g, g):
            rows = range(max(0, math.floor(y0 + i * h)), min(x.shape[2], math.ceil(y0 + (i + 1) * h)))
            columns = range(max(0, math.floor(x0 + j * w)), min(x.shape[3], math.ceil(x0 + (j + 1) * w)))
            cells = [x[int(b), :, p, q].reshape(d, g, g)[:, i, j] for p in rows for q in columns]
            out[r, :, i, j] = np.mean(cells, 0) if cells else 0
    return out


_PS = torch.cat((torch.tensor([[0.0], [1.0], [0.0]]), _some_boxes(3, 12)), 1).reshape(1, 3, 5).transpose(1, 2).repeat(2, 1, 1)
case("npu_ps_roi_pooling", randn(2, 8, 7, 6), _PS, 0.5, 2, 2, reference=_pooled, differentiable=True, held=(1,))


def _deformed(
    x: Array,
    w: Array,
    offset: Array,
    bias: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any = (1, 1, 1, 1),
    groups: int = 1,
    parts: int = 1,
    modulated: bool = True,
) -> Any:
    rows, columns = offset.shape[2:]
    moved = offset.reshape(len(x), -1, parts, *kernel, rows, columns)
    samples = np.zeros((*x.shape[:2], rows * kernel[0], columns * kernel[1]))
    share = x.shape[1] // parts
    for b, p, i, j, h, v in np.ndindex(len(x), parts, *kernel, rows, columns):
        at = (
            h * stride[2] - padding[0] + i * dilation[2] + moved[b, 1, p, i, j, h, v],
            v * stride[3] - padding[2] + j * dilation[3] + moved[b, 0, p, i, j, h, v],
        )
        own = slice(p * share, (p + 1) * share)
        samples[b, own, h * kernel[0] + i, v * kernel[1] + j] = _sample(x[b, own], *at) * (moved[b, 2, p, i, j, h, v] if modulated else 1)
    return _convolved(samples, w, bias, kernel, [0, 0], [1, 1], groups), samples


_D = (randn(2, 4, 5, 6), randn(6, 2, 3, 2))
case(
    "npu_deformable_conv2d",
    *_D,
    randn(2, 36, 3, 5),
    randn(6),
    [3, 2],
    [1, 1, 2, 1],
    [1, 1, 0, 0],
    [1, 1, 1, 1],
    2,
    2,
    reference=_deformed,
    tolerance=1e-4,
    differentiable=True,
)
case(
    "npu_deformable_conv2d",
    *_D,
    randn(2, 12, 3, 5),
    None,
    [3, 2],
    [1, 1, 2, 1],
    [1, 1, 0, 0],
    [1, 1, 1, 1],
    2,
    1,
    False,
    reference=_deformed,
    tolerance=1e-4,
)


def _deformed_backward(x: Array, above: Array, samples: Array, w: Array, offset: Array, *rest: Any) -> Any:
    def loss() -> float:
        return float((_deformed(x, w, offset, None, *rest)[0] * above).sum())

    gradients = []
    for values in (x, w, offset):
        by = np.zeros_like(values)
        for place in np.ndindex(values.shape):
            kept = values[place]
            values[place] = kept + 1e-5
            more = loss()
            values[place] = kept - 1e-5
            by[place] = (more - loss()) / 2e-5
            values[place] = kept
        gradients.append(by)
    return *gradients, above.sum((0, 2, 3))


_R = ([2, 2], [1, 1, 1, 1], [0, 0, 0, 0])
case(
    "npu_deformable_conv2dbk",
    randn(1, 2, 3, 3),
    randn(1, 2, 2, 2),
    randn(1, 2, 4, 4),
    randn(2, 2, 2, 2),
    rand(1, 12, 2, 2, low=0.1, high=0.4),
    *_R,
    reference=_deformed_backward,
    tolerance=1e-3,
)
