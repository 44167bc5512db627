"""A division by a known number in front of a smooth function becomes a product: in GELU it costs half the activation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, constant_of, new_constant, new_node
from anycann.te import dtypes


class MultiplyBeforeErf(Rule):
    """Erf(Div(x, c)) -> Erf(Mul(x, 1 / c))."""

    anchors = frozenset({("", "Erf")})

    def check(self, node: ir.Node) -> str | None:
        division = _division(node)
        if division is None:
            return ""
        divisor, type_ = constant_of(division.inputs[1]), static_type(node.outputs[0])
        if divisor is None or type_ is None or type_.dtype is not dtypes.float32:
            return "the divisor is computed at run time, or no float32"
        if len(division.outputs[0].uses()) > 1 or division.outputs[0].is_graph_output():
            return "the quotient is also used elsewhere"
        with np.errstate(all="ignore"):
            factor = 1 / divisor
        tiny = np.finfo(np.float32).tiny
        return None if (np.isfinite(factor) & (np.abs(factor) >= tiny)).all() else "the divisor has no reciprocal"

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        division = _division(node)
        assert division is not None
        divisor, quotient = constant_of(division.inputs[1]), division.outputs[0]
        assert divisor is not None
        factor = new_constant(graph, f"{division.name}/reciprocal", (1 / divisor.astype(np.float64)).astype(np.float32))
        product = new_node("Mul", [division.inputs[0], factor], division.name or "Mul", quotient)
        return [product, new_node("Erf", [product.outputs[0]], node.name or "Erf", node.outputs[0])]


def _division(node: ir.Node) -> ir.Node | None:
    maker = node.inputs[0].producer() if node.inputs[0] is not None else None
    return maker if maker is not None and maker.op_type == "Div" and not maker.domain else None
