"""ResNet with bottlenecks (He and others, 2015), with the stem for pictures of 32 x 32 pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

EXPANSION = 4
RESNET_50 = (3, 4, 6, 3)


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions, and the input added."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = width * EXPANSION
        self.body = nn.Sequential(
            *_convolution(channels, width, 1),
            nn.ReLU(inplace=True),
            *_convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *_convolution(width, out, 1),
        )
        same = stride == 1 and channels == out
        self.shortcut: nn.Module = nn.Identity() if same else nn.Sequential(*_convolution(channels, out, 1, stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Any:
        return self.relu(self.body(x) + self.shortcut(x))


def resnet(classes: int = 10, layers: Sequence[int] = RESNET_50, width: int = 64) -> nn.Sequential:
    """Logits (n, classes) from pictures (n, 3, h, w); with the defaults ResNet-50."""
    stages: list[nn.Module] = []
    channels = width
    for number, count in enumerate(layers):
        for block in range(count):
            stages.append(Bottleneck(channels, width << number, 2 if number and not block else 1))
            channels = (width << number) * EXPANSION
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    model = nn.Sequential(*_convolution(3, width, 3), nn.ReLU(inplace=True), *stages, *head)
    _initialise(model)
    return model


def _convolution(channels: int, out: int, size: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(channels, out, size, stride, size // 2, bias=False), nn.BatchNorm2d(out)


def _initialise(model: nn.Module) -> None:
    """As in the paper; the last normalisation of a block begins with 0, so that a block begins as its input."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if isinstance(module, Bottleneck):
            nn.init.zeros_(module.body[-1].weight)
