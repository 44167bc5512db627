from __future__ import annotations

from collections.abc import Callable
import copy
from typing import Any

import pytest
import torch
from torch.nn import functional

from anycann.adapters.torch.graph.report import reports
from tests.torch_graph.networks import NETWORKS, ResNet, Sentences, images, sentences
from tests.torch_graph.test_inference import tensors, wide


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", ["resnet", "vit", "bert"])
def test_gradients_are_those_of_torch_in_float64(name: str, compiled: Callable[..., Any]) -> None:
    make, feed = NETWORKS[name]
    model, args = make(), feed()
    exact = copy.deepcopy(model).double()
    weights = torch.randn_like(tensors(model(*args))[0])
    (tensors(exact(*wide(args)))[0] * weights).sum().backward()
    (tensors(compiled(model)(*args))[0] * weights).sum().backward()
    mine = gradients(model)  # also those of results that were not used: zeros
    for key, wanted in gradients(exact).items():
        atol = 1e-4 * float(wanted.abs().max() + 1)
        torch.testing.assert_close(mine[key].double(), wanted, rtol=1e-3, atol=atol, msg=lambda text, key=key: f"{key}: {text}")


RESIZED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "bilinear": lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "bilinear to a size": lambda x: functional.interpolate(x, (7, 11), mode="bilinear", align_corners=True),
    "smaller, nearest": lambda x: functional.interpolate(x, (3, 2)),
    "nearest": lambda x: functional.interpolate(x, scale_factor=3),
    "nearest, exact": lambda x: functional.interpolate(x, (8, 5), mode="nearest-exact"),
}


@pytest.mark.parametrize("name", RESIZED)
def test_resizing_is_one_operator_of_the_engine(name: str, compiled: Callable[..., Any]) -> None:
    x = torch.randn(2, 5, 4, 6)
    first, second = x.clone().requires_grad_(), x.double().requires_grad_()
    run = compiled(lambda x: RESIZED[name](x * 2))
    wanted = RESIZED[name](second * 2)
    weights = torch.randn(wanted.shape)
    got = run(first)
    (got * weights).sum().backward()
    (wanted * weights).sum().backward()
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-5)
    assert first.grad is not None
    assert second.grad is not None
    torch.testing.assert_close(first.grad.double(), second.grad, rtol=1e-4, atol=1e-5)
    assert [report.kind for report in reports()[-2:]] == ["forward", "backward"]
    assert not any(report.in_pytorch for report in reports()[-2:])


def test_resizing_by_scales_that_are_not_the_ratio_stays_with_pytorch(compiled: Callable[..., Any]) -> None:
    x = torch.randn(1, 2, 5, 5)
    run = compiled(lambda x: functional.interpolate(x, scale_factor=1.5, mode="bilinear"))
    torch.testing.assert_close(run(x), functional.interpolate(x, scale_factor=1.5, mode="bilinear"))


@pytest.mark.parametrize(("mode", "size", "out"), [("nearest", 2, 82), ("nearest-exact", 2, 41)])
def test_nearest_elements_are_those_that_torch_rounds_to(mode: str, size: int, out: int, compiled: Callable[..., Any]) -> None:
    x = torch.randn(1, 2, size, size)
    run = compiled(lambda x: functional.interpolate(x, (out, out), mode=mode))
    torch.testing.assert_close(run(x), functional.interpolate(x, (out, out), mode=mode))


def test_running_statistics_move_as_in_torch(compiled: Callable[..., Any]) -> None:
    model = ResNet()
    other, x = copy.deepcopy(model), images(4)[0]
    run = compiled(model)
    for _ in range(2):
        run(x).sum().backward()
        other(x).sum().backward()
    for one, wanted in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(one, wanted, rtol=1e-4, atol=1e-5)


def test_dropout_draws_what_torch_draws(compiled: Callable[..., Any]) -> None:
    model, x = Sentences(), sentences()[0]
    run = compiled(model)
    torch.manual_seed(5)
    wanted = model(x)
    torch.manual_seed(5)
    got = run(x)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    assert not torch.equal(run(x), got)


def test_training_goes_as_in_torch(compiled: Callable[..., Any]) -> None:
    torch.manual_seed(1)
    mine = Sentences()
    theirs = copy.deepcopy(mine)
    losses = [_train(model, run) for model, run in ((mine, compiled(mine)), (theirs, theirs))]
    torch.testing.assert_close(losses[0], losses[1], rtol=2e-3, atol=1e-4)
    assert losses[0][-1] < losses[0][0]


