"""Non-maximum suppression, and choices by chance among boxes."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import opaque, refuse, require, sizes

_Pair = tuple[torch.Tensor, torch.Tensor]


def keep(boxes: torch.Tensor, threshold: float, limit: int | None = None) -> torch.Tensor:
    """Booleans (N,): which boxes (N, 4), best first, overlap none before them that is kept by more than the threshold, up to a limit."""
    low, high = torch.minimum(boxes[:, :2], boxes[:, 2:]), torch.maximum(boxes[:, :2], boxes[:, 2:])
    area = (high - low).prod(-1)
    kept = torch.ones(boxes.shape[0], dtype=torch.bool)
    left = boxes.shape[0] if limit is None else limit
    for i in range(boxes.shape[0]):
        if left == 0:
            kept[i:] = False
            break
        if kept[i]:
            left -= 1
            common = (torch.minimum(high[i], high[i + 1 :]) - torch.maximum(low[i], low[i + 1 :])).clamp(min=0).prod(-1)
            kept[i + 1 :] &= ~(common > threshold * (area[i] + area[i + 1 :] - common))
    return kept


@opaque(
    "npu_nms_with_mask(Tensor input, Scalar iou_threshold) -> (Tensor, Tensor, Tensor)",
    shape=lambda input, iou_threshold: (
        input.new_empty(input.shape[0], 5),
        input.new_empty(input.shape[0], dtype=torch.int32),
        input.new_empty(input.shape[0], dtype=torch.uint8),
    ),
)
def nms_with_mask(input: torch.Tensor, iou_threshold: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(boxes with scores (N, 5) by falling score, their places, 1 for those that are kept)."""
    require(input.dim() == 2 and input.shape[1] >= 5, "npu_nms_with_mask", sizes(input), "(N, 5) or (N, 8) of corners and score")
    order = torch.sort(input[:, 4], descending=True, stable=True).indices
    chosen = input[order, :5]
    return chosen.contiguous(), order.to(torch.int32), keep(wide(chosen)[:, :4], float(iou_threshold)).to(torch.uint8)


def _v4_shapes(
    self: torch.Tensor,
    scores: torch.Tensor,
    max_output_size: int,
    iou_threshold: torch.Tensor,
    scores_threshold: torch.Tensor,
    pad_to_max_output_size: bool = False,
) -> _Pair:
    count = int(max_output_size) if pad_to_max_output_size else torch.library.get_ctx().new_dynamic_size()
    return self.new_empty(count, dtype=torch.int32), self.new_empty((), dtype=torch.int32)


@opaque(
    "npu_nms_v4(Tensor self, Tensor scores, Scalar max_output_size, Tensor iou_threshold, Tensor scores_threshold, "
    "bool pad_to_max_output_size=False) -> (Tensor, Tensor)",
    shape=_v4_shapes,
)
def nms_v4(
    self: torch.Tensor,
    scores: torch.Tensor,
    max_output_size: int,
    iou_threshold: torch.Tensor,
    scores_threshold: torch.Tensor,
    pad_to_max_output_size: bool = False,
) -> _Pair:
    """(int32 places of the boxes kept, best first, filled up with zeros if asked for; how many they are)."""
    order = torch.sort(scores, descending=True, stable=True).indices
    order = order[scores[order] > scores_threshold]
    chosen = order[keep(wide(self)[order], float(iou_threshold), int(max_output_size))].to(torch.int32)
    count = torch.tensor(chosen.shape[0], dtype=torch.int32)
    if pad_to_max_output_size:
        chosen = torch.cat((chosen, chosen.new_zeros(int(max_output_size) - chosen.shape[0])))
    return chosen, count


