"""Boxes and regions, one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tests.torch_operators.product_cases import _convolved
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


def _suppressed(boxes: Array, order: Any, threshold: float, limit: Any = None) -> list[int]:
    kept: list[int] = []
    for i in order:
        overlaps = [_shared(boxes[i], boxes[j]) / (_area(boxes[i]) + _area(boxes[j]) - _shared(boxes[i], boxes[j])) for j in kept]
        if all(o <= threshold for o in overlaps) and (limit is None or len(kept) < limit):
            kept.append(int(i))
    return kept


def _masked(x: Array, threshold: float) -> Any:
    order = np.argsort(-x[:, 4], kind="stable")
    kept = _suppressed(x[:, :4], order, threshold)
    return x[order, :5], order.astype(np.int32), np.array([int(i) in kept for i in order], np.uint8)


case("npu_nms_with_mask", torch.cat((_some_boxes(12), rand(12, 1)), 1), 0.3, reference=_masked)
case("npu_nms_with_mask", torch.tensor([[0.0, 1, 2, 3, 0.6], [6, 7, 8, 9, 0.4]]), 0.5, reference=_masked)


def _v4(boxes: Array, scores: Array, limit: int, overlap: Array, least: Array, padded: bool = False) -> Any:
    order = [i for i in np.argsort(-scores, kind="stable") if scores[i] > least]
    kept = _suppressed(boxes, order, float(overlap), limit)
    return np.array(kept + ([0] * (limit - len(kept)) if padded else []), np.int32), np.array(len(kept))


for _padded in (True, False):
    case("npu_nms_v4", _some_boxes(15), rand(15), 6, torch.tensor(0.3), torch.tensor(0.2), _padded, reference=_v4)


def _batch(boxes: Array, scores: Array, least: float, overlap: float, per_class: int, total: int) -> Any:
    out, best, classes, counts = (
        np.zeros((len(boxes), total, 4)),
        np.zeros((len(boxes), total)),
        np.zeros((len(boxes), total)),
        np.zeros(len(boxes), np.int32),
    )
    for b in range(len(boxes)):
        found = []
        for c in range(scores.shape[2]):
            own = boxes[b, :, c if boxes.shape[2] > 1 else 0]
            order = [i for i in np.argsort(-scores[b, :, c], kind="stable") if scores[b, i, c] > least]
            found += [(scores[b, i, c], c, own[i]) for i in _suppressed(own, order, overlap, per_class)]
        for place, (s, c, box) in enumerate(sorted(found, key=lambda f: -f[0])[:total]):
            out[b, place], best[b, place], classes[b, place], counts[b] = box, s, c, place + 1
    return out, best, classes, counts


case("npu_batch_nms", torch.stack([_some_boxes(10) for _ in range(2)])[:, :, None], rand(2, 10, 3), 0.3, 0.4, 4, 8, reference=_batch)
case("npu_batch_nms", _some_boxes(40).reshape(2, 10, 2, 4), rand(2, 10, 2), 0.3, 0.4, 20, 30, reference=_batch)
# the public test
case(
    "npu_random_choice_with_mask",
    torch.tensor([1, 0, 1, 0]) > 0,
    2,
    1,
    0,
    reference=lambda *_: (np.array([[0], [2]]), np.array([True, True])),
)
case(
    "npu_random_choice_with_mask",
    torch.tensor([[1, 0], [1, 1]]) > 0,
    5,
    reference=lambda *_: (np.array([[0, 0], [1, 0], [1, 1], [0, 0], [0, 0]]), np.arange(5) < 3),
)
case("npu_random_choice_with_mask", torch.tensor([1, 0, 1, 0]) > 0, 0, reference=lambda *_: (np.array([[0], [2]]), np.array([True, True])))
case("npu_sub_sample", torch.tensor([0, 1, -1, 0, 1]), 10, 0.5, reference=lambda *_: np.array([0, 1, -1, 0, 1]))


# turned boxes


def _inside(points: Array, box: Array) -> Array:
    angle = np.radians(box[4])
    dx, dy = points[..., 0] - box[0], points[..., 1] - box[1]
    return (abs(dx * np.cos(angle) + dy * np.sin(angle)) <= box[2] / 2) & (abs(-dx * np.sin(angle) + dy * np.cos(angle)) <= box[3] / 2)


def _turned_area(a: Array, b: Array, trans: bool) -> tuple[float, float, float]:
    """Common and single areas, by counting points."""
    if trans:
        a, b = (np.array([(x[0] + x[2]) / 2, (x[1] + x[3]) / 2, x[2] - x[0], x[3] - x[1], x[4]]) for x in (a, b))
    steps = (np.arange(1500) + 0.5) / 1500 * 30 - 10
    points = np.stack(np.meshgrid(steps, steps), -1)
    return float((_inside(points, a) & _inside(points, b)).mean() * 900), a[2] * a[3], b[2] * b[3]


def _turned(kind: str) -> Any:
    def reference(boxes: Array, others: Array, trans: bool = False, **_: Any) -> Array:
        out = np.zeros((boxes.shape[0], boxes.shape[1], others.shape[1]))
        for place in np.ndindex(out.shape):
            common, one, other = _turned_area(boxes[place[0], place[1]], others[place[0], place[2]], trans)
            out[place] = common if kind == "area" else common / (one + other - common)
        return out

    return reference


def _angled(b: int, n: int) -> torch.Tensor:
    return torch.cat((rand(b, n, 2, low=2, high=8), rand(b, n, 2, low=1, high=6), rand(b, n, 1, low=-180, high=180)), -1)


case("npu_rotated_overlaps", _angled(1, 2), _angled(1, 2), reference=_turned("area"), tolerance=5e-2)
case("npu_rotated_iou", _angled(1, 2), _angled(1, 2), reference=_turned("iou"), tolerance=5e-3)
case(
    "npu_rotated_iou",
    torch.tensor([[[1.0, 1, 5, 4, 30]]]),
    torch.tensor([[[2.0, 0, 6, 5, -20]]]),
    True,
    reference=_turned("iou"),
    tolerance=5e-3,
)
# numbers of the public test
np.random.seed(1234)
_A = np.concatenate(
    [np.random.uniform(20, 60, [4, 2, 2]), np.random.randint(1, 20, [4, 2, 2]), np.random.randint(-180, 180, [4, 2, 1])], -1
)
_B = np.concatenate(
    [np.random.uniform(20, 60, [4, 3, 2]), np.random.randint(1, 20, [4, 3, 2]), np.random.randint(-180, 180, [4, 3, 1])], -1
)
np.random.seed()
_EXPECTED = np.zeros((4, 2, 3))
_EXPECTED[0, 0, 1], _EXPECTED[2, 1, 0], _EXPECTED[2, 1, 1] = 0.00045966, 0.00600622, 0.10504241
case(
    "npu_rotated_iou",
    torch.from_numpy(_A).float(),
    torch.from_numpy(_B).float(),
    False,
    0,
    True,
    0.0,
    0.0,
    reference=lambda *_: _EXPECTED,
    tolerance=1e-4,
)
case(
    "npu_nms_rotated",
    torch.tensor([[5.0, 5, 4, 4, 0], [5, 5, 4, 4, 45], [20, 5, 4, 4, 10], [5.2, 5, 4, 4, 1]]),
    torch.tensor([0.5, 0.9, 0.1, 0.8]),
    0.8,
    0.2,
    reference=lambda *_: (np.array([1, 3], np.int32), np.array([2])),
)
# numbers of the public tests
_ONES = torch.ones(5)
case(
    "npu_rotated_box_encode",
    torch.tensor([[[44.2877], [9.1412], [88.7575], [25.8879], [64.8047]]]),
    torch.tensor([[[39.1763], [0.9838], [78.1028], [29.5997], [51.5907]]]),
    _ONES,
    reference=lambda *_: np.array([[[-0.1773], [-0.1327], [-0.1331], [0.5358], [-0.8643]]]),
    tolerance=1e-3,
)
case(
    "npu_rotated_box_decode",
    torch.tensor([[[32.1855], [41.9922], [64.1435], [62.5325], [34.607]]]),
    torch.tensor([[[1.8725], [-1.8915], [0.2395], [-0.4622], [-34.6539]]]),
    _ONES,
    reference=lambda *_: np.array([[[87.70366], [6.9412346], [128.31055], [19.879467], [-88.313515]]]),
    tolerance=1e-3,
)


# regions


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
