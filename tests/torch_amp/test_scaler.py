"""Loss scaling: steps that overflow are left out, the scale goes down and up."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional


def parameter_and_optimizer() -> tuple[Any, Any]:
    parameter = nn.Parameter(torch.ones(2, device="npu"))
    return parameter, torch.optim.SGD([parameter], 0.1)


@pytest.mark.parametrize("make", [lambda: torch.npu.amp.GradScaler(init_scale=1024), lambda: torch.amp.GradScaler("npu", init_scale=1024)])
def test_a_step_that_overflows_is_left_out_and_the_scale_halved(make: Any) -> None:
    parameter, optimizer = parameter_and_optimizer()
    scaler = make()
    scaler.scale(parameter.sum() * float("inf")).backward()
    scaler.step(optimizer)
    scaler.update()
    assert (scaler.get_scale(), parameter.tolist()) == (512, [1.0, 1.0])
    optimizer.zero_grad()
    scaler.scale(parameter.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 512
    assert torch.allclose(parameter.detach().cpu(), torch.full((2,), 0.9))


def test_the_scale_grows_after_steps_without_overflow() -> None:
    parameter, optimizer = parameter_and_optimizer()
    scaler = torch.npu.amp.GradScaler(init_scale=4, growth_interval=2)
    for _ in range(4):
        optimizer.zero_grad()
        scaler.scale(parameter.sum()).backward()
        scaler.unscale_(optimizer)
        assert parameter.grad.tolist() == [1.0, 1.0]
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 16


def test_a_static_scale_stays_and_steps_that_overflow_are_still_left_out() -> None:
    parameter, optimizer = parameter_and_optimizer()
    scaler = torch.npu.amp.GradScaler(init_scale=128, dynamic=False, growth_interval=1)
    for factor in (float("nan"), 1.0):
        optimizer.zero_grad()
        scaler.scale(parameter.sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 128
    assert torch.allclose(parameter.detach().cpu(), torch.full((2,), 0.9))
    other = torch.npu.amp.GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert (other.get_scale(), other.state_dict()["dynamic"]) == (128, False)


def test_a_scaler_that_is_off_does_nothing() -> None:
    parameter, optimizer = parameter_and_optimizer()
    scaler = torch.npu.amp.GradScaler(enabled=False)
    scaler.scale(parameter.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert parameter.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_network_trains_in_sixteen_bits(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LayerNorm(8 * 36), nn.Linear(8 * 36, 5)).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    scaler = torch.npu.amp.GradScaler(enabled=dtype is torch.float16)
    inputs, classes = torch.randn(8, 3, 8, 8).npu(), torch.arange(8).remainder(5).npu()
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        with torch.npu.amp.autocast(dtype=dtype):
            outputs = model(inputs)
            loss = functional.cross_entropy(outputs, classes)
        assert (outputs.dtype, loss.dtype) == (dtype, torch.float32)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert all(parameter.dtype is torch.float32 for parameter in model.parameters())


def test_the_submodules_have_their_names() -> None:
    from torch.npu.amp import GradScaler, autocast
    from torch.npu.amp.autocast_mode import autocast as same
    from torch_npu.npu.amp.common import amp_definitely_not_available
    from torch_npu.npu.amp.grad_scaler import GradScaler as SameScaler

    assert (same, SameScaler) == (autocast, GradScaler)
    assert not amp_definitely_not_available()


def test_an_overflow_leaves_out_the_steps_of_all_optimizers_until_the_update() -> None:
    layers = [torch.nn.Linear(2, 2).npu() for _ in range(2)]
    optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in layers]
    scaler = torch.npu.amp.GradScaler(init_scale=4.0)
    before = [layer.weight.detach().clone() for layer in layers]
    for overflows in (True, False):
        for layer in layers:
            layer.zero_grad()
            scaler.scale(layer(torch.ones(1, 2, device="npu")).sum()).backward()
        if overflows:
            layers[0].weight.grad.fill_(float("inf"))
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        assert [torch.equal(old, layer.weight) for old, layer in zip(before, layers, strict=True)] == [overflows] * 2
