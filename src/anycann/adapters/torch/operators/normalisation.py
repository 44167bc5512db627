"""Normalisations: RMS, layer and group, alone or after an addition."""

from __future__ import annotations

import torch
from torch.nn import functional

from anycann.adapters.torch.operators.fused import Fused, Tensors
from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import composed, require, sizes

_Pair = tuple[torch.Tensor, torch.Tensor]
_Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@composed("npu_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)")
def rms_norm(self: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6) -> _Pair:
    """(self / rms * gamma, 1 / rms): over the last axes, as many as gamma has; 1/rms keeps them with size 1."""
    y, reciprocal = _RMS_NORM((self, gamma), epsilon)
    return y, reciprocal


def _rms_norm(x: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> Tensors:
    normalised, reciprocal = _normalised("npu_rms_norm", wide(x), gamma, epsilon)
    return (normalised * wide(gamma)).to(x.dtype), reciprocal


def _rms_norm_gradient(dy: torch.Tensor, x: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> Tensors:
    _, reciprocal = _normalised("npu_rms_norm", wide(x), gamma, epsilon)
    by_input, by_gamma = rms_norm_backward(dy, x, gamma, reciprocal)
    return by_input, by_gamma.to(gamma.dtype)


_RMS_NORM = Fused(_rms_norm, _rms_norm_gradient)


@composed("npu_gemma_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)")
def gemma_rms_norm(self: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6) -> _Pair:
    """As `npu_rms_norm`, with 1 + gamma for gamma."""
    normalised, reciprocal = _normalised("npu_gemma_rms_norm", wide(self), gamma, epsilon)
    return (normalised * (1 + wide(gamma))).to(self.dtype), reciprocal


@composed("npu_rms_norm_backward(Tensor dy, Tensor self, Tensor gamma, Tensor rstd) -> (Tensor, Tensor)")
def rms_norm_backward(dy: torch.Tensor, self: torch.Tensor, gamma: torch.Tensor, rstd: torch.Tensor) -> _Pair:
    """Gradients by self and by gamma of `npu_rms_norm`, from its second result. The one of gamma is float32."""
    axes = tuple(range(self.dim() - gamma.dim(), self.dim()))
    normalised, above = wide(self) * rstd, wide(dy)
    weighted = above * wide(gamma)
    by_input = rstd * (weighted - normalised * (weighted * normalised).mean(axes, keepdim=True))
    by_gamma = (above * normalised).reshape(-1, *gamma.shape).sum(0)
    return by_input.to(self.dtype), by_gamma


@composed("npu_add_rms_norm(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor, Tensor)")
def add_rms_norm(x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6) -> _Triple:
    """(rms_norm(x1 + x2), 1 / rms, x1 + x2)."""
    fits = (x1.shape, x1.dtype) == (x2.shape, x2.dtype)
    require(fits, "npu_add_rms_norm", f"x1 and x2 of {sizes(x1, x2)}", "equal shapes and dtypes")
    y, reciprocal, total = _ADD_RMS_NORM((x1, x2, gamma), epsilon)
    return y, reciprocal, total


def _add_rms_norm(x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> Tensors:
    total = wide(x1) + wide(x2)
    normalised, reciprocal = _normalised("npu_add_rms_norm", total, gamma, epsilon)
    return (normalised * wide(gamma)).to(x1.dtype), reciprocal, total.to(x1.dtype)


def _add_rms_norm_gradient(
    dy: torch.Tensor, by_total: torch.Tensor, x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, epsilon: float
) -> Tensors:
    by_normalised, by_gamma = _rms_norm_gradient(dy, wide(x1) + wide(x2), gamma, epsilon)
    by_each = by_normalised + wide(by_total)
    return by_each.to(x1.dtype), by_each.to(x2.dtype), by_gamma


_ADD_RMS_NORM = Fused(_add_rms_norm, _add_rms_norm_gradient, graded=(0, 2))


@composed("npu_add_rms_norm_v2_functional(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor, Tensor)")
def add_rms_norm_v2_functional(x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6) -> _Triple:
    """(1 / rms, y, x1 + x2) of `npu_add_rms_norm`."""
    y, reciprocal, total = add_rms_norm(x1, x2, gamma, epsilon)
    return reciprocal, y, total


@composed("npu_add_rms_norm_v2(Tensor(a!) x1, Tensor(b!) x2, Tensor gamma, float epsilon=1e-06) -> Tensor")
def add_rms_norm_v2(x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6) -> torch.Tensor:
    """1 / rms of `npu_add_rms_norm`; its normalised result is written over x1, the sum over x2."""
    y, reciprocal, total = add_rms_norm(x1, x2, gamma, epsilon)
    x1.copy_(y), x2.copy_(total)
    return reciprocal


@composed("npu_add_rms_norm_cast(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor, Tensor, Tensor)")
def add_rms_norm_cast(
    x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(y as float32, y, 1 / rms, x1 + x2) of `npu_add_rms_norm`."""
    y, reciprocal, total = add_rms_norm(x1, x2, gamma, epsilon)
    return y.float(), y, reciprocal, total


def _normalised(operator: str, x: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> _Pair:
    kept = x.dim() - gamma.dim()
    fits = kept >= 0 and tuple(x.shape[kept:]) == tuple(gamma.shape) and x.is_floating_point()
    require(fits, operator, f"input and gamma of {sizes(x, gamma)}", "floats, a gamma of the input's last axes")
    axes = tuple(range(kept, x.dim()))
    reciprocal = torch.rsqrt(x.square().mean(axes, keepdim=True) + epsilon)
    return x * reciprocal, reciprocal


@composed("npu_layer_norm_eval(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor")
def layer_norm_eval(
    input: torch.Tensor,
    normalized_shape: list[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Layer normalisation over the last axes."""
    return functional.layer_norm(input, normalized_shape, weight, bias, eps)


@composed(
    "npu_add_layer_norm(Tensor x1, Tensor x2, Tensor gamma, Tensor beta, float epsilon=1e-05, bool additional_output=False)"
    " -> (Tensor, Tensor, Tensor, Tensor)"
)
def add_layer_norm(
    x1: torch.Tensor,
    x2: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    epsilon: float = 1e-5,
    additional_output: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(layer_norm(x1 + x2), mean, 1 / standard deviation, x1 + x2); the last is filled whether asked for or not."""
    total = wide(x1) + wide(x2)
    axes = tuple(range(total.dim() - gamma.dim(), total.dim()))
    mean = total.mean(axes, keepdim=True)
    reciprocal = torch.rsqrt((total - mean).square().mean(axes, keepdim=True) + epsilon)
    y, dtype = (total - mean) * reciprocal * wide(gamma) + wide(beta), torch.promote_types(x1.dtype, x2.dtype)
    return y.to(dtype), mean, reciprocal, total.to(dtype)


@composed(
    "npu_deep_norm(Tensor x, Tensor gx, Tensor beta, Tensor gamma, float alpha=0.3, float epsilon=1e-06) -> (Tensor, Tensor, Tensor)",
)
def deep_norm(
    x: torch.Tensor, gx: torch.Tensor, beta: torch.Tensor, gamma: torch.Tensor, alpha: float = 0.3, epsilon: float = 1e-6
) -> _Triple:
    """(mean, 1 / standard deviation, layer_norm(alpha x + gx)), as DeepNet (arXiv:2203.00555) normalises."""
    total = alpha * wide(x) + wide(gx)
    axes = tuple(range(total.dim() - gamma.dim(), total.dim()))
    mean = total.mean(axes, keepdim=True)
    reciprocal = torch.rsqrt((total - mean).square().mean(axes, keepdim=True) + epsilon)
    return mean, reciprocal, ((total - mean) * reciprocal * wide(gamma) + wide(beta)).to(x.dtype)


@composed("npu_group_norm_silu(Tensor input, Tensor? weight, Tensor? bias, int group, float eps=0.00001) -> (Tensor, Tensor, Tensor)")
def group_norm_silu(input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, group: int, eps: float = 1e-5) -> _Triple:
    """(silu(group_norm), mean, 1 / standard deviation); the last two are (N, group)."""
    y, mean, reciprocal = _group_normalised("npu_group_norm_silu", input, group, weight, bias, eps)
    return functional.silu(y).to(input.dtype), mean.to(input.dtype), reciprocal.to(input.dtype)


@composed(
    "npu_group_norm_swish(Tensor input, int num_groups, Tensor weight, Tensor bias, float? eps=1e-5, float? swish_scale=1.0)"
    " -> (Tensor, Tensor, Tensor)"
)
def group_norm_swish(
    input: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float | None = 1e-5,
    swish_scale: float | None = 1.0,
) -> _Triple:
    """(y sigmoid(scale y) of y = group_norm, mean, 1 / standard deviation)."""
    slope = 1.0 if swish_scale is None else swish_scale
    y, mean, reciprocal = _group_normalised("npu_group_norm_swish", input, num_groups, weight, bias, 1e-5 if eps is None else eps)
    return (y * torch.sigmoid(slope * y)).to(input.dtype), mean, reciprocal


def _group_normalised(
    operator: str, input: torch.Tensor, groups: int, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> _Triple:
    require(groups > 0 and input.shape[1] % groups == 0, operator, f"{groups} groups of {sizes(input)}", "a divisor of axis 1")
    x = wide(input).reshape(input.shape[0], groups, -1)
    mean = x.mean(-1)
    reciprocal = torch.rsqrt((x - mean[..., None]).square().mean(-1) + eps)
    y = ((x - mean[..., None]) * reciprocal[..., None]).reshape(input.shape)
    channels = (-1, *(1 for _ in input.shape[2:]))
    y = y if weight is None else y * wide(weight).reshape(channels)
    return (y if bias is None else y + wide(bias).reshape(channels)), mean, reciprocal


@composed("npu_normalize_batch(Tensor self, Tensor seq_len, int normalize_type=0) -> Tensor")
def normalize_batch(self: torch.Tensor, seq_len: torch.Tensor, normalize_type: int = 0) -> torch.Tensor:
    """(B, C, L) minus mean over standard deviation plus 1e-5, both of the first `seq_len` (B,) places: each channel's (0), or all's (1)."""
    require(normalize_type in (0, 1), "npu_normalize_batch", f"normalize_type {normalize_type}", "0 (per feature), 1 (all features)")
    x = wide(self)
    inside = (torch.arange(x.shape[2], device=x.device) < seq_len[:, None])[:, None, :].to(x.dtype)
    axes = (2,) if normalize_type == 0 else (1, 2)
    count = inside.sum(-1, keepdim=True) * (1 if normalize_type == 0 else x.shape[1])
    mean = (x * inside).sum(axes, keepdim=True) / count
    variance = ((x - mean).square() * inside).sum(axes, keepdim=True) / (count - 1)
    return ((x - mean) / (variance.sqrt() + 1e-5)).to(self.dtype)
