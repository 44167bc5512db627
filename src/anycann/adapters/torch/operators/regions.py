"""Features of regions: aligned, sensitive to position, and convolutions whose samples are displaced."""

from __future__ import annotations

import torch
from torch.nn import functional

from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.registry import composed, refuse, require, sizes

_Pair = tuple[torch.Tensor, torch.Tensor]
_ENDS = (0, 1, 3)


def _bilinear(features: torch.Tensor, picture: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Values of features (B, C, H, W) at (R, K) real places of pictures (R,), zero outside: (R, C, K)."""
    height, width = features.shape[2:]
    pixels = features.permute(0, 2, 3, 1).reshape(-1, features.shape[1])
    begin = (picture * (height * width))[:, None]
    top, left = torch.floor(rows), torch.floor(columns)
    result = features.new_zeros(())
    for i in (0, 1):
        for j in (0, 1):
            row, column = top + i, left + j
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            weight = (1 - (rows - row).abs()) * (1 - (columns - column).abs()) * inside
            place = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).long()
            result = result + functional.embedding(begin + place, pixels) * weight[..., None]
    return result.transpose(1, 2)


@composed(
    "npu_roi_align(Tensor self, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, int sample_num, int roi_end_mode)"
    " -> Tensor",
    missing="roi_end_mode 2, sample_num 0",
)
def roi_align(
    self: torch.Tensor, rois: torch.Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sample_num: int, roi_end_mode: int
) -> torch.Tensor:
    """(R, C, pooled_height, pooled_width) averages of sample_num x sample_num samples of each bin of regions (R, 5): picture, x0 y0 x1 y1.

    roi_end_mode: 0 as is, 1 the end is a pixel later, 3 pixels have their centre at 0.5 (Mask R-CNN).
    """
    operator = "npu_roi_align"
    if roi_end_mode not in _ENDS:
        refuse(operator, f"roi_end_mode={roi_end_mode}", "0, 1 and 3 are documented")
    if sample_num <= 0:
        refuse(operator, f"sample_num={sample_num}", "a number of samples that depends on the region is not computed")
    require(self.dim() == 4 and rois.dim() == 2 and rois.shape[1] == 5, operator, sizes(self, rois), "(B, C, H, W) and (R, 5)")
    boxes, shift = wide(rois).detach()[:, 1:], 0.5 if roi_end_mode == 3 else 0.0
    low = boxes[:, :2] * spatial_scale - shift
    high = (boxes[:, 2:] + (1 if roi_end_mode == 1 else 0)) * spatial_scale - shift
    extent = high - low if roi_end_mode == 3 else (high - low).clamp(min=1.0)
    columns = _samples(low[:, 0], extent[:, 0], pooled_width, sample_num)
    rows = _samples(low[:, 1], extent[:, 1], pooled_height, sample_num)
    height, width = self.shape[2:]
    grid_rows, grid_columns = (x.flatten(1) for x in torch.broadcast_tensors(rows[:, :, None], columns[:, None]))
    inside = (grid_rows >= -1) & (grid_rows <= height) & (grid_columns >= -1) & (grid_columns <= width)
    places = grid_rows.clamp(0, height - 1), grid_columns.clamp(0, width - 1)
    values = _bilinear(wide(self), rois[:, 0].long(), *places) * inside[:, None]
    bins = values.reshape(rois.shape[0], self.shape[1], pooled_height, sample_num, pooled_width, sample_num)
    return bins.mean((3, 5)).to(self.dtype)


def _samples(begin: torch.Tensor, extent: torch.Tensor, bins: int, samples: int) -> torch.Tensor:
    """(R, bins * samples) evenly spaced places, in the middle of their parts."""
    parts = torch.arange(bins * samples, device=begin.device) + 0.5
    return begin[:, None] + extent[:, None] * parts / (bins * samples)


@composed(
    "npu_roi_alignbk(Tensor self, Tensor rois, int[] xdiff_shape, int pooled_width, int pooled_height, float spatial_scale, "
    "int sample_num, int? roi_end_mode=None) -> Tensor",
    missing="roi_end_mode 2, sample_num 0",
    differentiable=False,
)
def roi_align_backward(
    self: torch.Tensor,
    rois: torch.Tensor,
    xdiff_shape: list[int],
    pooled_width: int,
    pooled_height: int,
    spatial_scale: float,
    sample_num: int,
    roi_end_mode: int | None = None,
) -> torch.Tensor:
    """The gradient by features of shape xdiff_shape, of the gradient `self` by the result of `npu_roi_align`."""
    with torch.enable_grad():
        features = wide(self).new_zeros(xdiff_shape).requires_grad_()
        end_mode = 1 if roi_end_mode is None else roi_end_mode
        y = roi_align(features, rois.detach(), spatial_scale, pooled_height, pooled_width, sample_num, end_mode)
        (gradient,) = torch.autograd.grad(y, features, wide(self).detach())
    return gradient.to(self.dtype)


@composed("npu_ps_roi_pooling(Tensor self, Tensor rois, float spatial_scale, int group_size, int output_dim) -> Tensor")
def ps_roi_pooling(self: torch.Tensor, rois: torch.Tensor, spatial_scale: float, group_size: int, output_dim: int) -> torch.Tensor:
    """(B R, output_dim, g, g): in each bin the mean of its own channel (arXiv:1605.06409) of features (B, output_dim g g, H, W).

    rois (B, 5, R): picture, x0, y0, x1, y1.
    """
    operator, g = "npu_ps_roi_pooling", group_size
    fits = self.dim() == 4 and rois.dim() == 3 and rois.shape[1] == 5 and self.shape[1] == output_dim * g * g
    require(fits, operator, f"features and regions of {sizes(self, rois)}", "(B, output_dim g g, H, W) and (B, 5, R)")
    boxes = wide(rois).detach().to(wide(self).dtype).transpose(1, 2).reshape(-1, 5)
    low, high = torch.round(boxes[:, 1:3]) * spatial_scale, (torch.round(boxes[:, 3:]) + 1) * spatial_scale
    extent = (high - low).clamp(min=0.1) / g
    left, right = _bounds(low[:, 0], extent[:, 0], g, self.shape[3])
    top, bottom = _bounds(low[:, 1], extent[:, 1], g, self.shape[2])
    picture = boxes[:, 0].long()
    known = (picture >= 0) & (picture < self.shape[0])
    sums, stride = _sums(wide(self)), self.shape[3] + 1
    channel = torch.arange(self.shape[1], device=self.device).reshape(output_dim, g, g)
    rows = (torch.where(known, picture, 0)[:, None, None, None] * self.shape[1] + channel) * (self.shape[2] + 1)

    def up_to(row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
        return sums[(rows + row[:, None, :, None]) * stride + column[:, None, None]]

    total = up_to(bottom, right) - up_to(top, right) - up_to(bottom, left) + up_to(top, left)
    count = (bottom - top)[:, :, None] * (right - left)[:, None]
    mean = total / count.clamp(min=1)[:, None]
    return (mean * known[:, None, None, None]).to(self.dtype)


def _sums(features: torch.Tensor) -> torch.Tensor:
    """For each corner of pixels the sum of what is above and left of it, in float64; the B x C x (H + 1) x (W + 1) of them in one row.

    Regions take four of them each, where a copy of its picture for each region would be gigabytes.
    """
    sums = features.double().cumsum(2).cumsum(3)
    return functional.pad(sums, (1, 0, 1, 0)).flatten()


def _bounds(begin: torch.Tensor, extent: torch.Tensor, bins: int, size: int) -> _Pair:
    """(R, bins): the first pixel of each bin, and the first behind it."""
    number = torch.arange(bins, device=begin.device)
    first = torch.floor(begin[:, None] + number * extent[:, None]).clamp(0, size).long()
    last = torch.ceil(begin[:, None] + (number + 1) * extent[:, None]).clamp(0, size).long()
    return first, torch.maximum(first, last)


_DEFORMABLE = (
    "int[2] kernel_size, int[] stride, int[] padding, int[4] dilation=[1,1,1,1], int groups=1, int deformable_groups=1, bool modulated=True"
)


@composed(f"npu_deformable_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor? bias, {_DEFORMABLE}) -> (Tensor, Tensor)")
def deformable_conv2d(
    input: torch.Tensor,
    weight: torch.Tensor,
    offset: torch.Tensor,
    bias: torch.Tensor | None,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int] = [1, 1, 1, 1],  # noqa: B006
    groups: int = 1,
    deformable_groups: int = 1,
    modulated: bool = True,
) -> _Pair:
    """(convolution, its displaced samples (B, C, H kh, W kw)), both float32.

    offset: (B, 3 or 2 groups kh kw, H, W): displacements in x, in y, and (modulated) factors. stride and dilation: of (1, 1, h, w);
    padding: top, bottom, left, right.
    """
    samples = _displaced(wide(input), wide(offset), kernel_size, stride, padding, dilation, deformable_groups, modulated)
    result = functional.conv2d(samples, wide(weight), None if bias is None else wide(bias), stride=kernel_size, groups=groups)
    return result, samples


def _displaced(
    x: torch.Tensor,
    offset: torch.Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    modulated: bool,
) -> torch.Tensor:
    operator, parts = "npu_deformable_conv2d", 3 if modulated else 2
    (batch, channels), (rows, columns), taps = x.shape[:2], offset.shape[2:], kernel[0] * kernel[1]
    fits = offset.shape[1] == parts * groups * taps and channels % groups == 0
    require(
        fits, operator, f"input and offset of {sizes(x, offset)}", f"offsets of {parts} groups kernel places, groups that divide channels"
    )
    moved = offset.reshape(batch, parts, groups, *kernel, rows, columns)
    down = _places(rows, stride[2], padding[0], kernel[0], dilation[2], x).reshape(kernel[0], 1, rows, 1)
    across = _places(columns, stride[3], padding[2], kernel[1], dilation[3], x).reshape(1, kernel[1], 1, columns)
    grouped = x.reshape(batch * groups, channels // groups, *x.shape[2:])
    at_rows, at_columns = ((moved[:, i] + base).reshape(batch * groups, -1) for i, base in ((1, down), (0, across)))
    values = _bilinear(grouped, torch.arange(batch * groups, device=x.device), at_rows, at_columns).reshape(
        batch, groups, channels // groups, *kernel, rows, columns
    )
    values = values * moved[:, 2, :, None] if modulated else values
    return values.permute(0, 1, 2, 5, 3, 6, 4).reshape(batch, channels, rows * kernel[0], columns * kernel[1])


def _places(count: int, stride: int, padding: int, kernel: int, dilation: int, like: torch.Tensor) -> torch.Tensor:
    """(kernel, count) places of undisplaced samples."""
    taps, steps = torch.arange(kernel, device=like.device), torch.arange(count, device=like.device)
    return (steps * stride - padding + taps[:, None] * dilation).to(like.dtype)


@composed(
    "npu_deformable_conv2dbk(Tensor input, Tensor grad_output, Tensor offset_out, Tensor weight, Tensor offset, "
    f"{_DEFORMABLE}) -> (Tensor, Tensor, Tensor, Tensor)"
)
def deformable_conv2d_backward(
    input: torch.Tensor,
    grad_output: torch.Tensor,
    offset_out: torch.Tensor,
    weight: torch.Tensor,
    offset: torch.Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int] = [1, 1, 1, 1],  # noqa: B006
    groups: int = 1,
    deformable_groups: int = 1,
    modulated: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients by input, weight, offset and bias of `npu_deformable_conv2d`."""
    with torch.enable_grad():
        leaves = [x.detach().clone().requires_grad_() for x in (input, weight, offset)]
        x, w, moved = leaves
        y = deformable_conv2d(x, w, moved, None, kernel_size, stride, padding, dilation, groups, deformable_groups, modulated)[0]
        by = torch.autograd.grad(y, leaves, grad_output.detach().to(y.dtype))
    return by[0], by[1], by[2], grad_output.sum((0, 2, 3))
