"""A GraphDef as nodes and edges: what the wanted outputs need, in an order that computes; its functions are graphs too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

from anycann.frontends.tensorflow.schema import parse_graph
from anycann.frontends.tensorflow.values import attribute_value
from anycann.support.errors import ModelError, UsageError, context
from anycann.support.records import dataclass

ARGUMENT = "_Arg"  # the operator of nodes that stand for the parameters of a function
WITHOUT_RESULTS = frozenset({"NoOp", "Assert", "Placeholder", "Const"})  # nodes that nobody reads and that are no outputs all the same
# of operators with several results, as functions name them
_LATER_RESULTS = {
    "value_indices": 1, "value_index": 1, "output_true": 1, "indices": 1, "idx": 1, "flow": 1, "count": 2,
    "batch_mean": 1, "batch_variance": 2, "reserve_space_1": 3, "reserve_space_2": 4, "reserve_space_3": 5,
    "cs": 1, "f": 2, "o": 3, "ci": 4, "co": 5, "h": 6,
}  # fmt: skip


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
    """All nodes of a GraphDef or of a function, by name. functions: of the GraphDef, by name."""

    nodes: Mapping[str, SourceNode]
    functions: Mapping[str, Function] = field(default_factory=dict)
    loops: Mapping[str, Loop] = field(default_factory=dict)  # those of TensorFlow 1, by the node that stands for all of one

    def ends(self) -> tuple[Edge, ...]:
        """First results of the nodes that nobody reads: what a graph returns when it is not told."""
        read = {edge.node for node in self.nodes.values() for edge in node.inputs}
        return tuple(Edge(name) for name, node in self.nodes.items() if name not in read and node.op not in WITHOUT_RESULTS)

    def needed(self, outputs: Iterable[Edge], fed: frozenset[str] = frozenset()) -> tuple[SourceNode, ...]:
        """The nodes that `outputs` need, operands first; those in `fed` are taken as they are. Raises ModelError."""
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


@dataclass(frozen=True)
class Function:
    """A graph with parameters and results."""

    graph: SourceGraph
    parameters: tuple[str, ...]  # nodes of ARGUMENT
    results: tuple[Edge, ...]


@dataclass(frozen=True)
class Region:
    """What a loop computes in a turn. parameters: for each variable the edges that stand for it. results: what it comes to."""

    graph: SourceGraph
    parameters: tuple[tuple[Edge, ...], ...]
    results: tuple[Edge, ...]


@dataclass(frozen=True)
class Loop:
    """While `condition`, compute `body`, whose results are the variables of the next turn."""

    condition: Region
    body: Region


def read_graph(content: bytes) -> SourceGraph:
    """The graph in a serialised GraphDef. Raises ModelError for a damaged one."""
    proto = parse_graph(content)
    functions: dict[str, Function] = {}
    for each in proto.library.function:
        functions[each.signature.name] = _function(each, functions)
    return SourceGraph(_nodes(proto.node), functions)


def _nodes(protos: Iterable[Any], parameters: Iterable[str] = ()) -> dict[str, SourceNode]:
    nodes = {name: SourceNode(name, ARGUMENT, (), {}) for name in parameters}
    for proto in protos:
        if proto.name in nodes:
            raise ModelError(f"two nodes are called {proto.name!r}")
        inputs = tuple(_edge(text) for text in proto.input if not text.startswith("^"))
        nodes[proto.name] = SourceNode(proto.name, proto.op, inputs, {entry.key: entry.value for entry in proto.attr})
    _check_edges(nodes.values(), nodes)
    return nodes


def _function(proto: Any, functions: Mapping[str, Function]) -> Function:
    """`functions` may still grow: a function may call one that is defined behind it."""
    with context(f"in function '{proto.signature.name}'"):
        parameters = tuple(argument.name for argument in proto.signature.input_arg)
        returned = {entry.key: entry.value for entry in proto.ret}
        nodes = _nodes(proto.node_def, parameters)
        missing = [argument.name for argument in proto.signature.output_arg if argument.name not in returned]
        if missing:
            raise ModelError(f"nothing is returned for result {missing[0]!r}")
        results = tuple(_edge(returned[argument.name]) for argument in proto.signature.output_arg)
        _check_edges([SourceNode("return", "return", results, {})], nodes)
        return Function(SourceGraph(nodes, functions), parameters, results)


def _edge(text: str) -> Edge:
    """`name` or `name:index`, as inputs are written; in functions `name:result:index`, where most operators have one result."""
    name, colon, index = text.rpartition(":")
    if not colon or not index.isdecimal():
        return Edge(text)
    name, _, result = name.partition(":")
    return Edge(name, int(index) + _LATER_RESULTS.get(result, 0))


def _check_edges(nodes: Iterable[SourceNode], known: Mapping[str, SourceNode]) -> None:
    for node in nodes:
        missing: Sequence[str] = [edge.node for edge in node.inputs if edge.node not in known]
        if missing:
            raise ModelError(f"{node} reads node {missing[0]!r}, which is not in the graph")
