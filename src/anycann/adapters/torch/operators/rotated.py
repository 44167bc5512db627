"""Boxes that are turned by an angle in degrees."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch

from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import opaque, refuse, require, sizes

_Point = tuple[float, float]


def _corner_points(box: np.ndarray, trans: bool) -> list[_Point]:
    """Corners, one after the other, of (x, y, width, height, angle), or of (x0, y0, x1, y1, angle)."""
    x, y, width, height, angle = (float(v) for v in box)
    if trans:
        x, y, width, height = (x + width) / 2, (y + height) / 2, width - x, height - y
    cosine, sine = np.cos(np.radians(angle)), np.sin(np.radians(angle))
    signs = ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5))
    return [(x + i * width * cosine - j * height * sine, y + i * width * sine + j * height * cosine) for i, j in signs]


def _area(points: list[_Point]) -> float:
    return abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in pairwise([*points, points[0]]))) / 2 if len(points) > 2 else 0.0


def _clipped(points: list[_Point], a: _Point, b: _Point) -> list[_Point]:
    """The part of a polygon on the left of the line from a to b (Sutherland and Hodgman)."""

    def side(p: _Point) -> float:
        return (b[0] - a[0]) * (p[1] - a[1]) - (b[1] - a[1]) * (p[0] - a[0])

    result = []
    for p, q in pairwise([*points, points[0]]) if points else ():
        before, after = side(p), side(q)
        if before >= 0:
            result.append(p)
        if before * after < 0:
            share = before / (before - after)
            result.append((p[0] + share * (q[0] - p[0]), p[1] + share * (q[1] - p[1])))
    return result


def common_area(one: np.ndarray, other: np.ndarray, trans: bool) -> float:
    """The area that two turned boxes share."""
    points, edges = _corner_points(one, trans), _corner_points(other, trans)
    if sum(a[0] * b[1] - b[0] * a[1] for a, b in pairwise([*edges, edges[0]])) < 0:
        edges.reverse()
    for a, b in pairwise([*edges, edges[0]]):
        points = _clipped(points, a, b)
    return _area(points)


def _pairs(operator: str, boxes: torch.Tensor, others: torch.Tensor, trans: bool) -> np.ndarray:
    """(B, N, K) common areas."""
    fits = boxes.dim() == others.dim() == 3 and boxes.shape[2] == others.shape[2] == 5 and boxes.shape[0] == others.shape[0]
    require(fits, operator, f"boxes of {sizes(boxes, others)}", "(B, N, 5) and (B, K, 5)")
    a, b = wide(boxes).double().numpy(), wide(others).double().numpy()
    result = np.zeros((a.shape[0], a.shape[1], b.shape[1]))
    for batch, i, j in np.ndindex(result.shape):
        result[batch, i, j] = common_area(a[batch, i], b[batch, j], trans)
    return result


def _areas(boxes: torch.Tensor, trans: bool) -> np.ndarray:
    x = wide(boxes).double().numpy()
    width, height = (x[..., 2] - x[..., 0], x[..., 3] - x[..., 1]) if trans else (x[..., 2], x[..., 3])
    return np.asarray(np.abs(width * height))


@opaque(
    "npu_rotated_overlaps(Tensor self, Tensor query_boxes, bool trans=False) -> Tensor",
    shape=lambda self, query_boxes, trans=False: self.new_empty(self.shape[0], self.shape[1], query_boxes.shape[1]),
)
def rotated_overlaps(self: torch.Tensor, query_boxes: torch.Tensor, trans: bool = False) -> torch.Tensor:
    """(B, N, K) common areas of boxes (B, N, 5) and (B, K, 5)."""
    return torch.from_numpy(_pairs("npu_rotated_overlaps", self, query_boxes, trans)).to(self.dtype)


@opaque(
    "npu_rotated_iou(Tensor self, Tensor query_boxes, bool trans=False, int mode=0, bool is_cross=True, float v_threshold=0.0, "
    "float e_threshold=0.0) -> Tensor",
    shape=lambda self, query_boxes, *rest, **options: self.new_empty(self.shape[0], self.shape[1], query_boxes.shape[1]),
    missing="is_cross=False, mode 1, thresholds other than 0",
)
def rotated_iou(
    self: torch.Tensor,
    query_boxes: torch.Tensor,
    trans: bool = False,
    mode: int = 0,
    is_cross: bool = True,
    v_threshold: float = 0.0,
    e_threshold: float = 0.0,
) -> torch.Tensor:
    """(B, N, K) common areas over the areas of the unions."""
    operator = "npu_rotated_iou"
    if not is_cross or mode or v_threshold or e_threshold:
        refuse(operator, "is_cross=False, mode=1 or a threshold", "what they change is not documented without doubt")
    common = _pairs(operator, self, query_boxes, trans)
    union = _areas(self, trans)[:, :, None] + _areas(query_boxes, trans)[:, None] - common
    return torch.from_numpy(common / np.maximum(union, 1e-12)).to(self.dtype)


def _chosen_shapes(self: torch.Tensor, *rest: object, **options: object) -> tuple[torch.Tensor, torch.Tensor]:
    return self.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int32), self.new_empty(1, dtype=torch.int32)


@opaque(
    "npu_nms_rotated(Tensor self, Tensor scores, float iou_threshold, float scores_threshold=0, int max_output_size=-1, int mode=0)"
    " -> (Tensor, Tensor)",
    shape=_chosen_shapes,
    missing="mode 1",
)
def nms_rotated(
    self: torch.Tensor, scores: torch.Tensor, iou_threshold: float, scores_threshold: float = 0, max_output_size: int = -1, mode: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """(int32 places of the boxes (N, 5) of x, y, width, height, angle that are kept, best first; int32 (1,) how many)."""
    if mode != 0:
        refuse("npu_nms_rotated", f"mode={mode}", "0 (centre, size and angle) is computed")
    boxes, areas = wide(self).double().numpy(), _areas(self, trans=False)
    order = [i for i in torch.sort(scores, descending=True, stable=True).indices.tolist() if float(scores[i]) > scores_threshold]
    kept: list[int] = []
    for i in order:
        if len(kept) == max_output_size:
            break
        shared = [common_area(boxes[i], boxes[j], trans=False) for j in kept]
        if all(c <= iou_threshold * (areas[i] + areas[j] - c) for c, j in zip(shared, kept, strict=True)):
            kept.append(i)
    return torch.tensor(kept, dtype=torch.int32), torch.tensor([len(kept)], dtype=torch.int32)


def _weights(operator: str, weight: torch.Tensor) -> None:
    if not bool((weight == 1).all()):
        refuse(operator, "weight other than 1", "whether it multiplies or divides is not documented")


def _centres(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (x[:, :2] + x[:, 2:4]) / 2, x[:, 2:4] - x[:, :2]


@opaque(
    "npu_rotated_box_encode(Tensor self, Tensor gt_bboxes, Tensor weight) -> Tensor",
    shape=lambda self, gt_bboxes, weight: torch.empty_like(self),
    missing="weights other than 1",
)
def rotated_box_encode(self: torch.Tensor, gt_bboxes: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """(B, 5, N) differences of boxes x0 y0 x1 y1 angle: centres over sizes, logs of ratios, difference of the angles' tangents."""
    _weights("npu_rotated_box_encode", weight)
    anchor, box = wide(self), wide(gt_bboxes)
    (centre, size), (other, other_size) = _centres(anchor), _centres(box)
    angle = torch.tan(torch.deg2rad(box[:, 4:])) - torch.tan(torch.deg2rad(anchor[:, 4:]))
    return torch.cat(((other - centre) / size, torch.log(other_size / size), angle), 1).to(self.dtype)


@opaque(
    "npu_rotated_box_decode(Tensor self, Tensor deltas, Tensor weight) -> Tensor",
    shape=lambda self, deltas, weight: torch.empty_like(self),
    missing="weights other than 1",
)
def rotated_box_decode(self: torch.Tensor, deltas: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """(B, 5, N) boxes of anchors and what `npu_rotated_box_encode` makes."""
    _weights("npu_rotated_box_decode", weight)
    anchor, d = wide(self), wide(deltas)
    centre, size = _centres(anchor)
    middle, extent = centre + d[:, :2] * size, size * torch.exp(d[:, 2:4])
    angle = torch.rad2deg(torch.atan(d[:, 4:] + torch.tan(torch.deg2rad(anchor[:, 4:]))))
    return torch.cat((middle - extent / 2, middle + extent / 2, angle), 1).to(self.dtype)
