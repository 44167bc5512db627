"""Layers of `torch_npu.contrib.module` for vision and speech: activations, shuffles, pooling, losses, dropout."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

_npu = torch.ops.npu


class Mish(nn.Module):
    """x tanh(softplus(x))."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The activation."""
        return functional.mish(x)


class SiLU(nn.Module):
    """x sigmoid(x)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The activation."""
        return functional.silu(x)


Swish = SiLU


class LabelSmoothingCrossEntropy(nn.Module):
    """Mean cross entropy with classes (N,) of which smooth_factor is spread over the others."""

    def __init__(self, num_classes: int = 1000, smooth_factor: float = 0.0) -> None:
        super().__init__()
        self.on_value, self.off_value = 1.0 - smooth_factor, smooth_factor / (num_classes - 1)

    def forward(self, pred: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """float32 loss of logits (N, C)."""
        labels = _npu.npu_one_hot(target.int(), -1, pred.shape[1], self.on_value, self.off_value)
        return _npu.npu_softmax_cross_entropy_with_logits(pred, labels.to(pred.dtype)).mean(dtype=torch.float32)


class ChannelShuffle(nn.Module):
    """Channels of two tensors, one behind the other, taken from each group in turn; split into halves, or whole."""

    def __init__(self, in_channels: int, groups: int = 2, split_shuffle: bool = True) -> None:
        super().__init__()
        self.split_shuffle, self.groups, self.group_len = split_shuffle, groups, in_channels // groups

    def forward(self, x1: torch.Tensor, x2: torch.Tensor) -> Any:
        """(first half, second half), or the whole."""
        x = torch.cat((x1, x2), 1)
        shuffled = x.unflatten(1, (self.groups, self.group_len)).transpose(1, 2).flatten(1, 2)
        return shuffled.split((self.group_len, shuffled.shape[1] - self.group_len), 1) if self.split_shuffle else shuffled


class _Convolution(nn.Module):
    def __init__(self, c1: int, c2: int, k: int, s: int, p: int | None, g: int, act: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, k, s, k // 2 if p is None else p, groups=g, bias=False)
        self.bn = nn.BatchNorm2d(c2)
        self.act = nn.LeakyReLU(0.1, inplace=True) if act else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.bn(self.conv(x)))


class Focus(nn.Module):
    """A convolution, with normalisation, of the four pixels of each 2 x 2 square side by side in the channels."""

    def __init__(self, c1: int, c2: int, k: int = 1, s: int = 1, p: int | None = None, g: int = 1, act: bool = True) -> None:
        super().__init__()
        self.conv = _Convolution(c1 * 4, c2, k, s, p, g, act)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, c2, H / 2, W / 2) of (B, c1, H, W)."""
        return self.conv(torch.cat([x[..., i::2, j::2] for i, j in ((0, 0), (1, 0), (0, 1), (1, 1))], 1))


class BiLSTM(nn.Module):
    """An LSTM from the beginning and one from the end, side by side."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.fw_rnn, self.bw_rnn = (nn.LSTM(input_size, hidden_size) for _ in range(2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(T, B, 2 H) of (T, B, I)."""
        forwards, backwards = self.fw_rnn(inputs)[0], self.bw_rnn(torch.flip(inputs, [0]))[0]
        return torch.cat((forwards, torch.flip(backwards, [0])), 2)


class ROIAlign(nn.Module):
    """Averages of samples of the bins of regions."""

    def __init__(self, output_size: tuple[int, int], spatial_scale: float, sampling_ratio: int, aligned: bool = True) -> None:
        super().__init__()
        self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned = output_size, spatial_scale, sampling_ratio, aligned

    def forward(self, input_tensor: torch.Tensor, rois: torch.Tensor) -> torch.Tensor:
        """(R, C, height, width) float32 of features (B, C, H, W) and regions (R, 5)."""
        return _npu.npu_roi_align(
            input_tensor.float(), rois, self.spatial_scale, *self.output_size, self.sampling_ratio, 3 if self.aligned else 0
        )


class PSROIPool(nn.Module):
    """Means of the bins of regions, each in its own channels."""

    def __init__(
        self, pooled_height: int = 7, pooled_width: int = 7, spatial_scale: float = 1 / 16.0, group_size: int = 7, output_dim: int = 22
    ) -> None:
        super().__init__()
        if not pooled_height == pooled_width == group_size:
            raise ValueError(f"PSROIPool: {pooled_height} x {pooled_width} bins of {group_size} groups; accepted: three equal numbers")
        self.group_size, self.spatial_scale, self.output_dim = group_size, spatial_scale, output_dim

    def forward(self, features: torch.Tensor, rois: torch.Tensor) -> torch.Tensor:
        """(B R, output_dim, g, g) of features (B, output_dim g g, H, W) and regions (B, 5, R)."""
        return _npu.npu_ps_roi_pooling(features, rois, self.spatial_scale, self.group_size, self.output_dim)


