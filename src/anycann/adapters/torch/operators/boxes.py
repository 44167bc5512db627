"""Overlaps of boxes, and boxes as differences from others."""

from __future__ import annotations

import math
from typing import Any

import torch

from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import composed, refuse, require, sizes

_SMALL = 1e-9
_WIDENED = 0.01  # npu_iou adds it to widths and heights
_Corners = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


@composed("npu_iou(Tensor bboxes, Tensor gtboxes, int mode=0) -> Tensor")
@composed("npu_ptiou(Tensor bboxes, Tensor gtboxes, int mode=0) -> Tensor")
def iou(bboxes: torch.Tensor, gtboxes: torch.Tensor, mode: int = 0) -> torch.Tensor:
    """(M, N) overlaps of boxes (N, 4) with others (M, 4), x0 y0 x1 y1: over the union (mode 0) or over the others' areas (1).

    Sides are taken 0.01 longer for the areas, as the operator of Ascend does.
    """
    _boxes("npu_iou", bboxes, gtboxes, axis=1)
    boxes, others = wide(bboxes), wide(gtboxes)
    low = torch.maximum(others[:, None, :2], boxes[None, :, :2])
    high = torch.minimum(others[:, None, 2:], boxes[None, :, 2:])
    common = (high - low).clamp(min=0).prod(-1)
    area, area_of_others = ((x[:, 2:] - x[:, :2] + _WIDENED).prod(-1) for x in (boxes, others))
    whole = area_of_others[:, None] if mode == 1 else area[None] + area_of_others[:, None] - common
    return (common / whole).to(bboxes.dtype)


@composed("npu_giou(Tensor self, Tensor gtboxes, bool trans=False, bool is_cross=False, int mode=0) -> Tensor")
def giou(self: torch.Tensor, gtboxes: torch.Tensor, trans: bool = False, is_cross: bool = False, mode: int = 0) -> torch.Tensor:
    """(N, M), or (N, 1) without is_cross: IoU less the part of the enclosing box that neither covers, of boxes (4, N) and (4, M)."""
    a, b = _paired("npu_giou", self, gtboxes, trans, is_cross, mode)
    common, enclosing = _common(a, b), _enclosing(a, b).prod(0)
    union = _area(a) + _area(b) - common + 1e-16
    return (common / union - (enclosing - union) / enclosing).T.to(self.dtype)


@composed("npu_diou(Tensor self, Tensor gtboxes, bool trans=False, bool is_cross=False, int mode=0) -> Tensor")
def diou(self: torch.Tensor, gtboxes: torch.Tensor, trans: bool = False, is_cross: bool = False, mode: int = 0) -> torch.Tensor:
    """(M, N), or (1, N) without is_cross: IoU less the squared distance of the centres over the enclosing diagonal's square."""
    a, b = _paired("npu_diou", self, gtboxes, trans, is_cross, mode)
    return (_overlap(a, b) - _distance(a, b)).to(self.dtype)


@composed(
    "npu_ciou(Tensor self, Tensor gtboxes, bool trans=False, bool is_cross=True, int mode=0, bool atan_sub_flag=False) -> Tensor",
)
def ciou(
    self: torch.Tensor,
    gtboxes: torch.Tensor,
    trans: bool = False,
    is_cross: bool = True,
    mode: int = 0,
    atan_sub_flag: bool = False,
) -> torch.Tensor:
    """As `npu_diou`, less the difference of the shapes (arXiv:1911.08287)."""
    a, b = _paired("npu_ciou", self, gtboxes, trans, is_cross, mode)
    overlap = _overlap(a, b)
    shape = (4 / math.pi**2) * (_slope(b) - _slope(a)).square()
    weight = (shape / (1 + _SMALL - overlap + shape)).detach()
    return (overlap - _distance(a, b) - weight * shape).to(self.dtype)


def _boxes(operator: str, a: torch.Tensor, b: torch.Tensor, axis: int) -> None:
    right = a.dim() == b.dim() == 2 and a.shape[axis] == b.shape[axis] == 4
    require(right, operator, f"boxes of {sizes(a, b)}", "(N, 4)" if axis else "(4, N)")


