"""Eager PyTorch on the npu beside PyTorch on the cpu, in one process, round by round: `python -m benchmarks.torch_device`.

Single operators on 16 x 16 float32 say what a call costs more; ResNet-18 (training, 32 x 32 pictures), recurrent networks
and a vision transformer what a program notices. Medians, and the median of cpu / npu over the rounds: 1 is as fast as torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
import statistics
import sys
import time

import click
import torch
from torch import nn
from torch.nn import functional

import anycann
from benchmarks.networks.transformer import VisionTransformer

Work = Callable[[], object]


class _Block(nn.Module):
    """Two 3 x 3 convolutions beside the identity, or a 1 x 1 convolution where sizes change."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.beside = nn.Identity() if stride == 1 and inputs == outputs else shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.second(self.first(x)) + self.beside(x))


def resnet18(classes: int = 10) -> nn.Module:
    """ResNet-18 (He et al., 2015) with its first layers for 224 x 224."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for inputs, outputs, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [_Block(inputs, outputs, stride), _Block(outputs, outputs, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def train_step(make: Callable[[], nn.Module], device: str, *shape: int) -> Work:
    """One step of SGD with momentum on inputs of `shape`."""
    torch.manual_seed(0)
    module = make().to(device)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(*shape).to(device), torch.randint(0, 10, shape[:1]).to(device)

    def step() -> object:
        optimizer.zero_grad()
        loss = functional.cross_entropy(module(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


class Recurrent(nn.Module):
    """Two layers of an LSTM or a GRU over sequences: [N, T, 128] -> [N, 10]."""

    def __init__(self, kind: type[nn.Module]):
        super().__init__()
        self.layers, self.head = kind(128, 128, 2, batch_first=True), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x)[0][:, -1])


def inference(module: nn.Module, device: str, *shape: int) -> Work:
    """`module` on one input."""
    moved, x = module.to(device).eval(), torch.randn(*shape).to(device)

    def run() -> object:
        with torch.inference_mode():
            return moved(x)[0, 0].item()

    return run


def operators(device: str) -> dict[str, Work]:
    """Small operators by name; each does its work a hundred times."""
    x, w, b = torch.randn(16, 16).to(device), torch.randn(16, 16).to(device), torch.randn(16).to(device)
    g = torch.randn(16, 16).to(device).requires_grad_()

    def backward() -> None:
        (g * 2).relu().sum().backward()
        g.grad = None

    small: dict[str, Work] = {
        "relu": lambda: torch.relu(x), "x + x": lambda: x + x, "x.add_(1)": lambda: x.add_(1e-9),
        "linear": lambda: functional.linear(x, w, b), "view": lambda: x.view(256), "x[1:3]": lambda: x[1:3], "sum": lambda: x.sum(),
        "item": lambda: b[0].item(), "empty": lambda: torch.empty(16, device=device),
    }  # fmt: skip
    return {name: _without_gradients(_repeated(work)) for name, work in small.items()} | {"3 operators, backward": _repeated(backward)}


def _repeated(work: Work) -> Work:
    def hundred() -> None:
        for _ in range(100):
            work()

    return hundred


def _without_gradients(work: Work) -> Work:
    def run() -> None:
        with torch.no_grad():
            work()

    return run


def compare(works: tuple[Work, Work], rounds: int) -> tuple[float, float, float]:
    """Median seconds of each, and the median over the rounds of first / second; the two take turns, and take turns in beginning."""
    for work in works * 2:
        work()
    taken = [tuple(seconds(works[at]) for at in (0, 1)) if number % 2 else _reversed(works) for number in range(rounds)]
    first, second = (statistics.median(pair[at] for pair in taken) for at in (0, 1))
    return first, second, statistics.median(pair[0] / pair[1] for pair in taken)


def _reversed(works: tuple[Work, Work]) -> tuple[float, ...]:
    second = seconds(works[1])
    return seconds(works[0]), second


def seconds(work: Work) -> float:
    """What `work` takes. On one thread the time of the processor is taken, so that other processes disturb little."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    begin = clock()
    work()
    return clock() - begin


def cases(batch: int) -> Iterable[tuple[str, float, Callable[[str], Work]]]:
    """Name, seconds of the unit it is printed in, and what to run on a device."""
    for name in operators("cpu"):
        yield f"{name} [us]", 1e-4, lambda device, name=name: operators(device)[name]  # type: ignore[misc]
    yield f"ResNet-18 training, batch {batch} [ms]", 1e-3, lambda device: train_step(resnet18, device, batch, 3, 32, 32)
    yield "ResNet-18 inference, batch 1 [ms]", 1e-3, lambda device: inference(resnet18(), device, 1, 3, 32, 32)
    for kind in (nn.LSTM, nn.GRU):
        make = partial(Recurrent, kind)
        yield f"{kind.__name__} training, 16 x 64 [ms]", 1e-3, lambda device, make=make: train_step(make, device, 16, 64, 128)  # type: ignore[misc]
        yield f"{kind.__name__} inference, 1 x 64 [ms]", 1e-3, lambda device, make=make: inference(make(), device, 1, 64, 128)  # type: ignore[misc]
    yield "ViT-S/16 inference, batch 1 [ms]", 1e-3, lambda device: inference(VisionTransformer(384, 12, 6), device, 1, 3, 224, 224)


@click.command()
@click.option("--rounds", default=15, show_default=True, help="how often each is measured")
@click.option("--batch", default=64, show_default=True, help="pictures of a training step")
@click.option("--threads", default=1, show_default=True)
@click.option("--only", default="", help="part of the names of what to measure")
def main(rounds: int, batch: int, threads: int, only: str) -> None:
    """Measure eager PyTorch on the npu beside the cpu."""
    sys.path.append(str(Path(anycann.__file__).parent / "shims" / "python"))
    import torch_npu  # noqa: F401

    torch.set_num_threads(threads)
    print(f"{'':40}{'cpu':>9}{'npu':>9}  cpu/npu")
    for name, unit, make in cases(batch):
        if only.lower() in name.lower():
            cpu, npu, ratio = compare((make("cpu"), make("npu")), rounds)
            print(f"{name:40}{cpu / unit:9.2f}{npu / unit:9.2f}{ratio:9.3f}", flush=True)


if __name__ == "__main__":
    main()