class ModulatedDeformConv(nn.Module):
    """Convolution with learned displacements and factors (arXiv:1811.11168): its own (pack), or given as (x, offset, mask).

    offset: (B, 2 groups kh kw, H, W), y and x of each place in turn; mask (B, groups kh kw, H, W).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        deformable_groups: int = 1,
        bias: bool = True,
        pack: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = (kernel_size, kernel_size) if isinstance(kernel_size, int) else tuple(kernel_size)
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.deformable_groups, self.with_bias, self.pack = deformable_groups, bias, pack
        taps = deformable_groups * math.prod(self.kernel_size)
        self.split_num = 2 * taps
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels // groups, *self.kernel_size))
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        if pack:
            self.conv_offset = nn.Conv2d(in_channels, 3 * taps, self.kernel_size, stride, padding)
            nn.init.zeros_(self.conv_offset.weight)
            nn.init.zeros_(self.conv_offset.bias)
        limit = 1 / math.sqrt(in_channels * math.prod(self.kernel_size))
        nn.init.uniform_(self.weight, -limit, limit)  # after the other convolution drew its weights: a seed gives Ascend's

    def forward(self, x: Any) -> torch.Tensor:
        """(B, out_channels, H, W)."""
        if self.pack:
            places = self.conv_offset(x)
            offset, mask = places[:, : self.split_num], torch.sigmoid(places[:, self.split_num :])
        else:
            x, offset, mask = x
        # the operator wants all x, then all y
        moved = torch.cat((offset[:, 1::2], offset[:, ::2], mask), 1)
        stride, dilation = [1, 1, self.stride, self.stride], [1, 1, self.dilation, self.dilation]
        shape = (list(self.kernel_size), stride, [self.padding] * 4, dilation, self.groups, self.deformable_groups, True)
        return _npu.npu_deformable_conv2d(x, self.weight, moved, self.bias, *shape)[0]


DCNv2 = ModulatedDeformConv


class DropoutWithByteMask(nn.Module):
    """Dropout. Raises ValueError for p outside 0 to 1."""

    def __init__(self, p: float = 0.5, inplace: bool = False, max_seed: int = 2**10 - 1) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"DropoutWithByteMask: p={p}; accepted: 0 to 1")
        self.p, self.inplace = p, inplace

    def forward(self, input1: torch.Tensor) -> torch.Tensor:
        """Dropout in training, the input otherwise."""
        return _npu.dropout_with_byte_mask(input1, self.p, self.training)


class NpuDropPath(nn.Module):
    """Leaves out whole samples by chance in training (arXiv:1603.09382). No other pass is needed to draw them first."""

    def __init__(self, drop_prob: float = 0.0) -> None:
        super().__init__()
        self.drop_prob, self.keep_prob = drop_prob, 1 - drop_prob

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Samples over keep_prob, or zeros."""
        if self.drop_prob == 0 or not self.training:
            return x
        kept = torch.rand((x.shape[0],) + (1,) * (x.dim() - 1), dtype=x.dtype, device=x.device) < self.keep_prob
        return x * kept / self.keep_prob

    @classmethod
    def enable_droppath_ensemble(cls, model: nn.Module) -> None:
        """Nothing to prepare: numbers are drawn where they are needed."""


class NpuCachedDropout(nn.Dropout):
    """Dropout; of a list [shape, dtype, device], the bit mask for it (None without dropout)."""

    def __init__(self, p: float, module_name: str | None = None) -> None:
        super().__init__(p)
        self.module_name = module_name

    def forward(self, x: Any) -> Any:
        """Dropout in training, the input otherwise."""
        if isinstance(x, torch.Tensor):
            return functional.dropout(x, self.p, self.training)
        shape, dtype, device = x
        return _npu.npu_dropout_gen_mask(list(shape), self.p, dtype=dtype, device=device) if self.training and self.p else None

    @classmethod
    def enable_dropout_ensemble(cls, model: nn.Module) -> None:
        """Nothing to prepare: masks are drawn where they are needed."""


NpuFairseqDropout = NpuPreGenDropout = NpuCachedDropout


class Prefetcher:
    """Hands on batches of (inputs, targets) on the npu, each moved while the one before it is worked on; (None, None) behind the last."""

    def __init__(self, loader: Any, stream: Any = None) -> None:
        self.loader, self.stream = iter(loader), stream
        self.next_input: torch.Tensor | None = None
        self.next_target: torch.Tensor | None = None
        self.preload()

    def preload(self) -> None:
        """Fetches the next batch."""
        batch = next(self.loader, None)
        self.next_input, self.next_target = (None, None) if batch is None else tuple(x.to("npu", non_blocking=True) for x in batch)

    def next(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """The batch, and begins with the one behind it."""
        batch = self.next_input, self.next_target
        if self.next_target is not None:
            self.preload()
        return batch
