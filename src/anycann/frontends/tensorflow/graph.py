"""A GraphDef as nodes and edges: what the wanted outputs need, in an order that computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from anycann.frontends.tensorflow.schema import parse_graph
from anycann.frontends.tensorflow.values import attribute_value
from anycann.support.errors import ModelError, UnsupportedError, UsageError, context

LOOPS = frozenset({"Enter", "RefEnter", "Exit", "RefExit", "NextIteration", "RefNextIteration", "LoopCond"})
WITHOUT_RESULTS = frozenset({"NoOp", "Assert", "Placeholder", "Const"})  # nodes that nobody reads and that are no outputs all the same


@dataclass(frozen=True)
class Edge:
    """Result number `index` of the node called `node`."""

    node: str
    index: int = 0

    def __str__(self) -> str:
        return f"{self.node}:{self.index}"


@dataclass(frozen=True)
class SourceNode:
    """A node of TensorFlow. Control inputs are not kept: nothing in a frozen graph has side effects."""

    name: str
    op: str
    inputs: tuple[Edge, ...]
    protos: Mapping[str, Any]  # attributes as messages

    @cached_property
    def attributes(self) -> Mapping[str, object]:
        """Attributes as Python values."""
        with context(f"in the attributes of {self}"):
            return {name: attribute_value(proto) for name, proto in self.protos.items() if not name.startswith("_")}

    def __str__(self) -> str:
        return f"node '{self.name}' ({self.op})"


@dataclass(frozen=True)
class SourceGraph:
    """All nodes of a GraphDef, by name."""

    nodes: Mapping[str, SourceNode]

    def ends(self) -> tuple[Edge, ...]:
        """First results of the nodes that nobody reads: what a graph returns when it is not told."""
        read = {edge.node for node in self.nodes.values() for edge in node.inputs}
        return tuple(Edge(name) for name, node in self.nodes.items() if name not in read and node.op not in WITHOUT_RESULTS)

    def needed(self, outputs: Iterable[Edge], fed: frozenset[str] = frozenset()) -> tuple[SourceNode, ...]:
        """The nodes that `outputs` need, operands first; those in `fed` are taken as they are. Raises ModelError, UnsupportedError."""
        order: dict[str, SourceNode] = {}
        opened: set[str] = set()
        stack = [(edge.node, False) for edge in reversed(tuple(outputs))]
        while stack:
            name, is_done = stack.pop()
            if name in order:
                continue
            node = self.nodes[name]
            if is_done:
                order[name] = node
                continue
            if name in opened:
                raise ModelError(f"{node} needs its own result")
            if node.op in LOOPS:
                raise UnsupportedError(
                    f"{node} belongs to a while loop of TensorFlow 1 (Enter, NextIteration, Exit), which is not there yet; "
                    "unroll the loop, or export the model to ONNX and use --framework=5"
                )
            opened.add(name)
            stack.append((name, True))
            if name not in fed:
                stack += [(edge.node, False) for edge in reversed(node.inputs)]
        return tuple(order.values())

    def edge(self, text: str) -> Edge:
        """`node` or `node:index`. Raises UsageError for a node that is not there."""
        name, colon, index = text.rpartition(":")
        edge = Edge(name, int(index)) if colon and index.isdecimal() else Edge(text)
        if edge.node not in self.nodes:
            raise UsageError(f"output {text!r}: the graph has no node {edge.node!r}")
        return edge


def read_graph(content: bytes) -> SourceGraph:
    """The graph in a serialised GraphDef. Raises ModelError for a damaged one."""
    nodes: dict[str, SourceNode] = {}
    for proto in parse_graph(content).node:
        if proto.name in nodes:
            raise ModelError(f"two nodes are called {proto.name!r}")
        inputs = tuple(_edge(text) for text in proto.input if not text.startswith("^"))
        nodes[proto.name] = SourceNode(proto.name, proto.op, inputs, {entry.key: entry.value for entry in proto.attr})
    _check_edges(nodes.values(), nodes)
    return SourceGraph(nodes)


def _edge(text: str) -> Edge:
    """`name` or `name:index`, as inputs are written."""
    name, colon, index = text.rpartition(":")
    return Edge(name, int(index)) if colon and index.isdecimal() else Edge(text)


def _check_edges(nodes: Iterable[SourceNode], known: Mapping[str, SourceNode]) -> None:
    for node in nodes:
        missing: Sequence[str] = [edge.node for edge in node.inputs if edge.node not in known]
        if missing:
            raise ModelError(f"{node} reads node {missing[0]!r}, which is not in the graph")
