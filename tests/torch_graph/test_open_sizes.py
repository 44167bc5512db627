"""Sizes that are open: which of them PyTorch computes, and which get programs of the engine."""

from __future__ import annotations

from collections.abc import Callable
import copy
import gc
from typing import Any
import weakref

import pytest
import torch

from anycann.adapters.torch.graph import open_graph
from anycann.adapters.torch.graph.open_graph import boxed
from anycann.adapters.torch.graph.report import reports
import tests.npu_device  # noqa: F401


def perceptron() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3))


@pytest.fixture(autouse=True)
def _no_reports_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anycann.adapters.torch.graph.report._reports", [])


def test_sizes_are_compiled_when_they_come_again_and_again(compiled: Callable[..., Any]) -> None:
    model = perceptron().eval()
    run, made = compiled(model, dynamic=True), []
    with torch.no_grad():
        for count in (4, 7, 9, 7, 7, 9, 4, 7):
            x = torch.randn(count, 6)
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
            made.append(len(reports()))
    assert made == [1, 1, 1, 1, 2, 2, 2, 2]


def test_gradients_are_right_whoever_computes_the_sizes(compiled: Callable[..., Any]) -> None:
    mine = perceptron()
    theirs = copy.deepcopy(mine)
    run = compiled(mine, dynamic=True)
    for seed, count in enumerate((4, 5, 5, 5, 4)):
        x = torch.randn(count, 6)
        for network, call in ((mine, run), (theirs, theirs)):
            network.zero_grad()
            torch.manual_seed(seed)
            call(x).square().sum().backward()
        for got, wanted in zip(mine.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(got.grad, wanted.grad, rtol=1e-4, atol=1e-4)
    assert [report.kind for report in reports()] == ["forward", "backward"] * 2


def test_pytorch_takes_tensors_that_lie_otherwise_than_was_traced(compiled: Callable[..., Any]) -> None:
    convolution = torch.nn.Conv2d(3, 4, 3).npu()
    run = compiled(lambda x: torch.nn.functional.adaptive_avg_pool2d(convolution(x), 2).flatten(1), dynamic=True)
    for count in (2, 3):
        x = torch.randn(count, 3, 8, 8, device="npu").to(memory_format=torch.channels_last)
        expected = torch.nn.functional.adaptive_avg_pool2d(convolution(x), 2).flatten(1)
        torch.testing.assert_close(run(x), expected, rtol=1e-4, atol=1e-4)


def test_a_graph_has_a_bounded_number_of_programs(compiled: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_graph, "MOST_COMPILED", 2)
    monkeypatch.setattr(open_graph, "MOST_COUNTED", 2)
    run = compiled(lambda x: x.exp() + 1, dynamic=True)
    for count in [2, *(3, 4, 5) * 4, *(3, 4, 5) * 3, *[6] * 4, *[7] * 4]:
        x = torch.randn(count, 5)
        torch.testing.assert_close(run(x), x.exp() + 1, rtol=1e-4, atol=1e-5)
    assert len(reports()) == 2


def test_pytorch_frees_inputs_of_a_graph_after_their_last_use() -> None:
    seen: list[bool] = []
    first = torch.randn(3)
    known = weakref.ref(first)

    def look(x: Any) -> Any:
        gc.collect()
        seen.append(known() is None)
        return x

    graph = torch.fx.Graph()
    given = graph.placeholder("given")
    graph.output([graph.call_function(look, (graph.call_function(torch.neg, (given,)),))])
    args = [first]
    wanted = -first
    del first
    torch.testing.assert_close(boxed(torch.fx.GraphModule(torch.nn.Module(), graph))(args), [wanted])
    assert args == []
    assert seen == [True]
