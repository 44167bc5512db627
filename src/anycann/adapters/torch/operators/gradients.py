"""Gradients of operators of torch that programs call by name."""

from __future__ import annotations

import torch
from torch.nn import functional

from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import composed, require, sizes


@composed("npu_gelu_backward(Tensor grad_output, Tensor self, *, str approximate='none') -> Tensor")
def gelu_backward(grad_output: torch.Tensor, self: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """Gradient of `npu_gelu` by its input."""
    return torch.ops.aten.gelu_backward(grad_output, self, approximate=approximate)


@composed("npu_renorm_backward(Tensor grad, Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor")
def renorm_backward(grad: torch.Tensor, self: torch.Tensor, p: float, dim: int, maxnorm: float) -> torch.Tensor:
    """Gradient of torch.renorm by its input."""
    axis = dim % self.dim()
    x, above, others = wide(self), wide(grad), [a for a in range(self.dim()) if a != axis]
    norm = torch.linalg.vector_norm(x, float(p), others, keepdim=True)
    scale = torch.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0)
    by_norm = torch.where(norm > maxnorm, -(above * x).sum(others, keepdim=True) * scale / (norm + 1e-7), 0.0)
    return (above * scale + by_norm * _norm_gradient(x, norm, float(p))).to(self.dtype)


def _norm_gradient(x: torch.Tensor, norm: torch.Tensor, p: float) -> torch.Tensor:
    """Gradient of the p-norms by x; zeros where it has none."""
    if p == 0:
        return torch.zeros_like(x)
    if p == float("inf"):
        largest = (x.abs() == norm).to(x.dtype)
        return x.sign() * largest / largest.sum([a for a in range(x.dim()) if norm.shape[a] == 1], keepdim=True)
    return torch.where((x != 0) & (norm != 0), x.sign() * (x.abs() / norm) ** (p - 1), 0.0)


@composed("repeat_interleave_backward_int(Tensor grad, Tensor self, SymInt repeats, int? dim=None) -> Tensor")
def repeat_interleave_backward_int(grad: torch.Tensor, self: torch.Tensor, repeats: int, dim: int | None = None) -> torch.Tensor:
    """Gradient of torch.repeat_interleave by its input, each element repeated as often."""
    axis = 0 if dim is None else dim % self.dim()
    summed = wide(grad).unflatten(axis, (-1, repeats)).sum(axis + 1)
    return summed.reshape(self.shape).to(self.dtype)


@composed("repeat_interleave_backward_tensor(Tensor grad, Tensor self, Tensor repeats, int? dim=None) -> Tensor")
def repeat_interleave_backward_tensor(
    grad: torch.Tensor, self: torch.Tensor, repeats: torch.Tensor, dim: int | None = None
) -> torch.Tensor:
    """Gradient of torch.repeat_interleave by its input, element i repeated repeats[i] times."""
    axis = 0 if dim is None else dim % self.dim()
    size = self.numel() if dim is None else self.shape[axis]
    times = repeats.expand(size)
    source = torch.arange(size, device=grad.device).repeat_interleave(times.long(), output_size=grad.shape[axis])
    shape = (*grad.shape[:axis], size, *grad.shape[axis + 1 :])
    summed = wide(grad).new_zeros(shape).index_add(axis, source, wide(grad))
    return summed.reshape(self.shape).to(self.dtype)


@composed(
    "npu_conv2d_backward(Tensor input, Tensor grad_output, Tensor weight, int[] stride, int[] padding, int[] dilation, int groups, "
    "bool[3] output_mask) -> (Tensor, Tensor, Tensor)"
)
def conv2d_backward(
    input: torch.Tensor,
    grad_output: torch.Tensor,
    weight: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    output_mask: list[bool],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of `npu_conv2d` by input, weight and bias; None for those that the mask leaves out."""
    require(input.dim() == 4, "npu_conv2d_backward", sizes(input, grad_output, weight), "(N, C, H, W)")
    top, bottom, left, right = padding if len(padding) == 4 else (padding[0], padding[0], padding[1], padding[1])
    padded = functional.pad(input, (left, right, top, bottom))
    by_input, by_weight, by_bias = torch.ops.aten.convolution_backward(
        grad_output, padded, weight, [weight.shape[0]], stride, [0, 0], dilation, False, [0, 0], groups, output_mask
    )
    if by_input is not None:
        by_input = by_input[:, :, top : top + input.shape[2], left : left + input.shape[3]]
    return by_input, by_weight, by_bias
