"""Modules on the npu give the values and gradients they give on the cpu; optimizers, threads and checkpointing work there."""

from __future__ import annotations

from collections.abc import Callable
import copy
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

IMAGES = (2, 3, 8, 8)
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(4, 3), (2, 5, 4)),
    "linear of one row": (lambda: nn.Linear(4, 3), (4,)),
    "linear without bias": (lambda: nn.Linear(4, 3, bias=False), (5, 4)),
    "lstm": (lambda: nn.LSTM(4, 8, 2, batch_first=True, bidirectional=True), (2, 3, 4)),
    "gru": (lambda: nn.GRU(4, 8, 2, batch_first=True), (2, 3, 4)),
    "rnn": (lambda: nn.RNN(4, 8, 2, batch_first=True), (2, 3, 4)),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), (2, 3, 8)),
    "images": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, 2, 1), nn.GroupNorm(2, 4), nn.SiLU(), nn.ConvTranspose2d(4, 3, 2, 2), nn.InstanceNorm2d(3),
            nn.AvgPool2d(2), nn.Upsample(scale_factor=2, mode="bilinear"),
        ),
        IMAGES,
    ),
    "volumes": (lambda: nn.Sequential(nn.Conv3d(3, 4, 3, 1, 1), nn.MaxPool3d(2), nn.ReLU6()), (2, 3, 4, 4, 4)),
    "batch normalisation": (lambda: nn.BatchNorm2d(3), IMAGES),
    "channels last": (lambda: nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), IMAGES),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_module_gives_the_same_values_and_gradients_as_on_the_cpu(name: str) -> None:
    make, shape = CASES[name]
    here = make()
    there = copy.deepcopy(here).npu()
    x, seed = torch.randn(shape, requires_grad=True), torch.randint(0, 1000, ()).item()
    y = x.detach().npu().requires_grad_()
    expected, got = (_first(module(value)) for module, value in ((here, x), (there, y)))
    torch.manual_seed(seed)
    weights = torch.randn_like(expected)
    (expected * weights).sum().backward()
    (got * weights.npu()).sum().backward()
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(y.grad.cpu(), x.grad, rtol=1e-4, atol=1e-4)
    for one, other in zip(there.parameters(), here.parameters(), strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=1e-4, atol=1e-4)


def _first(result: object) -> torch.Tensor:
    value = result[0] if isinstance(result, tuple) else result
    assert isinstance(value, torch.Tensor)
    return value


@pytest.mark.parametrize("foreach", [None, True])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad])
def test_an_optimizer_takes_the_same_step_as_on_the_cpu(kind: type[torch.optim.Optimizer], foreach: bool | None) -> None:
    here = nn.Linear(4, 4)
    there = copy.deepcopy(here).npu()
    x = torch.randn(3, 4)
    for module, value in ((here, x), (there, x.npu())):
        optimizer = kind(module.parameters(), lr=0.1, foreach=foreach)  # type: ignore[call-arg]
        for _ in range(2):
            module(value).pow(2).sum().backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(there.weight.cpu(), here.weight)


def test_gradients_of_every_device_are_there_and_twice_differentiable() -> None:
    x = torch.randn(4, device="npu:1", requires_grad=True)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.device == x.device
    torch.testing.assert_close(second, 6 * x.detach())


def test_a_thread_may_run_backward_on_another_device() -> None:
    seen = []

    def work() -> None:
        x = torch.randn(4, device="npu:2", requires_grad=True)
        (x * x).sum().backward()
        seen.append(x.grad.device.index)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [2]


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_computes_dropout_again_with_the_same_numbers(reentrant: bool) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout()).npu()
    x = torch.randn(8, 4, device="npu", requires_grad=True)
    torch.manual_seed(0)
    checkpoint(module, x, use_reentrant=reentrant).sum().backward()
    y = x.detach().requires_grad_()
    torch.manual_seed(0)
    module(y).sum().backward()
    assert torch.equal(x.grad, y.grad)


def test_random_numbers_follow_the_seed_and_each_device_has_its_own() -> None:
    torch.manual_seed(3)
    first, of_cpu = torch.rand(4, device="npu"), torch.rand(4)
    torch.manual_seed(3)
    torch.rand(7)
    assert torch.equal(torch.rand(4, device="npu"), first)
    state = torch.npu.get_rng_state(1)
    again = torch.rand(4, device="npu:1")
    torch.npu.set_rng_state(state, 1)
    assert torch.equal(torch.rand(4, device="npu:1"), again)
    generator = torch.Generator(device="npu")
    generator.manual_seed(3)
    assert torch.equal(torch.rand(4, device="npu", generator=generator), first)
    assert torch.equal(of_cpu, first.cpu())


def test_kernels_do_not_follow_the_default_device() -> None:
    module, x = nn.LSTM(4, 8).npu(), torch.randn(3, 2, 4)
    linear = nn.Linear(3, 2).npu()
    there = x.npu()
    loss = module(there)[0].sum() + linear(torch.ones(1, 3).npu()).sum()
    embedding = nn.Embedding(5, 3, sparse=True).npu()
    rows = torch.tensor([1, 2]).npu()
    with torch.device("npu"):
        gradients = torch.autograd.grad(loss, [*module.parameters(), *linear.parameters()])
        torch.autograd.backward(embedding(rows).sum())
        out = torch.empty(0)
        torch.mul(there, 2, out=out)
        assert there.to_sparse().to_dense().equal(there)
    assert all(gradient.is_npu for gradient in gradients)
    assert torch.equal(out.cpu(), x * 2)
