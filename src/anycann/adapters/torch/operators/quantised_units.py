"""Normalisations and gated units whose results are quantised at once."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators import packing
from anycann.adapters.torch.operators.activations import clipped_swiglu
from anycann.adapters.torch.operators.normalisation import rms_norm
from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.quantisation import by_group, is_int4, quantise_rows, smoothed
from anycann.adapters.torch.operators.registry import composed, refuse, refuse_given, require, sizes

_Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@composed(
    "npu_rms_norm_quant(Tensor x, Tensor gamma, Tensor beta, Tensor scale, Tensor offset, float epsilon=1e-06, *, int? dst_dtype=None)"
    " -> Tensor",
    missing="float8 results",
    differentiable=False,
)
def rms_norm_quant(
    x: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    scale: torch.Tensor,
    offset: torch.Tensor,
    epsilon: float = 1e-6,
    *,
    dst_dtype: int | None = None,
) -> torch.Tensor:
    """round((rms_norm(x) + beta) * scale + offset)."""
    y = rms_norm(wide(x), wide(gamma).reshape(-1), epsilon)[0] + wide(beta).reshape(-1)
    int4 = is_int4("npu_rms_norm_quant", "dst_dtype", dst_dtype)
    return packing.quantised(y * wide(scale) + offset.to(y.dtype), int4, "npu_rms_norm_quant")


@composed(
    "npu_add_rms_norm_quant(Tensor x1, Tensor x2, Tensor gamma, Tensor scales1, Tensor? zero_points1, Tensor? beta=None, "
    "Tensor? scales2=None, Tensor? zero_points2=None, *, int axis=-1, float epsilon=1e-06, bool div_mode=True, int? dst_type=None)"
    " -> (Tensor, Tensor, Tensor)",
    missing="float8 results",
    differentiable=False,
)
def add_rms_norm_quant(
    x1: torch.Tensor,
    x2: torch.Tensor,
    gamma: torch.Tensor,
    scales1: torch.Tensor,
    zero_points1: torch.Tensor | None,
    beta: torch.Tensor | None = None,
    scales2: torch.Tensor | None = None,
    zero_points2: torch.Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-6,
    div_mode: bool = True,
    dst_type: int | None = None,
) -> _Triple:
    """(y quantised by scales1 and zero_points1, by scales2 and zero_points2 (or zeros), x1 + x2) of y = rms_norm(x1 + x2) + beta."""
    operator = "npu_add_rms_norm_quant"
    int4 = is_int4(operator, "dst_type", dst_type)
    total = wide(x1) + wide(x2)
    y = rms_norm(total, wide(gamma), epsilon)[0]
    y = y if beta is None else y + wide(beta)

    def quantise(scales: torch.Tensor, points: torch.Tensor | None) -> torch.Tensor:
        scaled = y / wide(scales) if div_mode else y * wide(scales)
        return packing.quantised(scaled if points is None else scaled + points.to(y.dtype), int4, operator)

    first = quantise(scales1, zero_points1)
    second = torch.zeros_like(first) if scales2 is None else quantise(scales2, zero_points2)
    return first, second, total.to(x1.dtype)


@composed(
    "npu_add_rms_norm_dynamic_quant(Tensor x1, Tensor x2, Tensor gamma, *, Tensor? smooth_scale1=None, Tensor? smooth_scale2=None, "
    "Tensor? beta=None, float epsilon=1e-6, bool[2]? output_mask=None, int? y_dtype=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    missing="float8 results",
    differentiable=False,
)
def add_rms_norm_dynamic_quant(
    x1: torch.Tensor,
    x2: torch.Tensor,
    gamma: torch.Tensor,
    *,
    smooth_scale1: torch.Tensor | None = None,
    smooth_scale2: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    epsilon: float = 1e-6,
    output_mask: list[bool] | None = None,
    y_dtype: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(y1, y2, x1 + x2, scale1, scale2): y = rms_norm(x1 + x2) + beta, smoothed by either scale, each row quantised by its largest value.

    A result that a missing second smooth scale leaves out is zeros, one that the mask leaves out a single zero.
    """
    operator = "npu_add_rms_norm_dynamic_quant"
    int4 = is_int4(operator, "y_dtype", y_dtype)
    total = wide(x1) + wide(x2)
    y = rms_norm(total, wide(gamma), epsilon)[0]
    y = y if beta is None else y + wide(beta)
    wanted = output_mask or [True, smooth_scale1 is not None and smooth_scale2 is not None]
    pairs = [quantise_rows(smoothed(operator, y, smooth, None), int4, operator) for smooth in (smooth_scale1, smooth_scale2)]
    zeros = (lambda x: x.new_zeros(1)) if output_mask else torch.zeros_like
    pairs = [pair if want else (zeros(pair[0]), zeros(pair[1])) for pair, want in zip(pairs, wanted, strict=True)]
    return pairs[0][0], pairs[1][0], total.to(x1.dtype), pairs[0][1], pairs[1][1]