def _train(model: torch.nn.Module, run: Callable[..., torch.Tensor]) -> torch.Tensor:
    torch.manual_seed(2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    x, y = torch.randint(0, 50, (8, 12)), torch.randint(0, 10, (8,))
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = functional.cross_entropy(run(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def test_the_loss_may_be_in_the_graph_and_sizes_open(compiled: Callable[..., Any]) -> None:
    model = ResNet()
    model.blocks = model.blocks[1:]
    other = copy.deepcopy(model)

    def step(network: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(network(x), y, label_smoothing=0.1)

    run = compiled(lambda x, y: step(model, x, y), dynamic=True)
    for count in (4, 3):
        x, y = images(count)[0], torch.randint(0, 10, (count,))
        got, wanted = run(x, y), step(other, x, y)
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
        got.backward()
        wanted.backward()
        for one, expected in zip(gradients(model).values(), gradients(other).values(), strict=True):
            torch.testing.assert_close(one, expected, rtol=1e-3, atol=1e-3)
        model.zero_grad()
        other.zero_grad()


@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")
def test_an_optimizer_step_may_be_compiled(compiled: Callable[..., Any]) -> None:
    mine = torch.nn.Linear(5, 4)
    theirs = copy.deepcopy(mine)
    x = torch.randn(3, 5)
    for model in (mine, theirs):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        step = compiled(optimizer.step) if model is mine else optimizer.step
        for _ in range(3):
            model(x).square().sum().backward()
            step()
            optimizer.zero_grad()
    for one, wanted in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, wanted, rtol=1e-4, atol=1e-5)


class Turned(torch.nn.Module):
    """Products of turned operands, and a part that PyTorch computes from what forward kept of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 8), torch.nn.Linear(6, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        queries, keys = (layer(x).view(5, 3, 2, 4).permute(1, 2, 0, 3) for layer in (self.first, self.second))
        scores = (queries * 0.5) @ (keys * 0.5).transpose(-2, -1)
        return scores.exp().cumprod(-1).flatten(1)  # no translation


def test_what_is_kept_for_backward_is_row_major(compiled: Callable[..., Any]) -> None:
    model, x = Turned(), torch.randn(5, 3, 6)
    exact = copy.deepcopy(model).double()
    compiled(model)(x).square().sum().backward()
    exact(x.double()).square().sum().backward()
    for key, wanted in gradients(exact).items():
        torch.testing.assert_close(gradients(model)[key].double(), wanted, rtol=1e-4, atol=1e-4)
    forward, backward = reports()[-2:]
    ports = [port for report in (forward, backward) for part in report.program.compiled.values() for port in (*part.inputs, *part.outputs)]
    assert forward.kind == "forward"
    assert backward.in_pytorch
    assert all(port.order is None for port in ports if len(port.shape) > 2)


def test_images_of_a_channels_last_model_are_kept_as_the_engine_has_them(compiled: Callable[..., Any]) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.GELU(), torch.nn.Conv2d(8, 4, 3)).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 9, 9).to(memory_format=torch.channels_last)
    exact = copy.deepcopy(model).double()
    got, wanted = compiled(model)(x), exact(x.double())
    got.square().sum().backward()
    wanted.square().sum().backward()
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-5)
    assert got.stride() == wanted.stride()
    for key, gradient in gradients(exact).items():
        torch.testing.assert_close(gradients(model)[key].double(), gradient, rtol=1e-4, atol=1e-4)
    ports = [port for part in reports()[-1].program.compiled.values() for port in part.inputs]
    assert {port.order for port in ports if port.shape == (2, 8, 7, 7)} == {None}


def test_what_is_kept_beside_open_sizes_lies_as_torch_has_it(compiled: Callable[..., Any]) -> None:
    model = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    exact = copy.deepcopy(model).double()
    image, x = torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last), torch.randn(7, 18)

    def of_pixels(conv: torch.nn.Module, image: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        kept = (conv(image) * 2).sigmoid()
        return x @ kept.permute(0, 2, 3, 1).reshape(-1, 4) + kept.square().sum()  # backward views what is kept as rows of pixels

    torch._dynamo.mark_dynamic(x, 0)
    compiled(lambda image, x: of_pixels(model, image, x))(image, x).square().sum().backward()
    of_pixels(exact, image.double(), x.double()).square().sum().backward()
    for key, wanted in gradients(exact).items():
        torch.testing.assert_close(gradients(model)[key].double(), wanted, rtol=1e-4, atol=1e-3)
