"""What can be said of a while loop before it is converted: variables that no turn changes, those that count, and how far."""

from __future__ import annotations

import numpy as np

from anycann.frontends.tensorflow.graph import Edge, Region

_HANDS_ON = ("Identity", "StopGradient")
_ADDS = ("Add", "AddV2")
Bound = tuple[int, "int | np.ndarray"]  # a variable, and the variable or the number that it stays less than


def unchanged(body: Region) -> set[int]:
    """The variables that a turn hands on as they are."""
    stands_for = _stands_for(body)
    return {number for number, edge in enumerate(body.results) if stands_for.get(_behind(body, edge)) == number}


def counters(body: Region) -> set[int]:
    """The variables that become 1 more in a turn."""
    return {number for number, edge in enumerate(body.results) if _is_one_more(body, number, _behind(body, edge))}


def _is_one_more(body: Region, number: int, edge: Edge) -> bool:
    node = body.graph.nodes[edge.node]
    if node.op not in _ADDS or edge in _stands_for(body):
        return False
    operands = [_behind(body, operand) for operand in node.inputs]
    constants = [known for operand in operands if (known := _constant(body, operand)) is not None]
    variables = [_stands_for(body).get(operand) for operand in operands]
    return number in variables and len(constants) == 1 and constants[0].size == 1 and int(constants[0].reshape(-1)[0]) == 1


def bounds(condition: Region) -> list[Bound] | None:
    """The comparisons that must all hold: `variable < bound`; None where the condition is anything else."""
    return _bounds(condition, condition.results[0])


def _bounds(region: Region, edge: Edge) -> list[Bound] | None:
    edge = _behind(region, edge)
    node, stands_for = region.graph.nodes[edge.node], _stands_for(region)
    if edge in stands_for:
        return None
    if node.op == "LogicalAnd":
        sides = [_bounds(region, operand) for operand in node.inputs]
        return None if None in sides else [bound for side in sides for bound in side or ()]
    if node.op != "Less":
        return None
    below, above = (_behind(region, operand) for operand in node.inputs)
    limit = stands_for.get(above, _constant(region, above))
    return [(stands_for[below], limit)] if below in stands_for and limit is not None else None


def _constant(region: Region, edge: Edge) -> np.ndarray | None:
    node = region.graph.nodes[edge.node]
    found = node.attributes.get("value") if node.op == "Const" and edge not in _stands_for(region) else None
    return found if isinstance(found, np.ndarray) and found.dtype.kind in "iu" else None


def _stands_for(region: Region) -> dict[Edge, int]:
    return {edge: number for number, edges in enumerate(region.parameters) for edge in edges}


def _behind(region: Region, edge: Edge) -> Edge:
    """The edge itself, or what nodes that hand it on read."""
    stands_for = _stands_for(region)
    while edge not in stands_for and region.graph.nodes[edge.node].op in _HANDS_ON:
        edge = region.graph.nodes[edge.node].inputs[0]
    return edge
