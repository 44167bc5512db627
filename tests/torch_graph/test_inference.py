from __future__ import annotations

from collections.abc import Callable
import copy
from typing import Any

import pytest
import torch
from torch import nn

from anycann.adapters.torch.graph.report import reports
from tests.torch_graph.networks import NETWORKS, Residual, ResNet, ViT, images


def wide(args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(arg.double() if arg.is_floating_point() else arg for arg in args)


def tensors(result: Any) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_computes_what_torch_computes_in_float64(name: str, compiled: Callable[..., Any]) -> None:
    make, feed = NETWORKS[name]
    model, args = make().eval(), feed()
    with torch.no_grad():
        wanted = copy.deepcopy(model).double()(*wide(args))
        got = compiled(model)(*args)
    for one, other in zip(tensors(got), tensors(wanted), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)
    assert not reports()[-1].in_pytorch


def test_results_lie_in_memory_as_those_of_torch_do(compiled: Callable[..., Any]) -> None:
    model = nn.Conv2d(3, 8, 3).eval()
    x = images()[0].to(memory_format=torch.channels_last)
    with torch.no_grad():
        wanted, got = model(x), compiled(model)(x)
    assert got.stride() == wanted.stride()
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def test_a_result_is_a_tensor_of_its_own(compiled: Callable[..., Any]) -> None:
    model = compiled(nn.Linear(4, 4).eval())
    with torch.no_grad():
        first = model(torch.ones(2, 4))
        kept = first.clone()
        model(torch.zeros(2, 4))
    torch.testing.assert_close(first, kept, rtol=0, atol=0)


@pytest.mark.parametrize("change", ["in place", "another tensor", "another memory", "uncounted", "often"])
def test_weights_that_change_are_seen(change: str, compiled: Callable[..., Any]) -> None:
    model = nn.Linear(6, 5).eval()
    run, x = compiled(model), torch.randn(3, 6)
    with torch.no_grad():
        run(x)
        for _ in range(20 if change == "often" else 1):
            if change == "another tensor":
                model.weight = nn.Parameter(torch.randn(5, 6))
            elif change == "another memory":
                model.weight.data = torch.randn(5, 6)
            elif change == "uncounted":
                model.weight.data.mul_(-1.5)
            else:
                model.weight.mul_(-1.02)
            torch.testing.assert_close(run(x), model(x))
        for _ in range(12):  # at rest they are built in again
            torch.testing.assert_close(run(x), model(x))
    assert [report.weights for report in reports()][-1] == 2


def test_blocks_that_are_compiled_one_by_one_keep_their_own_weights(compiled: Callable[..., Any]) -> None:
    blocks = [Residual(4, 4, 1).eval() for _ in range(3)]
    run = [compiled(block) for block in blocks]
    x = torch.randn(1, 4, 8, 8)
    with torch.no_grad():
        for _ in range(2):
            for block, one in zip(blocks, run, strict=True):
                torch.testing.assert_close(one(x), block(x), rtol=1e-4, atol=1e-5)


def test_sizes_that_are_marked_open_are_compiled_when_they_are_met(compiled: Callable[..., Any]) -> None:
    model = ResNet().eval()
    run = compiled(model)
    with torch.no_grad():
        for count in (2, 3, 5, 3):
            x = images(count)[0]
            torch._dynamo.mark_dynamic(x, 0)
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)


def test_everything_may_be_open(compiled: Callable[..., Any]) -> None:
    model = NETWORKS["bert"][0]().eval()
    run = compiled(model, dynamic=True)
    with torch.no_grad():
        for count, length in ((2, 12), (3, 7), (1, 12)):
            args = NETWORKS["bert"][1](count, length)
            for got, wanted in zip(run(*args), model(*args), strict=True):
                torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def test_what_has_no_translation_runs_in_torch_and_is_named(compiled: Callable[..., Any]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.det(x.relu() + 1).exp()

    x = torch.randn(4, 3, 3)
    torch.testing.assert_close(compiled(function)(x), function(x), rtol=1e-4, atol=1e-5)
    lines = reports()[-1].lines()
    assert lines[0] == "inference graph: 3 operators in the engine (2 parts), 1 in PyTorch"
    assert lines[1] == "  aten._linalg_det.default x 1: no translation"


def test_a_graph_may_break(compiled: Callable[..., Any]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        return y.relu()

    for sign in (1.0, -1.0):
        x = sign * torch.rand(5)
        torch.testing.assert_close(compiled(function)(x), function(x))


def test_inputs_that_are_changed_are_changed(compiled: Callable[..., Any]) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        return x[1:] * 2

    x, y = torch.randn(4, 5), torch.randn(5)
    mine, theirs = x.clone(), x.clone()
    torch.testing.assert_close(compiled(function)(mine, y), function(theirs, y))
    torch.testing.assert_close(mine, theirs)


def test_inputs_may_lie_in_memory_in_any_way(compiled: Callable[..., Any]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1) @ x.transpose(-1, -2)

    base = torch.randn(6, 8, 10)
    for x in (base, base.permute(2, 0, 1), base[:, ::2], base[1:, :, 3:], base[:1].expand(4, 8, 10)):
        torch.testing.assert_close(compiled(function)(x), function(x), rtol=1e-4, atol=1e-5)


def test_random_numbers_are_those_of_torch(compiled: Callable[..., Any]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        a = torch.rand_like(x)
        return a.relu() + torch.randn(3) * x

    x, run = torch.randn(4, 3), compiled(function)
    torch.manual_seed(3)
    wanted = function(x)
    torch.manual_seed(3)
    torch.testing.assert_close(run(x), wanted)


def test_a_model_without_work_and_empty_tensors(compiled: Callable[..., Any]) -> None:
    x = torch.randn(3, 4)
    assert compiled(lambda x: x)(x) is x
    assert compiled(lambda x: x.relu() + 1)(torch.zeros(0, 4)).shape == (0, 4)


def test_autocast_computes_in_bfloat16(compiled: Callable[..., Any]) -> None:
    model, x = ViT().eval(), images()[0]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        got, wanted = compiled(model)(x), model(x)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), wanted.float(), rtol=0.1, atol=0.05)
