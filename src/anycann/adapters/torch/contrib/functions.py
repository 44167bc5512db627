"""`torch_npu.contrib.function`: what detection and transformer programs of Ascend call."""

from __future__ import annotations

from collections.abc import Sequence
import math
from typing import Any

import torch
from torch.nn import functional

_npu = torch.ops.npu
_Pair = tuple[torch.Tensor, torch.Tensor]
_HEAD = 64  # width of a head in the fused attention of BERT


def npu_multiclass_nms(
    multi_bboxes: torch.Tensor,
    multi_scores: torch.Tensor,
    score_thr: float = 0.05,
    nms_thr: float = 0.45,
    max_num: int = 50,
    score_factors: torch.Tensor | None = None,
) -> _Pair:
    """(boxes with scores (max_num, 5), classes (max_num,)) of boxes (N, 4) or (N, C, 4) and scores (N, C + 1), the last of no object."""
    factors = None if score_factors is None else score_factors[None]
    boxes, classes = npu_batched_multiclass_nms(multi_bboxes[None], multi_scores[None], score_thr, nms_thr, max_num, factors)
    return boxes[0], classes[0]


def npu_batched_multiclass_nms(
    multi_bboxes: torch.Tensor,
    multi_scores: torch.Tensor,
    score_thr: float = 0.05,
    nms_thr: float = 0.45,
    max_num: int = 50,
    score_factors: torch.Tensor | None = None,
) -> _Pair:
    """As `npu_multiclass_nms`, of batches: (B, max_num, 5) and (B, max_num). In float16, as on Ascend; zeros behind the last box."""
    scores = multi_scores[..., :-1]
    scores = scores if score_factors is None else scores * score_factors[..., None]
    batch, count = scores.shape[:2]
    boxes = multi_bboxes.reshape(batch, count, -1, 4)
    found, best, classes, _ = _npu.npu_batch_nms(boxes.half(), scores.half(), score_thr, nms_thr, max_num, max_num)
    return torch.cat((found, best[..., None]), -1), classes


def npu_single_level_responsible_flags(
    featmap_size: Sequence[int], gt_bboxes: torch.Tensor, stride: Sequence[int], num_base_anchors: int
) -> torch.Tensor:
    """uint8 flags (h w anchors,): 1 for the anchors of cells in which the centre of a box lies."""
    return _npu.npu_anchor_response_flags(_float(gt_bboxes), list(featmap_size), list(stride), num_base_anchors)


def npu_bbox_coder_encode_yolo(bboxes: torch.Tensor, gt_bboxes: torch.Tensor, stride: torch.Tensor) -> torch.Tensor:
    """(N, 4) differences of boxes as YOLO learns them."""
    _same("npu_bbox_coder_encode_yolo", bboxes, gt_bboxes)
    return _npu.npu_yolo_boxes_encode(_float(bboxes), _float(gt_bboxes), stride.int(), False)


def npu_bbox_coder_encode_xyxy2xywh(
    bboxes: torch.Tensor,
    gt_bboxes: torch.Tensor,
    means: Sequence[float] | None = None,
    stds: Sequence[float] | None = None,
    is_normalized: bool = False,
    normalized_scale: float = 10000.0,
) -> torch.Tensor:
    """(N, 4) differences of boxes as Faster R-CNN learns them; coordinates from 0 to 1 are scaled up first."""
    _same("npu_bbox_coder_encode_xyxy2xywh", bboxes, gt_bboxes)
    scale = normalized_scale if is_normalized else 1.0
    return _npu.npu_bounding_box_encode(_float(bboxes) * scale, _float(gt_bboxes) * scale, *(means or [0.0] * 4), *(stds or [1.0] * 4))


def npu_bbox_coder_decode_xywh2xyxy(
    bboxes: torch.Tensor,
    pred_bboxes: torch.Tensor,
    means: Sequence[float] | None = None,
    stds: Sequence[float] | None = None,
    max_shape: Sequence[int] | None = None,
    wh_ratio_clip: float = 16 / 1000,
) -> torch.Tensor:
    """(N, 4) boxes of differences, inside a picture of max_shape (h, w)."""
    _same("npu_bbox_coder_decode_xywh2xyxy", bboxes, pred_bboxes)
    numbers = (*(means or [0.0] * 4), *(stds or [1.0] * 4), list(max_shape or (9999, 9999)), wh_ratio_clip)
    return _npu.npu_bounding_box_decode(_float(bboxes), _float(pred_bboxes), *numbers)


def npu_fast_condition_index_put(x: torch.Tensor, condition: torch.Tensor, value: float) -> torch.Tensor:
    """A copy of x with the value where the condition (bool) holds. Raises TypeError for a condition of another dtype."""
    if condition.dtype != torch.bool:
        raise TypeError(f"npu_fast_condition_index_put: condition of {condition.dtype}; accepted: torch.bool")
    return torch.where(condition, torch.full_like(x, value), x)


def fuse_add_softmax_dropout(
    training: bool,
    dropout: Any,
    attn_mask: torch.Tensor,
    attn_scores: torch.Tensor,
    attn_head_size: int,
    p: float = 0.5,
    dim: int = -1,
) -> torch.Tensor:
    """Dropout of softmax(mask + scores / sqrt(head size)) over the last axis: by p where Ascend's fused form takes the shape
    (rows 128, 256, 384 or 512, N C a multiple of 32), by the module `dropout` elsewhere."""
    count, channels, rows, _ = attn_scores.shape
    scale = 1 / math.sqrt(attn_head_size)
    if rows in (128, 256, 384, 512) and count * channels % 32 == 0:
        return _npu.npu_dropout_with_add_softmax(attn_scores, attn_mask, scale, p if training else 0.0, -1)[2]
    return dropout(torch.softmax(attn_mask + attn_scores * scale, -1))


