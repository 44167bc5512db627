"""Dropout in two: PyTorch draws the mask, from its own generator and in its own order; the rest is arithmetic that the engine fuses.

native_dropout(x, p, True)                before
mask = kept_by_dropout(...), x * mask / (1 - p)   after
"""

from __future__ import annotations

from collections.abc import Sequence
import operator
from typing import Any

import torch
from torch.fx import Node

from anycann.adapters.torch.device.aliasing import host_alias
from anycann.adapters.torch.device.bernoulli import draw
from anycann.adapters.torch.device.generators import default_generator
from anycann.frontends.torch_fx.translate import dense_order

aten = torch.ops.aten


def split_dropout(graph: torch.fx.Graph) -> None:
    """Take the dropouts of a graph apart, in place."""
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is aten.native_dropout.default and node.args[2] and 0 < node.args[1] < 1:
            _split(graph, node)


def kept_by_dropout(sizes: Sequence[int], strides: Sequence[int], p: float, device: torch.device) -> torch.Tensor:
    """The elements that dropout keeps, drawn as aten::native_dropout draws them on a CPU."""
    kept = torch.empty_strided(sizes, strides, dtype=torch.bool, device=device)
    if device.type == "cpu":
        return draw(torch.default_generator, 1 - p, kept)
    draw(default_generator(kept.get_device()), 1 - p, host_alias(kept))
    return kept


def _split(graph: torch.fx.Graph, node: Node) -> None:
    result, mask = node.meta["val"]
    x, p = node.args[0], node.args[1]
    strides = mask.stride() if dense_order(mask) is not None else torch._prims_common.make_contiguous_strides_for(mask.shape)
    with graph.inserting_before(node):
        kept = _new(graph, kept_by_dropout, (tuple(mask.shape), tuple(strides), p, mask.device), mask)
        left = _new(graph, aten.mul.Tensor, (x, kept), result)
        scaled = _new(graph, aten.mul.Tensor, (left, 1.0 / (1 - p)), result)
    for user in list(node.users):
        assert user.target is operator.getitem
        user.replace_all_uses_with(kept if user.args[1] else scaled)
        graph.erase_node(user)
    graph.erase_node(node)


def _new(graph: torch.fx.Graph, target: Any, args: tuple[Any, ...], fake: torch.Tensor) -> Node:
    made = graph.call_function(target, args)
    made.meta = {"val": fake}
    return made
