"""torch.compile with the backend anycann beside PyTorch's eager mode, Inductor, and atc's program of the same model.

`python -m benchmarks.torch_compile`: inference of ResNet-50 and of two sizes of ViT and BERT; training steps of ResNet-18 and
ResNet-50 (32 x 32 pictures) and of an encoder of six layers. All ways of one case take turns in one process; medians, and the median
over the rounds of other / anycann: above 1 anycann is faster. Inductor needs a C++ compiler; without one it is left out, and that is
said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
import copy
from pathlib import Path
import shutil
import statistics
import tempfile

import click
import torch
from torch import nn
from torch.nn import functional

from anycann.adapters.torch.graph.backend import anycann
from anycann.adapters.torch.graph.report import reports
from anycann.session import InferenceSession
from benchmarks.networks.resnet import ResNet50
from benchmarks.networks.transformer import Bert, VisionTransformer
from benchmarks.torch_device import resnet18, seconds

Work = Callable[[], object]
EAGER, ENGINE, INDUCTOR, ATC = "eager", "anycann", "inductor", "atc"


class Encoder(nn.Module):
    """Six layers of torch's own encoder over 1000 words: [N, T] -> classes [N, 10]."""

    def __init__(self, width: int = 256):
        super().__init__()
        self.words = nn.Embedding(1000, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.words(ids)).mean(1))


# ---- what is measured
def inference(model: nn.Module, args: tuple[torch.Tensor, ...], ways: Iterable[str]) -> dict[str, Work]:
    """A way to run `model` for each of `ways`."""
    model = model.eval()
    made: dict[str, Work] = {}
    for way in ways:
        if way == ATC:
            made[way] = _offline(model, args)
            continue
        run = _compiled(model, way)
        made[way] = lambda run=run: _without_gradients(run, args)  # type: ignore[misc]
    return made


def _without_gradients(run: Callable[..., object], args: tuple[torch.Tensor, ...]) -> object:
    with torch.no_grad():
        return run(*args)


def _offline(model: nn.Module, args: tuple[torch.Tensor, ...]) -> Work:
    """The model exported to ONNX by torch, in a session of one thread for each of torch's."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(model, args, path, dynamo=True, verbose=False)
        session = InferenceSession(path, num_threads=torch.get_num_threads())
        feeds = {value.name: arg.numpy() for value, arg in zip(session.get_inputs(), args, strict=True)}
        session.run(None, feeds)
    return lambda: session.run(None, feeds)


def training(model: nn.Module, x: torch.Tensor, ways: Iterable[str]) -> dict[str, Work]:
    """A step of SGD with momentum for each of `ways`."""
    y = torch.randint(0, 10, (len(x),))
    return {way: _step(copy.deepcopy(model), x, y, way) for way in ways if way != ATC}


def _step(model: nn.Module, x: torch.Tensor, y: torch.Tensor, way: str) -> Work:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    run = _compiled(model, way)

    def step() -> object:
        optimizer.zero_grad()
        loss = functional.cross_entropy(run(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def _compiled(model: nn.Module, way: str) -> Callable[..., torch.Tensor]:
    if way == EAGER:
        return model
    compiled: Callable[..., torch.Tensor] = torch.compile(model, backend=anycann if way == ENGINE else INDUCTOR)
    return compiled


# ---- cases
def cases(ways: Iterable[str]) -> Iterable[tuple[str, Callable[[], dict[str, Work]]]]:
    """Name, and what makes the ways of it."""
    pictures, ids = torch.randn(1, 3, 224, 224), torch.randint(0, 1000, (1, 128))
    yield "ResNet-50 inference", lambda: inference(ResNet50(), (pictures,), ways)
    yield "ViT-S/16 inference", lambda: inference(VisionTransformer(384, 12, 6), (pictures,), ways)
    yield "ViT-B/16 inference", lambda: inference(VisionTransformer(), (pictures,), ways)
    words = (ids, torch.ones_like(ids), ids * 0)
    yield "BERT (6 layers of 384) inference", lambda: inference(Bert(384, 6, 6, 1536, 5000), words, ways)
    yield "BERT-base inference", lambda: inference(Bert(), words, ways)
    yield "ResNet-18 training, batch 64", lambda: training(resnet18(), torch.randn(64, 3, 32, 32), ways)
    yield "ResNet-50 training, batch 64", lambda: training(ResNet50(), torch.randn(64, 3, 32, 32), ways)
    yield "encoder of 6 layers, training, batch 16 x 64", lambda: training(Encoder(), torch.randint(0, 1000, (16, 64)), ways)


def compare(works: dict[str, Work], rounds: int) -> dict[str, tuple[float, float]]:
    """Median seconds of each way, and the median over the rounds of its time / anycann's; ways take turns in beginning."""
    for work in [*works.values()] * 2:
        work()
    names, taken = list(works), []
    for number in range(rounds):
        order = names[number % len(names) :] + names[: number % len(names)]
        taken.append({name: seconds(works[name]) for name in order})
    return {name: (statistics.median(s[name] for s in taken), statistics.median(s[name] / s[ENGINE] for s in taken)) for name in names}


@click.command()
@click.option("--rounds", default=15, show_default=True, help="how often each is measured")
@click.option("--threads", default=1, show_default=True)
@click.option("--only", default="", help="part of the names of what to measure")
def main(rounds: int, threads: int, only: str) -> None:
    """Measure torch.compile(backend="anycann") beside eager PyTorch, Inductor and atc."""
    torch.set_num_threads(threads)
    has_compiler = any(shutil.which(name) for name in ("g++", "clang++"))
    ways = [ENGINE, EAGER, *([INDUCTOR] if has_compiler else []), ATC]
    if not has_compiler:
        print("inductor: left out, there is no C++ compiler")
    for name, make in cases(ways):
        if only.lower() not in name.lower():
            continue
        torch.manual_seed(0)
        torch._dynamo.reset()
        found = compare(make(), rounds)
        print(f"{name} [ms]: " + ", ".join(f"{way} {taken * 1e3:.1f} ({ratio:.2f})" for way, (taken, ratio) in found.items()), flush=True)
        for line in reports()[-1].lines():
            print(f"    {line}")


if __name__ == "__main__":
    main()
