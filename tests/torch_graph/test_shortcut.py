"""Which calls go to the engine's program at once, and which by AOTAutograd's wrapper because it does something for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from anycann.adapters.torch.graph import backend
from anycann.adapters.torch.graph.shortcut import shortened

Calls = list[tuple[torch.Tensor, ...]]


@pytest.fixture
def by_wrapper(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The calls that AOTAutograd's functions get of graphs that have the shortcut."""
    calls: Calls = []

    def noted(compiled: Callable[..., Any], graph: Any) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            calls.append(args)
            return compiled(*args)

        return shortened(call, graph)

    monkeypatch.setattr(backend, "shortened", noted)
    return calls


def test_calls_go_to_the_program_while_weights_are_as_they_were(by_wrapper: Calls, compiled: Callable[..., Any]) -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.GELU()), torch.randn(3, 5)
    run, ways = compiled(model), []
    with torch.no_grad():
        for number in range(7):
            if number == 4:
                model[0].weight.mul_(-2)
            torch.testing.assert_close(run(x), model(x))
            ways.append(len(by_wrapper))
    assert ways == [1, 1, 1, 1, 2, 3, 4]


def test_a_graph_without_weights_goes_to_its_program(by_wrapper: Calls, compiled: Callable[..., Any]) -> None:
    x = torch.randn(3, 5)
    run = compiled(lambda x: (x.exp() + 1, x.sum(0)))
    for _ in range(3):
        for got, wanted in zip(run(x), (x.exp() + 1, x.sum(0)), strict=True):
            torch.testing.assert_close(got, wanted)
    assert len(by_wrapper) == 1


def test_operators_of_pytorch_are_called_as_aotautograd_does(by_wrapper: Calls, compiled: Callable[..., Any]) -> None:
    x = torch.randn(3, 3, requires_grad=True)
    run = compiled(lambda x: torch.linalg.det(x).detach() + 1)
    for _ in range(3):
        got = run(x)
        torch.testing.assert_close(got, torch.linalg.det(x).detach() + 1)
        assert not got.requires_grad
    assert len(by_wrapper) in (0, 3)  # none where torch makes a graph that trains of it


def _changes_its_input(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x + 1


@pytest.mark.parametrize("function", [_changes_its_input, lambda x: (x + 1, x), lambda x: (x.sin(), x.t()), lambda x: both_ways(x.exp())])
def test_what_is_done_after_the_graph_is_done_each_time(function: Callable[..., Any], compiled: Callable[..., Any]) -> None:
    run = compiled(function)
    for _ in range(3):
        mine = torch.randn(4, 5)
        theirs = mine.clone()
        got, wanted = run(mine), function(theirs)
        torch.testing.assert_close(got, wanted)
        torch.testing.assert_close(mine, theirs)
        assert memory_shared([mine, got]) == memory_shared([theirs, wanted])


def both_ways(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x, x.t()


def memory_shared(tensors: Any) -> list[bool]:
    """Of each pair of tensors, whether they begin at the same place."""
    places = [tensor.data_ptr() for tensor in torch.utils._pytree.tree_leaves(tensors)]
    return [one == other for one in places for other in places]
