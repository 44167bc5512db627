"""Statistics of batches, as processes exchange them."""

from __future__ import annotations

import torch

from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import composed, require, sizes

_Pair = tuple[torch.Tensor, torch.Tensor]


@composed("batch_norm_reduce(Tensor input, float eps) -> (Tensor, Tensor)")
def batch_norm_reduce(input: torch.Tensor, eps: float) -> _Pair:
    """(sums, sums of squares) of each channel of (N, C, ...), in float32."""
    require(input.dim() > 1, "batch_norm_reduce", f"dim input tensor {sizes(input)}", "must more than 1 axis: (N, C, ...)")
    x, axes = wide(input), [axis for axis in range(input.dim()) if axis != 1]
    return x.sum(axes), (x * x).sum(axes)


@composed(
    "batch_norm_gather_stats_update(Tensor input, Tensor mean, Tensor invstd, Tensor(a!)? running_mean, Tensor(b!)? running_var, "
    "float momentum, float eps, Tensor counts) -> (Tensor, Tensor)"
)
def batch_norm_gather_stats_update(
    input: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    momentum: float,
    eps: float,
    counts: torch.Tensor,
) -> _Pair:
    """(means, 1 / standard deviations) of the channels of all processes, from their sums `mean` and sums of squares `invstd` (P, C) and
    counts (P,), which update the running ones: the variance as it is, not as an estimate."""
    total = counts.float().sum()
    of_all = wide(mean).sum(0) / total
    variance = wide(invstd).sum(0) / total - of_all * of_all
    for running, new in ((running_mean, of_all), (running_var, variance)):
        if running is not None:
            running.copy_(momentum * new + (1 - momentum) * running)
    return of_all.to(mean.dtype), (variance + eps).rsqrt().to(mean.dtype)
