"""Lists that grow: each Concat joins what the one before has joined, and something more."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule


class GrowingConcat(Rule):
    """x = Concat(a, b), y = Concat(a, b, c) -> x = Concat(a, b), y = Concat(x, c).

    Where parts are made inside the whole (`passes/aliases.py`), x is made inside y then, and nothing is copied: a value lies in one
    place, and every longer list would copy what is in the first. A DenseNet's layers read all that came before them in their block:
    DenseNet-121 takes 0.96 of the time with one thread and 0.95 with two (Zen 3).
    """

    anchors = frozenset([("", "Concat")])

    def check(self, node: ir.Node) -> str | None:
        return None if _before(node, node.inputs) is not None else ""

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        operands = list(node.inputs)
        while (shorter := _before(node, operands)) is not None:  # which has become one of few operands itself
            operands = [shorter.outputs[0], *operands[len(shorter.inputs) :]]
        return [ir.Node("", "Concat", operands, [node.attributes["axis"]], name=node.name)]


def _before(node: ir.Node, operands: Sequence[ir.Value | None]) -> ir.Node | None:
    """The Concat before `node`, which joins `operands`, that joins the most of the first of them."""
    first, type_ = operands[0], static_type(node.outputs[0])
    if first is None or type_ is None or len(operands) <= 2:
        return None
    axis, rank = node.attributes["axis"].as_int(), len(type_.shape)
    found = [
        other
        for other in dict.fromkeys(first.consumers())
        if (other.domain, other.op_type) == ("", "Concat")
        and other.graph is node.graph
        and (other.attributes["axis"].as_int() - axis) % rank == 0
        and 1 < len(other.inputs) < len(operands)
        and all(a is b for a, b in zip(other.inputs, operands, strict=False))
    ]
    return max((other for other in found if _is_before(other, node)), key=lambda other: len(other.inputs), default=None)


def _is_before(one: ir.Node, other: ir.Node) -> bool:
    """In the order of their graph."""
    assert isinstance(one.graph, ir.Graph)
    return next(node for node in one.graph if node is one or node is other) is one
