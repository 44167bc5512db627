"""One static graph of ATen operators, compiled: the engine has what it has native code for, PyTorch the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
import operator

import torch
from torch.fx import Node

from anycann.adapters.torch.graph.dropout import split_dropout
from anycann.adapters.torch.graph.engine_part import EnginePart
from anycann.adapters.torch.graph.partition import Part, is_random, partition, views_between
from anycann.adapters.torch.graph.written import Run, attribute, written
from anycann.frontends.torch_fx.translate import why_not
from anycann.support.logging import get_logger
from anycann.support.records import dataclass


@dataclass
class GraphProgram:
    """A compiled graph. `in_pytorch`: operators that PyTorch computes, each with the reason, in the order of the graph."""

    run: Run
    parts: list[Part]
    in_pytorch: dict[Node, str] = field(default_factory=dict)
    compiled: Mapping[int, EnginePart] = field(default_factory=dict)  # by number of part

    @property
    def in_engine(self) -> int:
        """How many operators the engine computes."""
        return sum(len(part.nodes) for part in self.parts if part.engine)


def compile_graph(graph: torch.fx.Graph, constants: Mapping[Node, torch.Tensor], threads: int) -> GraphProgram:
    """Compile a graph whose meta values are static. `constants` are inputs whose values are built in."""
    split_dropout(graph)
    constants = {**constants, **_attributes(graph)}
    in_pytorch = reasons(graph)
    while True:
        parts = partition(graph, in_pytorch)
        compiled: dict[int, EnginePart] = {}
        found: dict[Node, str] = {}
        for number, part in enumerate(parts):
            if part.engine:
                try:
                    compiled[number] = _compile_part(part, constants, threads)
                except Exception as error:  # a fault of ours must not end what PyTorch can run; the report tells
                    get_logger("torch").warning("a part of %d operators runs in PyTorch: %s", len(part.nodes), error)
                    found |= dict.fromkeys(part.nodes, f"the engine fails: {error or type(error).__name__}")
                    continue
                host = compiled[number].left_to_host()
                found |= {node: host[node.name] for node in part.nodes if node.name in host}
        if not found:
            return GraphProgram(written(graph, parts, compiled, list(constants)), parts, in_pytorch, compiled)
        in_pytorch |= found


def reasons(graph: torch.fx.Graph) -> dict[Node, str]:
    """Which operators the engine cannot compute, and why."""
    found: dict[Node, str] = {}
    for node in graph.nodes:
        if node.op == "call_function" and node.target is not operator.getitem:
            reason = "draws random numbers" if is_random(node) else why_not(node)
            if reason is not None:
                found[node] = reason
    return found


def _attributes(graph: torch.fx.Graph) -> dict[Node, torch.Tensor]:
    """The tensors that tracing met and kept."""
    found = {}
    for node in graph.nodes:
        if node.op == "get_attr":
            value = attribute(node)
            if isinstance(value, torch.Tensor):
                found[node] = value
                node.meta.setdefault("val", value)
    return found


def _compile_part(part: Part, constants: Mapping[Node, torch.Tensor], threads: int) -> EnginePart:
    """The part with its views. What is constant is no input any more."""
    known = {node: constants[node] for node in part.inputs if node in constants}
    part.inputs = [node for node in part.inputs if node not in constants]
    return EnginePart(_all_nodes(part), part.inputs, part.outputs, known, threads)


def _all_nodes(part: Part) -> list[Node]:
    """The nodes of a part, their results, and the views they read, each after what it needs."""
    found: dict[Node, None] = {}
    for node in part.nodes:
        found.update(dict.fromkeys(views_between(node.all_input_nodes)))
        found[node] = None
        found.update(dict.fromkeys(user for user in node.users if user.target is operator.getitem and user.users))
    found.update(dict.fromkeys(views_between(part.outputs)))
    return list(found)
