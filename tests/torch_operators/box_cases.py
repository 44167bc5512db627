"""Boxes by their formulas: overlaps, encodings, assignments to anchors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tests.torch_operators.walk import case, rand, randn

Array = np.ndarray


def _some_boxes(n: int, size: float = 10.0) -> torch.Tensor:
    low = rand(n, 2, high=size)
    return torch.cat((low, low + rand(n, 2, low=0.5, high=size / 2)), 1)


def _shared(a: Array, b: Array) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _area(a: Array, more: float = 0.0) -> float:
    return float((a[2] - a[0] + more) * (a[3] - a[1] + more))


def _iou(boxes: Array, others: Array, mode: int = 0) -> Array:
    def one(g: Array, b: Array) -> float:
        common = _shared(g, b)
        return common / (_area(g, 0.01) if mode else _area(g, 0.01) + _area(b, 0.01) - common)

    return np.array([[one(g, b) for b in boxes] for g in others])


for _name in ("npu_iou", "npu_ptiou"):
    for _mode in (0, 1):
        case(_name, _some_boxes(5), _some_boxes(3), _mode, reference=_iou)
# numbers of the public test of the operator
_PUBLIC = (
    torch.tensor([[0.0, 0, 10, 10], [10, 10, 20, 20], [32, 32, 38, 42]]),
    torch.tensor([[0.0, 0, 10, 20], [0, 10, 10, 10], [10, 10, 20, 20]]),
)
case("npu_iou", *_PUBLIC, 1, reference=lambda *_: np.array([[0.4990, 0, 0], [0, 0, 0], [0, 0.9980, 0]]), tolerance=1e-3)


def _corners(x: Array, trans: bool) -> Array:
    return np.array([x[0] - x[2] / 2, x[1] - x[3] / 2, x[0] + x[2] / 2, x[1] + x[3] / 2]) if trans else x


def _penalised(kind: str) -> Any:
    def one(a: Array, b: Array) -> float:
        common = _shared(a, b)
        union = _area(a) + _area(b) - common
        width, height = max(a[2], b[2]) - min(a[0], b[0]), max(a[3], b[3]) - min(a[1], b[1])
        if kind == "giou":
            return common / union - (width * height - union) / (width * height)
        far = ((a[0] + a[2] - b[0] - b[2]) ** 2 + (a[1] + a[3] - b[1] - b[3]) ** 2) / 4
        value = common / union - far / (width**2 + height**2)
        if kind == "ciou":
            slopes = [math.atan((x[2] - x[0]) / (x[3] - x[1])) for x in (a, b)]
            shape = 4 / math.pi**2 * (slopes[0] - slopes[1]) ** 2
            value -= shape * shape / (1 - common / union + shape)
        return value

    def reference(a: Array, b: Array, trans: bool = False, is_cross: bool = False, mode: int = 0, atan_sub_flag: bool = False) -> Array:
        first, second = ([_corners(x[:, i], trans) for i in range(x.shape[1])] for x in (a, b))
        if is_cross:
            result = np.array([[one(p, q) for p in first] for q in second])
        else:
            result = np.array([[one(p, q) for p, q in zip(first, second, strict=True)]])
        return result.T if kind == "giou" else result

    return reference


_CENTRED = torch.cat((rand(2, 5, high=3), rand(2, 5, low=1, high=3)))
for _kind in ("giou", "diou", "ciou"):
    case(
        f"npu_{_kind}",
        _CENTRED,
        torch.cat((rand(2, 5, high=3), rand(2, 5, low=1, high=3))),
        True,
        False,
        reference=_penalised(_kind),
        differentiable=_kind != "ciou",
    )
    case(f"npu_{_kind}", _some_boxes(5).T.contiguous(), _some_boxes(3).T.contiguous(), False, True, reference=_penalised(_kind))


def _encode(anchors: Array, boxes: Array, *scales: float) -> Array:
    out = []
    for a, b in zip(anchors, boxes, strict=True):
        aw, ah, bw, bh = a[2] - a[0] + 1, a[3] - a[1] + 1, b[2] - b[0] + 1, b[3] - b[1] + 1
        delta = [((b[0] + b[2]) - (a[0] + a[2])) / 2 / aw, ((b[1] + b[3]) - (a[1] + a[3])) / 2 / ah, np.log(bw / aw), np.log(bh / ah)]
        out.append([(d - m) / s for d, m, s in zip(delta, scales[:4], scales[4:], strict=True)])
    return np.array(out)


def _decode(rois: Array, deltas: Array, *rest: Any) -> Array:
    scales, (h, w), limit = rest[:8], rest[8], abs(np.log(rest[9]))
    out = []
    for r, d in zip(rois, deltas, strict=True):
        d = [x * s + m for x, m, s in zip(d, scales[:4], scales[4:], strict=True)]
        rw, rh = r[2] - r[0] + 1, r[3] - r[1] + 1
        cx, cy = (r[0] + r[2]) / 2 + rw * d[0], (r[1] + r[3]) / 2 + rh * d[1]
        gw, gh = rw * np.exp(np.clip(d[2], -limit, limit)), rh * np.exp(np.clip(d[3], -limit, limit))
        corners = [cx - gw / 2 + 0.5, cy - gh / 2 + 0.5, cx + gw / 2 - 0.5, cy + gh / 2 - 0.5]
        out.append([np.clip(c, 0, size - 1) for c, size in zip(corners, (w, h, w, h), strict=True)])
    return np.array(out)


_MEANS = (0.1, 0.2, 0.0, -0.1, 0.5, 0.6, 0.7, 0.8)
case("npu_bounding_box_encode", _some_boxes(4), _some_boxes(4), *_MEANS, reference=_encode)
case("npu_bounding_box_decode", _some_boxes(4), randn(4, 4), *_MEANS, [12, 15], 0.016, reference=_decode)
_TWO = torch.tensor([[1.0, 2, 3, 4], [3, 4, 5, 6]])
_OTHER = torch.tensor([[5.0, 6, 7, 8], [7, 8, 9, 6]])
# numbers of the public tests
case(
    "npu_bounding_box_decode",
    _TWO,
    _OTHER,
    0,
    0,
    0,
    0,
    1,
    1,
    1,
    1,
    [10, 10],
    0.1,
    reference=lambda *_: np.array([[2.5, 6.5, 9, 9], [9, 9, 9, 9]]),
    tolerance=1e-4,
)
case(
    "npu_bounding_box_encode",
    _TWO,
    _OTHER,
    0,
    0,
    0,
    0,
    0.1,
    0.1,
    0.2,
    0.2,
    reference=lambda *_: np.array([[13.3281, 13.3281, 0, 0], [13.3281, 6.6641, 0, np.nan]]),
    tolerance=1e-3,
)


def _yolo(anchors: Array, boxes: Array, stride: Array) -> Array:
    out = []
    for a, b, s in zip(anchors, boxes, stride, strict=True):
        centres = [np.clip(((b[i] + b[i + 2]) - (a[i] + a[i + 2])) / 2 / s + 0.5, 1e-6, 1 - 1e-6) for i in (0, 1)]
        out.append(centres + [np.log(max((b[i + 2] - b[i]) / (a[i + 2] - a[i]), 1e-6)) for i in (0, 1)])
    return np.array(out)


case("npu_yolo_boxes_encode", _some_boxes(4), _some_boxes(4), torch.tensor([2, 8, 16, 8], dtype=torch.int32), reference=_yolo)


def _flags(boxes: Array, size: Any, stride: Any, anchors: int) -> Array:
    out = np.zeros((size[0], size[1], anchors), np.uint8)
    for b in boxes:
        out[int((b[1] + b[3]) / 2 // stride[1]), int((b[0] + b[2]) / 2 // stride[0])] = 1
    return out.reshape(-1)


case("npu_anchor_response_flags", _some_boxes(4), [6, 8], [3, 4], 2, reference=_flags)
# numbers of the public test
torch.manual_seed(1234)
_GRID = [
    torch.rand(4),
    torch.rand(2, 4),
    torch.tensor([1, 1, 1, 0], dtype=torch.uint8),
    torch.rand(4),
    torch.tensor([1, 0, 1, 0], dtype=torch.int32),
    torch.rand(2),
    torch.tensor([1, 0], dtype=torch.int32),
]
case("npu_grid_assign_positive", *_GRID, 128, 0.5, 0.0, True, reference=lambda *_: np.array([2.0, 1, 0.25984418, 0.36664134]))
torch.seed()


def _assign(
    ids: Array,
    overlaps: Array,
    flags: Array,
    best: Array,
    arg: Array,
    gt_best: Array,
    gt_arg: Array,
    count: int,
    positive: float,
    least: float,
    every: bool,
) -> Array:
    for i in range(len(ids)):
        if flags[i] and best[i] > positive:
            ids[i] = arg[i] + 1
    for g in range(len(overlaps)):
        for i in range(len(ids)):
            if flags[i] and gt_best[g] > least and (overlaps[g, i] == gt_best[g] if every else i == gt_arg[g]):
                ids[i] = g + 1
    return ids


_O = rand(3, 6)
for _every in (True, False):
    case(
        "npu_grid_assign_positive",
        torch.zeros(6),
        _O,
        torch.tensor([1, 1, 0, 1, 1, 1], dtype=torch.uint8),
        _O.amax(0),
        _O.argmax(0).to(torch.int32),
        _O.amax(1),
        _O.argmax(1).to(torch.int32),
        3,
        0.7,
        0.1,
        _every,
        reference=_assign,
    )


# suppression
