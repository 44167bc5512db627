"""MobileNetV2 (Sandler et al., 2018) and EfficientNet-Lite0 (Tan and Le 2019, without squeeze-and-excitation, with ReLU6)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# expansion, output channels, blocks, stride of the first block, kernel
MOBILENET_V2 = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 32, 3, 2, 3),
    (6, 64, 4, 2, 3),
    (6, 96, 3, 1, 3),
    (6, 160, 3, 2, 3),
    (6, 320, 1, 1, 3),
)
EFFICIENTNET_LITE0 = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


def same_padding(x: Tensor, kernel: int, stride: int) -> Tensor:
    """TensorFlow's "SAME" padding, which the published EfficientNet weights were trained with: the odd pixel goes to the end."""
    total = [max((-(-size // stride) - 1) * stride + kernel - size, 0) for size in x.shape[-2:]]
    return nn.functional.pad(x, [total[1] // 2, total[1] - total[1] // 2, total[0] // 2, total[0] - total[0] // 2])


class Convolution(nn.Conv2d):
    """A convolution without bias that pads evenly, or as TensorFlow does."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, same: bool = False):
        super().__init__(inputs, outputs, kernel, stride, 0 if same else kernel // 2, groups=groups, bias=False)
        self.same = same and kernel > 1

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, outputs, ceil(H / stride), ceil(W / stride)]."""
        return super().forward(same_padding(x, self.kernel_size[0], self.stride[0]) if self.same else x)


class InvertedResidual(nn.Module):
    """Expand 1x1, depthwise, project 1x1, with a shortcut where shapes allow. Names follow EfficientNet's published weights."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int, kernel: int, tensorflow: bool):
        super().__init__()
        epsilon = 1e-3 if tensorflow else 1e-5
        hidden = inputs * expansion
        self.expands, self.shortcut = expansion != 1, stride == 1 and inputs == outputs
        if self.expands:
            self._expand_conv = Convolution(inputs, hidden, 1)
            self._bn0 = nn.BatchNorm2d(hidden, eps=epsilon)
        self._depthwise_conv = Convolution(hidden, hidden, kernel, stride, groups=hidden, same=tensorflow)
        self._bn1 = nn.BatchNorm2d(hidden, eps=epsilon)
        self._project_conv = Convolution(hidden, outputs, 1)
        self._bn2 = nn.BatchNorm2d(outputs, eps=epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, outputs, H / stride, W / stride]."""
        y = nn.functional.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        y = nn.functional.relu6(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        return x + y if self.shortcut else y


class MobileNet(nn.Module):
    """[N, 3, 224, 224] -> logits [N, 1000], for either table of stages."""

    def __init__(self, stages: tuple[tuple[int, int, int, int, int], ...], tensorflow: bool = False):
        super().__init__()
        epsilon = 1e-3 if tensorflow else 1e-5
        self._conv_stem = Convolution(3, 32, 3, 2, same=tensorflow)
        self._bn0 = nn.BatchNorm2d(32, eps=epsilon)
        blocks, inputs = [], 32
        for expansion, outputs, count, stride, kernel in stages:
            for number in range(count):
                blocks.append(InvertedResidual(inputs, outputs, expansion, stride if number == 0 else 1, kernel, tensorflow))
                inputs = outputs
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = Convolution(inputs, 1280, 1)
        self._bn1 = nn.BatchNorm2d(1280, eps=epsilon)
        self._fc = nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of an image batch."""
        x = nn.functional.relu6(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        x = nn.functional.relu6(self._bn1(self._conv_head(x)))
        return self._fc(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


def mobilenet_v2() -> MobileNet:
    """MobileNetV2 with width 1."""
    return MobileNet(MOBILENET_V2)


def efficientnet_lite0() -> MobileNet:
    """EfficientNet-Lite0 with the padding and the epsilon of the published weights, which came from TensorFlow."""
    return MobileNet(EFFICIENTNET_LITE0, tensorflow=True)