def roll(input1: torch.Tensor, shifts: Any, dims: Any) -> torch.Tensor:
    """torch.roll."""
    return torch.roll(input1, shifts, dims)


def matmul_transpose(tensor1: torch.Tensor, tensor2: torch.Tensor) -> torch.Tensor:
    """tensor1 @ tensor2 with its last axes exchanged."""
    return torch.matmul(tensor1, tensor2.transpose(-2, -1))


def dropout_with_byte_mask(input1: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """Dropout. Raises ValueError for p outside 0 to 1, and for inplace."""
    if not 0 <= p <= 1 or inplace:
        raise ValueError(f"dropout_with_byte_mask: p={p}, inplace={inplace}; accepted: 0 to 1, False")
    return _npu.dropout_with_byte_mask(input1, p, training)


def npu_fused_attention(
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor,
    query_kernel: torch.Tensor,
    key_kernel: torch.Tensor,
    value_kernel: torch.Tensor,
    query_bias: torch.Tensor,
    key_bias: torch.Tensor,
    value_bias: torch.Tensor,
    scale: float = 1,
    keep_prob: float = 0,
) -> torch.Tensor:
    """(B S, H): attention by heads of 64 of hidden states (B S, H), kernels (H, H) on their right, a mask (B, 1, S, S) that is added.

    keep_prob: the part that dropout keeps. Raises NotImplementedError for 0, of which nothing would be left.
    """
    if keep_prob == 0:
        raise NotImplementedError("npu_fused_attention: keep_prob=0 is not supported: all weights would be dropped; 1 drops none")
    batch, heads = attention_mask.shape[0], hidden_states.shape[1] // _HEAD
    layers = []
    for kernel, bias in ((query_kernel, query_bias), (key_kernel, key_bias), (value_kernel, value_bias)):
        layers.append((hidden_states @ kernel + bias).reshape(batch, -1, heads, _HEAD).transpose(1, 2))
    scores = layers[0].float() @ layers[1].float().transpose(-1, -2) * scale + attention_mask.float()
    weights = functional.dropout(torch.softmax(scores, -1), 1 - keep_prob, training=keep_prob < 1)
    return (weights @ layers[2].float()).transpose(1, 2).reshape(hidden_states.shape).to(hidden_states.dtype)


def npu_fused_attention_with_layernorm(
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor,
    query_kernel: torch.Tensor,
    key_kernel: torch.Tensor,
    value_kernel: torch.Tensor,
    query_bias: torch.Tensor,
    key_bias: torch.Tensor,
    value_bias: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    scale: float = 1,
    keep_prob: float = 0,
) -> _Pair:
    """(attention of the layer normalisation of hidden states, that normalisation); see `npu_fused_attention`."""
    norm = functional.layer_norm(hidden_states, hidden_states.shape[-1:], gamma, beta, 1e-5)
    projections = (query_kernel, key_kernel, value_kernel, query_bias, key_bias, value_bias)
    return npu_fused_attention(norm, attention_mask, *projections, scale, keep_prob), norm


def npu_iou(
    boxes1: torch.Tensor, boxes2: torch.Tensor, mode: str = "ptiou", is_normalized: bool = False, normalized_scale: float = 100.0
) -> torch.Tensor:
    """(N, M) overlaps of boxes (N, 4) and (M, 4). Raises ValueError for a mode other than iou and ptiou."""
    if mode not in ("iou", "ptiou"):
        raise ValueError(f"npu_iou: mode={mode!r}; accepted: 'iou', 'ptiou'")
    scale = normalized_scale if is_normalized else 1.0
    return _npu.npu_iou(_float(boxes2) * scale, _float(boxes1) * scale)


npu_ptiou = npu_iou


def npu_giou(boxes1: torch.Tensor, boxes2: torch.Tensor, is_permuted: bool = True) -> torch.Tensor:
    """(N, 1) of pairs of boxes x y w h, (N, 4), or (4, N) unless they are to be permuted. Raises ValueError for unequal shapes."""
    if boxes1.shape != boxes2.shape:
        raise ValueError(f"npu_giou: boxes of {tuple(boxes1.shape)} and {tuple(boxes2.shape)}; accepted: equal shapes")
    one, other = ((x.T if is_permuted else x) for x in (_float(boxes1), _float(boxes2)))
    return _npu.npu_giou(one, other, True, False)


def npu_diou(boxes1: torch.Tensor, boxes2: torch.Tensor, trans: bool = True, is_cross: bool = False, mode: int = 0) -> torch.Tensor:
    """`torch_npu.npu_diou` of boxes x y w h (4, N)."""
    return _npu.npu_diou(boxes1, boxes2, trans, is_cross, mode)


def npu_ciou(boxes1: torch.Tensor, boxes2: torch.Tensor, trans: bool = True, is_cross: bool = False, mode: int = 0) -> torch.Tensor:
    """`torch_npu.npu_ciou` of boxes x y w h (4, N)."""
    return _npu.npu_ciou(boxes1, boxes2, trans, is_cross, mode, True)


def _float(boxes: torch.Tensor) -> torch.Tensor:
    return boxes if boxes.dtype in (torch.float32, torch.float16) else boxes.float()


def _same(function: str, one: torch.Tensor, other: torch.Tensor) -> None:
    if one.shape != other.shape or one.shape[-1] != 4:
        raise ValueError(f"{function}: boxes of {tuple(one.shape)} and {tuple(other.shape)}; accepted: (N, 4) both")
