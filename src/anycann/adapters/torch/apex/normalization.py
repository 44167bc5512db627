"""apex.normalization: torch's layer and root mean square norms under apex's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class FusedLayerNorm(nn.LayerNorm):
    """torch's layer norm under apex's name."""


class FusedRMSNorm(nn.RMSNorm):
    """torch's norm by root mean squares, with apex's eps."""

    def __init__(self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, **options: Any) -> None:
        super().__init__(normalized_shape, eps=eps, elementwise_affine=elementwise_affine)


def fused_layer_norm_affine(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, normalized_shape: Sequence[int], eps: float = 1e-6
) -> torch.Tensor:
    """Layer norm over the last axes, with scale and shift."""
    return functional.layer_norm(input, list(normalized_shape), weight, bias, eps)


def fused_layer_norm(input: torch.Tensor, normalized_shape: Sequence[int], eps: float = 1e-6) -> torch.Tensor:
    """Layer norm over the last axes."""
    return functional.layer_norm(input, list(normalized_shape), eps=eps)


def fused_rms_norm_affine(input: torch.Tensor, weight: torch.Tensor, normalized_shape: Sequence[int], eps: float = 1e-6) -> torch.Tensor:
    """Norm by root mean squares over the last axes, with a scale."""
    return functional.rms_norm(input, list(normalized_shape), weight, eps)


def fused_rms_norm(input: torch.Tensor, normalized_shape: Sequence[int], eps: float = 1e-6) -> torch.Tensor:
    """Norm by root mean squares over the last axes."""
    return functional.rms_norm(input, list(normalized_shape), eps=eps)


class FusedLayerNormAffineFunction:
    """`FusedLayerNormAffineFunction.apply`, which programs call as apex's autograd function."""

    apply = staticmethod(fused_layer_norm_affine)