@composed(
    "npu_swiglu_quant(Tensor x, *, Tensor? smooth_scales=None, Tensor? offsets=None, Tensor? group_index=None, bool activate_left=False, "
    "int quant_mode=0, int group_list_type=0, ScalarType? dst_type=None) -> (Tensor, Tensor)",
    differentiable=False,
)
def swiglu_quant(
    x: torch.Tensor,
    *,
    smooth_scales: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    group_index: torch.Tensor | None = None,
    activate_left: bool = False,
    quant_mode: int = 0,
    group_list_type: int = 0,
    dst_type: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(integers, float32 scale of each row) of swiglu of the last axis, smoothed.

    quant_mode 0: plus offsets and rounded, the scales are zeros. 1: each row times its scale, 127 or 7 by its largest value, which is
    returned: the inverse of what `npu_dynamic_quant` returns, and of what the page of aclnnSwiGluQuantV2 writes, which then multiplies by
    it. The chip's kernel divides 127 by the largest value, and what calls it inverts that. Four-bit integers are two in an int8.
    """
    operator = "npu_swiglu_quant"
    if quant_mode not in (0, 1):
        refuse(operator, f"quant_mode={quant_mode}", "static (0) and dynamic (1) quantisation are computed")
    if dst_type not in (None, torch.int8, torch.quint4x2):
        refuse(operator, f"dst_type={dst_type}", "int8 and quint4x2 are computed")
    int4 = dst_type == torch.quint4x2
    y = _swiglu(operator, wide(x), activate_left)
    groups = group_index.cumsum(0) if group_index is not None and group_list_type == 1 else group_index
    smooth = by_group(operator, y, smooth_scales, groups)
    y = y if smooth is None else y * smooth
    if quant_mode == 0:
        offset, scale = by_group(operator, y, offsets, groups), y.new_zeros(x.shape[:-1])
        y = y if offset is None else y + offset
    else:
        scale = (7 if int4 else 127) / y.abs().amax(-1)
        y = y * scale[..., None]
    if int4:
        require(y.shape[-1] % 2 == 0, operator, f"the last axis of {sizes(x)} as int4", "a multiple of 4")
        return packing.pair_int4(packing.rounded(y, torch.int8).clamp(-8, 7)), scale.float()
    return packing.rounded(y, torch.int8), scale.float()


def _swiglu(operator: str, x: torch.Tensor, activate_left: bool) -> torch.Tensor:
    require(x.shape[-1] % 2 == 0, operator, f"the last axis of {sizes(x)}", "an even size")
    left, right = x.chunk(2, -1)
    active, other = (left, right) if activate_left else (right, left)
    return active * torch.sigmoid(active) * other


@composed(
    "npu_dequant_swiglu_quant(Tensor x, *, Tensor? weight_scale=None, Tensor? activation_scale=None, Tensor? bias=None, "
    "Tensor? quant_scale=None, Tensor? quant_offset=None, Tensor? group_index=None, bool activate_left=False, int quant_mode=0, "
    "int? dst_type=None, int? round_mode=None, int? activate_dim=None, int swiglu_mode=0, float clamp_limit=7.0, "
    "float glu_alpha=1.702, float glu_bias=1.0) -> (Tensor, Tensor)",
    missing="static quantisation (quant_mode=0), bias, round_mode, activate_dim, float8 results",
    differentiable=False,
)
def dequant_swiglu_quant(
    x: torch.Tensor,
    *,
    weight_scale: torch.Tensor | None = None,
    activation_scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    quant_scale: torch.Tensor | None = None,
    quant_offset: torch.Tensor | None = None,
    group_index: torch.Tensor | None = None,
    activate_left: bool = False,
    quant_mode: int = 0,
    dst_type: int | None = None,
    round_mode: int | None = None,
    activate_dim: int | None = None,
    swiglu_mode: int = 0,
    clamp_limit: float = 7.0,
    glu_alpha: float = 1.702,
    glu_bias: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(integers, scale of each row): x * weight_scale * activation_scale, its swiglu, times quant_scale, each row by its largest value.

    group_index: rows of each group, which takes its row of the scales. swiglu_mode: 0 the usual one, 1 of even and odd places, 2 of
    halves, both clipped.
    """
    operator = "npu_dequant_swiglu_quant"
    refuse_given(operator, "what it means is not documented", bias=bias, round_mode=round_mode, activate_dim=activate_dim)
    if quant_mode != 1:
        refuse(
            operator,
            f"quant_mode={quant_mode}",
            "dynamic quantisation (1) is computed; what scale static quantisation returns is not documented",
        )
    refuse_given(operator, "dynamic quantisation has none", quant_offset=quant_offset)
    groups = None if group_index is None else group_index.cumsum(0)
    y = smoothed(operator, x.float(), _row_or_rows(weight_scale, groups), groups)
    y = y if activation_scale is None else y * activation_scale.reshape(*y.shape[:-1], 1)
    if swiglu_mode == 0:
        y = _swiglu(operator, y, activate_left)
    else:
        y = y if activate_left or swiglu_mode == 1 else y.roll(y.shape[-1] // 2, -1)
        y = clipped_swiglu(y, alpha=glu_alpha, limit=clamp_limit, bias=glu_bias, interleaved=swiglu_mode == 1)
    y = smoothed(operator, y, _row_or_rows(quant_scale, groups), groups)
    return quantise_rows(y, is_int4(operator, "dst_type", dst_type), operator)


def _row_or_rows(scales: torch.Tensor | None, groups: torch.Tensor | None) -> torch.Tensor | None:
    return scales.reshape(-1) if scales is not None and groups is None else scales