def _paired(operator: str, a: torch.Tensor, b: torch.Tensor, trans: bool, is_cross: bool, mode: int) -> tuple[_Corners, _Corners]:
    """Corners (1, N) of a, and (M, 1) of b, or (1, N) for pairs."""
    _boxes(operator, a, b, axis=0)
    require(is_cross or a.shape == b.shape, operator, f"boxes of {sizes(a, b)} one by one", "equal numbers")
    if mode != 0:
        refuse(operator, f"mode={mode}", "what the foreground is divided by is not documented; 0 is computed")
    first, second = (_corners(wide(x), trans) for x in (a, b))
    return tuple(x[None] for x in first), tuple(x[:, None] if is_cross else x[None] for x in second)


def _corners(x: torch.Tensor, trans: bool) -> _Corners:
    if not trans:
        return x[0], x[1], x[2], x[3]
    return x[0] - x[2] / 2, x[1] - x[3] / 2, x[0] + x[2] / 2, x[1] + x[3] / 2


def _area(x: _Corners) -> torch.Tensor:
    return (x[2] - x[0]) * (x[3] - x[1])


def _common(a: _Corners, b: _Corners) -> torch.Tensor:
    width = torch.minimum(a[2], b[2]) - torch.maximum(a[0], b[0])
    return width.clamp(min=0) * (torch.minimum(a[3], b[3]) - torch.maximum(a[1], b[1])).clamp(min=0)


def _enclosing(a: _Corners, b: _Corners) -> torch.Tensor:
    width = torch.maximum(a[2], b[2]) - torch.minimum(a[0], b[0])
    return torch.stack((width, torch.maximum(a[3], b[3]) - torch.minimum(a[1], b[1])))


def _overlap(a: _Corners, b: _Corners) -> torch.Tensor:
    common = _common(a, b)
    areas = [(x[2] - x[0]) * (x[3] - x[1] + _SMALL) for x in (a, b)]
    return common / (areas[0] + areas[1] - common + _SMALL)


def _distance(a: _Corners, b: _Corners) -> torch.Tensor:
    diagonal = _enclosing(a, b).square().sum(0) + _SMALL
    return ((b[0] + b[2] - a[0] - a[2]).square() + (b[1] + b[3] - a[1] - a[3]).square()) / 4 / diagonal


def _slope(x: _Corners) -> torch.Tensor:
    return torch.atan((x[2] - x[0]) / (x[3] - x[1] + _SMALL))


_SCALES = "float means0, float means1, float means2, float means3, float stds0, float stds1, float stds2, float stds3"


