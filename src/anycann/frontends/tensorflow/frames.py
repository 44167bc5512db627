"""While loops of TensorFlow 1: the nodes of a frame (Enter, Merge, Switch, NextIteration, Exit) to one node that stands for all of them.

before: x -> Enter -> Merge -> Switch -> body -> NextIteration -> Merge, Switch -> Exit -> y   after: x -> While -> Identity -> y
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from anycann.frontends.tensorflow.graph import Edge, Loop, Region, SourceGraph, SourceNode
from anycann.support.errors import ModelError
from anycann.support.records import dataclass

WHILE = "While"
_ENTERS, _EXITS = ("Enter", "RefEnter"), ("Exit", "RefExit")
_MERGES, _SWITCHES = ("Merge", "RefMerge"), ("Switch", "RefSwitch")


@dataclass(frozen=True)
class _Variable:
    """What changes in a loop. switch: None where nobody reads it."""

    enter: SourceNode
    merge: SourceNode
    switch: SourceNode | None


def with_loops(graph: SourceGraph) -> SourceGraph:
    """The graph with a node of operator While for every frame. Raises ModelError for frames that are no while loops."""
    frames: dict[str, list[SourceNode]] = {}
    for node in graph.nodes.values():
        if node.op in _ENTERS:
            frames.setdefault(str(node.attributes.get("frame_name", b"")), []).append(node)
    if not frames:
        return graph
    nodes = dict(graph.nodes)
    loops: dict[str, Loop] = {}
    inside = SourceGraph(nodes, graph.functions, loops)
    for enters in frames.values():
        _lift(graph, inside, nodes, loops, enters)
    behind = _behind(nodes, [node for enters in frames.values() for node in enters])
    return SourceGraph({name: node for name, node in nodes.items() if name not in behind}, graph.functions, loops)


def _behind(nodes: Mapping[str, SourceNode], enters: Iterable[SourceNode]) -> set[str]:
    """What is computed in a frame: everything that needs an Enter, the Exits no longer do."""
    readers = _readers(nodes.values())
    found: set[str] = set()
    open_ = list(enters)
    while open_:
        node = open_.pop()
        if node.name not in found:
            found.add(node.name)
            open_ += readers.get(node.name, ())
    return found


def _lift(graph: SourceGraph, inside: SourceGraph, nodes: dict[str, SourceNode], loops: dict[str, Loop], enters: list[SourceNode]) -> None:
    readers = _readers(graph.nodes.values())
    variables = [_variable(enter, readers) for enter in enters]
    changing = [variable for variable in variables if variable is not None]
    constants = [enter for enter, variable in zip(enters, variables, strict=True) if variable is None]
    name = f"{enters[0].name}/loop"
    condition = _condition(graph, changing, enters[0])
    parameters = tuple(_stands_for(variable) for variable in changing) + tuple((Edge(enter.name),) for enter in constants)
    results = tuple(_next(graph, variable) for variable in changing) + tuple(Edge(enter.name) for enter in constants)
    loops[name] = Loop(Region(inside, parameters, (condition,)), Region(inside, parameters, results))
    operands = tuple(_operand(enter) for enter in (*(variable.enter for variable in changing), *constants))
    nodes[name] = SourceNode(name, WHILE, operands, {})
    for number, variable in enumerate(changing):
        for reader in readers.get(variable.switch.name, ()) if variable.switch else ():
            if reader.op in _EXITS:
                nodes[reader.name] = replace(reader, op="Identity", inputs=(Edge(name, number),))


def _readers(nodes: Iterable[SourceNode]) -> Mapping[str, list[SourceNode]]:
    found: dict[str, list[SourceNode]] = {}
    for node in nodes:
        for edge in dict.fromkeys(edge.node for edge in node.inputs):
            found.setdefault(edge, []).append(node)
    return found


def _variable(enter: SourceNode, readers: Mapping[str, list[SourceNode]]) -> _Variable | None:
    """None for what stays the same in every turn."""
    merge = next((node for node in readers.get(enter.name, ()) if node.op in _MERGES), None)
    if merge is None:
        return None
    return _Variable(enter, merge, next((node for node in readers.get(merge.name, ()) if node.op in _SWITCHES), None))


def _stands_for(variable: _Variable) -> tuple[Edge, ...]:
    return (Edge(variable.merge.name),) + ((Edge(variable.switch.name, 1),) if variable.switch else ())


def _condition(graph: SourceGraph, variables: list[_Variable], enter: SourceNode) -> Edge:
    for variable in variables:
        if variable.switch is not None and len(variable.switch.inputs) > 1:
            found = graph.nodes[variable.switch.inputs[1].node]
            if found.op == "LoopCond":
                return _operand(found)
    raise ModelError(f"{enter} begins a frame without a condition (LoopCond); while loops are expected")


def _next(graph: SourceGraph, variable: _Variable) -> Edge:
    for edge in variable.merge.inputs:
        node = graph.nodes[edge.node]
        if node.op in ("NextIteration", "RefNextIteration"):
            return _operand(node)
    raise ModelError(f"{variable.merge} of a while loop has no NextIteration")


def _operand(node: SourceNode) -> Edge:
    if not node.inputs:
        raise ModelError(f"{node} has no operand")
    return node.inputs[0]
