"""ResNet-50, version 1.5 (He et al., "Deep Residual Learning for Image Recognition", 2015; stride in the 3x3 convolution)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # channels, blocks, stride


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Convolution and batch normalisation."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions around a shortcut."""

    def __init__(self, inputs: int, channels: int, stride: int):
        super().__init__()
        self.reduce = convolution(inputs, channels, 1)
        self.spatial = convolution(channels, channels, 3, stride)
        self.expand = convolution(channels, 4 * channels, 1)
        same = stride == 1 and inputs == 4 * channels
        self.shortcut = nn.Identity() if same else convolution(inputs, 4 * channels, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, 4 * channels, H / stride, W / stride]."""
        y = self.spatial(self.reduce(x).relu()).relu()
        return (self.expand(y) + self.shortcut(x)).relu()


class ResNet50(nn.Module):
    """[N, 3, 224, 224] -> logits [N, 1000]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        blocks, inputs = [], 64
        for channels, count, stride in STAGES:
            for number in range(count):
                blocks.append(Bottleneck(inputs, channels, stride if number == 0 else 1))
                inputs = 4 * channels
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of an image batch."""
        return self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1), 1))