def _centred(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Centres and sizes (N, 2) of boxes whose last pixel belongs to them."""
    return (x[:, :2] + x[:, 2:]) / 2, x[:, 2:] - x[:, :2] + 1


@composed(f"npu_bounding_box_encode(Tensor anchor_box, Tensor ground_truth_box, {_SCALES}) -> Tensor")
def bounding_box_encode(anchor_box: torch.Tensor, ground_truth_box: torch.Tensor, *scales: float, **_: float) -> torch.Tensor:
    """(N, 4) differences of centres over sizes, and logs of ratios of sizes, minus means over deviations."""
    _boxes("npu_bounding_box_encode", anchor_box, ground_truth_box, axis=1)
    (centre, size), (other, other_size) = _centred(wide(anchor_box)), _centred(wide(ground_truth_box))
    deltas = torch.cat(((other - centre) / size, torch.log(other_size / size)), 1)
    means, deviations = deltas.new_tensor(scales[:4]), deltas.new_tensor(scales[4:])
    return ((deltas - means) / deviations).to(anchor_box.dtype)


@composed(f"npu_bounding_box_decode(Tensor rois, Tensor deltas, {_SCALES}, int[1] max_shape, float wh_ratio_clip) -> Tensor")
def bounding_box_decode(rois: torch.Tensor, deltas: torch.Tensor, *rest: Any, **_: Any) -> torch.Tensor:
    """(N, 4) boxes of differences, the inverse of the encoding, ratios up to |log wh_ratio_clip|, inside a picture of max_shape (h, w)."""
    *scales, max_shape, ratio = rest
    _boxes("npu_bounding_box_decode", rois, deltas, axis=1)
    centre, size = _centred(wide(rois))
    d = wide(deltas) * size.new_tensor(scales[4:]) + size.new_tensor(scales[:4])
    limit = abs(math.log(ratio))
    middle, extent = centre + size * d[:, :2], size * torch.exp(d[:, 2:].clamp(-limit, limit))
    corners = torch.cat((middle - extent * 0.5 + 0.5, middle + extent * 0.5 - 0.5), 1)
    height, width = max_shape
    largest = corners.new_tensor([width - 1, height - 1] * 2)
    return torch.minimum(corners.clamp(min=0), largest).to(rois.dtype)


@composed("npu_yolo_boxes_encode(Tensor self, Tensor gt_bboxes, Tensor stride, bool performance_mode=False) -> Tensor")
def yolo_boxes_encode(self: torch.Tensor, gt_bboxes: torch.Tensor, stride: torch.Tensor, performance_mode: bool = False) -> torch.Tensor:
    """(N, 4): centres in cells of `stride` (N,), from the middle of the anchor's cell, and logs of ratios of sizes."""
    _boxes("npu_yolo_boxes_encode", self, gt_bboxes, axis=1)
    anchor, box = wide(self), wide(gt_bboxes)
    small = 1e-6
    centres = ((box[:, :2] + box[:, 2:]) / 2 - (anchor[:, :2] + anchor[:, 2:]) / 2) / stride.to(anchor.dtype)[:, None] + 0.5
    ratios = (box[:, 2:] - box[:, :2]) / (anchor[:, 2:] - anchor[:, :2])
    return torch.cat((centres.clamp(small, 1 - small), torch.log(ratios.clamp(min=small))), 1).to(self.dtype)


@composed(
    "npu_anchor_response_flags(Tensor self, int[2] featmap_size, int[2] stride, int num_base_anchors) -> Tensor", differentiable=False
)
def anchor_response_flags(self: torch.Tensor, featmap_size: list[int], stride: list[int], num_base_anchors: int) -> torch.Tensor:
    """uint8 (h w anchors,): 1 for all anchors of a cell in which the centre of a box lies."""
    box, (height, width) = wide(self), featmap_size
    column, row = (torch.floor((box[:, i] + box[:, i + 2]) * 0.5 / stride[i]).long() for i in (0, 1))
    cells = torch.zeros(height * width, dtype=torch.uint8, device=self.device)
    return cells.index_fill(0, row * width + column, 1).repeat_interleave(num_base_anchors)


@composed(
    "npu_grid_assign_positive(Tensor self, Tensor overlaps, Tensor box_responsible_flags, Tensor max_overlaps, Tensor argmax_overlaps, "
    "Tensor gt_max_overlaps, Tensor gt_argmax_overlaps, int num_gts, float pos_iou_thr, float min_pos_iou, bool gt_max_assign_all)"
    " -> Tensor"
)
def grid_assign_positive(
    self: torch.Tensor,
    overlaps: torch.Tensor,
    box_responsible_flags: torch.Tensor,
    max_overlaps: torch.Tensor,
    argmax_overlaps: torch.Tensor,
    gt_max_overlaps: torch.Tensor,
    gt_argmax_overlaps: torch.Tensor,
    num_gts: int,
    pos_iou_thr: float,
    min_pos_iou: float,
    gt_max_assign_all: bool,
) -> torch.Tensor:
    """Which object (counted from 1) each box gets: first its best one above the threshold, then for each object its best boxes."""
    responsible = box_responsible_flags.bool()
    result = torch.where((max_overlaps > pos_iou_thr) & responsible, argmax_overlaps.to(self.dtype) + 1, self)
    places = torch.arange(self.shape[0], device=self.device)
    for number in range(min(num_gts, overlaps.shape[0])):
        best = overlaps[number] == gt_max_overlaps[number] if gt_max_assign_all else places == gt_argmax_overlaps[number]
        result = torch.where(best & responsible & (gt_max_overlaps[number] > min_pos_iou), number + 1, result)
    return result
