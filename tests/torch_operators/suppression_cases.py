"""Suppression of boxes and choices among them, box by box; rotated boxes by points inside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.torch_operators.box_cases import _area, _shared, _some_boxes
from tests.torch_operators.walk import case, rand

Array = np.ndarray


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
