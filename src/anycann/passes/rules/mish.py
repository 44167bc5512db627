"""Mish as exporters write it is one function: an exponential and a division in place of two exponentials, a logarithm and a division."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, new_node
from anycann.te import dtypes


class MishOfParts(Rule):
    """x * Tanh(Softplus(x)) -> Mish(x), the factors in any order."""

    anchors = frozenset({("", "Mul")})

    def check(self, node: ir.Node) -> str | None:
        found = [_argument(value) for value in node.inputs]
        if found == [None, None]:
            return ""
        x = next(value for value in found if value is not None)
        if x not in node.inputs:
            return "what Softplus is taken of is not the other factor"
        type_ = static_type(x)
        return None if type_ is not None and type_.dtype is dtypes.float32 else "it is not known to be float32"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        x = next(value for value in map(_argument, node.inputs) if value is not None)
        return [new_node("Mish", [x], node.name or "Mish", node.outputs[0])]


def _argument(value: ir.Value | None) -> ir.Value | None:
    """x of Tanh(Softplus(x))."""
    for op_type in ("Tanh", "Softplus"):
        maker = None if value is None else value.producer()
        if maker is None or (maker.domain, maker.op_type) != ("", op_type):
            return None
        value = maker.inputs[0]
    return value