def _batch_shapes(
    self: torch.Tensor, scores: torch.Tensor, score_threshold: float, iou_threshold: float, max_size_per_class: int, max_total_size: int,
    change_coordinate_frame: bool = False, transpose_box: bool = False,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    batch = self.shape[0]
    flat = (self.new_empty(batch, max_total_size) for _ in range(2))
    return self.new_empty(batch, max_total_size, 4), *flat, self.new_empty(batch, dtype=torch.int32)


@opaque(
    "npu_batch_nms(Tensor self, Tensor scores, float score_threshold, float iou_threshold, int max_size_per_class, int max_total_size, "
    "bool change_coordinate_frame=False, bool transpose_box=False) -> (Tensor, Tensor, Tensor, Tensor)",
    shape=_batch_shapes,
    missing="change_coordinate_frame, transpose_box",
)
def batch_nms(
    self: torch.Tensor,
    scores: torch.Tensor,
    score_threshold: float,
    iou_threshold: float,
    max_size_per_class: int,
    max_total_size: int,
    change_coordinate_frame: bool = False,
    transpose_box: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Suppression in each class of each picture: (boxes (B, total, 4), scores, classes (B, total), int32 counts (B,)), best first.

    self: (B, N, 1 or C, 4) boxes; scores: (B, N, C).
    """
    operator = "npu_batch_nms"
    if change_coordinate_frame or transpose_box:
        refuse(operator, "change_coordinate_frame or transpose_box", "which frame the boxes get is not documented")
    fits = self.dim() == 4 and scores.dim() == 3 and self.shape[2] in (1, scores.shape[2])
    require(fits, operator, f"boxes and scores of {sizes(self, scores)}", "(B, N, 1 or C, 4) and (B, N, C)")
    boxes, best = self.new_zeros(self.shape[0], max_total_size, 4), scores.new_zeros(self.shape[0], max_total_size)
    classes, counts = torch.zeros_like(best), torch.zeros(self.shape[0], dtype=torch.int32)
    for picture in range(self.shape[0]):
        found = [
            _of_class(self[picture], scores[picture], c, score_threshold, iou_threshold, max_size_per_class) for c in range(scores.shape[2])
        ]
        all_boxes, all_scores, all_classes = (torch.cat(parts) for parts in zip(*found, strict=True))
        order = torch.sort(all_scores, descending=True, stable=True).indices[:max_total_size]
        count = order.shape[0]
        boxes[picture, :count], best[picture, :count], classes[picture, :count] = all_boxes[order], all_scores[order], all_classes[order]
        counts[picture] = count
    return boxes, best, classes.to(self.dtype), counts


def _of_class(
    boxes: torch.Tensor, scores: torch.Tensor, number: int, score_threshold: float, iou_threshold: float, limit: int
) -> tuple[torch.Tensor, ...]:
    own, score = boxes[:, number if boxes.shape[1] > 1 else 0], scores[:, number]
    order = torch.sort(score, descending=True, stable=True).indices
    order = order[score[order] > score_threshold]
    chosen = order[keep(wide(own)[order], iou_threshold, limit)]
    return own[chosen], score[chosen], torch.full((chosen.shape[0],), number, dtype=score.dtype)


def _random_shapes(x: torch.Tensor, count: int = 256, seed: int = 0, seed2: int = 0) -> _Pair:
    size = count or torch.library.get_ctx().new_dynamic_size()
    return x.new_empty((size, x.dim()), dtype=torch.int32), x.new_empty(size, dtype=torch.bool)


@opaque("npu_random_choice_with_mask(Tensor x, int count=256, int seed=0, int seed2=0) -> (Tensor, Tensor)", shape=_random_shapes)
def random_choice_with_mask(x: torch.Tensor, count: int = 256, seed: int = 0, seed2: int = 0) -> _Pair:
    """(int32 places (count, axes) of elements that are true, drawn without repetition and zeros behind them; booleans of the drawn ones).

    A count of 0 takes all. As many as there are come in their order, fewer by chance.
    """
    places = torch.nonzero(x).to(torch.int32)
    size = count or places.shape[0]
    if places.shape[0] > size:
        generator = torch.Generator().manual_seed(seed * 2**32 + seed2) if seed or seed2 else None
        places = places[torch.randperm(places.shape[0], generator=generator)[:size]]
    missing = size - places.shape[0]
    return torch.cat((places, places.new_zeros(missing, x.dim()))), torch.arange(size) < size - missing


@opaque(
    "npu_sub_sample(Tensor self, int per_images, float positive_fraction) -> Tensor",
    shape=lambda self, per_images, positive_fraction: torch.empty_like(self),
)
def sub_sample(self: torch.Tensor, per_images: int, positive_fraction: float) -> torch.Tensor:
    """Labels with -1 but for a sample by chance of per_images: positive ones up to the fraction, the rest zeros."""
    positive, negative = torch.nonzero(self >= 1).reshape(-1), torch.nonzero(self == 0).reshape(-1)
    positives = min(int(per_images * positive_fraction), positive.shape[0])
    negatives = min(per_images - positives, negative.shape[0])
    result = torch.full_like(self, -1)
    result[positive[torch.randperm(positive.shape[0])[:positives]]] = 1
    result[negative[torch.randperm(negative.shape[0])[:negatives]]] = 0
    return result
