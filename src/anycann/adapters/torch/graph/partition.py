"""Which parts of a graph the engine computes and which PyTorch does, in an order that runs.

Parts alternate: what needs no other part's result comes first, then what needs that, and so on, so that there are as few as can be. Views
belong to no part: whoever reads one makes it again from the tensor it shows, which costs nothing in PyTorch and little in the engine.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import field
import operator
from typing import Any

import torch
from torch.fx import Node

from anycann.adapters.torch.graph.dropout import kept_by_dropout
from anycann.frontends.torch_fx.translate import bind, dense_order
from anycann.support.records import dataclass

VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        "view.default", "_unsafe_view.default", "permute.default", "t.default", "transpose.int", "unsqueeze.default", "squeeze.default",
        "squeeze.dim", "squeeze.dims", "expand.default", "slice.Tensor", "select.int", "unbind.int", "split.Tensor",
        "split_with_sizes.default", "detach.default", "alias.default",
    )
)  # fmt: skip


@dataclass
class Part:
    """Nodes that are computed together. `inputs` and `outputs` are the tensors that cross its border; a part of PyTorch has none listed."""

    engine: bool
    nodes: list[Node] = field(default_factory=list)
    inputs: list[Node] = field(default_factory=list)
    outputs: list[Node] = field(default_factory=list)


def partition(graph: torch.fx.Graph, in_pytorch: Container[Node]) -> list[Part]:
    """The parts in order. `in_pytorch` are the operators that PyTorch computes."""
    computing = [node for node in graph.nodes if node.op == "call_function" and not is_view(node) and node.target is not operator.getitem]
    chosen = {node for node in computing if node not in in_pytorch}
    parts: dict[int, Part] = {}
    for node, stage in _stages(computing, chosen).items():
        part = parts.setdefault(stage, Part(node in chosen))
        part.nodes.append(node)
    ordered = [parts[stage] for stage in sorted(parts)]
    _find_borders(graph, ordered)
    return ordered


def is_view(node: Node) -> bool:
    """Whether a node only shows part of another tensor's memory, be it one of several such."""
    if node.target is operator.getitem:
        return is_view(node.args[0])
    return node.op == "call_function" and str(node.target) in VIEWS


def base_of(node: Node) -> Node:
    """The tensor whose memory a view shows; itself if it is none."""
    while is_view(node):
        node = node.args[0]
    return node


def maker_of(node: Node) -> Node:
    """The operator that results in this tensor."""
    return node.args[0] if node.target is operator.getitem else node


def views_between(nodes: Iterable[Node], known: Container[Node] = ()) -> list[Node]:
    """The views that `nodes` are, and those they show, each after what it shows; not those that are `known`, and what only they show."""
    found: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if is_view(node) and node not in found and node not in known:
            visit(node.args[0])
            found[node] = None

    for node in nodes:
        visit(node)
    return list(found)


def is_random(node: Node) -> bool:
    """Whether a call draws from the generator; such calls keep their order. Attention without dropout does not."""
    if node.target is kept_by_dropout:
        return True
    if not isinstance(node.target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    return getattr(bind(node), "dropout_p", None) != 0.0


def changes_memory(node: Node) -> bool:
    """Whether an operator may do more than compute."""
    if node.target is kept_by_dropout:
        return False
    return not isinstance(node.target, torch._ops.OpOverload) or node.target._schema.is_mutable


# ---- the order
def _stages(computing: Sequence[Node], chosen: set[Node]) -> dict[Node, int]:
    """A number for each node: even for the engine, odd for PyTorch, above those of what it reads."""
    stages: dict[Node, int] = {}
    last_ordered, last, barrier = -1, -1, -1
    for node in computing:
        mine = node in chosen
        stage = barrier + (barrier % 2 == mine)
        for source in node.all_input_nodes:
            maker = maker_of(base_of(source))
            if maker in stages:
                stage = max(stage, stages[maker] + ((maker in chosen) != mine))
        if not mine and changes_memory(node):  # whoever reads what it changes comes before it or behind it, as in the graph
            stage = last_ordered = barrier = max(stage, last + (last % 2 == 0))
        elif not mine and is_random(node):
            stage = last_ordered = max(stage, last_ordered)
        last = max(last, stage)
        stages[node] = stage
    return stages


# ---- the borders
def _find_borders(graph: torch.fx.Graph, parts: Sequence[Part]) -> None:
    home = {node: part for part in parts for node in part.nodes}
    wanted: dict[Node, dict[Node, None]] = {}  # what is read of an operator of the engine from outside its part: its results, views of them
    for part in parts:
        inputs: dict[Node, None] = {}
        for node in part.nodes:
            for source in node.all_input_nodes:
                base = base_of(source)
                if home.get(maker_of(base)) is not part:
                    inputs[base] = None
                    wanted.setdefault(base, {})[base if part.engine else source] = None
        part.inputs = list(inputs)
    for result in _flat(graph.output_node().args[0]):
        wanted.setdefault(base_of(result), {})[result] = None
    for base, readers in wanted.items():
        home_part = home.get(maker_of(base))
        if home_part is not None and home_part.engine:
            home_part.outputs.append(_crossing(base, list(readers)))


def _crossing(base: Node, readers: Sequence[Node]) -> Node:
    """What the engine gives to `readers`: the tensor they show, or, if there is one reader and it has no gaps, what is read itself."""
    only = readers[0]
    if len(readers) == 1 and only is not base and dense_order(only.meta["val"]) is not None:
        return only
    return base


def _flat(value: Any) -> list[Node]:
    if isinstance(value, Node):
        return [value]
    return [node for item in value for node in _flat(item)] if isinstance(value, tuple | list) else []
