"""Transposes that need not be done: those that undo one another, and those that a matrix product reads through."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, new_node

_PRODUCTS = frozenset({("", "MatMul"), ("com.microsoft", "FusedMatMul")})


class TwoTransposes(Rule):
    """Transpose<q>(Transpose<p>(x)) -> Identity(x), if q takes back what p did."""

    anchors = frozenset({("", "Transpose")})
    early = True

    def check(self, node: ir.Node) -> str | None:
        inner = _transpose(node.inputs[0])
        if inner is None:
            return ""
        first, second = _order(inner), _order(node)
        if first is None or second is None or [first[axis] for axis in second] != list(range(len(first))):
            return "both together are no identity"
        return None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        inner = _transpose(node.inputs[0])
        assert inner is not None
        return [new_node("Identity", [inner.inputs[0]], node.name or "Identity", node.outputs[0])]


class TransposedOperand(Rule):
    """MatMul(Transpose(a), b) -> FusedMatMul<transA>(a, b), the second operand alike: where both are computed.

    The kernel puts what it reads in order anyhow.
    """

    anchors = _PRODUCTS

    def check(self, node: ir.Node) -> str | None:
        if any(value is None or value.const_value is not None for value in node.inputs[:2]):
            return ""
        found = [reason for number in range(2) if (reason := _why_not(node, number)) != "no transpose"]
        if not found:
            return ""
        return None if None in found else found[0]

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        operands, turned = list(node.inputs), [node.attributes.get_int(name, 0) for name in ("transA", "transB")]
        for number in range(2):
            if _why_not(node, number) is None:
                inner = _transpose(operands[number])
                assert inner is not None
                operands[number], turned[number] = inner.inputs[0], 1 - turned[number]
        attributes = {"transA": turned[0], "transB": turned[1], "alpha": node.attributes.get_float("alpha", 1.0)}
        listed = [ir.convenience.convert_attribute(name, value) for name, value in attributes.items()]
        product = ir.Node("com.microsoft", "FusedMatMul", operands, listed, name=node.name)
        result = node.outputs[0]
        product.outputs[0].type, product.outputs[0].shape, product.outputs[0].name = result.type, result.shape, f"{node.name}:0"
        return [product]


def _transpose(value: ir.Value | None) -> ir.Node | None:
    """The Transpose that makes a value."""
    node = None if value is None else value.producer()
    return node if node is not None and (node.domain, node.op_type) == ("", "Transpose") else None


def _order(node: ir.Node) -> list[int] | None:
    """The axes in their new order, if the node says it."""
    order = node.attributes.get_ints("perm", None)
    return None if order is None else list(order)


def _why_not(node: ir.Node, number: int) -> str | None:
    """Why operand `number` of a product is not read through its transpose, or None."""
    inner = _transpose(node.inputs[number])
    if inner is None:
        return "no transpose"
    type_, order = static_type(inner.inputs[0]), _order(inner)
    if type_ is None or not type_.dtype.is_float or order is None or len(order) < 2:
        return "what is transposed is no matrix of floats"
    if order != [*range(len(order) - 2), len(order) - 1, len(order) - 2]:
        return "other axes than the last two are exchanged"
    if any(node.attributes.get_int(name, 0) for name in ("transBatchA", "transBatchB")):
        return "it exchanges batch axes"
    value = inner.outputs[0]
    if len(value.uses()) > 1 or value.is_graph_output():
        return "the transpose is also used elsewhere"
    return None
