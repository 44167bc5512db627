"""Matrix products and convolutions in floating point, also one for each group of rows."""

from __future__ import annotations

import torch
from torch.nn import functional

from anycann.adapters.torch.operators.registry import composed, refuse, require, sizes, with_out

_Pair = tuple[torch.Tensor, torch.Tensor]


@composed("npu_linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor")
def linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """input @ weight.T + bias."""
    return functional.linear(input, weight, bias)


@composed("npu_linear_backward(Tensor grad, Tensor input, Tensor weight) -> (Tensor, Tensor)")
def linear_backward(grad: torch.Tensor, input: torch.Tensor, weight: torch.Tensor) -> _Pair:
    """Gradients of `npu_linear` by input and weight."""
    return grad @ weight, grad.flatten(0, -2).T @ input.flatten(0, -2)


@composed("npu_bmmV2(Tensor self, Tensor mat2, int[] output_sizes) -> Tensor")
def bmm(self: torch.Tensor, mat2: torch.Tensor, output_sizes: list[int]) -> torch.Tensor:
    """self @ mat2, summed over the batch axes that `output_sizes`, if not empty, lacks."""
    product = self @ mat2
    return product.sum_to_size(output_sizes) if output_sizes else product


@composed(
    "npu_transpose_batchmatmul(Tensor input, Tensor weight, *, Tensor? bias=None, Tensor? scale=None, int[]? perm_x1=None, "
    "int[]? perm_x2=None, int[]? perm_y=None, int? batch_split_factor=1) -> Tensor",
    missing="bias, scale",
)
def transpose_batchmatmul(
    input: torch.Tensor,
    weight: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
    perm_x1: list[int] | None = None,
    perm_x2: list[int] | None = None,
    perm_y: list[int] | None = None,
    batch_split_factor: int | None = 1,
) -> torch.Tensor:
    """Batches of permuted matrices multiplied, and the result permuted (1, 0, 2 unless said otherwise): (M, B, N).

    With batch_split_factor f: (f, M, B N / f).
    """
    operator = "npu_transpose_batchmatmul"
    for name, value in (("bias", bias), ("scale", scale)):
        if value is not None:
            refuse(operator, name, "the interface does not take it yet, or only for results of int8")
    require(input.dim() == 3 and weight.dim() == 3, operator, sizes(input, weight), "three axes each")
    product = torch.bmm(input.permute(perm_x1 or (0, 1, 2)), weight.permute(perm_x2 or (0, 1, 2)))
    y = product.permute(perm_y or (1, 0, 2)).contiguous()
    factor = batch_split_factor or 1
    if factor == 1:
        return y
    require((y.shape[1] * y.shape[2]) % factor == 0, operator, f"batch_split_factor {factor} for {sizes(y)}", "a divisor of B N")
    return y.reshape(y.shape[0], factor, -1).transpose(0, 1).contiguous()


_CONVOLUTION = "Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, int groups"
_TRANSPOSED = "Tensor input, Tensor weight, Tensor? bias, int[] padding, int[] output_padding, int[] stride, int[] dilation, int groups"


@composed(f"npu_conv2d({_CONVOLUTION}) -> Tensor")
@composed(f"npu_conv3d({_CONVOLUTION}) -> Tensor")
@composed(f"npu_convolution({_CONVOLUTION}) -> Tensor")
def convolution(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> torch.Tensor:
    """torch's conv2d or conv3d, by the rank of the weight. Padding: of each axis, or of both ends of each axis."""
    axes = weight.dim() - 2
    if len(padding) == 2 * axes:
        ends = [end for axis in reversed(range(axes)) for end in padding[2 * axis : 2 * axis + 2]]
        input, padding = functional.pad(input, ends), [0] * axes
    convolve = functional.conv2d if axes == 2 else functional.conv3d
    return convolve(input, weight, bias, stride, padding, dilation, groups)


@composed(f"npu_conv_transpose2d({_TRANSPOSED}) -> Tensor")
@composed(f"npu_convolution_transpose({_TRANSPOSED}) -> Tensor")
def convolution_transpose(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    padding: list[int],
    output_padding: list[int],
    stride: list[int],
    dilation: list[int],
    groups: int,
) -> torch.Tensor:
    """torch's conv_transpose2d or conv_transpose3d, by the rank of the weight."""
    convolve = functional.conv_transpose2d if weight.dim() == 4 else functional.conv_transpose3d
    return convolve(input, weight, bias, stride, padding, output_padding, groups, dilation)


for _name in ("npu_conv2d", "npu_conv3d"):
    with_out(_name)


@composed("npu_prefetch(Tensor self, Tensor? dependency, int max_size, int offset=0) -> ()", differentiable=False)
def prefetch(self: torch.Tensor, dependency: torch.Tensor | None, max_size: int, offset: int = 0) -> None:
    """Nothing: on the chip, max_size bytes from offset on come into the second-level cache, which the host's processor fills by itself."""
    require(max_size > 0 and offset >= 0, "npu_prefetch", f"{max_size} bytes from {offset} on", "more than 0, from 0 on")
